// ggml's super-blocks: the layouts of Q2_K to Q6_K, and how a super-block is made from the scales of its sub-blocks. The searches
// for those scales are in superblock_search.h. Source: github.com/ggml-org/ggml, src/ggml-quants.c.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "../float16.h"
#include "blocks.h"
#include "lanes.h"
#include "superblock_search.h"

namespace scalepoint::kernels {
namespace {

using namespace lanes;

constexpr size_t kElements = 256;

// ----------------------------------------------------------------------------------------------------------------- layouts

/// x = d * scale * level - dmin * min, sub-blocks of 16; scales[i] holds scale and min of sub-block i. 2.625 bits per weight.
struct BlockQ2K {
  uint8_t scales[16], low[64], d[2], dmin[2];
};
/// x = d * (scale - 32) * (level - 4), sub-blocks of 16. 3.4375 bits per weight.
struct BlockQ3K {
  uint8_t high[32], low[64], scales[12], d[2];
};
/// x = d * scale * level - dmin * min, sub-blocks of 32. 4.5 bits per weight.
struct BlockQ4K {
  uint8_t d[2], dmin[2], scales[12], low[128];
};
/// The same with a fifth bit. 5.5 bits per weight.
struct BlockQ5K {
  uint8_t d[2], dmin[2], scales[12], high[32], low[128];
};
/// x = d * scale * (level - 32), sub-blocks of 16, signed scales. 6.5625 bits per weight.
struct BlockQ6K {
  uint8_t low[128], high[64], scales[16], d[2];
};
static_assert(sizeof(BlockQ2K) == 84 && sizeof(BlockQ3K) == 110 && sizeof(BlockQ4K) == 144 && sizeof(BlockQ5K) == 176 &&
              sizeof(BlockQ6K) == 210);

/// A 1 in each byte. Levels are packed and unpacked eight bytes at a time.
constexpr uint64_t kEachByte = 0x0101010101010101u;

inline uint64_t load_word(const uint8_t* p) {
  uint64_t word;
  std::memcpy(&word, p, 8);
  return word;
}

inline void store_word(uint8_t* p, uint64_t word) { std::memcpy(p, &word, 8); }

/// Where the bits of levels lie. A byte holds bits of `count` elements that are `distance` apart: from each level the `bits` bits
/// from bit `from` on, those of the first element lowest. `distance` bytes in a row hold count * distance elements in a row.
struct Packing {
  size_t count, distance;
  uint32_t bits, from;
};
constexpr Packing kNibbles = {2, 32, 4, 0};  // Q4_K, Q5_K: all or the low bits
constexpr Packing kFifth = {8, 32, 1, 4};    // Q5_K
constexpr Packing kPairs = {4, 32, 2, 0};    // Q2_K, Q3_K: all or the low bits
constexpr Packing kThird = {8, 32, 1, 2};    // Q3_K
constexpr Packing kLowFour = {2, 64, 4, 0};  // Q6_K
constexpr Packing kHighTwo = {4, 32, 2, 4};  // Q6_K

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
  // What crosses from one byte to the other the mask takes away.
  const U8x16 moved = kRight > 0 ? as_bytes(shift_right<(kRight > 0 ? kRight : 0)>(as_int16s(bytes)))
                                 : shift_left<(kRight < 0 ? -kRight : 0)>(bytes);
  const U8x16 level = bit_and(moved, splat(static_cast<uint8_t>(((1u << kPacking.bits) - 1) << kPacking.from)));
  store(levels, kPacking.from == 0 ? level : bit_or(level, load(levels)));
  if constexpr (kPlace + 1 < kPacking.count) unpack_bytes<kPacking, kPlace + 1>(bytes, levels + kPacking.distance);
}

/// Puts the bits back. Bits from the lowest on come first: where they go, the other bits of the levels become 0.
template <Packing kPacking>
void unpack(const uint8_t* __restrict from, uint8_t* __restrict levels) {
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < kElements; i += kPacking.count * kPacking.distance) {
    SCALEPOINT_NO_UNROLL
    for (size_t e = 0; e < kPacking.distance; e += 16, from += 16) unpack_bytes<kPacking>(load(from), levels + i + e);
  }
}
#else
void unpack_words(const uint8_t* __restrict from, const Packing& packing, uint8_t* __restrict levels) {
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

// One loop for all: the scalar tier is kept small.
template <Packing kPacking>
void unpack(const uint8_t* from, uint8_t* levels) {
  unpack_words(from, kPacking, levels);
}
#endif

// ----------------------------------------------------------------------------------------------------------------- float16

/// Stores x as float16 and returns what was stored.
float store_float16(float x, uint8_t (&to)[2]) {
  const uint16_t half = float16_of(x);
  to[0] = static_cast<uint8_t>(half);
  to[1] = static_cast<uint8_t>(half >> 8);
  return float16_value(half);
}

float load_float16(const uint8_t (&from)[2]) { return float16_value(static_cast<uint16_t>(from[0] | from[1] << 8)); }

// ------------------------------------------------------------------------------------------------------- the searches of a build

// With SIMD the loops over lanes, else the reference alone: superblocks_reference.cpp says why.

void scales_and_minimums(const float* x, size_t sub_blocks, const AffineRule& rule, float* scales, float* minimums) {
  if constexpr (kSimd) return find_affine(x, sub_blocks, rule, scales, minimums);
  uint8_t levels[kLongestSubBlock];
  for (size_t b = 0; b < sub_blocks; b++) {
    const Affine found = search_affine(x + b * rule.size, rule, levels);
    scales[b] = found.scale;
    minimums[b] = found.minimum;
  }
}

void scales_of_q6_k(const float* x, float* scales) {
  if constexpr (kSimd) return find_scales(x, scales);
  uint8_t levels[16];
  for (size_t b = 0; b < 16; b++) scales[b] = search_scale(x + 16 * b, levels);
}

void scales_of_q3_k(const float* x, size_t super_blocks, float* scales) {
  if constexpr (kSimd) return find_descents(x, super_blocks, scales);
  uint8_t levels[16];
  for (size_t b = 0; b < 16 * super_blocks; b++) scales[b] = search_descent(x + 16 * b, levels);
}

// ------------------------------------------------------------------------------------------------ scales and levels of a
// super-block

/// clamp(nearest_int((x + minimum) / scale) + zero, 0, top) for the elements of a sub-block.
void final_levels(const float* x, size_t size, float scale, float minimum, int32_t zero, int32_t top, uint8_t* levels) {
  const F32x4 s = splat(scale), m = splat(minimum);
  const I32x4 mask = splat(0x007FFFFF), bias = splat(0x00400000 - zero);
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < size; i += 16) {
    I32x4 l[4];
    for (size_t j = 0; j < 4; j++) {
      l[j] = sub(bit_and(bits(add(div(add(load(x + i + 4 * j), m), s), splat(kMagic))), mask), bias);
    }
    store_codes(levels + i, l[0], l[1], l[2], l[3], 0, top);
  }
}

