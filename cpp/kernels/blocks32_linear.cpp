#include <cstdint>
#include <cstring>

#include "../round.h"
#include "blocks.h"
#include "lanes.h"

namespace scalepoint::kernels {
namespace {

using namespace lanes;

constexpr size_t kElements = 32;
/// Blocks that go side by side while their scales are made: one lane each.
constexpr size_t kFour = 4;

constexpr int32_t kFloat16Largest = 0x7BFF;

// ---------------------------------------------------------------------------------------------------------- pieces of lanes

inline I32x4 abs_bits(I32x4 a) { return bit_and(a, splat(static_cast<int32_t>(kAbsMask))); }
inline F32x4 without(F32x4 a, I32x4 mask) { return from_bits(bit_and_not(bits(a), mask)); }

/// float32 to float16 bits, half to even, in the low half of each lane. Sizes beyond it, and NaN, give those of infinity.
inline I32x4 to_float16(F32x4 x) {
  const I32x4 word = bits(x), size = abs_bits(word), sign = bit_and(shift_right<16>(word), splat(0x8000));
  // 13 bits go: adding just below half of them, and the last bit that stays, carries where it has to. The exponent's bias falls
  // from 127 to 15.
  const I32x4 odd = bit_and(shift_right<13>(size), splat(1));
  const I32x4 rounded = add(add(size, odd), splat(0x0FFF - (112 << 23)));
  const I32x4 normal = min_unsigned(shift_right<13>(rounded), splat(0x7C00));
  // A subnormal counts units of 2^-24, the distance of the floats from 0.5 to 1: adding 0.5 rounds to it.
  const I32x4 subnormal = sub(bits(add(from_bits(size), splat(0.5f))), splat(0x3F000000));
  return bit_or(sign, select(greater(splat(0x38800000), size), subnormal, normal));
}

/// float16 bits to float32, exactly.
inline F32x4 from_float16(I32x4 half) {
  const I32x4 size = bit_and(half, splat(0x7FFF)), sign = shift_left<16>(bit_and(half, splat(0x8000)));
  const I32x4 special = bit_and(greater(size, splat(kFloat16Largest)), splat(112 << 23));
  const I32x4 normal = add(add(shift_left<13>(size), splat(112 << 23)), special);
  const F32x4 subnormal = sub(from_bits(bit_or(size, splat(0x3F000000))), splat(0.5f));
  return from_bits(bit_or(sign, select(greater(splat(0x0400), size), bits(subnormal), normal)));
}

inline uint32_t abs_bits_of(float x) { return bit_cast<uint32_t>(x) & kAbsMask; }

inline void store_half(uint8_t* to, int32_t half) {
  to[0] = static_cast<uint8_t>(half);
  to[1] = static_cast<uint8_t>(half >> 8);
}

inline F32x4 load_float16(const uint8_t* from) { return from_float16(splat(from[0] | from[1] << 8)); }

/// Lane k of the result: what `join` makes of the four lanes of row k.
template <class Join>
inline I32x4 reduce_rows(const I32x4 (&rows)[kFour], Join join) {
  F32x4 a = from_bits(rows[0]), b = from_bits(rows[1]), c = from_bits(rows[2]), d = from_bits(rows[3]);
  transpose(a, b, c, d);
  return join(join(bits(a), bits(b)), join(bits(c), bits(d)));
}

/// What `join` makes of the bits of a block.
template <class Join>
inline I32x4 reduce_block(const float* x, Join join) {
  I32x4 v[8];
  for (size_t i = 0; i < 8; i++) v[i] = bits(load(x + 4 * i));
  return join(join(join(v[0], v[1]), join(v[2], v[3])), join(join(v[4], v[5]), join(v[6], v[7])));
}

// What is rare stays out of line below: inlined into every type it would only make the file larger.
//
// Ordered as integers, the bits of floats show everything that a block's scale hangs on, NaN too, which the float operations
// would drop. The largest signed integer belongs to the largest positive float; the largest unsigned one to the most negative
// float. Where there is none of that sign, both are the float farthest from zero.
struct Extremes {
  I32x4 positive, negative;
};

inline Extremes extremes(const float* x) {
  I32x4 positive[kFour], negative[kFour];
  SCALEPOINT_NO_UNROLL
  for (size_t k = 0; k < kFour; k++, x += kElements) {
    positive[k] = reduce_block(x, [](I32x4 a, I32x4 b) { return max_signed(a, b); });
    negative[k] = reduce_block(x, [](I32x4 a, I32x4 b) { return max_unsigned(a, b); });
  }
  return {reduce_rows(positive, [](I32x4 a, I32x4 b) { return max_signed(a, b); }),
          reduce_rows(negative, [](I32x4 a, I32x4 b) { return max_unsigned(a, b); })};
}

/// The smallest unsigned integer: for a block of one sign the float nearest to zero.
[[gnu::noinline]] I32x4 nearest_to_zero(const float* x) {
  const auto join = [](I32x4 a, I32x4 b) { return min_unsigned(a, b); };
  I32x4 nearest[kFour];
  SCALEPOINT_NO_UNROLL
  for (size_t k = 0; k < kFour; k++, x += kElements) nearest[k] = reduce_block(x, join);
  return reduce_rows(nearest, join);
}

inline I32x4 largest_size(const Extremes& e) { return max_signed(abs_bits(e.positive), abs_bits(e.negative)); }

/// The first element of each block that is as far from zero as the one given.
[[gnu::noinline]] F32x4 first_of_size(const float* x, F32x4 far) {
  float first[kFour];
  store(first, far);
  for (size_t k = 0; k < kFour; k++, x += kElements) {
    const float* p = x;
    while (abs_bits_of(*p) != abs_bits_of(first[k])) p++;
    first[k] = *p;
  }
  return load(first);
}

/// The first element of each block that is farthest from zero; +0 for zeros of any sign.
inline F32x4 first_farthest(const float* x, const Extremes& e) {
  const I32x4 positive = abs_bits(e.positive), negative = abs_bits(e.negative);
  F32x4 far = from_bits(select(greater(negative, positive), e.negative, e.positive));
  if (any(bit_and_not(equal(positive, negative), equal(e.positive, e.negative)))) {
    // A float and its negative: which comes first decides.
    far = first_of_size(x, far);
  }
  return without(far, equal(far, splat(0.0f)));
}

/// What four blocks need of their scales to make their levels.
struct Scales {
  float inverse[kFour], low[kFour];
  int32_t scale[kFour], minimum[kFour];  ///< as they are stored
  bool infinite;                         ///< an inverse is: the scale is all but zero
};

/// Type::scales and Type::levels for four blocks after the other; the last few are filled up with zeros. `scales` sets lanes of
/// `bad` where a scale is not finite, which NaN and infinities in x see to. Returns whether there was none. With Type::kAhead = 1
/// the scales of four blocks are made before the levels of the four before them, which hides how long a division takes.
template <class Type>
inline bool quantize(const float* x, size_t n, std::byte* to) {
  constexpr size_t kSize = kFour * kElements, kBytes = kFour * Type::kBytes;
  const size_t whole = n / kFour, left = n % kFour, fours = whole + (left > 0 ? 1 : 0);
  auto* out = reinterpret_cast<uint8_t*>(to);
  float few[kSize] = {};
  uint8_t made[kBytes];
  if (left > 0) std::memcpy(few, x + whole * kSize, left * kElements * sizeof(float));
  const auto from = [&](size_t i) { return i < whole ? x + i * kSize : few; };
  I32x4 bad = splat(0);
  Scales s[1 + Type::kAhead];
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < fours + Type::kAhead; i++) {
    if (i < fours) Type::scales(from(i), s[i & Type::kAhead], bad);
    if (i < Type::kAhead) continue;
    const size_t done = i - Type::kAhead;
    Type::levels(from(done), s[done & Type::kAhead], done < whole ? out + done * kBytes : made);
  }
  if (left > 0) std::memcpy(out + whole * kBytes, made, left * Type::kBytes);
  return !any(bad);
}

/// Stores scale d as float16 and 1 / d. A scale of zero has the inverse zero.
inline void set_scale(F32x4 d, Scales& s, I32x4& bad) {
  const I32x4 half = to_float16(d);
  const F32x4 inverse = without(div(splat(1.0f), d), equal(d, splat(0.0f)));
  s.infinite = any(equal(abs_bits(bits(inverse)), splat(static_cast<int32_t>(kInfinityBits))));
  bad = bit_or(bad, greater(bit_and(half, splat(0x7FFF)), splat(kFloat16Largest)));
  store(s.inverse, inverse);
  store(s.scale, half);
}

/// Clears the `bytes` of levels of every block whose inverse is infinite, as its products are infinities and NaN, and the cast of
/// such a float to 32 bits and then to 8 gives 0 on x86.
[[gnu::noinline]] void clear_levels(const Scales& s, uint8_t* levels, size_t bytes, size_t stride) {
  for (size_t k = 0; k < kFour; k++) {
    if (!is_finite(s.inverse[k])) std::memset(levels + k * stride, 0, bytes);
  }
}

// ------------------------------------------------------------------------------------------------------------------ 8 bits

/// Rounds half away from zero: truncation after adding the float below 0.5, so that no sum is rounded up to the next integer.
inline I32x4 round_half_away(F32x4 v, F32x4 half) {
  const F32x4 signed_half = from_bits(bit_or(bit_and(bits(v), splat(INT32_MIN)), bits(half)));
  return bits(add(trunc(add(v, signed_half)), splat(kMagic)));
}

struct TypeQ8_0 {
  static constexpr size_t kBytes = 34, kAhead = 1;

