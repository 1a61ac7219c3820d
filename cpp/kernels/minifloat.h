// Conversions between float32 and narrower floats. The callers in cpp/minifloat.cpp have checked everything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../dtype.h"

namespace scalepoint::kernels {

void float16_to_float32(const uint16_t* bits, size_t n, float* x);
void bfloat16_to_float32(const uint16_t* bits, size_t n, float* x);
void float32_to_float16(const float* x, size_t n, uint16_t* bits);
void float32_to_bfloat16(const float* x, size_t n, uint16_t* bits);
void float32_to_minifloat(const float* x, size_t n, Minifloat format, Overflow overflow, uint8_t* bits);
void minifloat_to_float32(const uint8_t* bits, size_t n, Minifloat format, float* x);

}  // namespace scalepoint::kernels