/// Quantizes the scales or the minimums of the sub-blocks. Returns the largest. All codes are 0 unless one value is above 0.
float quantize_scales(const float* values, size_t n, int32_t largest, uint8_t* codes) {
  float most = 0;
  for (size_t b = 0; b < n; b++) most = values[b] > most ? values[b] : most;
  const float inverse = most > 0 ? static_cast<float>(largest) / most : 0;
  for (size_t b = 0; b < n; b++) codes[b] = static_cast<uint8_t>(nearest_int(inverse * values[b]));
  return most;
}

struct AffineBlock {
  uint8_t scales[16], minimums[16], levels[kElements];
};

/// Makes a super-block from the scales and minimums that were found for its sub-blocks.
void finish_affine(const float* x, const AffineRule& rule, const float* scales, const float* minimums, AffineBlock& block,
                   uint8_t (&d)[2], uint8_t (&dmin)[2]) {
  const size_t n = kElements / rule.size;
  const auto largest = static_cast<float>(rule.largest);
  const float scale = store_float16(quantize_scales(scales, n, rule.largest, block.scales) / largest, d);
  const float minimum = store_float16(quantize_scales(minimums, n, rule.largest, block.minimums) / largest, dmin);
  for (size_t b = 0; b < n; b++) {
    uint8_t &s = block.scales[b], &m = block.minimums[b];
    if (rule.largest == 15) {
      // A negative scale overflows its nibble into that of the minimum, as in ggml.
      m = static_cast<uint8_t>((m | s >> 4) & 15);
      s &= 15;
    } else {
      s = s < 63 ? s : 63;
      m = m < 63 ? m : 63;
    }
    const float step = scale * static_cast<float>(s);
    const float* p = x + b * rule.size;
    uint8_t* levels = block.levels + b * rule.size;
    if (step == 0) {
      search_affine(p, rule, levels);
    } else {
      final_levels(p, rule.size, step, minimum * static_cast<float>(m), 0, rule.top, levels);
    }
  }
}

