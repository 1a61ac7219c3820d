// Errors of a layer's outputs, from the second moments of its inputs.
#pragma once

#include <cstddef>
#include <span>

namespace scalepoint {

/// Floats of scratch memory of output_errors.
[[nodiscard]] size_t output_error_scratch_size(size_t columns) noexcept;

/// errors[row] = (x - y) H (x - y)' for each row: the mean square of the difference that y in place of x makes to an output.
///   x, y     rows of `columns` weights. Null for y: zeros.
///   moments  H, columns * columns, symmetric: entries above the diagonal blocks of 128 columns are not read
/// Precision: products in float32, in sums of up to 256; sums of these in float32 for a column, in double over columns.
void output_errors(std::span<const float> x, const float* y, size_t columns, std::span<const float> moments,
                   std::span<float> scratch, std::span<double> errors) noexcept;

}  // namespace scalepoint
