// Loops over groups of neighbors that were rotated together. comfy.cpp checks arguments.
#pragma once

#include <cstddef>

namespace scalepoint::loops {

/// Multiplies each `group` neighbors of n, in place, with the Kronecker power of
///    1  1  1 -1
///    1  1 -1  1
///    1 -1  1  1
///   -1  1  1  1
/// that has as many rows. The matrix is symmetric, and its square is the unit matrix times `group`. n is a multiple of `group`, a power
/// of 4. Sums of integers below 2^24 are exact.
void unrotate(float* x, size_t n, size_t group);

}  // namespace scalepoint::loops