/// Calls finish(block, parts) for each block, which puts the parts into their places. Sixteen sub-blocks are searched at a time.
template <class Block, class Finish>
void quantize_affine(const float* x, size_t n, std::byte* out, const AffineRule& rule, Finish finish) {
  const size_t per_block = kElements / rule.size, together = 16 / per_block;
  float scales[16], minimums[16];
  for (size_t i = 0; i < n; i++, x += kElements, out += sizeof(Block)) {
    const size_t j = i % together;
    if (j == 0) scales_and_minimums(x, (n - i < together ? n - i : together) * per_block, rule, scales, minimums);
    Block block;
    AffineBlock parts;
    finish_affine(x, rule, scales + j * per_block, minimums + j * per_block, parts, block.d, block.dmin);
    finish(block, parts);
    std::memcpy(out, &block, sizeof(block));
  }
}

/// Eight scales and eight minimums of six bits each.
void pack_scales(const AffineBlock& block, uint8_t (&to)[12]) {
  const uint8_t *s = block.scales, *m = block.minimums;
  for (size_t j = 0; j < 4; j++) {
    to[j] = static_cast<uint8_t>(s[j] | s[j + 4] >> 4 << 6);
    to[j + 4] = static_cast<uint8_t>(m[j] | m[j + 4] >> 4 << 6);
    to[j + 8] = static_cast<uint8_t>((s[j + 4] & 15) | m[j + 4] << 4);
  }
}

// -------------------------------------------------------------------------------------------------------------- dequantize

/// x = scale * (level - zero) - minimum for sub-blocks of 16.
void restore(const uint8_t* levels, int32_t zero, const float* scales, const float* minimums, float* x) {
  const I32x4 z = splat(zero);
  SCALEPOINT_NO_UNROLL
  for (size_t b = 0; b < kElements / 16; b++) {
    const F32x4 scale = splat(scales[b]), minimum = splat(minimums[b]);
    I32x4 l[4];
    load_codes(levels + 16 * b, l);
    for (size_t j = 0; j < 4; j++) store(x + 16 * b + 4 * j, sub(mul(scale, to_float(opaque(sub(l[j], z)))), minimum));
  }
}

/// Scales and minimums of sub-blocks of 32, twice each: restore takes sub-blocks of 16.
void restore_scales(const uint8_t (&packed)[12], float d, float dmin, float* scales, float* minimums) {
  for (size_t j = 0; j < 8; j++) {
    const size_t k = j % 4;
    const int s = j < 4 ? packed[k] & 63 : (packed[k + 8] & 15) | packed[k] >> 6 << 4;
    const int m = j < 4 ? packed[k + 4] & 63 : packed[k + 8] >> 4 | packed[k + 4] >> 6 << 4;
    scales[2 * j] = scales[2 * j + 1] = d * static_cast<float>(s);
    minimums[2 * j] = minimums[2 * j + 1] = dmin * static_cast<float>(m);
  }
}

