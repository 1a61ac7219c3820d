#include "kernels.h"

#include <cstring>
#include <type_traits>

#if defined(__wasm_simd128__) || defined(SCALEPOINT_SIMDE)
#include "lanes_simd128.h"
#else
#include "lanes_scalar.h"
#endif

namespace scalepoint::kernels {
namespace {

using namespace lanes;

/// Elements of one step of the loops below. V8 issues the loads of a step before its arithmetic, so that four vectors of loads and up to
/// ten that live across steps fill the registers; larger steps spill.
constexpr size_t kStep = 16;

/// Calls f with a value of the type that holds the codes of dtype.
template <class F>
auto with_code_type(DType dtype, F f) {
  if (dtype.bits > 8) return dtype.is_signed ? f(int16_t{}) : f(uint16_t{});
  return dtype.is_signed ? f(int8_t{}) : f(uint8_t{});
}

template <class F>
auto with_rounding(Rounding rounding, F f) {
  switch (rounding) {
    case Rounding::kFused:
      return f(std::integral_constant<Rounding, Rounding::kFused>{});
    case Rounding::kReciprocal:
      return f(std::integral_constant<Rounding, Rounding::kReciprocal>{});
    default:
      return f(std::integral_constant<Rounding, Rounding::kOnnx>{});
  }
}

inline I32x4 abs_bits(F32x4 x) { return bit_and(bits(x), splat(static_cast<int32_t>(kAbsMask))); }

inline uint32_t max_lane(I32x4 a) {
  int32_t lane[4];
  store(lane, a);
  uint32_t largest = 0;
  for (const int32_t v : lane) largest = static_cast<uint32_t>(v) > largest ? static_cast<uint32_t>(v) : largest;
  return largest;
}

// ------------------------------------------------------------------------------------------------------------------ ranges

/// NaN where x is not finite, x elsewhere.
inline F32x4 nan_unless_finite(F32x4 x) { return add(x, sub(x, x)); }

template <bool kFiniteOnly>
Range range_of(const float* x, size_t n) {
  const F32x4 infinity = from_bits(splat(static_cast<int32_t>(kInfinityBits)));
  F32x4 low[4] = {infinity, infinity, infinity, infinity};
  const F32x4 minus = sub(splat(0.0f), infinity);
  F32x4 high[4] = {minus, minus, minus, minus};
  I32x4 largest = splat(0);
  const auto step = [&](const float* p) {
    for (int j = 0; j < 4; j++) {
      F32x4 v = load(p + 4 * j);
      largest = max_unsigned(largest, abs_bits(v));
      if (kFiniteOnly) v = nan_unless_finite(v);
      low[j] = pmin(low[j], v);
      high[j] = pmax(high[j], v);
    }
  };
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) step(x + i);
  if (i < n) {
    float tail[kStep];
    for (size_t j = 0; j < kStep; j++) tail[j] = x[i + j < n ? i + j : n - 1];
    step(tail);
  }
  float lanes[4];
  Range r;
  store(lanes, pmin(pmin(low[0], low[1]), pmin(low[2], low[3])));
  r.min = lanes[0];
  for (const float v : lanes) r.min = v < r.min ? v : r.min;
  store(lanes, pmax(pmax(high[0], high[1]), pmax(high[2], high[3])));
  r.max = lanes[0];
  for (const float v : lanes) r.max = r.max < v ? v : r.max;
  r.largest = max_lane(largest);
  return r;
}

// ---------------------------------------------------------------------------------------------------------------- quantize

/// What turns x into codes, spread over lanes. factor is the scale, or its reciprocal for kReciprocal.
struct Params {
  F32x4 factor;
  F32x4 shift;  ///< zero point, added before rounding (kFused only)
  I32x4 low;    ///< bits of kMagic + the smallest rounded value
  I32x4 bias;   ///< what to take from the bits to get the code