  static void scales(const float* x, Scales& s, I32x4& bad) {
    set_scale(div(from_bits(largest_size(extremes(x))), splat(127.0f)), s, bad);
  }

  static void levels(const float* x, const Scales& s, uint8_t* out) {
    const F32x4 half = splat(0x1.fffffep-2f);
    SCALEPOINT_NO_UNROLL
    for (size_t k = 0; k < kFour; k++, x += kElements) {
      uint8_t* to = out + k * kBytes;
      const F32x4 inverse = splat(s.inverse[k]);
      const auto level = [&](size_t i) { return round_half_away(mul(load(x + i), inverse), half); };
      store_half(to, s.scale[k]);
      store(to + 2, low_bytes(level(0), level(4), level(8), level(12)));
      store(to + 18, low_bytes(level(16), level(20), level(24), level(28)));
    }
    if (s.infinite) clear_levels(s, out + 2, kBytes - 2, kBytes);
  }
};

// ------------------------------------------------------------------------------------------------------------ 4 and 5 bits

/// Q4_0 and Q5_0 (symmetric): the element farthest from zero gets the lowest level, and x = d * (level - middle). Q4_1 and Q5_1
/// (affine): x = d * level + minimum.
template <int kBits, bool kAffine>
struct TypeNibbles {
  static constexpr int kTop = (1 << kBits) - 1, kMiddle = 1 << (kBits - 1);
  static constexpr size_t kHigh = kAffine ? 4 : 2, kLow = kHigh + (kBits == 5 ? 4 : 0), kBytes = kLow + 16, kAhead = 1;

