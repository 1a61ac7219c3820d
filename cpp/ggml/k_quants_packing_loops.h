// Packs the levels of a super-block, and unpacks them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ggml/packings_loops.h"
#include "lanes/lanes.h"

namespace scalepoint::loops::superblocks {

using namespace lanes;

inline constexpr size_t kElements = 256;

/// A 1 in each byte. Levels are packed and unpacked eight bytes at a time.
inline constexpr uint64_t kEachByte = 0x0101010101010101u;

inline uint64_t load_word(const uint8_t* p) {
  uint64_t word;
  std::memcpy(&word, p, 8);
  return word;
}

inline void store_word(uint8_t* p, uint64_t word) { std::memcpy(p, &word, 8); }

template <Packing kPacking>
void pack(const uint8_t* __restrict levels, uint8_t* __restrict to) {
  constexpr uint64_t kMask = kEachByte * ((1u << kPacking.bits) - 1);
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < kElements; i += kPacking.count * kPacking.distance) {
    SCALEPOINT_NO_UNROLL
    for (size_t e = 0; e < kPacking.distance; e += 8, to += 8) {
      uint64_t word = 0;
      for (size_t k = 0; k < kPacking.count; k++) {
        word |= (load_word(levels + i + k * kPacking.distance + e) >> kPacking.from & kMask) << (k * kPacking.bits);
      }
      store_word(to, word);
    }
  }
}

#ifdef SCALEPOINT_SIMD_LANES
/// Puts the bits of 16 bytes back, from element kPlace of each byte on.
template <Packing kPacking, size_t kPlace = 0>
inline void unpack_bytes(U8x16 bytes, uint8_t* levels) {
  constexpr int kRight = static_cast<int>(kPlace * kPacking.bits) - static_cast<int>(kPacking.from);
  // The mask removes bits that cross from one byte to the other.
  const U8x16 moved = kRight > 0 ? as_bytes(shift_right<(kRight > 0 ? kRight : 0)>(as_int16s(bytes)))
                                 : shift_left<(kRight < 0 ? -kRight : 0)>(bytes);
  const U8x16 level = bit_and(moved, splat(static_cast<uint8_t>(((1u << kPacking.bits) - 1) << kPacking.from)));
  store(levels, kPacking.from == 0 ? level : bit_or(level, load(levels)));
  if constexpr (kPlace + 1 < kPacking.count) unpack_bytes<kPacking, kPlace + 1>(bytes, levels + kPacking.distance);
}

/// Puts the bits back. Call it for the lowest bits first, because it then clears the other bits of the levels.
template <Packing kPacking>
void unpack(const uint8_t* __restrict from, uint8_t* __restrict levels) {
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < kElements; i += kPacking.count * kPacking.distance) {
    SCALEPOINT_NO_UNROLL
    for (size_t e = 0; e < kPacking.distance; e += 16, from += 16) unpack_bytes<kPacking>(load(from), levels + i + e);
  }
}
#else
inline void unpack_words(const uint8_t* __restrict from, const Packing& packing, uint8_t* __restrict levels) {
  const uint64_t mask = kEachByte * ((1u << packing.bits) - 1);
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < kElements; i += packing.count * packing.distance) {
    SCALEPOINT_NO_UNROLL
    for (size_t e = 0; e < packing.distance; e += 8, from += 8) {
      const uint64_t word = load_word(from);
      SCALEPOINT_NO_UNROLL
      for (size_t k = 0; k < packing.count; k++) {
        uint8_t* p = levels + i + k * packing.distance + e;
        const uint64_t before = packing.from == 0 ? 0 : load_word(p);
        store_word(p, before | (word >> (k * packing.bits) & mask) << packing.from);
      }
    }
  }
}

// Use one loop for all, because the scalar tier is kept small.
template <Packing kPacking>
void unpack(const uint8_t* from, uint8_t* levels) {
  unpack_words(from, kPacking, levels);
}
#endif

}  // namespace scalepoint::loops::superblocks