  template <Rounding kRounding>
  static Params make(F32x4 scale, I32x4 zero_point, int32_t qmin) {
    const F32x4 factor = kRounding == Rounding::kReciprocal ? div(splat(1.0f), scale) : scale;
    if (kRounding == Rounding::kFused) {
      return {factor, to_float(zero_point), splat(kMagicBits + qmin), splat(kMagicBits)};
    }
    return {factor, splat(0.0f), sub(splat(kMagicBits + qmin), zero_point), sub(splat(kMagicBits), zero_point)};
  }
};

/// Four codes, clamped from below. kMagic rounds (see round.h); ONE integer maximum is the lower clamp, since the bits of floats above
/// 0 order like the floats and those of negative ones are negative; store_codes clamps from above. Holds for infinities as well, and
/// NaN is made 0 before the zero point comes in.
template <Rounding kRounding>
inline I32x4 codes_of(F32x4 x, const Params& p) {
  F32x4 v = kRounding == Rounding::kReciprocal ? mul(x, p.factor) : div(x, p.factor);
  v = from_bits(bit_and(bits(v), equal(v, v)));
  if (kRounding == Rounding::kFused) v = add(v, p.shift);
  return sub(max_signed(bits(add(v, splat(kMagic))), p.low), p.bias);
}

template <Rounding kRounding, class Code>
inline void quantize_step(const float* x, Code* codes, const Params& p, int32_t qmax, I32x4& largest) {
  I32x4 c[4];
  for (int j = 0; j < 4; j++) {
    const F32x4 v = load(x + 4 * j);
    largest = max_unsigned(largest, abs_bits(v));
    c[j] = codes_of<kRounding>(v, p);
  }
  store_codes(codes, c[0], c[1], c[2], c[3], qmax);
}

template <Rounding kRounding, class Code>
uint32_t quantize_uniform(const float* x, size_t n, const Params& p, int32_t qmax, Code* codes) {
  I32x4 largest = splat(0);
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) quantize_step<kRounding>(x + i, codes + i, p, qmax, largest);
  if (i < n) {
    float tail[kStep] = {};
    Code out[kStep];
    std::memcpy(tail, x + i, (n - i) * sizeof(float));
    quantize_step<kRounding>(tail, out, p, qmax, largest);
    std::memcpy(codes + i, out, (n - i) * sizeof(Code));
  }
  return max_lane(largest);
}

template <Rounding kRounding, class Code>
uint32_t quantize_each(const float* x, size_t n, const float* scale, const int32_t* zero_point, DType dtype, Code* codes) {
  I32x4 largest = splat(0);
  const int32_t qmin = dtype.qmin(), qmax = dtype.qmax();
  const auto step = [&](const float* xs, const float* scales, const int32_t* zeros, Code* out) {
    I32x4 c[4];
    for (int j = 0; j < 4; j++) {
      const F32x4 v = load(xs + 4 * j);
      largest = max_unsigned(largest, abs_bits(v));
      c[j] = codes_of<kRounding>(v, Params::make<kRounding>(load(scales + 4 * j), load(zeros + 4 * j), qmin));
    }
    store_codes(out, c[0], c[1], c[2], c[3], qmax);
  };
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) step(x + i, scale + i, zero_point + i, codes + i);
  if (i < n) {
    float xs[kStep] = {}, scales[kStep];
    int32_t zeros[kStep] = {};
    Code out[kStep];
    for (float& s : scales) s = 1.0f;
    std::memcpy(xs, x + i, (n - i) * sizeof(float));
    std::memcpy(scales, scale + i, (n - i) * sizeof(float));
    std::memcpy(zeros, zero_point + i, (n - i) * sizeof(int32_t));
    step(xs, scales, zeros, out);
    std::memcpy(codes + i, out, (n - i) * sizeof(Code));
  }
  return max_lane(largest);
}

/// The largest |x| of a run, four lanes' worth, as bits.
inline I32x4 largest_of_run(const float* x, size_t n) {
  I32x4 a = splat(0), b = a;
  for (size_t i = 0; i < n; i += 8) {
    a = max_unsigned(a, abs_bits(load(x + i)));
    b = max_unsigned(b, abs_bits(load(x + i + 4)));
  }
  return max_unsigned(a, b);
}

struct LowHigh {
  F32x4 low, high;
};

/// The range of a run and 0, four lanes' worth. Adds to largest as range does.
inline LowHigh low_high_of_run(const float* x, size_t n, I32x4& largest) {
  LowHigh a = {splat(0.0f), splat(0.0f)}, b = a;
  for (size_t i = 0; i < n; i += 8) {
    const F32x4 v = load(x + i), w = load(x + i + 4);
    a = {pmin(a.low, v), pmax(a.high, v)};
    b = {pmin(b.low, w), pmax(b.high, w)};
    largest = max_unsigned(largest, max_unsigned(abs_bits(v), abs_bits(w)));
  }
  return {pmin(a.low, b.low), pmax(a.high, b.high)};
}

/// Lane i: the largest of the four lanes of the i-th vector. One transpose serves four runs.
inline F32x4 max_of_each(F32x4 a, F32x4 b, F32x4 c, F32x4 d) {
  transpose(a, b, c, d);
  return pmax(pmax(a, b), pmax(c, d));
}
inline F32x4 min_of_each(F32x4 a, F32x4 b, F32x4 c, F32x4 d) {
  transpose(a, b, c, d);
  return pmin(pmin(a, b), pmin(c, d));
}

