// Functions that the blocks of 32 share: loading and storing float16, the extremes of four blocks at a time, and the loop over blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lanes/lanes.h"

namespace scalepoint::loops::blocks32 {

using namespace lanes;

inline constexpr size_t kElements = 32;
/// Blocks whose scales are made together, one per lane.
inline constexpr size_t kFour = 4;

inline constexpr int32_t kFloat16Largest = 0x7BFF;

// ----------------------------------------------------------------------------------------------------------------- float16

/// 0 where the mask is set, a elsewhere.
inline F32x4 without(F32x4 a, I32x4 mask) { return from_bits(bit_and_not(bits(a), mask)); }

/// float32 to float16 bits, half to even, in the low half of each lane. NaN, and magnitudes beyond float16, give infinity.
SCALEPOINT_SHARED I32x4 to_float16(F32x4 x) {
  const I32x4 magnitude = magnitude_bits(x), sign = bit_and(shift_right<16>(bits(x)), splat(0x8000));
  // Drop 13 bits. Adding just below half of them, and the last bit that stays, rounds half to even. The bias of the exponent falls from 127
  // to 15.
  const I32x4 odd = bit_and(shift_right<13>(magnitude), splat(1));
  const I32x4 rounded = add(add(magnitude, odd), splat(0x0FFF - (112 << 23)));
  const I32x4 normal = min_unsigned(shift_right<13>(rounded), splat(0x7C00));
  // A subnormal counts units of 2^-24. The floats from 0.5 to 1 are that far apart, so adding 0.5 rounds to whole units.
  const I32x4 subnormal = sub(bits(add(from_bits(magnitude), splat(0.5f))), splat(0x3F000000));
  return bit_or(sign, select(greater(splat(0x38800000), magnitude), subnormal, normal));
}

/// float16 bits to float32, exactly.
inline F32x4 from_float16(I32x4 half) {
  const I32x4 magnitude = bit_and(half, splat(0x7FFF)), sign = shift_left<16>(bit_and(half, splat(0x8000)));
  const I32x4 special = bit_and(greater(magnitude, splat(kFloat16Largest)), splat(112 << 23));
  const I32x4 normal = add(add(shift_left<13>(magnitude), splat(112 << 23)), special);
  const F32x4 subnormal = sub(from_bits(bit_or(magnitude, splat(0x3F000000))), splat(0.5f));
  return from_bits(bit_or(sign, select(greater(splat(0x0400), magnitude), bits(subnormal), normal)));
}

inline void store_half(uint8_t* to, int32_t half) {
  to[0] = static_cast<uint8_t>(half);
  to[1] = static_cast<uint8_t>(half >> 8);
}

SCALEPOINT_SHARED F32x4 load_float16(const uint8_t* from) { return from_float16(splat(from[0] | from[1] << 8)); }

// ---------------------------------------------------------------------------------------------------------------- extremes

/// Lane k of the result joins the four lanes of row k.
template <class Join>
inline I32x4 reduce_rows(const I32x4 (&rows)[kFour], Join join) {
  F32x4 a = from_bits(rows[0]), b = from_bits(rows[1]), c = from_bits(rows[2]), d = from_bits(rows[3]);
  transpose(a, b, c, d);
  return join(join(bits(a), bits(b)), join(bits(c), bits(d)));
}

/// Joins the bits of a block.
template <class Join>
inline I32x4 reduce_block(const float* x, Join join) {
  I32x4 v[8];
  for (size_t i = 0; i < 8; i++) v[i] = bits(load(x + 4 * i));
  return join(join(join(v[0], v[1]), join(v[2], v[3])), join(join(v[4], v[5]), join(v[6], v[7])));
}

/// The bits of the extremes of four blocks, one per lane. The integer order of the bits of floats decides about the scale of a block. It
/// includes NaN, which float operations would drop.
struct BlockExtremes {
  I32x4 positive;  ///< the largest signed integer: the largest float, if there is one without a sign bit
  I32x4 negative;  ///< the largest unsigned integer: the float farthest below 0, if there is one with a sign bit
  // If all floats of a block have the same sign bit, both are the float farthest from 0.
};

inline BlockExtremes extremes(const float* x) {
  const auto most_signed = [](I32x4 a, I32x4 b) { return max_signed(a, b); };
  const auto most_unsigned = [](I32x4 a, I32x4 b) { return max_unsigned(a, b); };
  I32x4 positive[kFour], negative[kFour];
  SCALEPOINT_NO_UNROLL
  for (size_t k = 0; k < kFour; k++, x += kElements) {
    positive[k] = reduce_block(x, most_signed);
    negative[k] = reduce_block(x, most_unsigned);
  }
  return {reduce_rows(positive, most_signed), reduce_rows(negative, most_unsigned)};
}

/// The bits of the largest magnitude of each block.
inline I32x4 largest_of(const BlockExtremes& e) {
  return max_signed(magnitude_bits(from_bits(e.positive)), magnitude_bits(from_bits(e.negative)));
}

/// The first element of each block whose magnitude is that of `far`. Not inlined because it is rare, and copies would only make the module
/// larger.
[[gnu::noinline]] F32x4 first_with_magnitude(const float* x, F32x4 far);

/// The first element of each block that is farthest from 0. Zeros of any sign give +0.
SCALEPOINT_SHARED F32x4 first_farthest(const float* x, const BlockExtremes& e) {
  const I32x4 positive = magnitude_bits(from_bits(e.positive)), negative = magnitude_bits(from_bits(e.negative));
  F32x4 far = from_bits(select(greater(negative, positive), e.negative, e.positive));
  // If a float and its negative are both farthest, the first of them decides.
  if (any(bit_and_not(equal(positive, negative), equal(e.positive, e.negative)))) far = first_with_magnitude(x, far);
  return without(far, equal(far, splat(0.0f)));
}

// ------------------------------------------------------------------------------------------------------------------ blocks

/// Scales of four blocks, from which their levels are made.
struct Scales {
  float inverse[kFour], low[kFour];
  int32_t scale[kFour], minimum[kFour];  ///< as they are stored
  bool infinite;                         ///< true if an inverse is infinite, because the scale is nearly 0
};

/// Stores a scale d as float16, and 1 / d. A scale of 0 has the inverse 0. Sets lanes of `bad` where d is beyond float16.
SCALEPOINT_SHARED void set_scale(F32x4 d, Scales& s, I32x4& bad) {
  const I32x4 half = to_float16(d);
  const F32x4 inverse = without(div(splat(1.0f), d), equal(d, splat(0.0f)));
  s.infinite = any(equal(magnitude_bits(inverse), splat(static_cast<int32_t>(kInfinityBits))));
  bad = bit_or(bad, greater(bit_and(half, splat(0x7FFF)), splat(kFloat16Largest)));
  store(s.inverse, inverse);
  store(s.scale, half);
}

/// Runs Type::scales and Type::levels for n blocks, four at a time. Fills the last group up with zeros. `scales` sets lanes of
/// `bad` where a scale is not finite; NaN and infinities in x lead to such scales. Returns whether no lane was set. If
/// Type::kAhead is 1, the scales of four blocks are made before the levels of the four blocks before them, which hides the latency of
/// divisions.
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

/// x[i] = d * levels[i] (+ minimum), with levels as signed bytes.
template <bool kAffine>
SCALEPOINT_SHARED void restore(const U8x16 (&levels)[2], F32x4 d, F32x4 minimum, float* x) {
  for (size_t half = 0; half < 2; half++) {
    F32x4 v[4];
    to_floats(levels[half], v);
    for (size_t i = 0; i < 4; i++, x += 4) store(x, kAffine ? add(mul(v[i], d), minimum) : mul(v[i], d));
  }
}

/// Levels of four bits: those of the first half of the block in the low halves of the bytes.
SCALEPOINT_SHARED void load_nibbles(const uint8_t* from, U8x16 (&levels)[2]) {
  const U8x16 pairs = load(from);
  levels[0] = bit_and(pairs, splat(uint8_t{15}));
  levels[1] = shift_right<4>(pairs);
}

}  // namespace scalepoint::loops::blocks32
