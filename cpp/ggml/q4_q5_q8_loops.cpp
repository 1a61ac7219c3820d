// ggml's blocks of 32 with evenly spaced levels: Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1. Source: github.com/ggml-org/ggml d99724f,
// src/ggml-quants.c.
#include "ggml/blocks32_loops.h"
#include "ggml/ggml_loops.h"
#include "ggml/k_quants_search_loops.h"
#include "lanes/float16.h"

namespace scalepoint::loops {
namespace blocks32 {

F32x4 first_with_magnitude(const float* x, F32x4 far) {
  const auto magnitude = [](float v) { return bit_cast<uint32_t>(v) & kAbsMask; };
  float first[kFour];
  store(first, far);
  for (size_t k = 0; k < kFour; k++, x += kElements) {
    const float* p = x;
    while (magnitude(*p) != magnitude(first[k])) p++;
    first[k] = *p;
  }
  return load(first);
}

}  // namespace blocks32

namespace {

using namespace blocks32;

/// The smallest unsigned integer among the bits of each block: for a block of one sign the float nearest to 0. Not inlined because it is
/// rare.
[[gnu::noinline]] I32x4 nearest_to_zero(const float* x) {
  const auto join = [](I32x4 a, I32x4 b) { return min_unsigned(a, b); };
  I32x4 nearest[kFour];
  SCALEPOINT_NO_UNROLL
  for (size_t k = 0; k < kFour; k++, x += kElements) nearest[k] = reduce_block(x, join);
  return reduce_rows(nearest, join);
}

/// Clears the `bytes` of levels of every block whose inverse is infinite. Its products are infinities and NaN; ggml casts such
/// floats to 32 bits and then to 8, which gives 0 on x86.
[[gnu::noinline]] void clear_levels(const Scales& s, uint8_t* levels, size_t bytes, size_t stride) {
  for (size_t k = 0; k < kFour; k++) {
    if (!is_finite(s.inverse[k])) std::memset(levels + k * stride, 0, bytes);
  }
}

// ------------------------------------------------------------------------------------------------------------------ 8 bits

/// Rounds half away from zero: adds the float below 0.5 and truncates. Adding 0.5 itself could round up to the next integer.
inline I32x4 round_half_away(F32x4 v, F32x4 half) {
  const F32x4 signed_half = from_bits(bit_or(bit_and(bits(v), splat(INT32_MIN)), bits(half)));
  return bits(add(trunc(add(v, signed_half)), splat(kMagic)));
}

struct TypeQ8_0 {
  static constexpr size_t kBytes = 34, kAhead = 1;

  static void scales(const float* x, Scales& s, I32x4& bad) {
    set_scale(div(from_bits(largest_of(extremes(x))), splat(127.0f)), s, bad);
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

/// Puts the levels of both halves of a block into their bytes, behind the fifth bits, if any.
template <int kBits>
inline void store_levels(U8x16 a, U8x16 b, uint8_t* to) {
  if (kBits == 5) {
    store_half(to, static_cast<int32_t>(top_bits(shift_left<3>(a))));
    store_half(to + 2, static_cast<int32_t>(top_bits(shift_left<3>(b))));
    a = bit_and(a, splat(uint8_t{15}));
    b = bit_and(b, splat(uint8_t{15}));
    to += 4;
  }
  store(to, bit_or(a, shift_left<4>(b)));
}

/// Q4_0 and Q5_0 (symmetric): x = d * (level - middle), where the element farthest from 0 gets the lowest level.
/// Q4_1 and Q5_1 (affine): x = d * level + minimum.
template <int kBits, bool kAffine>
struct TypeNibbles {
  static constexpr int kTop = (1 << kBits) - 1, kMiddle = 1 << (kBits - 1);
  static constexpr size_t kHigh = kAffine ? 4 : 2, kLow = kHigh + (kBits == 5 ? 4 : 0), kBytes = kLow + 16, kAhead = 1;

  static void scales(const float* x, Scales& s, I32x4& bad) {
    const BlockExtremes e = extremes(x);
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
    // A minimum of 0 has the sign of the block's first zero.
    const I32x4 zero = equal(low, splat(0.0f));
    if (any(zero)) low = select(zero, first_with_magnitude(x, low), low);
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
      store_levels<kBits>(a, b, to + kHigh);
    }
    if (s.infinite) clear_levels(s, out + kHigh, kBytes - kHigh, kBytes);
  }
};

// ---------------------------------------------------------------------------------------------------------------- weighted

/// Scales, or scales and minimums, come from the searches of the K-quants, and the levels with them.
template <int kBits, bool kAffine>
void quantize_weighted(const float* x, const float* weights, size_t n, std::byte* out) {
  using Type = TypeNibbles<kBits, kAffine>;
  auto* to = reinterpret_cast<uint8_t*>(out);
  for (size_t i = 0; i < n; i += kTogether, x += kTogether * kElements, weights += kTogether * kElements) {
    const size_t count = n - i < kTogether ? n - i : kTogether;
    float scales[kTogether], minimums[kTogether] = {};
    uint8_t levels[kTogether * kElements];
    if (kAffine) {
      fit_affine(x, count, weighted({kElements, Type::kTop, 0, 0, 0, false, 0}), weights, scales, minimums, levels);
    } else {
      fit_scales(x, count, {kElements, Type::kMiddle}, weights, scales, levels);
    }
    for (size_t b = 0; b < count; b++, to += Type::kBytes) {
      store_half(to, float16_of(scales[b]));
      if (kAffine) store_half(to + 2, float16_of(-minimums[b]));
      store_levels<kBits>(load(levels + b * kElements), load(levels + b * kElements + 16), to + Type::kHigh);
    }
  }
}

// -------------------------------------------------------------------------------------------------------------- dequantize

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

}  // namespace

bool quantize_q8_0(const float* x, size_t n, std::byte* out) { return quantize<TypeQ8_0>(x, n, out); }
bool quantize_q4_0(const float* x, size_t n, std::byte* out) { return quantize<TypeNibbles<4, false>>(x, n, out); }
bool quantize_q4_1(const float* x, size_t n, std::byte* out) { return quantize<TypeNibbles<4, true>>(x, n, out); }
bool quantize_q5_0(const float* x, size_t n, std::byte* out) { return quantize<TypeNibbles<5, false>>(x, n, out); }
bool quantize_q5_1(const float* x, size_t n, std::byte* out) { return quantize<TypeNibbles<5, true>>(x, n, out); }

void quantize_weighted_q4_0(const float* x, const float* weights, size_t n, std::byte* out) {
  quantize_weighted<4, false>(x, weights, n, out);
}
void quantize_weighted_q4_1(const float* x, const float* weights, size_t n, std::byte* out) {
  quantize_weighted<4, true>(x, weights, n, out);
}
void quantize_weighted_q5_0(const float* x, const float* weights, size_t n, std::byte* out) {
  quantize_weighted<5, false>(x, weights, n, out);
}
void quantize_weighted_q5_1(const float* x, const float* weights, size_t n, std::byte* out) {
  quantize_weighted<5, true>(x, weights, n, out);
}

float sum_squares(const float* x, size_t n) {
  float sum = 0;
  for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
  return sum;
}

void make_weights(const float* x, const float* importance, size_t n, float mean, float* weights) {
  const F32x4 m = splat(mean);
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < n; i += 4) {
    const F32x4 v = load(x + i);
    store(weights + i, mul(load(importance + i), sqrt(add(m, mul(v, v)))));
  }
}

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

}  // namespace scalepoint::loops
