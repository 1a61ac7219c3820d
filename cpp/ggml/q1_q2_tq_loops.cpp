// ggml's types for models that were trained with weights of two or three values: Q1_0, Q2_0, TQ1_0 and TQ2_0. Source:
// github.com/ggml-org/ggml d99724f, src/ggml-quants.c.
#include <cstring>

#include "ggml/blocks32_loops.h"
#include "ggml/ggml_loops.h"
#include "lanes/float16.h"

namespace scalepoint::loops {
namespace {

using namespace blocks32;

/// A 1 in each byte. Levels are packed and unpacked eight bytes at a time.
constexpr uint64_t kEachByte = 0x0101010101010101u;

inline uint64_t load_word(const uint8_t* p) {
  uint64_t word;
  std::memcpy(&word, p, 8);
  return word;
}

inline void store_word(uint8_t* p, uint64_t word) { std::memcpy(p, &word, 8); }

// ----------------------------------------------------------------------------------------------------------------- layouts

// Each type has the levels 0, 1 and 2 of a block for -d, 0 and d. `pack` puts them into their bytes and may read eight bytes
// beyond them; `unpack` may write as many.

/// Q2_0: four levels a byte, neighbors side by side.
void pack_neighbors(const uint8_t* levels, uint8_t* to) {
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < 8; i++) {
    uint64_t word = load_word(levels + 8 * i);
    word = (word | word >> 6) & 0x000F000F000F000Fu;
    word = (word | word >> 12) & 0x000000FF000000FFu;
    store_half(to + 2 * i, static_cast<int32_t>(word | word >> 24));
  }
}

void unpack_neighbors(const uint8_t* from, uint8_t* levels) {
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < 8; i++) {
    uint64_t word = static_cast<uint64_t>(from[2 * i] | from[2 * i + 1] << 8);
    word = (word | word << 24) & 0x000000FF000000FFu;
    word = (word | word << 12) & 0x000F000F000F000Fu;
    store_word(levels + 8 * i, (word | word << 6) & kEachByte * 3);
  }
}

/// TQ2_0: byte i of 32 holds elements i, i + 32, i + 64 and i + 96.
void pack_quarters(const uint8_t* levels, uint8_t* to) {
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < 64; i += 8) {
    const uint8_t* p = levels + i / 32 * 128 + i % 32;
    store_word(to + i, load_word(p) | load_word(p + 32) << 2 | load_word(p + 64) << 4 | load_word(p + 96) << 6);
  }
}

void unpack_quarters(const uint8_t* from, uint8_t* levels) {
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < 64; i += 8) {
    uint8_t* p = levels + i / 32 * 128 + i % 32;
    const uint64_t word = load_word(from + i);
    for (size_t k = 0; k < 4; k++) store_word(p + 32 * k, word >> 2 * k & kEachByte * 3);
  }
}

/// TQ1_0: a byte holds up to five levels as the digits of a fraction, ceil(256 q / 243) with q = sum of level k * 3^(4 - k).
/// `distance` bytes in a row hold elements in a row; level k of byte i is element i + k * distance.
struct Digits {
  size_t first, at, distance, count;  ///< first element, first byte, bytes, levels in each
};
constexpr Digits kDigits[] = {{0, 0, 32, 5}, {160, 32, 16, 5}, {240, 48, 4, 4}};

void pack_digits(const uint8_t* levels, uint8_t* to) {
  for (const auto& [first, at, distance, count] : kDigits) {
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < distance; i += 8) {
      uint64_t word = 0;
      SCALEPOINT_NO_UNROLL
      for (size_t k = 0; k < count; k++) word = 3 * word + load_word(levels + first + k * distance + i);
      if (count == 4) word *= 3;
      SCALEPOINT_NO_UNROLL
      for (size_t j = i; j < i + 8 && j < distance; j++, word >>= 8) {
        to[at + j] = static_cast<uint8_t>((static_cast<uint32_t>(word & 255) * 256 + 242) / 243);
      }
    }
  }
}

