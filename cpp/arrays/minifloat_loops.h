// Loops between float32 and narrower floats. minifloat.cpp checks arguments. n may be any number, including 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arrays/dtype.h"

namespace scalepoint::loops {

void float16_to_float32(const uint16_t* bits, size_t n, float* x);
void bfloat16_to_float32(const uint16_t* bits, size_t n, float* x);
void float32_to_float16(const float* x, size_t n, uint16_t* bits);
void float32_to_bfloat16(const float* x, size_t n, uint16_t* bits);
/// float32_to_float16, and float16_to_float32 of the codes.
void round_to_float16(const float* x, size_t n, uint16_t* codes, float* y);
void float32_to_minifloat(const float* x, size_t n, Minifloat format, Overflow overflow, uint8_t* bits);
void minifloat_to_float32(const uint8_t* bits, size_t n, Minifloat format, float* x);

/// quotient[i] = x[i] / scale[i], or x[i] / scale[0] if `uniform`.
void divide_by_scale(const float* x, size_t n, const float* scale, bool uniform, float* quotient);

/// x[i] *= scale[i], or scale[0] if `uniform`.
void multiply_by_scale(float* x, size_t n, const float* scale, bool uniform);

}  // namespace scalepoint::loops
