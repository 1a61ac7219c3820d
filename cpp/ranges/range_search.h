// Searches for scales and zero points that are better than those of the whole range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/layout.h"
#include "arrays/spec.h"
#include "arrays/status.h"

namespace scalepoint {

/// Methods that find a range other than that of all values.
enum class RangeMethod : int32_t {
  kMse = 0,         ///< least squared error of the restored values, by scale and zero point
  kPercentile = 1,  ///< from the (100 - p)th to the pth percentile; symmetric: up to the pth percentile of the magnitudes
  kEntropy = 2,     ///< least divergence of a histogram from itself in levels, as TensorRT calibrates
};

/// Bytes of memory that search_qparams needs for an array of `size` elements. weighted: with importance.
[[nodiscard]] uint64_t search_scratch_bytes(uint64_t size, const Layout& layout, bool weighted = false) noexcept;

/// Chooses scale and zero point of every parameter of a whole array, each by its own finite values.
///   kMse         The scale and zero point with the least squared error. For up to 32,768 values all scales are ruled out one
///                interval after the other (range_mse_scale_search.h). More values are first replaced by the means of small bins.
///   kPercentile  percentile: above 50, at most 100; between two of the sorted values by linear interpolation, as numpy does. The
///                range then goes through choose_qparams.
///   kEntropy     A histogram of |x| with 2048 bins up to the largest is cut at a threshold; the rest goes into the last bin. Of
///                the thresholds from 2^(bits - 1) bins on that keep 9 of 10 values or more, the one is taken whose histogram
///                diverges least (Kullback and Leibler) from itself merged to 2^(bits - 1) levels. Asymmetric ranges are cut to
///                [-threshold, threshold]. Fewer than 2048 values have the range of min-max: in bins with one value or none, a few
///                values look as good as all. Source: S. Migacz, 8-bit inference with TensorRT.
/// Error:   kMse, up to 8 bits: sqrt(E) <= sqrt(1.001 E*) + 2^-22 sqrt(sum x^2) for each parameter, where E* is the least squared
///          error of any real scale with any zero point that choose_qparams may give. The second term is float32's: x / scale is
///          rounded to 2^-24 of x for the best and for the chosen scale, and so are the scale and the restored value. Tests check this
///          bound. Exceptions: without include_zero the best zero point has to be at most 512 in magnitude, because the search does not try
///          all scales further out; scales at kMinScale, and values above half of the largest float. kMse, any type: never more than with
///          min-max, up to a 1e-5th.
///          kMse with importance: the same of the weighted squared error, and never more than without importance, up to a 1e-5th.
/// column_weights: for kMse, the weight of the squared errors of each column, at least 0 and finite; element i is in column
///          i % column_weights.size(). Empty: all weigh alike. Parameters of equal weights have the result without importance.
/// Special: parameters whose values are zeros, are restored exactly by min-max, or are not finite have the result of min-max. So has every
///          parameter of an empty array, whose layout is not read.
/// Shape:   scratch: search_scratch_bytes, its address a multiple of 8; scale and zero_point: all of the array's.
/// Status:  kBadDType, kBadLayout, kSizeMismatch, kBadRange for the percentile, kNonFinite.
[[nodiscard]] Status search_qparams(std::span<const float> x, const Layout& layout, const QuantizationSpec& spec,
                                    RangeMethod method, double percentile, std::span<std::byte> scratch, std::span<float> scale,
                                    std::span<int32_t> zero_point, std::span<const float> column_weights = {}) noexcept;

/// Chooses one scale and zero point for values with counts.
///   pairs        A finite value, and its count: an integer from 1 on. The last two are the smallest and the largest
///                value. They may be replaced by multiples of them, in another order.
///   method       kMse or kEntropy: as search_qparams with each value as often as it counts. Any number of pairs is searched as few
///                values are.
///   scratch      search_scratch_bytes of an empty array, its address a multiple of 8.
/// Status:  kBadDType, kSizeMismatch.
[[nodiscard]] Status search_weighted(std::span<float> pairs, const QuantizationSpec& spec, RangeMethod method,
                                     std::span<std::byte> scratch, float& scale, int32_t& zero_point) noexcept;

/// For each run of run_size values, takes another scale and its zero point if they restore the run with a smaller squared error, by
/// more than the rounding of float32 sums. Use it where scales are stored in fewer bits than they were searched with.
/// Special: ignores other scales that are not finite and positive.
/// Shape:   x.size() == scale.size() * run_size; finite. zero_point and other_zero_point are as long as scale. other_scale has first
///          one scale for each run, then a second one for each, and so on: each is compared with the best of those before it.
/// Status:  kBadDType, kSizeMismatch; kBadScale if one of scale is not finite and positive.
[[nodiscard]] Status take_better(std::span<const float> x, size_t run_size, DType dtype, std::span<float> scale,
                                 std::span<int32_t> zero_point, std::span<const float> other_scale,
                                 std::span<const int32_t> other_zero_point) noexcept;

}  // namespace scalepoint
