// Grids of ggml's blocks for rounding with feedback, and their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "calibration/factor.h"
#include "calibration/feedback.h"
#include "ggml/ggml_types.h"

namespace scalepoint {
namespace loops {
struct BestRule;
}

/// True for Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4.
[[nodiscard]] bool has_feedback(BlockType type) noexcept;

/// Sizes of the groups of such a type.
[[nodiscard]] FeedbackGroups feedback_groups(BlockType type) noexcept;

/// Numbers of a row's groups: scales and minimums of blocks of 32; of super-blocks their inner scales and minimums, and d and dmin.
struct BlockNumbers {
  float scale[16];
  float minimum[16];
  float d = 0;
  float dmin = 0;
};

/// Blocks of a matrix. d and dmin of a super-block are chosen when its first column is reached, with some room, because weights grow as
/// they take over errors; the scale and the minimum of each of its groups when the first column of that is reached. Scales of uneven levels
/// are those of quantize_best.
class BlockFeedbackGrid final : public FeedbackGrid {
 public:
  /// @param numbers one for each block of each row, row by row: blocks of 32 use the first entries
  BlockFeedbackGrid(BlockType type, size_t columns, BlockNumbers* numbers);

  bool begin(size_t row, size_t outer, const float* x, const float* weights, size_t n) override;
  bool choose(size_t row, size_t group, const float* x, const float* weights, size_t n, RowGrid& grid) override;

  float rescale(size_t row, size_t group, float scale) override;

  /// Writes the blocks of a row. @param codes of the row
  void write(size_t row, const uint8_t* codes, std::byte* blocks) const;

 private:
  [[nodiscard]] BlockNumbers& block(size_t row, size_t index) const { return numbers_[row * blocks_ + index]; }

  bool choose_uneven(BlockNumbers& chosen, size_t index, const float* x, const float* weights, size_t n, RowGrid& grid);

  const loops::BestRule& rule_;
  size_t blocks_;  ///< of a row
  BlockNumbers* numbers_;
};

}  // namespace scalepoint
