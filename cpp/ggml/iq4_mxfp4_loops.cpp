// ggml's types with 16 uneven levels: IQ4_NL, IQ4_XS and MXFP4. Source: github.com/ggml-org/ggml d99724f, src/ggml-quants.c.
#include <cmath>

#include "ggml/blocks32_loops.h"
#include "ggml/ggml_loops.h"
#include "ggml/k_quants_columns_loops.h"
#include "ggml/k_quants_search_loops.h"
#include "lanes/float16.h"

namespace scalepoint::loops {
namespace {

using namespace blocks32;

/// A table of 32 bytes. Indices from -16 to -1, as unsigned bytes 240 to 255, give 0.
struct Table32 {
  uint8_t values[32];
  U8x16 operator[](U8x16 index) const {
    return bit_or(lookup(load(values), index), lookup(load(values + 16), sub(index, splat(uint8_t{16}))));
  }
};

// ------------------------------------------------------------------------------------------------------------------ IQ4_NL

// x = d * value[level].

constexpr int8_t kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/// Number of scales that ggml's search tries below the plain one, and above it.
constexpr int kTries = 7;

// The level of v is the index of the nearest value; halfway between two values, of the upper one. The midpoints between values are
// multiples of 1/2, so floor(2 v) decides. 2 v + kShift is split into a bucket, its quotient by 16, and the remainder. No bucket
// holds two midpoints. The table has 16 * (level at the bucket's start) + 16 - (remainder at the midpoint). Adding the remainder
// of v to that entry and dividing by 16 gives the level: the sum passes the next multiple of 16 at the midpoint. |v| is below 136,
// so buckets reach from -3 to 31; those below 0 belong to level 0.
constexpr int kShift = 232;

constexpr Table32 make_buckets() {
  Table32 table = {};
  for (int bucket = 0; bucket < 32; bucket++) {
    int level = 0, carry = 0;
    for (int i = 1; i < 16; i++) {
      const int place = kValues[i - 1] + kValues[i] + kShift - 16 * bucket;
      if (place <= 0) level++;
      if (place > 0 && place < 16) carry = 16 - place;
    }
    table.values[bucket] = static_cast<uint8_t>(16 * level + carry);
  }
  return table;
}
constexpr Table32 kBuckets = make_buckets();

/// The levels of v, given 2 v.
SCALEPOINT_SHARED U8x16 nearest_values(F32x4 a, F32x4 b, F32x4 c, F32x4 d) {
  const F32x4 shift = splat(kMagic + kShift);
  const auto place = [&](F32x4 v) { return bits(add(floor(v), shift)); };
  U8x16 rest, bucket;
  split_low_nibbles(place(a), place(b), place(c), place(d), rest, bucket);
  return shift_right<4>(add(kBuckets[bucket], rest));
}

/// The levels of 16 elements, given 2 / d. A scale may be much smaller than its block needs, by weights or because it is a multiple of
/// another. So the products are limited to just beyond twice the values. NaN gets the highest level, as in ggml.
inline U8x16 levels_of(const float* x, F32x4 twice) {
  const F32x4 top = splat(270.0f), bottom = splat(-270.0f);
  const auto v = [&](size_t i) { return pmax(pmin(top, mul(load(x + i), twice)), bottom); };
  return nearest_values(v(0), v(4), v(8), v(12));
}

/// Sums over a block of w value x and w value^2, with a weight w for each element. The scale d with the least sum of
/// w (x - d value)^2 is their quotient. Lanes are blocks, so the sums run over the elements in order.
struct ValueSums {
  F32x4 vx, v2;
};

ValueSums sum_values(const float* columns, const float* weights, F32x4 inverse) {
  const F32x4 twice = add(inverse, inverse);
  const U8x16 values = load(reinterpret_cast<const uint8_t*>(kValues));
  ValueSums sums = {splat(0.0f), splat(0.0f)};
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < kElements; i += 4, columns += 16, weights += 16) {
    const F32x4 x[4] = {load(columns), load(columns + 4), load(columns + 8), load(columns + 12)};
    F32x4 value[4];
    to_floats(lookup(values, nearest_values(mul(x[0], twice), mul(x[1], twice), mul(x[2], twice), mul(x[3], twice))), value);
    for (int j = 0; j < 4; j++) {
      const F32x4 weighted = mul(load(weights + 4 * j), value[j]);
      sums.vx = add(sums.vx, mul(weighted, x[j]));
      sums.v2 = add(sums.v2, mul(weighted, value[j]));
    }
  }
  return sums;
}

/// Arranges four blocks side by side, one per lane.
void to_columns(const float* x, float* columns) {
  to_column({x, x + kElements, x + 2 * kElements, x + 3 * kElements}, kElements, columns);
}

/// The scales that ggml finds for four blocks; 0 for blocks that count as zeros. Without weights (null) they are x^2. Sets lanes of
/// `bad` for blocks that hold NaN or an infinity.
F32x4 search_values(const float* x, const float* given, I32x4& bad) {
  const BlockExtremes e = extremes(x);
  const I32x4 largest = largest_of(e);
  const F32x4 far = first_farthest(x, e);
  float columns[kFour * kElements], weights[kFour * kElements];
  to_columns(x, columns);
  if (given != nullptr) to_columns(given, weights);
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; given == nullptr && i < kFour * kElements; i += 4) {
    store(weights + i, mul(load(columns + i), load(columns + i)));
  }
  const auto lowest = static_cast<float>(kValues[0]);
  F32x4 d = splat(0.0f), best = d;
  SCALEPOINT_NO_UNROLL
  for (int t = -kTries - 1; t <= kTries; t++) {
    // The plain scale comes first and is always taken.
    const bool plain = t < -kTries;
    const F32x4 inverse = plain ? div(splat(1.0f), div(far, splat(-lowest))) : div(splat(static_cast<float>(t) + lowest), far);
    const ValueSums sums = sum_values(columns, weights, inverse);
    // Skip blocks without any weight.
    const I32x4 solvable = greater(sums.v2, splat(0.0f));
    const I32x4 better = bit_and(solvable, greater(mul(sums.vx, sums.vx), mul(best, sums.v2)));
    const I32x4 taken = plain ? solvable : better;
    d = select(taken, div(sums.vx, sums.v2), d);
    best = select(taken, mul(d, sums.vx), best);
  }
  bad = bit_or(bad, greater(largest, splat(static_cast<int32_t>(kInfinityBits) - 1)));
  return without(d, greater(splat(kTooSmall), from_bits(largest)));
}

