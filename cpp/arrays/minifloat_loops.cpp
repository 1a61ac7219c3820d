#include "arrays/minifloat_loops.h"

#include <cstring>

#include "arrays/min_max_loops.h"
#include "arrays/minifloat_rounding_loops.h"
#include "lanes/lanes.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

/// The codes of four floats. `most` is the largest code that a number may get: that of the largest value, or of infinity.
template <Format kFormat>
inline I32x4 round_to(F32x4 x, I32x4 most) {
  constexpr int kDropped = 23 - kFormat.fraction_bits;
  const I32x4 sign = shift_right<31>(bits(x)), magnitude = magnitude_bits(x);
  I32x4 code;
  if constexpr (kFormat.rebias() != 0) {
    F32x4 rounded;
    code = round_exponents<kFormat>(magnitude, rounded);
  } else {
    // Add just below half of the last bit that stays, and that bit itself. A carry correctly goes into the exponent.
    const I32x4 odd = bit_and(shift_right<kDropped>(magnitude), splat(1));
    code = shift_right<kDropped>(add(add(magnitude, odd), splat((1 << (kDropped - 1)) - 1)));
  }
  code = min_unsigned(code, most);
  const I32x4 is_nan = greater(magnitude, splat(static_cast<int32_t>(kInfinityBits)));
  code = select(is_nan, splat(kFormat.nan), code);
  const I32x4 sign_bit = shift_left<kFormat.exponent_bits + kFormat.fraction_bits>(sign);
  // A format without NaN gives NaN the code of its largest value, which has no sign.
  return bit_or(code, kFormat.has_nan() ? sign_bit : bit_and_not(sign_bit, is_nan));
}

template <Format kFormat, class Code>
void round_all(const float* x, size_t n, int32_t most_code, Code* codes) {
  const I32x4 most = splat(most_code);
  const auto sixteen = [most](const float* from, Code* to) {
    I32x4 code[4];
    SCALEPOINT_PER_VECTOR
    for (int i = 0; i < 4; i++) code[i] = round_to<kFormat>(load(from + 4 * i), most);
    store_codes(to, code[0], code[1], code[2], code[3], 0, static_cast<Code>(-1));
  };
  size_t i = 0;
  SCALEPOINT_NO_UNROLL
  for (; i + 16 <= n; i += 16) sixteen(x + i, codes + i);
  if (i == n) return;
  float rest[16] = {};
  Code made[16];
  std::memcpy(rest, x + i, (n - i) * sizeof(float));
  sixteen(rest, made);
  std::memcpy(codes + i, made, (n - i) * sizeof(Code));
}

/// The values of four codes.
template <Format kFormat>
inline F32x4 values_of(I32x4 code) {
  constexpr int kMagnitudeBits = kFormat.exponent_bits + kFormat.fraction_bits, kMoved = 23 - kFormat.fraction_bits;
  if constexpr (kFormat.rebias() == 0) return from_bits(shift_left<kMoved>(code));  // the upper half of a float32
  const I32x4 magnitude = bit_and(code, splat((1 << kMagnitudeBits) - 1));
  const I32x4 sign = shift_left<31>(shift_right<kMagnitudeBits>(code));
  I32x4 normal = add(shift_left<kMoved>(magnitude), splat(kFormat.rebias()));
  if constexpr (kFormat.has_nan()) {
    // Codes above the largest finite one are NaN or infinity, but `normal` now holds a finite number for them. If NaN is the only
    // such code, adding a constant turns that number into NaN. Otherwise the exponent field is all ones, and adding the
    // difference of the biases once more makes the exponent of the float32 all ones, too.
    constexpr bool kOnlyNan = kFormat.nan == kFormat.largest + 1;
    constexpr int32_t kDifference = kOnlyNan ? 0x7FC00000 - kFormat.rebias() - (kFormat.nan << kMoved) : kFormat.rebias();
    normal = add(normal, bit_and(greater(magnitude, splat(kFormat.largest)), splat(kDifference)));
  }
  // A subnormal is a whole number of units. Put into the fraction of 2^23, it becomes a float.
  const F32x4 whole = sub(from_bits(bit_or(magnitude, splat(0x4B000000))), splat(0x1p23f));
  const F32x4 unit = splat(bit_cast<float>((127 + 1 - kFormat.bias() - kFormat.fraction_bits) << 23));
  const I32x4 value = select(greater(splat(1 << kFormat.fraction_bits), magnitude), bits(mul(whole, unit)), normal);
  return from_bits(bit_or(value, sign));
}

template <Format kFormat, class Code>
void restore_all(const Code* codes, size_t n, float* x) {
  const auto sixteen = [](const Code* from, float* to) {
    I32x4 code[4];
    load_codes(from, code);
    // Hide the origin of the codes from LLVM, which would move the comparisons back to lanes of 16 bits and triple the time.
    SCALEPOINT_PER_VECTOR
    for (int i = 0; i < 4; i++) store(to + 4 * i, values_of<kFormat>(opaque(code[i])));
  };
  size_t i = 0;
  SCALEPOINT_NO_UNROLL
  for (; i + 16 <= n; i += 16) sixteen(codes + i, x + i);
  if (i == n) return;
  Code rest[16] = {};
  float made[16];
  std::memcpy(rest, codes + i, (n - i) * sizeof(Code));
  sixteen(rest, made);
  std::memcpy(x + i, made, (n - i) * sizeof(float));
}