/// unpack_block(block, levels, scales, minimums) takes a block apart.
template <class Block, class Unpack>
void dequantize(const std::byte* blocks, size_t n, int32_t zero, float* x, Unpack unpack_block) {
  for (size_t i = 0; i < n; i++, blocks += sizeof(Block), x += kElements) {
    Block block;
    std::memcpy(&block, blocks, sizeof(Block));
    uint8_t levels[kElements];
    float scales[16], minimums[16] = {};
    unpack_block(block, levels, scales, minimums);
    restore(levels, zero, scales, minimums, x);
  }
}

}  // namespace

// ---------------------------------------------------------------------------------------------------------------- quantize

void quantize_q2_k(const float* x, size_t n, std::byte* out) {
  quantize_affine<BlockQ2K>(x, n, out, kRuleQ2K, [](BlockQ2K& block, const AffineBlock& parts) {
    for (size_t j = 0; j < 16; j++) block.scales[j] = static_cast<uint8_t>(parts.scales[j] | parts.minimums[j] << 4);
    pack<kPairs>(parts.levels, block.low);
  });
}

void quantize_q4_k(const float* x, size_t n, std::byte* out) {
  quantize_affine<BlockQ4K>(x, n, out, kRuleQ4K, [](BlockQ4K& block, const AffineBlock& parts) {
    pack_scales(parts, block.scales);
    pack<kNibbles>(parts.levels, block.low);
  });
}

void quantize_q5_k(const float* x, size_t n, std::byte* out) {
  quantize_affine<BlockQ5K>(x, n, out, kRuleQ5K, [](BlockQ5K& block, const AffineBlock& parts) {
    pack_scales(parts, block.scales);
    pack<kFifth>(parts.levels, block.high);
    pack<kNibbles>(parts.levels, block.low);
  });
}

void quantize_q6_k(const float* x, size_t n, std::byte* out) {
  for (size_t i = 0; i < n; i++, x += kElements, out += sizeof(BlockQ6K)) {
    BlockQ6K block = {};
    uint8_t levels[kElements];
    float scales[16];
    scales_of_q6_k(x, scales);
    const float far = farthest(scales);
    if (!(std::fabs(far) < kTooSmall)) {
      const float inverse = -128 / far, d = store_float16(1 / inverse, block.d);
      for (size_t b = 0; b < 16; b++) {
        const int32_t scale = nearest_int(inverse * scales[b]);
        block.scales[b] = static_cast<uint8_t>(scale < 127 ? scale : 127);
        const float step = d * static_cast<float>(static_cast<int8_t>(block.scales[b]));
        if (step == 0) {
          search_scale(x + 16 * b, levels + 16 * b);
        } else {
          final_levels(x + 16 * b, 16, step, 0, 32, 63, levels + 16 * b);
        }
      }
      pack<kLowFour>(levels, block.low);
      pack<kHighTwo>(levels, block.high);
    }
    std::memcpy(out, &block, sizeof(block));
  }
}