  static void scales(const float* x, Scales& s, I32x4& bad) {
    const Extremes e = extremes(x);
    if (!kAffine) {
      set_scale(div(first_farthest(x, e), splat(static_cast<float>(-kMiddle))), s, bad);
      return;
    }
    const I32x4 no_positive = greater(splat(0), e.positive), any_negative = greater(splat(0), e.negative);
    F32x4 high = from_bits(e.positive), low = from_bits(e.negative);
    if (any(bit_or(no_positive, bit_and_not(splat(-1), any_negative)))) {
      const F32x4 nearest = from_bits(nearest_to_zero(x));
      high = select(no_positive, nearest, high);
      low = select(any_negative, low, nearest);
    }
    set_scale(div(sub(high, low), splat(static_cast<float>(kTop))), s, bad);
    // A minimum of zero has the sign of the block's first zero.
    const I32x4 zero = equal(low, splat(0.0f));
    if (any(zero)) low = select(zero, first_of_size(x, low), low);
    store(s.low, low);
    const I32x4 minimum = to_float16(low);
    bad = bit_or(bad, greater(bit_and(minimum, splat(0x7FFF)), splat(kFloat16Largest)));
    store(s.minimum, minimum);
  }

  static void levels(const float* x, const Scales& s, uint8_t* out) {
    const F32x4 bias = splat(kAffine ? 0.5f : static_cast<float>(kMiddle) + 0.5f);
    SCALEPOINT_NO_UNROLL
    for (size_t k = 0; k < kFour; k++, x += kElements) {
      uint8_t* to = out + k * kBytes;
      const F32x4 inverse = splat(s.inverse[k]), low = splat(kAffine ? s.low[k] : 0.0f);
      const auto level = [&](size_t i) {
        const F32x4 v = kAffine ? sub(load(x + i), low) : load(x + i);
        return bits(add(trunc(add(mul(v, inverse), bias)), splat(kMagic)));
      };
      U8x16 a = low_bytes(level(0), level(4), level(8), level(12));
      U8x16 b = low_bytes(level(16), level(20), level(24), level(28));
      if (!kAffine) {
        a = min_unsigned(a, splat(uint8_t{kTop}));
        b = min_unsigned(b, splat(uint8_t{kTop}));
      }
      store_half(to, s.scale[k]);
      if (kAffine) store_half(to + 2, s.minimum[k]);
      if (kBits == 5) {
        store_half(to + kHigh, static_cast<int32_t>(top_bits(shift_left<3>(a))));
        store_half(to + kHigh + 2, static_cast<int32_t>(top_bits(shift_left<3>(b))));
        a = bit_and(a, splat(uint8_t{15}));
        b = bit_and(b, splat(uint8_t{15}));
      }
      store(to + kLow, bit_or(a, shift_left<4>(b)));
    }
    if (s.infinite) clear_levels(s, out + kHigh, kBytes - kHigh, kBytes);
  }
};

// ----------------------------------------------------------------------------------------------------------------- 16 values

/// A table of 32 bytes. Indices from -16 to -1 give 0.
struct Table32 {
  uint8_t values[32];
  U8x16 operator[](U8x16 index) const {
    return bit_or(lookup(load(values), index), lookup(load(values + 16), sub(index, splat(uint8_t{16}))));
  }
};

// IQ4_NL: x = d * value[level].

constexpr int8_t kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/// Blocks nearer to zero than this become zeros.
constexpr float kTooSmall = 1e-15f;
/// The search tries kTries scales below and above the plain one.
constexpr int kTries = 7;

// The nearest value, the upper one of two at the same distance, from floor(2 v): the middles between values are multiples of 1/2.
// 2 v + kShift is split into a bucket of 16 and the rest. No two middles fall into one bucket, so that adding the rest to
// 16 * (level at the bucket's start) + 16 - (place of the middle in the bucket) carries just from the middle on. |v| is below
// 136: the buckets reach from -3 to 31, and those below 0 belong to level 0.
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
inline U8x16 nearest_values(F32x4 a, F32x4 b, F32x4 c, F32x4 d) {
  const F32x4 shift = splat(kMagic + kShift);
  const auto place = [&](F32x4 v) { return bits(add(floor(v), shift)); };
  U8x16 rest, bucket;
  split_low_nibbles(place(a), place(b), place(c), place(d), rest, bucket);
  return shift_right<4>(add(kBuckets[bucket], rest));
}

/// Of the scales d for given levels, the sum of w (x - d value)^2 with w = x^2 is smallest for sum w value x / sum w value^2.
/// Lanes are blocks, so that the sums run over the elements in order.
struct ValueSums {
  F32x4 vx, v2;
};

ValueSums sum_values(const float* columns, F32x4 inverse) {
  const F32x4 twice = add(inverse, inverse);
  const U8x16 values = load(reinterpret_cast<const uint8_t*>(kValues));
  ValueSums sums = {splat(0.0f), splat(0.0f)};
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < kElements; i += 4, columns += 16) {
    const F32x4 x[4] = {load(columns), load(columns + 4), load(columns + 8), load(columns + 12)};
    F32x4 value[4];
    to_floats(lookup(values, nearest_values(mul(x[0], twice), mul(x[1], twice), mul(x[2], twice), mul(x[3], twice))), value);
    for (int j = 0; j < 4; j++) {
      const F32x4 weighted = mul(mul(x[j], x[j]), value[j]);
      sums.vx = add(sums.vx, mul(weighted, x[j]));
      sums.v2 = add(sums.v2, mul(weighted, value[j]));
    }
  }
  return sums;
}

