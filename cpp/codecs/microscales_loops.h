// Loops over blocks of small floats. microscales.cpp checks arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arrays/dtype.h"

namespace scalepoint::loops {

/// Largest magnitude of n finite floats, a multiple of 4.
float block_magnitude(const float* x, size_t n);

/// Sum of w e^2, with e the error of x / scale rounded to the format, half to even and saturated. n is a multiple of 4, the scale
/// positive. weights: n, or null for 1.
float microscale_error(const float* x, const float* weights, size_t n, Minifloat format, float scale);

/// Two codes of 4 bits a byte, the first in the low bits or in the high ones, and back. n is even.
void pack_nibbles(const uint8_t* codes, size_t n, bool high_first, uint8_t* bytes);
void unpack_nibbles(const uint8_t* bytes, size_t n, bool high_first, uint8_t* codes);

}  // namespace scalepoint::loops