/// The largest code that a number may get: that of the largest value, or the next one, which is infinity or NaN.
template <Format kFormat>
constexpr int32_t most_of(Overflow overflow) {
  return overflow == Overflow::kSaturate || !kFormat.has_nan() ? kFormat.largest : kFormat.largest + 1;
}

#ifdef SCALEPOINT_SIMD_LANES
/// Makes the float16 codes of n - n % 16 floats, and with kWithValues also their values, if all n are below 65520, from which on numbers
/// become infinite. Returns the number of codes: 0 if one of the floats is larger or NaN.
template <bool kWithValues>
size_t round_small(const float* x, size_t n, uint16_t* codes, [[maybe_unused]] float* y) {
  if (largest_magnitude(x, n) >= bit_cast<uint32_t>(65520.0f)) return 0;
  size_t i = 0;
  SCALEPOINT_NO_UNROLL
  for (; i + 16 <= n; i += 16) {
    I32x4 code[4];
    for (int j = 0; j < 4; j++) {
      const F32x4 v = load(x + i + 4 * j);
      const I32x4 sign = bit_and(bits(v), splat(static_cast<int32_t>(~kAbsMask)));
      F32x4 rounded;
      code[j] = bit_or(round_exponents<kFloat16, true>(magnitude_bits(v), rounded), shift_right<16>(sign));
      if constexpr (kWithValues) store(y + i + 4 * j, from_bits(bit_or(bits(rounded), sign)));
    }
    store_codes(codes + i, code[0], code[1], code[2], code[3], 0, 0xFFFF);
  }
  return i;
}
#endif

/// to[i] = operation(x[i], scale[i]), or operation(x[i], scale[0]) if `uniform`.
template <class Operation>
inline void with_scale(const float* x, size_t n, const float* scale, bool uniform, float* to, Operation operation) {
  size_t i = 0;
  if (uniform) {
    const F32x4 s = splat(*scale);
    for (; i + 4 <= n; i += 4) store(to + i, operation(load(x + i), s));
  } else {
    for (; i + 4 <= n; i += 4) store(to + i, operation(load(x + i), load(scale + i)));
  }
  for (; i < n; i++) {
    float one[4];
    store(one, operation(splat(x[i]), splat(scale[uniform ? 0 : i])));
    to[i] = one[0];
  }
}

}  // namespace

void float16_to_float32(const uint16_t* bits, size_t n, float* x) { restore_all<kFloat16>(bits, n, x); }

void bfloat16_to_float32(const uint16_t* bits, size_t n, float* x) { restore_all<kBfloat16>(bits, n, x); }

void float32_to_float16(const float* x, size_t n, uint16_t* bits) {
#ifdef SCALEPOINT_SIMD_LANES
  constexpr size_t kBlock = 512;
  for (size_t i = 0, size; i < n; i += size) {
    size = n - i < kBlock ? n - i : kBlock;
    const size_t done = round_small<false>(x + i, size, bits + i, nullptr);
    round_all<kFloat16>(x + i + done, size - done, kFloat16.largest + 1, bits + i + done);
  }
#else
  round_all<kFloat16>(x, n, kFloat16.largest + 1, bits);
#endif
}

void float32_to_bfloat16(const float* x, size_t n, uint16_t* bits) { round_all<kBfloat16>(x, n, kBfloat16.largest + 1, bits); }

void float32_to_minifloat(const float* x, size_t n, Minifloat format, Overflow overflow, uint8_t* bits) {
  switch (format) {
    case Minifloat::kFloat8E4M3FN:
      return round_all<kFloat8E4M3FN>(x, n, most_of<kFloat8E4M3FN>(overflow), bits);
    case Minifloat::kFloat8E5M2:
      return round_all<kFloat8E5M2>(x, n, most_of<kFloat8E5M2>(overflow), bits);
    case Minifloat::kFloat4E2M1:
      return round_all<kFloat4E2M1>(x, n, most_of<kFloat4E2M1>(overflow), bits);
  }
}

void minifloat_to_float32(const uint8_t* bits, size_t n, Minifloat format, float* x) {
  switch (format) {
    case Minifloat::kFloat8E4M3FN:
      return restore_all<kFloat8E4M3FN>(bits, n, x);
    case Minifloat::kFloat8E5M2:
      return restore_all<kFloat8E5M2>(bits, n, x);
    case Minifloat::kFloat4E2M1:
      return restore_all<kFloat4E2M1>(bits, n, x);
  }
}

void divide_by_scale(const float* x, size_t n, const float* scale, bool uniform, float* quotient) {
  with_scale(x, n, scale, uniform, quotient, [](F32x4 a, F32x4 b) { return div(a, b); });
}

void multiply_by_scale(float* x, size_t n, const float* scale, bool uniform) {
  with_scale(x, n, scale, uniform, x, [](F32x4 a, F32x4 b) { return mul(a, b); });
}

void round_to_float16(const float* x, size_t n, uint16_t* codes, float* y) {
  size_t i = 0;
#ifdef SCALEPOINT_SIMD_LANES
  // If no value becomes infinite, rounding gives the values, too.
  i = round_small<true>(x, n, codes, y);
#endif
  round_all<kFloat16>(x + i, n - i, kFloat16.largest + 1, codes + i);
  float16_to_float32(codes + i, n - i, y + i);
}

}  // namespace scalepoint::loops