struct TypeIQ4_NL {
  static constexpr size_t kBytes = 18, kAhead = 0;

  static void scales(const float* x, Scales& s, I32x4& bad) { set_scale(search_values(x, nullptr, bad), s, bad); }

  static void levels(const float* x, const Scales& s, uint8_t* out) {
    SCALEPOINT_NO_UNROLL
    for (size_t k = 0; k < kFour; k++, x += kElements) {
      uint8_t* to = out + k * kBytes;
      const F32x4 twice = splat(2 * s.inverse[k]);
      store_half(to, s.scale[k]);
      store(to + 2, bit_or(levels_of(x, twice), shift_left<4>(levels_of(x + 16, twice))));
    }
  }
};

// ------------------------------------------------------------------------------------------------------------------ IQ4_XS

// x = d * (scale - 32) * value[level], 256 elements in sub-blocks of 32, scales of 6 bits. 4.25 bits per weight.

constexpr size_t kSubBlocks = 8;
struct BlockIQ4_XS {
  uint8_t d[2], high[2], low[4], levels[16 * kSubBlocks];
};
static_assert(sizeof(BlockIQ4_XS) == 136);

/// Makes a super-block from the scales of its sub-blocks. Returns false if its scale is beyond float16.
bool finish_iq4_xs(const float* x, const float* scales, BlockIQ4_XS& block) {
  float far = 0;
  for (size_t b = 0; b < kSubBlocks; b++) far = std::fabs(scales[b]) > std::fabs(far) ? scales[b] : far;
  const float d = -far / 32, inverse = d != 0 ? 1 / d : 0;
  const uint16_t half = float16_of(d);
  store_half(block.d, half);
  uint32_t high = 0, low = 0;
  SCALEPOINT_NO_UNROLL
  for (size_t b = 0; b < kSubBlocks; b++, x += kElements) {
    const int32_t scale = clamp(nearest_int(inverse * scales[b]), -32, 31);
    const auto code = static_cast<uint32_t>(scale + 32);
    low |= (code & 15) << 4 * b;
    high |= code >> 4 << 2 * b;
    const float step = d * static_cast<float>(scale);
    const F32x4 twice = splat(2 * (step != 0 ? 1 / step : 0));
    store(block.levels + 16 * b, bit_or(levels_of(x, twice), shift_left<4>(levels_of(x + 16, twice))));
  }
  store_half(block.high, static_cast<int32_t>(high));
  std::memcpy(block.low, &low, 4);
  return (half & 0x7FFF) <= kFloat16Largest;
}