struct TypeIQ4_NL {
  static constexpr size_t kBytes = 18, kAhead = 0;

  static void scales(const float* x, Scales& s, I32x4& bad) {
    const Extremes e = extremes(x);
    const I32x4 size = largest_size(e);
    const F32x4 far = first_farthest(x, e);
    float columns[kFour * kElements];
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < kElements; i += 4) {
      F32x4 rows[kFour];
      for (size_t k = 0; k < kFour; k++) rows[k] = load(x + k * kElements + i);
      transpose(rows[0], rows[1], rows[2], rows[3]);
      for (size_t k = 0; k < kFour; k++) store(columns + kFour * (i + k), rows[k]);
    }
    const auto lowest = static_cast<float>(kValues[0]);
    F32x4 d = splat(0.0f), best = d;
    SCALEPOINT_NO_UNROLL
    for (int t = -kTries - 1; t <= kTries; t++) {
      // The plain scale comes first, and is taken in any case.
      const bool plain = t < -kTries;
      const F32x4 inverse = plain ? div(splat(1.0f), div(far, splat(-lowest))) : div(splat(static_cast<float>(t) + lowest), far);
      const ValueSums sums = sum_values(columns, inverse);
      const I32x4 better = bit_and(greater(sums.v2, splat(0.0f)), greater(mul(sums.vx, sums.vx), mul(best, sums.v2)));
      const I32x4 taken = plain ? splat(-1) : better;
      d = select(taken, div(sums.vx, sums.v2), d);
      best = select(taken, mul(d, sums.vx), best);
    }
    d = without(d, greater(splat(kTooSmall), from_bits(size)));
    set_scale(d, s, bad);
    bad = bit_or(bad, greater(size, splat(static_cast<int32_t>(kInfinityBits) - 1)));
  }

  static void levels(const float* x, const Scales& s, uint8_t* out) {
    SCALEPOINT_NO_UNROLL
    for (size_t k = 0; k < kFour; k++, x += kElements) {
      uint8_t* to = out + k * kBytes;
      const F32x4 twice = splat(2 * s.inverse[k]);
      const auto level = [&](size_t i) {
        const auto v = [&](size_t j) { return mul(load(x + i + j), twice); };
        return nearest_values(v(0), v(4), v(8), v(12));
      };
      store_half(to, s.scale[k]);
      store(to + 2, bit_or(level(0), shift_left<4>(level(16))));
    }
  }
};

