// Loops over blocks of small floats. microscales.cpp checks arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arrays/dtype.h"

namespace scalepoint::loops {

/// Largest magnitude of n finite floats, a multiple of 4.
float block_magnitude(const float* x, size_t n);

/// The sums of w e^2 of blocks of n elements, with e the error of x / scale rounded to the format, half to even and saturated. n is a
/// multiple of 4. weights: as many as elements, or null for 1. The sum of a block with the scale 0 is undefined.
void microscale_errors(const float* x, const float* weights, size_t n, size_t blocks, Minifloat format, const float* scales,
                       float* errors);

/// Two codes of 4 bits a byte, the first in the low bits or in the high ones, and back. n is even.
void pack_nibbles(const uint8_t* codes, size_t n, bool high_first, uint8_t* bytes);
void unpack_nibbles(const uint8_t* bytes, size_t n, bool high_first, uint8_t* codes);

}  // namespace scalepoint::loops
