// IEEE 754 binary16, one value at a time.
#pragma once

#include <cstdint>

#include "lanes/round.h"

namespace scalepoint {

/// float32 to float16 bits, half to even. A magnitude above 65504 after rounding gives infinity. NaN gives a quiet NaN of the
/// same sign.
inline uint16_t float16_of(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x), magnitude = bits & kAbsMask;
  uint32_t half;
  if (magnitude > kInfinityBits) {
    half = 0x7E00u;
  } else if (magnitude >= 0x47800000u) {  // 2^16 and more
    half = 0x7C00u;
  } else if (magnitude >= 0x38800000u) {
    // A carry out of the fraction correctly goes into the exponent, up to infinity.
    half = (magnitude - (112u << 23) + 0x0FFFu + (magnitude >> 13 & 1)) >> 13;
  } else {
    // A subnormal counts units of 2^-24. The floats from 0.5 to 1 are that far apart, so adding 0.5 rounds to whole units.
    half = bit_cast<uint32_t>(bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  }
  return static_cast<uint16_t>(half | (bits >> 16 & 0x8000u));
}

/// The value of float16 bits, exactly.
inline float float16_value(uint16_t half) {
  const uint32_t magnitude = half & 0x7FFFu;
  const float x = magnitude >= 0x7C00u  ? bit_cast<float>(magnitude << 13 | kInfinityBits)
                  : magnitude < 0x0400u ? static_cast<float>(magnitude) * 0x1p-24f
                                        : bit_cast<float>((magnitude << 13) + (112u << 23));
  return half & 0x8000u ? -x : x;
}

}  // namespace scalepoint