/// Multiplies fractions by 3: the integer part is the next digit. Multiplies even and odd bytes separately, so that carries do not cross
/// bytes.
void unpack_digits(const uint8_t* from, uint8_t* levels) {
  constexpr uint64_t kEven = 0x00FF00FF00FF00FFu;
  for (const auto& [first, at, distance, count] : kDigits) {
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < distance; i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, from + at + i, distance < 8 ? distance : 8);
      uint64_t even = word & kEven, odd = word >> 8 & kEven;
      SCALEPOINT_NO_UNROLL
      for (size_t k = 0; k < count; k++) {
        even *= 3;
        odd *= 3;
        store_word(levels + first + k * distance + i, (even >> 8 & kEven) | (odd & ~kEven));
        even &= kEven;
        odd &= kEven;
      }
    }
  }
}

struct TernaryType {
  size_t size, bytes, scale_at, levels_at;
  void (*pack)(const uint8_t* levels, uint8_t* to);
  void (*unpack)(const uint8_t* from, uint8_t* levels);
};
constexpr size_t kLargest = 256;
constexpr TernaryType kQ2_0 = {64, 18, 0, 2, pack_neighbors, unpack_neighbors};        // 2.25 bits per weight
constexpr TernaryType kTQ1_0 = {kLargest, 54, 52, 0, pack_digits, unpack_digits};      // 1.6875
constexpr TernaryType kTQ2_0 = {kLargest, 66, 64, 0, pack_quarters, unpack_quarters};  // 2.0625

// ---------------------------------------------------------------------------------------------------------------- quantize

/// The bits of the largest magnitude. Those of NaN and infinities are larger than all others.
uint32_t farthest_bits(const float* x, size_t n) {
  I32x4 most = splat(0), other = most;
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < n; i += 8) {
    most = max_unsigned(most, twice_magnitude_bits(load(x + i)));
    other = max_unsigned(other, twice_magnitude_bits(load(x + i + 4)));
  }
  return largest_lane(max_unsigned(most, other)) >> 1;
}

/// Levels of n elements: x * inverse rounded, half away from 0, and 1 more. |x * inverse| is at most 1, up to rounding.
void ternary_levels(const float* x, size_t n, float inverse, uint8_t* levels) {
  // A float greater than the float below 1/2 is at least 1/2.
  const F32x4 factor = splat(inverse), high = splat(0x1.fffffep-2f), low = splat(-0x1.fffffep-2f);
  const I32x4 one = splat(1);
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < n; i += 16) {
    const auto level = [&](size_t j) {
      const F32x4 v = mul(load(x + i + j), factor);
      return add(sub(one, greater(v, high)), greater(low, v));
    };
    store(levels + i, low_bytes(level(0), level(4), level(8), level(12)));
  }
}

bool quantize_ternary(const float* x, size_t n, const TernaryType& type, std::byte* out) {
  auto* to = reinterpret_cast<uint8_t*>(out);
  uint8_t levels[kLargest + 8] = {};
  for (; n > 0; n--, x += type.size, to += type.bytes) {
    const auto d = bit_cast<float>(farthest_bits(x, type.size));
    const uint16_t half = float16_of(d);
    if (half > kFloat16Largest) return false;
    const float inverse = d > 0 ? 1 / d : 0;
    if (is_finite(inverse)) {
      ternary_levels(x, type.size, inverse, levels);
    } else {
      // The products are infinities and NaN. In ggml, they become the lowest level of Q2_0 and the middle one of the others.
      std::memset(levels, type.size == kLargest ? 1 : 0, type.size);
    }
    type.pack(levels, to + type.levels_at);
    store_half(to + type.scale_at, half);
  }
  return true;
}

// -------------------------------------------------------------------------------------------------------------- dequantize

/// x = d * (level - 1) for n elements, a multiple of 32.
SCALEPOINT_SHARED void restore_levels(const uint8_t* levels, size_t n, F32x4 d, float* x) {
  const U8x16 one = splat(uint8_t{1});
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < n; i += 32) {
    restore<false>({sub(load(levels + i), one), sub(load(levels + i + 16), one)}, d, d, x + i);
  }
}