struct FourParams {
  F32x4 scale;
  I32x4 zero_point;
};

/// choose_qparams for four symmetric ranges. The division is float32: for a quotient of two float32 numbers that gives the same as a
/// division in double that is rounded to float32 afterwards, since 53 >= 2 * 24 + 2 (Figueroa, "When is double rounding innocuous?").
inline FourParams four_symmetric(F32x4 largest, const QuantizationSpec& spec) {
  const DType type = {spec.dtype.bits, true};
  const float levels = spec.symmetric_range == SymmetricRange::kRestricted ? static_cast<float>(type.qmax())
                                                                           : static_cast<float>(type.qmax() - type.qmin()) / 2;
  const F32x4 scale = pmax(splat(kMinScale), div(largest, splat(levels)));
  return {select(equal(largest, splat(0.0f)), splat(1.0f), scale), splat(spec.dtype.middle())};
}

/// choose_qparams for four asymmetric ranges that hold 0.
inline FourParams four_asymmetric(F32x4 low, F32x4 high, DType dtype) {
  const F64x2 levels = splat(static_cast<double>(dtype.qmax() - dtype.qmin())), qmin = splat(static_cast<double>(dtype.qmin()));
  const auto scale_of = [&](F64x2 a, F64x2 b) { return pmax(splat(static_cast<double>(kMinScale)), div(sub(b, a), levels)); };
  const F64x2 low0 = widen_low(low), low1 = widen_high(low);
  const F64x2 scale0 = scale_of(low0, widen_low(high)), scale1 = scale_of(low1, widen_high(high));
  const I32x4 zero_point =
      narrow_to_int(nearest(sub(qmin, div(low0, scale0))), nearest(sub(qmin, div(low1, scale1))));
  const I32x4 empty = equal(low, high);
  return {select(empty, splat(1.0f), narrow(scale0, scale1)), select(empty, splat(0), zero_point)};
}

template <Rounding kRounding, int kRun, class Code>
inline void quantize_run_of_four(const float* x, size_t n, const FourParams& four, DType dtype, Code* codes, I32x4& largest) {
  const Params p = Params::make<kRounding>(broadcast<kRun>(four.scale), broadcast<kRun>(four.zero_point), dtype.qmin());
  for (size_t i = 0; i < n; i += kStep) quantize_step<kRounding>(x + kRun * n + i, codes + kRun * n + i, p, dtype.qmax(), largest);
}

template <Rounding kRounding, class Code>
uint32_t quantize_four_runs(const float* x, size_t n, const QuantizationSpec& spec, float* scale, int32_t* zero_point, Code* codes) {
  FourParams four;
  I32x4 largest = splat(0);
  if (spec.scheme == Scheme::kSymmetric) {
    const F32x4 each = max_of_each(from_bits(largest_of_run(x, n)), from_bits(largest_of_run(x + n, n)),
                                   from_bits(largest_of_run(x + 2 * n, n)), from_bits(largest_of_run(x + 3 * n, n)));
    four = four_symmetric(each, spec);
  } else {
    const LowHigh a = low_high_of_run(x, n, largest), b = low_high_of_run(x + n, n, largest);
    const LowHigh c = low_high_of_run(x + 2 * n, n, largest), d = low_high_of_run(x + 3 * n, n, largest);
    four = four_asymmetric(min_of_each(a.low, b.low, c.low, d.low), max_of_each(a.high, b.high, c.high, d.high), spec.dtype);
  }
  store(scale, four.scale);
  store(zero_point, four.zero_point);
  quantize_run_of_four<kRounding, 0>(x, n, four, spec.dtype, codes, largest);
  quantize_run_of_four<kRounding, 1>(x, n, four, spec.dtype, codes, largest);
  quantize_run_of_four<kRounding, 2>(x, n, four, spec.dtype, codes, largest);
  quantize_run_of_four<kRounding, 3>(x, n, four, spec.dtype, codes, largest);
  return max_lane(largest);
}

// -------------------------------------------------------------------------------------------------------------- dequantize

template <class Code>
inline void dequantize_step(const Code* codes, F32x4 scale, I32x4 zero_point, float* x) {
  I32x4 c[4];
  load_codes(codes, c);
  for (int j = 0; j < 4; j++) store(x + 4 * j, mul(scale, to_float(opaque(sub(c[j], zero_point)))));
}

