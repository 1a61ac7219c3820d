// Scales and zero points that are searched for, where those of the whole range are not the best.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "layout.h"
#include "spec.h"
#include "status.h"

namespace scalepoint {

/// How the range is found where it is not given and not that of all values.
enum class RangeMethod : int32_t {
  kMse = 0,         ///< least squared error of the restored values, by scale and zero point
  kPercentile = 1,  ///< from the (100 - p)th to the pth percentile; symmetric: up to the pth percentile of the sizes
  kEntropy = 2,     ///< least divergence of a histogram from itself in levels, as TensorRT calibrates
};

/// Bytes of memory that search_qparams needs for an array of so many elements.
[[nodiscard]] uint64_t search_scratch_bytes(uint64_t size, const Layout& layout) noexcept;

/// Chooses scale and zero point of every parameter of a whole array.
///   kMse         never worse than min-max, up to float32 sums. Runs of up to 128 values: some thirty scales, or scales and zero
///                points, from no clipping to that at which the farthest value alone errs more than all do without, each improved
///                to the best for its codes. Longer runs: a sample and all far values find the best few, all values decide.
///   kPercentile  percentile: above 50, at most 100; between two of the sorted values by linear interpolation, as numpy does. The
///                range then goes through choose_qparams.
///   kEntropy     2048 bins of |x| up to the largest; of the thresholds from 2^(bits - 1) bins to all, that at which the bins
///                below it, with all that is beyond in the last, diverge least (Kullback and Leibler) from the same in 2^(bits - 1)
///                levels; asymmetric ranges are cut to [-threshold, threshold]. Source: S. Migacz, 8-bit inference with TensorRT.
/// Special: constants and arrays of zeros have the parameters of min-max. Under NonFinite::kSaturate NaN and infinities count as
///          the first finite value of their run.
/// Shape:   scratch: search_scratch_bytes, its address a multiple of 8; scale and zero_point: all of the array's.
/// Status:  kBadDType, kBadLayout, kSizeMismatch, kBadRange for the percentile, kNonFinite.
[[nodiscard]] Status search_qparams(std::span<const float> x, const Layout& layout, const QuantizationSpec& spec,
                                    RangeMethod method, double percentile, std::span<std::byte> scratch, std::span<float> scale,
                                    std::span<int32_t> zero_point) noexcept;

/// Takes the other scale and zero point for each run of run_size values that they restore with the smaller squared error, beyond the
/// rounding of float32 sums. For scales that are stored in fewer bits than they were searched with.
/// Special: an other scale that is not finite and positive is never taken.
/// Shape:   x.size() == scale.size() * run_size; finite; the other spans are as long as scale.
/// Status:  kBadDType, kSizeMismatch; kBadScale if one of scale is not finite and positive.
[[nodiscard]] Status take_better(std::span<const float> x, size_t run_size, DType dtype, std::span<float> scale,
                                 std::span<int32_t> zero_point, std::span<const float> other_scale,
                                 std::span<const int32_t> other_zero_point) noexcept;

}  // namespace scalepoint
