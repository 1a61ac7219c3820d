// Loops over groups of 16 neighbors that become float4e2m1. comfy.cpp checks arguments.
#pragma once

#include <cstddef>

namespace scalepoint::loops {

/// error[g] = sum over group g of (x - scale[g] * float4e2m1(x / scale[g]))^2 in float32, saturated, for groups of 16. Scales are positive.
void float4_group_errors(const float* x, size_t groups, const float* scale, float* error);

}  // namespace scalepoint::loops