template <class Code>
void dequantize_uniform(const Code* codes, size_t n, float scale, int32_t zero_point, float* x) {
  const F32x4 s = splat(scale);
  const I32x4 z = splat(zero_point);
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) dequantize_step(codes + i, s, z, x + i);
  if (i < n) {
    Code tail[kStep] = {};
    float out[kStep];
    std::memcpy(tail, codes + i, (n - i) * sizeof(Code));
    dequantize_step(tail, s, z, out);
    std::memcpy(x + i, out, (n - i) * sizeof(float));
  }
}

template <class Code>
void dequantize_each(const Code* codes, size_t n, const float* scale, const int32_t* zero_point, float* x) {
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    I32x4 c[4];
    load_codes(codes + i, c);
    for (size_t j = 0; j < 4; j++) {
      const size_t k = i + 4 * j;
      store(x + k, mul(load(scale + k), to_float(opaque(sub(c[j], load(zero_point + k))))));
    }
  }
  for (; i < n; i++) x[i] = scale[i] * static_cast<float>(codes[i] - zero_point[i]);
}

// ---------------------------------------------------------------------------------------------------------- error measures

constexpr size_t kErrorBlock = 256;

/// Adds the four lanes in a fixed order.
inline double sum_lanes(F32x4 a) {
  float lane[4];
  store(lane, a);
  return (static_cast<double>(lane[0]) + lane[1]) + (static_cast<double>(lane[2]) + lane[3]);
}

void accumulate_block_in_double(const float* x, const float* y, size_t n, ErrorSums& sums) {
  ErrorSums block;
  for (size_t i = 0; i < n; i++) {
    if (!is_finite(x[i]) || !is_finite(y[i])) {
      sums.non_finite++;
      continue;
    }
    const double a = x[i], b = y[i], e = a - b, size = e < 0 ? -e : e;
    block.squared_error += e * e;
    block.absolute_error += size;
    block.squared_x += a * a;
    block.squared_y += b * b;
    block.product += a * b;
    if (size > sums.max_absolute_error) sums.max_absolute_error = size;
  }
  sums.squared_error += block.squared_error;
  sums.absolute_error += block.absolute_error;
  sums.squared_x += block.squared_x;
  sums.squared_y += block.squared_y;
  sums.product += block.product;
}

inline bool all_zero(const float* x, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (x[i] != 0) return false;
  }
  return true;
}

/// Whether a float32 sum of squares lost nothing to overflow or underflow: its terms are then at most 2^120, and those below 2^-126, which
/// float32 rounds coarsely, add up to less than 2^-60 of it.
inline bool is_safe(double sum) { return sum >= 0x1p-80 && sum <= 0x1p120; }

void accumulate_block(const float* x, const float* y, size_t n, ErrorSums& sums) {
  F32x4 squared_error = splat(0.0f), absolute_error = squared_error, squared_x = squared_error, squared_y = squared_error,
        product = squared_error;
  I32x4 largest = splat(0);
  const auto step = [&](const float* xs, const float* ys) {
    const F32x4 a = load(xs), b = load(ys), e = sub(a, b);
    const I32x4 size = abs_bits(e);
    squared_error = add(squared_error, mul(e, e));
    absolute_error = add(absolute_error, from_bits(size));
    squared_x = add(squared_x, mul(a, a));
    squared_y = add(squared_y, mul(b, b));
    product = add(product, mul(a, b));
    largest = max_unsigned(largest, size);
  };
  size_t i = 0;
  for (; i + 4 <= n; i += 4) step(x + i, y + i);
  if (i < n) {
    float xs[4] = {}, ys[4] = {};
    std::memcpy(xs, x + i, (n - i) * sizeof(float));
    std::memcpy(ys, y + i, (n - i) * sizeof(float));
    step(xs, ys);
  }
  const double se = sum_lanes(squared_error), sx = sum_lanes(squared_x), sy = sum_lanes(squared_y);
  const uint32_t max_error = max_lane(largest);
  if (!(is_safe(se) || max_error == 0) || !(is_safe(sx) || all_zero(x, n)) || !(is_safe(sy) || all_zero(y, n))) {
    accumulate_block_in_double(x, y, n, sums);
    return;
  }
  sums.squared_error += se;
  sums.absolute_error += sum_lanes(absolute_error);
  sums.squared_x += sx;
  sums.squared_y += sy;
  sums.product += sum_lanes(product);
  const double max_absolute_error = bit_cast<float>(max_error);
  if (max_absolute_error > sums.max_absolute_error) sums.max_absolute_error = max_absolute_error;
}

}  // namespace

