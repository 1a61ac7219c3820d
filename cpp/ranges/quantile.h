// Order statistics of values in memory that may be reordered.
#pragma once

#include <cstddef>
#include <span>

namespace scalepoint {

/// Moves to x[k] the value that sorting x would place there, and no smaller value behind it. Returns it.
float select(float* x, size_t n, size_t k);

/// The value at a share of the sorted values, interpolated linearly between two of them. Reorders x; x is not empty.
float quantile(std::span<float> x, double share);

}  // namespace scalepoint