void quantize_q3_k(const float* x, size_t n, std::byte* out) {
  float scales[16 * kDescents];
  for (size_t i = 0; i < n; i++, x += kElements, out += sizeof(BlockQ3K)) {
    const size_t j = i % kDescents;
    if (j == 0) scales_of_q3_k(x, n - i < kDescents ? n - i : kDescents, scales);
    BlockQ3K block = {};
    uint8_t levels[kElements];
    const float far = farthest(scales + 16 * j), inverse = far != 0 ? -32 / far : 0;
    const float d = far != 0 ? store_float16(1 / inverse, block.d) : 0;
    for (size_t b = 0; b < 16; b++) {
      const int32_t scale = clamp(static_cast<int32_t>(static_cast<int8_t>(nearest_int(inverse * scales[16 * j + b]))), -32, 31);
      const uint32_t code = far != 0 ? static_cast<uint32_t>(scale + 32) : 0;
      block.scales[b % 8] = static_cast<uint8_t>(block.scales[b % 8] | (code & 15) << (b / 8 * 4));
      block.scales[8 + b % 4] = static_cast<uint8_t>(block.scales[8 + b % 4] | code >> 4 << (b / 4 * 2));
      const float step = d * static_cast<float>(scale);
      if (step == 0) {
        search_descent(x + 16 * b, levels + 16 * b);
      } else {
        final_levels(x + 16 * b, 16, step, 0, 4, 7, levels + 16 * b);
      }
    }
    pack<kThird>(levels, block.high);
    pack<kPairs>(levels, block.low);
    std::memcpy(out, &block, sizeof(block));
  }
}

// -------------------------------------------------------------------------------------------------------------- dequantize

void dequantize_q2_k(const std::byte* blocks, size_t n, float* x) {
  dequantize<BlockQ2K>(blocks, n, 0, x, [](const BlockQ2K& block, uint8_t* levels, float* scales, float* minimums) {
    const float d = load_float16(block.d), dmin = load_float16(block.dmin);
    unpack<kPairs>(block.low, levels);
    I32x4 both[4];
    load_codes(block.scales, both);
    for (size_t b = 0; b < 4; b++) {
      store(scales + 4 * b, mul(splat(d), to_float(opaque(bit_and(both[b], splat(15))))));
      store(minimums + 4 * b, mul(splat(dmin), to_float(opaque(shift_right<4>(both[b])))));
    }
  });
}

void dequantize_q3_k(const std::byte* blocks, size_t n, float* x) {
  dequantize<BlockQ3K>(blocks, n, 4, x, [](const BlockQ3K& block, uint8_t* levels, float* scales, float*) {
    const float d = load_float16(block.d);
    unpack<kPairs>(block.low, levels);
    unpack<kThird>(block.high, levels);
    for (size_t b = 0; b < 16; b++) {
      const int low = block.scales[b % 8] >> (b / 8 * 4) & 15, high = block.scales[8 + b % 4] >> (b / 4 * 2) & 3;
      scales[b] = d * static_cast<float>((low | high << 4) - 32);
    }
  });
}

void dequantize_q4_k(const std::byte* blocks, size_t n, float* x) {
  dequantize<BlockQ4K>(blocks, n, 0, x, [](const BlockQ4K& block, uint8_t* levels, float* scales, float* minimums) {
    restore_scales(block.scales, load_float16(block.d), load_float16(block.dmin), scales, minimums);
    unpack<kNibbles>(block.low, levels);
  });
}

void dequantize_q5_k(const std::byte* blocks, size_t n, float* x) {
  dequantize<BlockQ5K>(blocks, n, 0, x, [](const BlockQ5K& block, uint8_t* levels, float* scales, float* minimums) {
    restore_scales(block.scales, load_float16(block.d), load_float16(block.dmin), scales, minimums);
    unpack<kNibbles>(block.low, levels);
    unpack<kFifth>(block.high, levels);
  });
}

void dequantize_q6_k(const std::byte* blocks, size_t n, float* x) {
  dequantize<BlockQ6K>(blocks, n, 32, x, [](const BlockQ6K& block, uint8_t* levels, float* scales, float*) {
    const float d = load_float16(block.d);
    unpack<kLowFour>(block.low, levels);
    unpack<kHighTwo>(block.high, levels);
    I32x4 stored[4];
    load_codes(reinterpret_cast<const int8_t*>(block.scales), stored);
    for (size_t b = 0; b < 4; b++) store(scales + 4 * b, mul(splat(d), to_float(opaque(stored[b]))));
  });
}

}  // namespace scalepoint::kernels