Range range(const float* x, size_t n) { return range_of<false>(x, n); }
Range finite_range(const float* x, size_t n) { return range_of<true>(x, n); }

uint32_t range_each(const float* x, size_t n, bool finite_only, float* min, float* max) {
  I32x4 largest = splat(0);
  const auto step = [&](const float* p, float* low, float* high) {
    F32x4 v = load(p);
    largest = max_unsigned(largest, abs_bits(v));
    if (finite_only) v = nan_unless_finite(v);
    store(low, pmin(load(low), v));
    store(high, pmax(load(high), v));
  };
  size_t i = 0;
  for (; i + 4 <= n; i += 4) step(x + i, min + i, max + i);
  if (i < n) {
    float xs[4] = {}, low[4] = {}, high[4] = {};
    std::memcpy(xs, x + i, (n - i) * sizeof(float));
    std::memcpy(low, min + i, (n - i) * sizeof(float));
    std::memcpy(high, max + i, (n - i) * sizeof(float));
    step(xs, low, high);
    std::memcpy(min + i, low, (n - i) * sizeof(float));
    std::memcpy(max + i, high, (n - i) * sizeof(float));
  }
  return max_lane(largest);
}

uint32_t quantize_uniform(const float* x, size_t n, float scale, int32_t zero_point, CodeFormat format, void* codes) {
  return with_code_type(format.dtype, [&](auto code) {
    return with_rounding(format.rounding, [&](auto rounding) {
      const Params p = Params::make<rounding.value>(splat(scale), splat(zero_point), format.dtype.qmin());
      return quantize_uniform<rounding.value>(x, n, p, format.dtype.qmax(), static_cast<decltype(code)*>(codes));
    });
  });
}

uint32_t quantize_each(const float* x, size_t n, const float* scale, const int32_t* zero_point, CodeFormat format, void* codes) {
  return with_code_type(format.dtype, [&](auto code) {
    return with_rounding(format.rounding, [&](auto rounding) {
      return quantize_each<rounding.value>(x, n, scale, zero_point, format.dtype, static_cast<decltype(code)*>(codes));
    });
  });
}

uint32_t quantize_four_runs(const float* x, size_t run_size, const QuantizationSpec& spec, float* scale, int32_t* zero_point,
                            void* codes) {
  return with_rounding(spec.rounding, [&](auto rounding) {
    if (spec.dtype.is_signed) {
      return quantize_four_runs<rounding.value>(x, run_size, spec, scale, zero_point, static_cast<int8_t*>(codes));
    }
    return quantize_four_runs<rounding.value>(x, run_size, spec, scale, zero_point, static_cast<uint8_t*>(codes));
  });
}

void dequantize_uniform(const void* codes, DType dtype, size_t n, float scale, int32_t zero_point, float* x) {
  with_code_type(dtype, [&](auto code) { dequantize_uniform(static_cast<const decltype(code)*>(codes), n, scale, zero_point, x); });
}

void dequantize_each(const void* codes, DType dtype, size_t n, const float* scale, const int32_t* zero_point, float* x) {
  with_code_type(dtype, [&](auto code) { dequantize_each(static_cast<const decltype(code)*>(codes), n, scale, zero_point, x); });
}

void accumulate_error(const float* x, const float* y, size_t n, ErrorSums& sums) {
  for (size_t i = 0; i < n; i += kErrorBlock) accumulate_block(x + i, y + i, n - i < kErrorBlock ? n - i : kErrorBlock, sums);
}

// Simple enough for the compiler to vectorize.
void float16_to_float32(const uint16_t* bits, size_t n, float* x) {
  for (size_t i = 0; i < n; i++) {
    const uint32_t size = bits[i] & 0x7FFFu, sign = (bits[i] & 0x8000u) << 16;
    // Subnormal: a whole number of 2^-24. Otherwise the exponent moves from bias 15 to 127; all ones stay all ones.
    const uint32_t subnormal = bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(size)) * 0x1p-24f);
    const uint32_t normal = (size << 13) + (112u << 23) + (size >= 0x7C00u ? 112u << 23 : 0);
    x[i] = bit_cast<float>((size < 0x0400u ? subnormal : normal) | sign);
  }
}

void bfloat16_to_float32(const uint16_t* bits, size_t n, float* x) {
  for (size_t i = 0; i < n; i++) x[i] = bit_cast<float>(static_cast<uint32_t>(bits[i]) << 16);
}

}  // namespace scalepoint::kernels
