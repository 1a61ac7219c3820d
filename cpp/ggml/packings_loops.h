// Positions of the bits of codes in blocks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint::loops {

/// A byte holds bits of `count` codes that are `distance` apart: from each code the `bits` bits from bit `from` on, those of the first code
/// lowest. `distance` bytes in a row hold count * distance codes in a row.
struct Packing {
  size_t count = 0, distance = 0;
  uint32_t bits = 0, from = 0;
};

// Super-blocks of 256.
inline constexpr Packing kNibbles = {2, 32, 4, 0};  // Q4_K, Q5_K: all or the low bits
inline constexpr Packing kFifth = {8, 32, 1, 4};    // Q5_K
inline constexpr Packing kPairs = {4, 32, 2, 0};    // Q2_K, Q3_K: all or the low bits
inline constexpr Packing kThird = {8, 32, 1, 2};    // Q3_K
inline constexpr Packing kLowFour = {2, 64, 4, 0};  // Q6_K
inline constexpr Packing kHighTwo = {4, 32, 2, 4};  // Q6_K

// Blocks of 32.
inline constexpr Packing kHalves = {2, 16, 4, 0};    // all or the low bits
inline constexpr Packing kFifthBits = {8, 1, 1, 4};  // Q5_0, Q5_1

}  // namespace scalepoint::loops
