// Errors of restored values against the originals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/dtype.h"
#include "arrays/error_sums.h"
#include "arrays/layout.h"
#include "arrays/status.h"

namespace scalepoint {

/// Adds the pairs (x[i], y[i]) to sums. Blocks of 512 elements, counted from the start of x, are summed in float32 in a fixed
/// order and then added to the doubles, so that both builds give the same result. A block whose squares would overflow or underflow in
/// float32 is summed in double instead.
/// Error:   relative to the exact sums at most 70 * 2^-24. A sum has 67 float32 additions in a row (64 of pairs in a lane, one
///          within the pair, two over the lanes), and a term has up to three roundings.
///          Where 16 sum e^2 <= sum x^2, the product of a block is (sum x^2 + sum y^2 - sum e^2) / 2. There sum y^2 lies between
///          9/16 and 25/16 of sum x^2, so the error is at most 70 * 2^-24 * (1 + 25/16 + 1/16) / 2 of sum x^2, or 125 * 2^-24 of
///          sqrt(sum x^2 sum y^2).
/// Status:  kSizeMismatch.
[[nodiscard]] Status accumulate_error(std::span<const float> x, std::span<const float> y, ErrorSums& sums) noexcept;

/// The same with y = the dequantized codes of the piece [start, start + x.size()). Status as dequantize_linear.
[[nodiscard]] Status accumulate_code_error(std::span<const float> x, std::span<const std::byte> codes, DType dtype,
                                           const Layout& layout, uint64_t start, std::span<const float> scale,
                                           std::span<const int32_t> zero_point, ErrorSums& sums) noexcept;

/// accumulate_error for each parameter of a layout: sums[p] takes the pairs of the piece whose parameter is p. Where neighbors
/// have different parameters, pairs are summed in double. If a stretch of elements shares a parameter, blocks of 512 are counted from the
/// start of the stretch in the piece, so that the results depend on the division of an array into pieces.
/// Status:  kBadLayout, kSizeMismatch if x and y differ in length or sums is too short.
[[nodiscard]] Status accumulate_error_each(std::span<const float> x, std::span<const float> y, const Layout& layout,
                                           uint64_t start, std::span<ErrorSums> sums) noexcept;

/// sums[j] += x^2 for each element of column j, in double. x is a piece of rows of sums.size() elements, and begins with column `first`.
/// Status:  kSizeMismatch unless there is a column `first`.
[[nodiscard]] Status add_squares(std::span<const float> x, size_t first, std::span<double> sums) noexcept;

}  // namespace scalepoint