void dequantize_ternary(const std::byte* blocks, size_t n, const TernaryType& type, float* x) {
  const auto* from = reinterpret_cast<const uint8_t*>(blocks);
  uint8_t levels[kLargest + 8];
  for (; n > 0; n--, from += type.bytes, x += type.size) {
    type.unpack(from + type.levels_at, levels);
    restore_levels(levels, type.size, load_float16(from + type.scale_at), x);
  }
}

// -------------------------------------------------------------------------------------------------------------------- Q1_0

// x = d where the bit is 1, else -d. 128 elements, 1.125 bits per weight.

constexpr size_t kBits = 128;
struct BlockQ1_0 {
  uint8_t d[2], bits[kBits / 8];
};
static_assert(sizeof(BlockQ1_0) == 18);

/// The sums of the magnitudes of four blocks, one a lane, in the order of the elements.
F32x4 sum_magnitudes(const float* const (&rows)[kFour]) {
  F32x4 sum = splat(0.0f);
  SCALEPOINT_NO_UNROLL
  for (size_t j = 0; j < kBits; j += 4) {
    F32x4 a = load(rows[0] + j), b = load(rows[1] + j), c = load(rows[2] + j), d = load(rows[3] + j);
    transpose(a, b, c, d);
    sum = add(add(add(add(sum, abs(a)), abs(b)), abs(c)), abs(d));
  }
  return sum;
}

/// A 1 for each element that is not below 0.
void sign_bits(const float* x, uint8_t* bits) {
  SCALEPOINT_NO_UNROLL
  for (size_t j = 0; j < kBits; j += 16) {
    const auto negative = [&](size_t e) { return greater(splat(0.0f), load(x + j + e)); };
    const uint32_t signs = top_bits(low_bytes(negative(0), negative(4), negative(8), negative(12)));
    store_half(bits + j / 8, static_cast<int32_t>(~signs));
  }
}

}  // namespace

bool quantize_q1_0(const float* x, size_t n, std::byte* out) {
  I32x4 bad = splat(0);
  for (size_t i = 0; i < n; i += kFour) {
    // At the end, repeat the last block.
    const float* rows[kFour];
    for (size_t k = 0; k < kFour; k++) rows[k] = x + (i + k < n ? i + k : n - 1) * kBits;
    const I32x4 half = to_float16(mul(sum_magnitudes(rows), splat(1.0f / kBits)));
    bad = bit_or(bad, greater(half, splat(kFloat16Largest)));
    int32_t d[kFour];
    store(d, half);
    for (size_t k = 0; k < kFour && i + k < n; k++, out += sizeof(BlockQ1_0)) {
      BlockQ1_0 block;
      store_half(block.d, d[k]);
      sign_bits(rows[k], block.bits);
      std::memcpy(out, &block, sizeof(block));
    }
  }
  return !any(bad);
}

void dequantize_q1_0(const std::byte* blocks, size_t n, float* x) {
  const U8x16 two = splat(uint8_t{2});
  for (; n > 0; n--, blocks += sizeof(BlockQ1_0), x += kBits) {
    BlockQ1_0 block;
    std::memcpy(&block, blocks, sizeof(block));
    uint8_t levels[kBits];
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < kBits / 8; i += 2) {
      store(levels + 8 * i, bit_and(spread_bits(static_cast<uint32_t>(block.bits[i] | block.bits[i + 1] << 8)), two));
    }
    restore_levels(levels, kBits, load_float16(block.d), x);
  }
}

bool quantize_q2_0(const float* x, size_t n, std::byte* out) { return quantize_ternary(x, n, kQ2_0, out); }
bool quantize_tq1_0(const float* x, size_t n, std::byte* out) { return quantize_ternary(x, n, kTQ1_0, out); }
bool quantize_tq2_0(const float* x, size_t n, std::byte* out) { return quantize_ternary(x, n, kTQ2_0, out); }
void dequantize_q2_0(const std::byte* blocks, size_t n, float* x) { dequantize_ternary(blocks, n, kQ2_0, x); }
void dequantize_tq1_0(const std::byte* blocks, size_t n, float* x) { dequantize_ternary(blocks, n, kTQ1_0, x); }
void dequantize_tq2_0(const std::byte* blocks, size_t n, float* x) { dequantize_ternary(blocks, n, kTQ2_0, x); }

}  // namespace scalepoint::loops