// MXFP4: x = 2^(e - 128) * value[level], with the sign in the level's highest bit.

constexpr int8_t kDoubledE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// The size of the level from the number of half steps of 2^(e - 128) that |x| exceeds. The middles between two sizes, at 1, 3,
/// 5, 7, 10, 14 and 20, belong to the smaller one.
constexpr Table32 kSizesE2M1 = {{0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7}};

/// floor(log2f(x)) - 2 + 127 in eight bits, x > 0. log2f rounds up to n just below 2^n, on up to 44 floats; there log2(x) is
/// n + (m - 1) / ln 2 with x = m 2^n, next to which (m - 1)^2 is too small to matter. Farther below, the sum is still above n -
/// 1.
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
    const I32x4 size = largest_size(extremes(x));
    bad = bit_or(bad, greater(size, splat(static_cast<int32_t>(kInfinityBits) - 1)));
    float largest[kFour];
    store(largest, from_bits(size));
    for (size_t k = 0; k < kFour; k++) s.scale[k] = largest[k] > 0 ? exponent_e8m0(largest[k]) : 0;
  }

  static void levels(const float* x, const Scales& s, uint8_t* out) {
    SCALEPOINT_NO_UNROLL
    for (size_t k = 0; k < kFour; k++, x += kElements) {
      uint8_t* to = out + k * kBytes;
      const int32_t e = s.scale[k];
      // Half steps that x exceeds: it is divided by a half step, 2^(e - 129), and made a little smaller, so that what is no more
      // than n half steps is truncated to less than n. The factor is (1 - 2^-24) 2^(129 - e).
      const F32x4 factor = splat(bit_cast<float>((e == 0 ? 254 << 23 : (255 - e) << 23) | 0x007FFFFF));
      float changed[kElements];
      const float* from = x;
      if (e == 0 || e == 253) {
        // At the ends of float32. There is no factor 2^129, so that x is doubled; and 8 * 2^125 is an infinity, from which no x
        // is nearer than from 6 * 2^125.
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
        return bit_or(kSizesE2M1[min_unsigned(exceeded, opposite)], sign);
      };
      to[0] = static_cast<uint8_t>(e);
      store(to + 1, bit_or(level(0), shift_left<4>(level(16))));
    }
  }
};

// -------------------------------------------------------------------------------------------------------------- dequantizing

/// x[i] = d * levels[i] (+ minimum), levels as signed bytes.
template <bool kAffine>
inline void restore(const U8x16 (&levels)[2], F32x4 d, F32x4 minimum, float* x) {
  for (size_t half = 0; half < 2; half++) {
    F32x4 v[4];
    to_floats(levels[half], v);
    for (size_t i = 0; i < 4; i++, x += 4) store(x, kAffine ? add(mul(v[i], d), minimum) : mul(v[i], d));
  }
}

