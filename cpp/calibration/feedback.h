// GPTQ for codes with scales: rounds weights column by column, and passes the error of each column on to those behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/status.h"
#include "ranges/levels.h"
#include "ranges/range_weighted.h"

namespace scalepoint {

/// The grid of a row's group: restored = scale * code - offset, for codes from low to high. With levels, restored = scale * level.
struct RowGrid {
  float scale = 1;    ///< 0 only with levels
  float inverse = 1;  ///< 1 / scale
  float low = 0;
  float high = 0;
  float offset = 0;
};

/// The form that weights are stored in.
class FeedbackGrid {
 public:
  /// @param group_size columns of a row that share a grid; the last group of a row may be shorter. 0: all columns
  /// @param outer_size columns of groups that share scales of their own, a multiple of group_size; 0: one group
  /// @param levels of all groups; null: codes have even distances
  explicit FeedbackGrid(size_t group_size, size_t outer_size = 0, const Levels* levels = nullptr)
      : group_size_(group_size), outer_size_(outer_size), levels_(levels) {}
  FeedbackGrid(const FeedbackGrid&) = delete;
  FeedbackGrid& operator=(const FeedbackGrid&) = delete;

  [[nodiscard]] size_t group_size() const { return group_size_; }
  [[nodiscard]] size_t outer_size() const { return outer_size_; }
  [[nodiscard]] const Levels* levels() const { return levels_; }

  /// Begins the groups of a row that share scales: x holds all of their n weights, with the errors that have been passed on so far.
  /// Returns false if x is beyond the form's scales.
  virtual bool begin(size_t row, size_t outer, const float* x, const float* weights, size_t n) {
    (void)row, (void)outer, (void)x, (void)weights, (void)n;
    return true;
  }

  /// Chooses the grid of a row's group. Groups of a row come in order.
  ///   x        n weights of the group, with the errors that have been passed on to them: finite
  ///   weights  of the squared errors of these columns
  ///   grid     with at most 256 codes
  /// Returns false if x is beyond the form's scales. Every form has its own. A pure virtual function would need an import that the arrays
  /// module does not have, and both modules share one glue file.
  virtual bool choose(size_t row, size_t group, const float* x, const float* weights, size_t n, RowGrid& grid) {
    (void)row, (void)group, (void)x, (void)weights, (void)n, (void)grid;
    return false;
  }

  /// Replaces the scale of a row's group by one near `scale` that the form holds, and returns it. 0: the form keeps its scales.
  virtual float rescale(size_t row, size_t group, float scale) {
    (void)row, (void)group, (void)scale;
    return 0;
  }

 protected:
  ~FeedbackGrid() = default;

 private:
  size_t group_size_, outer_size_;
  const Levels* levels_;
};

/// Codes with a scale and a zero point for each group, or with a scale for uneven levels.
class LinearFeedbackGrid final : public FeedbackGrid {
 public:
  /// @param search true: scales by search_weighted_scale; false: those of the whole range
  /// @param scales and zero points: results, one for each group, row by row; `groups` a row
  LinearFeedbackGrid(const WeightedGrid& codes, size_t group_size, size_t groups, bool search, float* scales, float* zero_points)
      : FeedbackGrid(group_size, 0, codes.levels),
        codes_(codes),
        groups_(groups),
        search_(search),
        scales_(scales),
        zero_points_(zero_points) {}

  bool choose(size_t row, size_t group, const float* x, const float* weights, size_t n, RowGrid& grid) override;
  float rescale(size_t row, size_t group, float scale) override;

 private:
  WeightedGrid codes_;
  size_t groups_;
  bool search_;
  float *scales_, *zero_points_;
};

/// Floats of scratch memory of quantize_with_feedback.
[[nodiscard]] size_t feedback_scratch_size(size_t rows, size_t columns, const FeedbackGrid& grid) noexcept;

/// Quantizes a matrix with the factor of factor_moments. The grid of a group is chosen when its first column is reached, from the weights
/// and the errors that have been passed on to them by then.
///   w         rows * columns, row by row, finite
///   feedback  columns * columns, and weights, one for each column: of factor_moments
///   order     the columns in the order of rounding, which `feedback` and `weights` are in: see falling_order. Empty: as they are
///   codes     rows * columns, code - low of its grid, or the place of its level, in the order of w
/// Rows do not depend on each other, so a matrix may be quantized a few rows at a time with the same result.
/// Status:  kBadLayout if there are no columns; kSizeMismatch; kOverflow if passed-on errors leave float32, or the grid returns false.
[[nodiscard]] Status quantize_with_feedback(std::span<const float> w, size_t columns, FeedbackGrid& grid,
                                            std::span<const float> feedback, std::span<const float> weights,
                                            std::span<float> scratch, std::span<uint8_t> codes,
                                            std::span<const uint32_t> order = {}) noexcept;

/// Lowers the output errors of the codes that quantize_with_feedback made, (w - q) (H + d I) (w - q)', group by group from left to right,
/// kRefinements times: fits the scale of a group by least squares where the form takes another one, then rounds each of its columns to
/// what is nearest to the minimum along it. Each step keeps what would not get better.
///   moments   H, columns * columns, symmetric
///   damping   d = damping * mean of the diagonal of H
///   w, columns, grid, scratch, codes: as quantize_with_feedback left them
/// Status:  kBadLayout if there are no columns; kSizeMismatch.
[[nodiscard]] Status refine_codes(std::span<const float> w, size_t columns, FeedbackGrid& grid, std::span<const float> moments,
                                  double damping, std::span<float> scratch, std::span<uint8_t> codes) noexcept;
inline constexpr int kRefinements = 2;

}  // namespace scalepoint