/// Returns false if a scale is beyond float16.
bool quantize_blocks_iq4_xs(const float* x, const float* weights, size_t n, std::byte* out, I32x4& bad) {
  constexpr size_t kHalf = kFour * kElements;
  bool fits = true;
  for (; n > 0; n--, x += 2 * kHalf, out += sizeof(BlockIQ4_XS)) {
    float scales[kSubBlocks];
    store(scales, search_values(x, weights, bad));
    store(scales + kFour, search_values(x + kHalf, weights == nullptr ? nullptr : weights + kHalf, bad));
    BlockIQ4_XS block;
    fits = finish_iq4_xs(x, scales, block) && fits;
    std::memcpy(out, &block, sizeof(block));
    if (weights != nullptr) weights += 2 * kHalf;
  }
  return fits;
}

// ------------------------------------------------------------------------------------------------------------------- MXFP4

// x = 2^(e - 128) * value[level], with the sign in the highest bit of the level.

constexpr int8_t kDoubledE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// The level without its sign, by the number of half steps of 2^(e - 128) that |x| exceeds. The middles between two magnitudes, at 1, 3, 5,
/// 7, 10, 14 and 20, belong to the smaller one.
constexpr Table32 kMagnitudesE2M1 = {
    {0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7}};

/// (floor(log2f(x)) - 2 + 127) & 255 for x > 0, as ggml computes it. Just below 2^n, log2f rounds up to n, on up to 44 floats.
/// There log2(x) is n + (m - 1) / ln 2 with x = m 2^n; the next term, in (m - 1)^2, is too small to matter. Farther below, this
/// sum is still above n - 1, so its floor is right, too.
inline int32_t exponent_e8m0(float x) {
  const auto word = bit_cast<uint64_t>(static_cast<double>(x));
  const int32_t n = static_cast<int32_t>(word >> 52) - 1022;
  const double m = bit_cast<double>((word & 0x000FFFFFFFFFFFFFull) | 0x3FE0000000000000ull);
  const auto log2 = static_cast<float>(n + (m - 1) * 1.4426950408889634);
  return (static_cast<int32_t>(__builtin_floorf(log2)) - 2 + 127) & 255;
}

struct TypeMXFP4 {
  static constexpr size_t kBytes = 17, kAhead = 0;

  static void scales(const float* x, Scales& s, I32x4& bad) {
    const I32x4 most = largest_of(extremes(x));
    bad = bit_or(bad, greater(most, splat(static_cast<int32_t>(kInfinityBits) - 1)));
    float largest[kFour];
    store(largest, from_bits(most));
    for (size_t k = 0; k < kFour; k++) s.scale[k] = largest[k] > 0 ? exponent_e8m0(largest[k]) : 0;
  }

  static void levels(const float* x, const Scales& s, uint8_t* out) {
    SCALEPOINT_NO_UNROLL
    for (size_t k = 0; k < kFour; k++, x += kElements) {
      uint8_t* to = out + k * kBytes;
      const int32_t e = s.scale[k];
      // Count the half steps that x exceeds. Divide x by a half step, 2^(e - 129), and make it a little smaller, so that n half steps and
      // less are truncated to less than n. The factor is (1 - 2^-24) 2^(129 - e).
      const F32x4 factor = splat(bit_cast<float>((e == 0 ? 254 << 23 : (255 - e) << 23) | 0x007FFFFF));
      float changed[kElements];
      const float* from = x;
      if (e == 0 || e == 253) {
        // The ends of float32. For e = 0, the factor 2^129 is beyond float32, so x is doubled. For e = 253 the values 8 and 12 are
        // infinities, because 8 * 2^125 = 2^128. Every x is nearer to 6 * 2^125, so x is limited to that.
        const F32x4 farthest = splat(0x6p125f);
        for (size_t i = 0; i < kElements; i += 4) {
          const F32x4 v = load(x + i);
          store(changed + i, e == 0 ? add(v, v) : pmax(pmin(v, farthest), sub(splat(0.0f), farthest)));
        }
        from = changed;
      }
      const auto level = [&](size_t i) {
        const auto steps = [&](size_t j) { return bits(add(trunc(mul(load(from + i + j), factor)), splat(kMagic))); };
        const U8x16 exceeded = low_bytes(steps(0), steps(4), steps(8), steps(12));
        const U8x16 sign = bit_and(shift_right<4>(exceeded), splat(uint8_t{8}));
        const U8x16 opposite = sub(splat(uint8_t{0}), exceeded);
        return bit_or(kMagnitudesE2M1[min_unsigned(exceeded, opposite)], sign);
      };
      to[0] = static_cast<uint8_t>(e);
      store(to + 1, bit_or(level(0), shift_left<4>(level(16))));
    }
  }
};