inline void load_nibbles(const uint8_t* from, U8x16 (&levels)[2]) {
  const U8x16 pairs = load(from);
  levels[0] = bit_and(pairs, splat(uint8_t{15}));
  levels[1] = shift_right<4>(pairs);
}

template <int kBits, bool kAffine>
inline void dequantize_nibbles(const std::byte* blocks, size_t n, float* x) {
  using Type = TypeNibbles<kBits, kAffine>;
  const auto* from = reinterpret_cast<const uint8_t*>(blocks);
  SCALEPOINT_NO_UNROLL
  for (; n > 0; n--, from += Type::kBytes, x += kElements) {
    U8x16 levels[2];
    load_nibbles(from + Type::kLow, levels);
    for (size_t half = 0; half < 2; half++) {
      const uint8_t* high = from + Type::kHigh + 2 * half;
      if (kBits == 5) {
        const U8x16 fifth = spread_bits(static_cast<uint32_t>(high[0] | high[1] << 8));
        levels[half] = bit_or(levels[half], bit_and(fifth, splat(uint8_t{16})));
      }
      if (!kAffine) levels[half] = sub(levels[half], splat(uint8_t{Type::kMiddle}));
    }
    restore<kAffine>(levels, load_float16(from), load_float16(from + 2), x);
  }
}

/// Sixteen values with a scale that `scale` reads from a block's first `header` bytes.
template <class Scale>
inline void dequantize_values(const std::byte* blocks, size_t n, const int8_t* table, size_t header, Scale scale, float* x) {
  const auto* from = reinterpret_cast<const uint8_t*>(blocks);
  const U8x16 values = load(reinterpret_cast<const uint8_t*>(table));
  SCALEPOINT_NO_UNROLL
  for (; n > 0; n--, from += header + 16, x += kElements) {
    U8x16 levels[2];
    load_nibbles(from + header, levels);
    for (U8x16& level : levels) level = lookup(values, level);
    restore<false>(levels, scale(from), splat(0.0f), x);
  }
}

}  // namespace

bool quantize_q8_0(const float* x, size_t n, std::byte* out) { return quantize<TypeQ8_0>(x, n, out); }
bool quantize_q4_0(const float* x, size_t n, std::byte* out) { return quantize<TypeNibbles<4, false>>(x, n, out); }
bool quantize_q4_1(const float* x, size_t n, std::byte* out) { return quantize<TypeNibbles<4, true>>(x, n, out); }
bool quantize_q5_0(const float* x, size_t n, std::byte* out) { return quantize<TypeNibbles<5, false>>(x, n, out); }
bool quantize_q5_1(const float* x, size_t n, std::byte* out) { return quantize<TypeNibbles<5, true>>(x, n, out); }
bool quantize_iq4_nl(const float* x, size_t n, std::byte* out) { return quantize<TypeIQ4_NL>(x, n, out); }
bool quantize_mxfp4(const float* x, size_t n, std::byte* out) { return quantize<TypeMXFP4>(x, n, out); }

void dequantize_q8_0(const std::byte* blocks, size_t n, float* x) {
  const auto* from = reinterpret_cast<const uint8_t*>(blocks);
  SCALEPOINT_NO_UNROLL
  for (; n > 0; n--, from += TypeQ8_0::kBytes, x += kElements) {
    restore<false>({load(from + 2), load(from + 18)}, load_float16(from), splat(0.0f), x);
  }
}
void dequantize_q4_0(const std::byte* blocks, size_t n, float* x) { dequantize_nibbles<4, false>(blocks, n, x); }
void dequantize_q4_1(const std::byte* blocks, size_t n, float* x) { dequantize_nibbles<4, true>(blocks, n, x); }
void dequantize_q5_0(const std::byte* blocks, size_t n, float* x) { dequantize_nibbles<5, false>(blocks, n, x); }
void dequantize_q5_1(const std::byte* blocks, size_t n, float* x) { dequantize_nibbles<5, true>(blocks, n, x); }
void dequantize_iq4_nl(const std::byte* blocks, size_t n, float* x) { dequantize_values(blocks, n, kValues, 2, load_float16, x); }
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

}  // namespace scalepoint::kernels
