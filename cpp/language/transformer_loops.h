// The loops of transformer.cpp.
#pragma once

#include <cstddef>

namespace scalepoint::loops {

/// The sum of a[i] * b[i], in float32: four lanes, added up in order.
float dot(const float* a, const float* b, size_t n);

/// y[i] += factor * x[i].
void add_scaled(float* y, const float* x, float factor, size_t n);

/// Rows that are walked together.
inline constexpr size_t kRows = 4;

/// sums[r] = dot(a, rows + r * stride, n) for kRows rows, with the same roundings.
void dot_rows(const float* a, const float* rows, size_t stride, size_t n, float* sums);

/// add_scaled(y, rows + r * stride, factors[r], n) for kRows rows in order, with the same roundings.
void add_scaled_rows(float* y, const float* rows, size_t stride, const float* factors, size_t n);

}  // namespace scalepoint::loops
