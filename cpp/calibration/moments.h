// Second moments of the inputs of a layer: the sums that importance and GPTQ are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/status.h"

namespace scalepoint {

/// Floats of scratch memory of add_moments.
[[nodiscard]] size_t moments_scratch_size(size_t columns) noexcept;

/// moments[j, i] += sum over rows of x[row, i] * x[row, j], for i <= j. Entries with i > j are undefined.
///   x        rows of `columns` inputs. A row of zeros adds nothing.
///   moments  columns * columns, row by row.
/// Precision: sums of up to 256 rows are in float32, sums of these in double.
/// Status:  kBadLayout if columns is 0; kSizeMismatch; kNonFinite if x holds NaN or an infinity, or if a sum is beyond float32. The
///          moments are undefined then.
[[nodiscard]] Status add_moments(std::span<const float> x, size_t columns, std::span<float> scratch,
                                 std::span<double> moments) noexcept;

/// importance[i] = moments[i, i] / rows.
void importance_of(std::span<const double> moments, size_t columns, double rows, std::span<float> importance) noexcept;

}  // namespace scalepoint
