// The loops of transformer.cpp.
#pragma once

#include <cstddef>

namespace scalepoint::loops {

/// The sum of a[i] * b[i], in float32: four lanes, added up in order.
float dot(const float* a, const float* b, size_t n);

/// y[i] += factor * x[i].
void add_scaled(float* y, const float* x, float factor, size_t n);

}  // namespace scalepoint::loops
