// A search for scales that weighs the errors of some values more than those of others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arrays/status.h"
#include "ranges/levels.h"

namespace scalepoint {

/// Codes qmin..qmax and the scales that may stand before them.
struct WeightedGrid {
  float qmin = -8;
  float qmax = 7;
  /// False: the zero point is `zero_point`. True: any integer within [qmin, qmax].
  bool asymmetric = false;
  float zero_point = 0;
  /// True: scales may be negative, as those of onnxruntime's MatMulNBits.
  bool negative = false;
  /// Uneven levels, which the codes are; qmin is then -qmax, the largest magnitude of a level. Null: even ones.
  const Levels* levels = nullptr;
  /// Rounds a scale to the type that it is stored in. Null: float32.
  float (*store)(float scale) = nullptr;
};

/// A restored value is scale * (code - zero_point), the code round_half_even(x / scale) + zero_point within [qmin, qmax].
struct WeightedScale {
  float scale = 1;
  float zero_point = 0;
};

/// The scale of n values with the least weighted squared error among those tried: that of the whole range, which reaches from the smallest to
/// the largest value and holds 0; scales from kNarrowest to kWidest of it, for asymmetric grids with several zero points; and for the best
/// of them the least squares for their codes, until the error stops falling. So the error is never larger than that of the whole range.
///   weights  finite, not negative; null: 1 each
/// Special: values that are all 0, or n = 0, have the scale 1 and the zero point of the grid, or the one nearest to 0. So has a range
///          whose scale is beyond what is stored.
[[nodiscard]] WeightedScale search_weighted_scale(const float* x, const float* weights, size_t n,
                                                  const WeightedGrid& grid) noexcept;

/// restored = scale * code + low, for codes from 0 to `levels`.
struct WeightedLine {
  float scale = 0;
  float low = 0;
};

/// The line of n values with the least weighted squared error among those tried, as search_weighted_scale does. n is at most kMostLine.
///   only_below  true: low is at most 0
///   store       rounds both numbers to the type that they are stored in; null: float32
/// Special: equal values have the scale 0, and 0 or themselves as low.
[[nodiscard]] WeightedLine search_weighted_line(const float* x, const float* weights, size_t n, float levels, bool only_below,
                                                float (*store)(float)) noexcept;
inline constexpr size_t kMostLine = 256;

/// The scale of the whole range, from the smallest to the largest value.
[[nodiscard]] WeightedScale whole_range_scale(const float* x, size_t n, const WeightedGrid& grid) noexcept;

/// The sum of weights[i] * (x[i] - restored)^2.
[[nodiscard]] double weighted_error(const float* x, const float* weights, size_t n, const WeightedGrid& grid,
                                    const WeightedScale& chosen) noexcept;

}  // namespace scalepoint
