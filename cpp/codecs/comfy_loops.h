// Loops over groups of neighbors: of 16 that become float4e2m1, and of those that were rotated together. comfy.cpp checks arguments.
#pragma once

#include <cstddef>

namespace scalepoint::loops {

/// error[g] = sum over group g of (x - scale[g] * float4e2m1(x / scale[g]))^2 in float32, saturated, for groups of 16. Scales are positive.
void float4_group_errors(const float* x, size_t groups, const float* scale, float* error);

/// Multiplies each `group` neighbors of n, in place, with the Kronecker power of
///    1  1  1 -1
///    1  1 -1  1
///    1 -1  1  1
///   -1  1  1  1
/// that has as many rows. The matrix is symmetric, and its square is the unit matrix times `group`. n is a multiple of `group`, a power
/// of 4. Sums of integers below 2^24 are exact.
void unrotate(float* x, size_t n, size_t group);

}  // namespace scalepoint::loops
