// How far restored values are from the originals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dtype.h"
#include "error_sums.h"
#include "layout.h"
#include "status.h"

namespace scalepoint {

/// Adds the pairs (x[i], y[i]) to sums. Blocks of 512 elements, counted from the start of x, are summed in float32 in a fixed
/// order and then added to the doubles, so that the result does not depend on the build. A block whose squares would overflow or
/// vanish in float32 is summed in double instead.
/// Error:   relative to the exact sums at most 70 * 2^-24: 67 float32 additions in a row (64 of pairs in a lane, one within the
///          pair, two over the lanes) and up to three roundings a term. The product is (sum x^2 + sum y^2 - sum e^2) / 2 in
///          blocks with 16 sum e^2 <= sum x^2, where sum y^2 lies between 9/16 and 25/16 of sum x^2: at most 70 * 2^-24 * (1 +
///          25/16 + 1/16) / 2 of sum x^2, or 125 * 2^-24 of sqrt(sum x^2 sum y^2).
/// Status:  kSizeMismatch.
[[nodiscard]] Status accumulate_error(std::span<const float> x, std::span<const float> y, ErrorSums& sums) noexcept;

/// The same with y = the dequantized codes of the piece [start, start + x.size()). Status as dequantize_linear.
[[nodiscard]] Status accumulate_code_error(std::span<const float> x, std::span<const std::byte> codes, DType dtype,
                                           const Layout& layout, uint64_t start, std::span<const float> scale,
                                           std::span<const int32_t> zero_point, ErrorSums& sums) noexcept;

/// accumulate_error with sums of their own for each parameter of a layout: sums[p] takes the pairs of the piece whose parameter is p.
/// Blocks of 512 elements count from where a stretch of one parameter begins in the piece, so that the results do depend on how an
/// array is divided into pieces. Pairs whose neighbours have other parameters are summed in double.
/// Status:  kBadLayout, kSizeMismatch if x and y differ in length or sums is too short.
[[nodiscard]] Status accumulate_error_each(std::span<const float> x, std::span<const float> y, const Layout& layout,
                                           uint64_t start, std::span<ErrorSums> sums) noexcept;

}  // namespace scalepoint