// -------------------------------------------------------------------------------------------------------------- dequantize

/// x = d * value of 32 elements, given the levels of two a byte.
SCALEPOINT_SHARED void restore_values(const uint8_t* from, const int8_t* table, F32x4 d, float* x) {
  const U8x16 values = load(reinterpret_cast<const uint8_t*>(table));
  U8x16 levels[2];
  load_nibbles(from, levels);
  for (U8x16& level : levels) level = lookup(values, level);
  restore<false>(levels, d, d, x);
}

/// scale(block) reads the scale of a block from its first `header` bytes.
template <class Scale>
inline void dequantize_values(const std::byte* blocks, size_t n, const int8_t* table, size_t header, Scale scale, float* x) {
  const auto* from = reinterpret_cast<const uint8_t*>(blocks);
  SCALEPOINT_NO_UNROLL
  for (; n > 0; n--, from += header + 16, x += kElements) restore_values(from + header, table, scale(from), x);
}

}  // namespace

bool quantize_iq4_nl(const float* x, size_t n, std::byte* out) { return quantize<TypeIQ4_NL>(x, n, out); }
bool quantize_iq4_xs(const float* x, size_t n, std::byte* out) {
  I32x4 bad = splat(0);
  return quantize_blocks_iq4_xs(x, nullptr, n, out, bad) && !any(bad);
}
void quantize_weighted_iq4_xs(const float* x, const float* weights, size_t n, std::byte* out) {
  I32x4 unused = splat(0);
  (void)quantize_blocks_iq4_xs(x, weights, n, out, unused);
}
void quantize_weighted_iq4_nl(const float* x, const float* weights, size_t n, std::byte* out) {
  constexpr size_t kSize = kFour * kElements, kBytes = kFour * TypeIQ4_NL::kBytes;
  I32x4 unused = splat(0);
  for (size_t i = 0; i < n; i += kFour, x += kSize, weights += kSize, out += kBytes) {
    // Fill the last group up with zeros.
    const size_t count = n - i < kFour ? n - i : kFour;
    float few[2][kSize] = {};
    uint8_t made[kBytes];
    if (count < kFour) {
      std::memcpy(few[0], x, count * kElements * sizeof(float));
      std::memcpy(few[1], weights, count * kElements * sizeof(float));
    }
    const float* from = count < kFour ? few[0] : x;
    Scales s;
    set_scale(search_values(from, count < kFour ? few[1] : weights, unused), s, unused);
    TypeIQ4_NL::levels(from, s, made);
    std::memcpy(out, made, count * TypeIQ4_NL::kBytes);
  }
}
bool quantize_mxfp4(const float* x, size_t n, std::byte* out) { return quantize<TypeMXFP4>(x, n, out); }

void dequantize_iq4_nl(const std::byte* blocks, size_t n, float* x) { dequantize_values(blocks, n, kValues, 2, load_float16, x); }
void dequantize_iq4_xs(const std::byte* blocks, size_t n, float* x) {
  for (; n > 0; n--, blocks += sizeof(BlockIQ4_XS)) {
    BlockIQ4_XS block;
    std::memcpy(&block, blocks, sizeof(block));
    const float d = float16_value(static_cast<uint16_t>(block.d[0] | block.d[1] << 8));
    const int high = block.high[0] | block.high[1] << 8;
    SCALEPOINT_NO_UNROLL
    for (size_t b = 0; b < kSubBlocks; b++, x += kElements) {
      const int scale = (block.low[b / 2] >> 4 * (b % 2) & 15) | (high >> 2 * b & 3) << 4;
      restore_values(block.levels + 16 * b, kValues, splat(d * static_cast<float>(scale - 32)), x);
    }
  }
}
void dequantize_mxfp4(const std::byte* blocks, size_t n, float* x) {
  dequantize_values(
      blocks, n, kDoubledE2M1, 1,
      [](const uint8_t* from) {
        // 2^(e - 128); the two lowest are subnormal.
        const int32_t e = from[0];
        return from_bits(splat(e < 2 ? 0x00200000 << e : (e - 1) << 23));
      },
      x);
}

}  // namespace scalepoint::loops
