#include "kernels.h"

#include <cstring>

#include "lanes.h"

namespace scalepoint::kernels {
namespace {

using namespace lanes;

/// Elements of one step of the loops below. V8 issues the loads of a step before its arithmetic, so that four vectors of loads
/// and up to ten that live across steps fill the registers; larger steps spill.
constexpr size_t kStep = 16;

// Dispatch goes through tables of functions, one for each type of code and each rounding. Calls through a table cannot be
// inlined, and that is wanted: one big function with all the loops in it would spill registers in every one of them.
template <class Function>
struct PerCodeType {
  Function of_int8, of_uint8, of_int16, of_uint16;

  Function operator[](DType dtype) const {
    if (dtype.bits > 8) return dtype.is_signed ? of_int16 : of_uint16;
    return dtype.is_signed ? of_int8 : of_uint8;
  }
};

template <class Function>
struct PerRounding {
  Function onnx, fused, reciprocal;

  Function operator[](Rounding rounding) const {
    return rounding == Rounding::kOnnx ? onnx : rounding == Rounding::kFused ? fused : reciprocal;
  }
};

/// Orders like |x|: the bits without the sign, moved up by one. A shift needs no constant in a register, a mask does.
inline I32x4 size_of(F32x4 x) { return shift_left_one(bits(x)); }

/// The bits of |x|.
inline I32x4 abs_bits(F32x4 x) { return bit_and(bits(x), splat(static_cast<int32_t>(kAbsMask))); }

/// The largest of the four lanes.
inline uint32_t largest_lane(I32x4 a) {
  int32_t lane[4];
  store(lane, a);
  uint32_t largest = 0;
  for (const int32_t v : lane) largest = static_cast<uint32_t>(v) > largest ? static_cast<uint32_t>(v) : largest;
  return largest;
}

// ------------------------------------------------------------------------------------------------------------------ ranges

/// Four lanes of what tells a range from bits alone, two integer operations a vector instead of four on floats and their signs:
/// as signed integers the largest bits are those of the largest float, if there is one without a sign; as unsigned integers they
/// are those of the float farthest below 0, if there is one with a sign.
struct Extremes {
  I32x4 up = splat(kNoneUp);
  I32x4 down = splat(0);

  static constexpr int32_t kNoneUp = INT32_MIN;

  void take(F32x4 v) {
    up = max_signed(up, bits(v));
    down = max_unsigned(down, bits(v));
  }
  void take(const Extremes& other) {
    up = max_signed(up, other.up);
    down = max_unsigned(down, other.down);
  }
};

/// NaN where x is not finite, x elsewhere.
inline F32x4 nan_unless_finite(F32x4 x) { return add(x, sub(x, x)); }

/// Calls step with the four-lane vectors of x, once or twice each: the last is read again where n is no multiple of 4.
template <class Step>
inline void for_each_vector(const float* x, size_t n, Step step) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4) step(load(x + i));
  if (i == n) return;
  const float* p = x + n - 4;
  float few[4];
  if (n < 4) {
    for (size_t j = 0; j < 4; j++) few[j] = x[j < n ? j : 0];
    p = few;
  }
  step(load(p));
}

// ---------------------------------------------------------------------------------------------------------------- quantize

/// What turns x into codes, spread over lanes. factor is the scale, or its reciprocal for kReciprocal.
struct Params {
  F32x4 factor;
  F32x4 shift;  ///< zero point, added before rounding (kFused only)
  I32x4 bias;   ///< what to take from the bits to get the code

  template <Rounding kRounding>
  static Params make(F32x4 scale, I32x4 zero_point) {
    const F32x4 factor = kRounding == Rounding::kReciprocal ? div(splat(1.0f), scale) : scale;
    if (kRounding == Rounding::kFused) return {factor, to_float(zero_point), splat(kMagicBits)};
    return {factor, splat(0.0f), sub(splat(kMagicBits), zero_point)};
  }
};

/// The bits of kMagic + x / scale (or what the rounding has for it): kMagicBits + the rounded value while that is small, see
/// round.h.
template <Rounding kRounding>
inline I32x4 rounded_bits(F32x4 x, const Params& p, F32x4 magic = splat(kMagic)) {
  F32x4 v = kRounding == Rounding::kReciprocal ? mul(x, p.factor) : div(x, p.factor);
  if (kRounding == Rounding::kFused) v = add(v, p.shift);
  return bits(add(v, magic));
}

/// 16 codes. The bits of floats above 0 order like the floats, so that the saturating narrowing of store_codes clamps both ends,
/// up to +infinity above and down to quotients of -1.5 * 2^23 below. Beyond that the sum with kMagic is negative, and its bits
/// order the other way; as unsigned integers they are larger than kInfinityBits, like those of NaN and +infinity. Their maximum,
/// one operation a vector, tells whether the codes hold. (A clamp of its own and a search for what is not finite cost two
/// operations more, which delay the division, the bound of this loop.)
template <Rounding kRounding, class Code>
inline void quantize_step(const float* x, Code* codes, const Params& p, DType dtype, I32x4& farthest) {
  I32x4 c[4];
  for (int j = 0; j < 4; j++) {
    const I32x4 rounded = rounded_bits<kRounding>(load(x + 4 * j), p);
    farthest = max_unsigned(farthest, rounded);
    c[j] = sub(rounded, p.bias);
  }
  store_codes(codes, c[0], c[1], c[2], c[3], dtype.qmin(), dtype.qmax());
}

template <Rounding kRounding, class Code>
bool quantize_uniform(const float* x, size_t n, float scale, int32_t zero_point, DType dtype, void* to) {
  const Params p = Params::make<kRounding>(splat(scale), splat(zero_point));
  Code* codes = static_cast<Code*>(to);
  I32x4 farthest = splat(0);
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) quantize_step<kRounding>(x + i, codes + i, p, dtype, farthest);
  if (i < n && n >= kStep) {
    // The last step once more: the same codes again where it overlaps.
    quantize_step<kRounding>(x + n - kStep, codes + n - kStep, p, dtype, farthest);
  } else if (i < n) {
    float few[kStep] = {};
    Code out[kStep];
    for (size_t j = 0; j < n; j++) few[j] = x[j];
    quantize_step<kRounding>(few, out, p, dtype, farthest);
    for (size_t j = 0; j < n; j++) codes[j] = out[j];
  }
  return largest_lane(farthest) < kInfinityBits;
}

template <Rounding kRounding, class Code>
bool quantize_each(const float* x, size_t n, const float* scale, const int32_t* zero_point, DType dtype, void* to) {
  Code* codes = static_cast<Code*>(to);
  I32x4 farthest = splat(0);
  const auto step = [&](const float* xs, const float* scales, const int32_t* zeros, Code* out) {
    I32x4 c[4];
    for (int j = 0; j < 4; j++) {
      const Params p = Params::make<kRounding>(load(scales + 4 * j), load(zeros + 4 * j));
      const I32x4 rounded = rounded_bits<kRounding>(load(xs + 4 * j), p);
      farthest = max_unsigned(farthest, rounded);
      c[j] = sub(rounded, p.bias);
    }
    store_codes(out, c[0], c[1], c[2], c[3], dtype.qmin(), dtype.qmax());
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
  return largest_lane(farthest) < kInfinityBits;
}

/// The largest |x| of a run, four lanes' worth.
inline F32x4 largest_of_run(const float* x, size_t n) {
  I32x4 a = splat(0), b = a;
  for (size_t i = 0; i < n; i += 8) {
    a = max_unsigned(a, size_of(load(x + i)));
    b = max_unsigned(b, size_of(load(x + i + 4)));
  }
  return from_bits(shift_right_one(max_unsigned(a, b)));
}

struct LowHigh {
  F32x4 low, high;
};

/// The range of a run and 0, four lanes' worth.
inline LowHigh low_high_of_run(const float* x, size_t n) {
  Extremes a, b;
  for (size_t i = 0; i < n; i += 8) {
    a.take(load(x + i));
    b.take(load(x + i + 4));
  }
  a.take(b);
  const I32x4 zero = splat(0);
  return {from_bits(min_signed(a.down, zero)), from_bits(max_signed(a.up, zero))};
}

/// Lane i: the lane of the i-th vector that is farthest from 0, where all lanes have one sign (or are +0): the one with the
/// largest bits. Keeps NaN. One transpose serves four runs.
inline F32x4 farthest_of_each(F32x4 a, F32x4 b, F32x4 c, F32x4 d) {
  transpose(a, b, c, d);
  return from_bits(max_unsigned(max_unsigned(bits(a), bits(b)), max_unsigned(bits(c), bits(d))));
}

struct FourParams {
  F32x4 scale;
  I32x4 zero_point;
};

/// choose_qparams for four symmetric ranges. The division is float32: for a quotient of two float32 numbers that gives the same
/// as a division in double that is rounded to float32 afterwards, since 53 >= 2 * 24 + 2 (Figueroa, "When is double rounding
/// innocuous?").
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
  const I32x4 zero_point = narrow_to_int(nearest(sub(qmin, div(low0, scale0))), nearest(sub(qmin, div(low1, scale1))));
  const I32x4 empty = equal(low, high);
  return {select(empty, splat(1.0f), narrow(scale0, scale1)), select(empty, splat(0), zero_point)};
}

/// Range and parameters of four adjacent runs of n elements. Returns the largest |x| of each as bits. kSize is the run size where
/// it is known when compiling, else 0.
template <size_t kSize>
[[gnu::noinline]] I32x4 choose_four(const float* x, size_t run_size, const QuantizationSpec& spec, float* scale,
                                    int32_t* zero_point) {
  const size_t n = kSize > 0 ? kSize : run_size;
  I32x4 largest;
  FourParams four;
  if (spec.scheme == Scheme::kSymmetric) {
    F32x4 r[4];
    SCALEPOINT_NO_UNROLL
    for (size_t j = 0; j < 4; j++) r[j] = largest_of_run(x + j * n, n);
    const F32x4 sizes = farthest_of_each(r[0], r[1], r[2], r[3]);
    largest = bits(sizes);
    four = four_symmetric(sizes, spec);
  } else {
    LowHigh r[4];
    SCALEPOINT_NO_UNROLL
    for (size_t j = 0; j < 4; j++) r[j] = low_high_of_run(x + j * n, n);
    const F32x4 low = farthest_of_each(r[0].low, r[1].low, r[2].low, r[3].low);
    const F32x4 high = farthest_of_each(r[0].high, r[1].high, r[2].high, r[3].high);
    largest = shift_right_one(max_unsigned(size_of(low), size_of(high)));
    four = four_asymmetric(low, high, spec.dtype);
  }
  store(scale, four.scale);
  store(zero_point, four.zero_point);
  return largest;
}

/// The parameters of the next four runs are computed before the codes of these four: a maximum, a transpose and a division that
/// wait for each other then overlap with work that waits for none of them.
template <Rounding kRounding, class Code, size_t kSize>
uint32_t quantize_even_runs(const float* x, size_t run_size, size_t runs, const QuantizationSpec& spec, float* scale,
                            int32_t* zero_point, void* to) {
  if (runs == 0) return 0;
  const size_t n = kSize > 0 ? kSize : run_size;
  Code* codes = static_cast<Code*>(to);
  I32x4 largest = choose_four<kSize>(x, n, spec, scale, zero_point), unused = splat(0);
  for (size_t run = 0; run < runs; run += 4) {
    if (run + 4 < runs) {
      largest = max_unsigned(largest, choose_four<kSize>(x + 4 * n, n, spec, scale + run + 4, zero_point + run + 4));
    }
    SCALEPOINT_NO_UNROLL
    for (size_t j = run; j < run + 4; j++) {
      const Params p = Params::make<kRounding>(splat(scale[j]), splat(zero_point[j]));
      SCALEPOINT_NO_UNROLL
      for (size_t i = 0; i < n; i += kStep, x += kStep, codes += kStep) quantize_step<kRounding>(x, codes, p, spec.dtype, unused);
    }
  }
  return largest_lane(largest);
}

// -------------------------------------------------------------------------------------------------------------- dequantize

template <class Code>
inline void dequantize_step(const Code* codes, F32x4 scale, I32x4 zero_point, float* x) {
  I32x4 c[4];
  load_codes(codes, c);
  for (int j = 0; j < 4; j++) store(x + 4 * j, mul(scale, to_float(opaque(sub(c[j], zero_point)))));
}

template <class Code>
void dequantize_uniform(const void* from, size_t n, float scale, int32_t zero_point, float* x) {
  const Code* codes = static_cast<const Code*>(from);
  const F32x4 s = splat(scale);
  const I32x4 z = splat(zero_point);
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) dequantize_step(codes + i, s, z, x + i);
  if (i < n && n >= kStep) {
    dequantize_step(codes + n - kStep, s, z, x + n - kStep);
  } else {
    for (; i < n; i++) x[i] = scale * static_cast<float>(codes[i] - zero_point);
  }
}

template <class Code>
void dequantize_each(const void* from, size_t n, const float* scale, const int32_t* zero_point, float* x) {
  const Code* codes = static_cast<const Code*>(from);
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

/// Lane i: the sum of the four lanes of the i-th vector, in a fixed order.
inline F32x4 sum_of_each(F32x4 a, F32x4 b, F32x4 c, F32x4 d) {
  transpose(a, b, c, d);
  return add(add(a, b), add(c, d));
}

// The y of an error measure, in three forms. `eight` gives the values of eight elements; `make` does the same where they may have
// to be made first, from the x at hand.

/// An array.
struct FloatValues {
  const float* y;

  FloatValues from(size_t i) const { return {y + i}; }
  float at(size_t i) const { return y[i]; }
  void eight(size_t i, F32x4& low, F32x4& high) const {
    low = load(y + i);
    high = load(y + i + 4);
  }
  void make(size_t i, F32x4, F32x4, F32x4& low, F32x4& high) const { eight(i, low, high); }
};

/// Codes that share scale and zero point. The same values as dequantize_uniform gives.
template <class Code>
struct CodeValues {
  const Code* codes;
  float scale;
  int32_t zero_point;

  CodeValues from(size_t i) const { return {codes + i, scale, zero_point}; }
  float at(size_t i) const { return scale * static_cast<float>(codes[i] - zero_point); }
  void eight(size_t i, F32x4& low, F32x4& high) const {
    I32x4 c[2];
    load_eight_codes(codes + i, c);
    low = mul(splat(scale), to_float(opaque(sub(c[0], splat(zero_point)))));
    high = mul(splat(scale), to_float(opaque(sub(c[1], splat(zero_point)))));
  }
  void make(size_t i, F32x4, F32x4, F32x4& low, F32x4& high) const { eight(i, low, high); }
};

/// Codes that are made on the way, the same as those of quantize_uniform. While a division holds up the next ones, the sums cost
/// little.
template <Rounding kRounding, class Code>
struct MadeValues : CodeValues<Code> {
  Code* made;
  Params p;
  I32x4 bottom;  ///< bits of kMagic + the smallest rounded value
  I32x4 top;     ///< and the largest
  F32x4 center;  ///< kMagic + what was added before rounding

  MadeValues from(size_t i) const { return {CodeValues<Code>::from(i), made + i, p, bottom, top, center}; }
  void make(size_t i, F32x4 a, F32x4 b, F32x4& low, F32x4& high) const {
    // One register for both of its uses, but where the zero point is in.
    const F32x4 magic = kRounding == Rounding::kFused ? splat(kMagic) : center;
    const I32x4 first = min_signed(max_signed(rounded_bits<kRounding>(a, p, magic), bottom), top);
    const I32x4 second = min_signed(max_signed(rounded_bits<kRounding>(b, p, magic), bottom), top);
    store_eight_codes(made + i, sub(first, p.bias), sub(second, p.bias));
    // The differences are exact: between integers below 2^24.
    const F32x4 step = kRounding == Rounding::kReciprocal ? splat(this->scale) : p.factor;
    low = mul(step, sub(from_bits(first), center));
    high = mul(step, sub(from_bits(second), center));
  }
};

template <class Values>
void accumulate_block_in_double(const float* x, const Values& y, size_t n, ErrorSums& sums) {
  ErrorSums block;
  for (size_t i = 0; i < n; i++) {
    const float restored = y.at(i);
    if (!is_finite(x[i]) || !is_finite(restored)) {
      sums.non_finite++;
      continue;
    }
    const double a = x[i], b = restored, e = a - b, size = e < 0 ? -e : e;
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

/// Whether a float32 sum of squares lost nothing to overflow or underflow: its terms are then at most 2^120, and those below
/// 2^-126, which float32 rounds coarsely, add up to less than 2^-60 of it.
inline bool is_safe(float sum) { return sum >= 0x1p-80f && sum <= 0x1p120f; }

template <class Values>
bool all_zero(const Values& y, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (y.at(i) != 0) return false;
  }
  return true;
}

/// sum x y of a block.
template <class Values>
[[gnu::noinline]] float sum_products(const float* x, const Values& y, size_t n) {
  F32x4 product = splat(0.0f);
  size_t i = 0;
  SCALEPOINT_NO_UNROLL
  for (; i + 8 <= n; i += 8) {
    F32x4 low, high;
    y.eight(i, low, high);
    product = add(product, add(mul(load(x + i), low), mul(load(x + i + 4), high)));
  }
  if (i < n) {
    float xs[8] = {}, ys[8] = {};
    for (size_t j = 0; i + j < n; j++) {
      xs[j] = x[i + j];
      ys[j] = y.at(i + j);
    }
    product = add(product, add(mul(load(xs), load(ys)), mul(load(xs + 4), load(ys + 4))));
  }
  float total[4];
  store(total, sum_of_each(product, product, product, product));
  return total[0];
}

template <class Values>
void accumulate_error_of(const float* all_x, Values all_y, size_t all, ErrorSums& sums) {
  for (size_t start = 0; start < all; start += kErrorBlock) {
    const size_t n = all - start < kErrorBlock ? all - start : kErrorBlock;
    const float* x = all_x + start;
    const Values y = all_y.from(start);
    F32x4 squared_error = splat(0.0f), absolute_error = squared_error, squared_x = squared_error, squared_y = squared_error;
    I32x4 largest = splat(0);
    // Two vectors are added before they meet a sum: half as many additions have to wait for one another.
    const auto take = [&](F32x4 a, F32x4 b, F32x4 c, F32x4 d) {
      const F32x4 e = sub(a, b), f = sub(c, d);
      const I32x4 size_e = abs_bits(e), size_f = abs_bits(f);
      squared_error = add(squared_error, add(mul(e, e), mul(f, f)));
      absolute_error = add(absolute_error, add(from_bits(size_e), from_bits(size_f)));
      squared_x = add(squared_x, add(mul(a, a), mul(c, c)));
      squared_y = add(squared_y, add(mul(b, b), mul(d, d)));
      largest = max_unsigned(largest, max_unsigned(size_e, size_f));
    };
    size_t i = 0;
    SCALEPOINT_NO_UNROLL
    for (; i + 8 <= n; i += 8) {
      const F32x4 a = load(x + i), b = load(x + i + 4);
      F32x4 low, high;
      y.make(i, a, b, low, high);
      take(a, low, b, high);
    }
    if (i < n) {
      float xs[8] = {}, ys[8] = {};
      for (size_t j = 0; i + j < n; j++) {
        xs[j] = x[i + j];
        ys[j] = y.at(i + j);
      }
      take(load(xs), load(ys), load(xs + 4), load(ys + 4));
    }
    float total[4];
    store(total, sum_of_each(squared_error, squared_x, squared_y, absolute_error));
    const uint32_t max_error = largest_lane(largest);
    if (!(is_safe(total[0]) || max_error == 0) || !(is_safe(total[1]) || all_zero(FloatValues{x}, n)) ||
        !(is_safe(total[2]) || all_zero(y, n))) {
      accumulate_block_in_double(x, y, n, sums);
      continue;
    }
    const double se = total[0], sx = total[1], sy = total[2];
    sums.squared_error += se;
    sums.squared_x += sx;
    sums.squared_y += sy;
    sums.absolute_error += total[3];
    // 2 x y = x^2 + y^2 - e^2 saves a sum where little cancels, which is wherever y restores x by more than 12 dB.
    sums.product += 16 * se <= sx ? (sx + sy - se) / 2 : sum_products(x, y, n);
    const double max_absolute_error = bit_cast<float>(max_error);
    if (max_absolute_error > sums.max_absolute_error) sums.max_absolute_error = max_absolute_error;
  }
}

template <class Code>
void accumulate_code_error(const float* x, const void* codes, size_t n, float scale, int32_t zero_point, ErrorSums& sums) {
  accumulate_error_of(x, CodeValues<Code>{static_cast<const Code*>(codes), scale, zero_point}, n, sums);
}

template <Rounding kRounding, class Code>
bool quantize_measured(const float* x, size_t n, float scale, int32_t zero_point, DType dtype, void* to, ErrorSums& sums) {
  Code* codes = static_cast<Code*>(to);
  const size_t rest = n % 8;
  if (!quantize_uniform<kRounding, Code>(x + n - rest, rest, scale, zero_point, dtype, codes + n - rest)) return false;
  const int32_t in_center = kRounding == Rounding::kFused ? zero_point : 0;
  const int32_t zero_bits = kMagicBits - zero_point + in_center;
  const MadeValues<kRounding, Code> values = {{codes, scale, zero_point},
                                              codes,
                                              Params::make<kRounding>(splat(scale), splat(zero_point)),
                                              splat(zero_bits + dtype.qmin()),
                                              splat(zero_bits + dtype.qmax()),
                                              from_bits(opaque(bits(splat(kMagic + static_cast<float>(in_center)))))};
  // What is not finite is counted among the errors, and need not be looked for once more.
  const ErrorSums before = sums;
  accumulate_error_of(x, values, n, sums);
  if (sums.non_finite == before.non_finite) return true;
  sums = before;
  return false;
}

// ------------------------------------------------------------------------------------------------------------------ tables

#define SCALEPOINT_PER_ROUNDING(f)                                                                                            \
  {                                                                                                                           \
    {&f<Rounding::kOnnx, int8_t>, &f<Rounding::kOnnx, uint8_t>, &f<Rounding::kOnnx, int16_t>, &f<Rounding::kOnnx, uint16_t>}, \
        {&f<Rounding::kFused, int8_t>, &f<Rounding::kFused, uint8_t>, &f<Rounding::kFused, int16_t>,                          \
         &f<Rounding::kFused, uint16_t>},                                                                                     \
    {                                                                                                                         \
      &f<Rounding::kReciprocal, int8_t>, &f<Rounding::kReciprocal, uint8_t>, &f<Rounding::kReciprocal, int16_t>,              \
          &f<Rounding::kReciprocal, uint16_t>                                                                                 \
    }                                                                                                                         \
  }

constexpr PerRounding<PerCodeType<bool (*)(const float*, size_t, float, int32_t, DType, void*)>> kQuantizeUniform =
    SCALEPOINT_PER_ROUNDING(quantize_uniform);
constexpr PerRounding<PerCodeType<bool (*)(const float*, size_t, const float*, const int32_t*, DType, void*)>> kQuantizeEach =
    SCALEPOINT_PER_ROUNDING(quantize_each);
template <Rounding kRounding, class Code>
constexpr auto kEvenRuns = &quantize_even_runs<kRounding, Code, 0>;
template <Rounding kRounding, class Code>
constexpr auto kRunsOf32 = &quantize_even_runs<kRounding, Code, 32>;
template <Rounding kRounding, class Code>
constexpr auto kMeasured = &quantize_measured<kRounding, Code>;
using EvenRuns = uint32_t (*)(const float*, size_t, size_t, const QuantizationSpec&, float*, int32_t*, void*);
using Measured = bool (*)(const float*, size_t, float, int32_t, DType, void*, ErrorSums&);
template <class Function>
struct PerSign {
  Function of_int8, of_uint8;
  Function operator[](DType dtype) const { return dtype.is_signed ? of_int8 : of_uint8; }
};
#define SCALEPOINT_PER_SIGN(f)                                                                                                \
  {                                                                                                                           \
    {f<Rounding::kOnnx, int8_t>, f<Rounding::kOnnx, uint8_t>}, {f<Rounding::kFused, int8_t>, f<Rounding::kFused, uint8_t>}, { \
      f<Rounding::kReciprocal, int8_t>, f<Rounding::kReciprocal, uint8_t>                                                     \
    }                                                                                                                         \
  }
constexpr PerRounding<PerSign<EvenRuns>> kQuantizeEvenRuns = SCALEPOINT_PER_SIGN(kEvenRuns),
                                         kQuantizeRunsOf32 = SCALEPOINT_PER_SIGN(kRunsOf32);
constexpr PerRounding<PerSign<Measured>> kQuantizeMeasured = SCALEPOINT_PER_SIGN(kMeasured);
constexpr PerCodeType<void (*)(const void*, size_t, float, int32_t, float*)> kDequantizeUniform = {
    &dequantize_uniform<int8_t>, &dequantize_uniform<uint8_t>, &dequantize_uniform<int16_t>, &dequantize_uniform<uint16_t>};
constexpr PerCodeType<void (*)(const void*, size_t, const float*, const int32_t*, float*)> kDequantizeEach = {
    &dequantize_each<int8_t>, &dequantize_each<uint8_t>, &dequantize_each<int16_t>, &dequantize_each<uint16_t>};

constexpr PerCodeType<void (*)(const float*, const void*, size_t, float, int32_t, ErrorSums&)> kAccumulateCodeError = {
    &accumulate_code_error<int8_t>, &accumulate_code_error<uint8_t>, &accumulate_code_error<int16_t>,
    &accumulate_code_error<uint16_t>};

}  // namespace

Range range(const float* x, size_t n) {
  Extremes a, b;
  I32x4 nearest_zero = splat(-1);
  const auto take = [&](F32x4 v, Extremes& e) {
    e.take(v);
    nearest_zero = min_unsigned(nearest_zero, bits(v));
  };
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    take(load(x + i), a);
    take(load(x + i + 4), b);
    take(load(x + i + 8), a);
    take(load(x + i + 12), b);
  }
  for_each_vector(x + i, n - i, [&](F32x4 v) { take(v, a); });
  a.take(b);
  int32_t up[4], down[4], near[4];
  store(up, a.up);
  store(down, a.down);
  store(near, nearest_zero);
  for (int j = 1; j < 4; j++) {
    up[0] = up[j] > up[0] ? up[j] : up[0];
    down[0] = static_cast<uint32_t>(down[j]) > static_cast<uint32_t>(down[0]) ? down[j] : down[0];
    near[0] = static_cast<uint32_t>(near[j]) < static_cast<uint32_t>(near[0]) ? near[j] : near[0];
  }
  // Without a sign anywhere, or with one everywhere, the other end is the value nearest to 0, whose bits are the smallest. Adding
  // 0 takes the sign from -0.
  Range r;
  r.min = bit_cast<float>(down[0] < 0 ? down[0] : near[0]) + 0.0f;
  r.max = bit_cast<float>(up[0] >= 0 ? up[0] : near[0]) + 0.0f;
  const uint32_t below = down[0] < 0 ? static_cast<uint32_t>(down[0]) & kAbsMask : 0;
  const uint32_t above = up[0] >= 0 ? static_cast<uint32_t>(up[0]) : 0;
  r.largest = below > above ? below : above;
  return r;
}

Range finite_range(const float* x, size_t n) {
  const F32x4 infinity = from_bits(splat(static_cast<int32_t>(kInfinityBits)));
  F32x4 low = infinity, high = sub(splat(0.0f), infinity);
  for_each_vector(x, n, [&](F32x4 v) {
    v = nan_unless_finite(v);  // and +0 for -0
    low = pmin(low, v);
    high = pmax(high, v);
  });
  float lows[4], highs[4];
  store(lows, low);
  store(highs, high);
  Range r = {lows[0], highs[0], 0};
  for (int j = 1; j < 4; j++) {
    r.min = lows[j] < r.min ? lows[j] : r.min;
    r.max = r.max < highs[j] ? highs[j] : r.max;
  }
  return r;
}

uint32_t range_each(const float* x, size_t n, bool finite_only, float* min, float* max) {
  I32x4 largest = splat(0);
  const auto step = [&](const float* p, float* low, float* high) {
    F32x4 v = load(p);
    largest = max_unsigned(largest, size_of(v));
    v = finite_only ? nan_unless_finite(v) : add(v, splat(0.0f));  // and +0 for -0
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
  return largest_lane(largest) >> 1;
}

bool quantize_uniform(const float* x, size_t n, float scale, int32_t zero_point, CodeFormat format, void* codes) {
  return kQuantizeUniform[format.rounding][format.dtype](x, n, scale, zero_point, format.dtype, codes);
}

bool quantize_each(const float* x, size_t n, const float* scale, const int32_t* zero_point, CodeFormat format, void* codes) {
  return kQuantizeEach[format.rounding][format.dtype](x, n, scale, zero_point, format.dtype, codes);
}

uint32_t quantize_even_runs(const float* x, size_t run_size, size_t runs, const QuantizationSpec& spec, float* scale,
                            int32_t* zero_point, void* codes) {
  const auto& kernel = run_size == 32 ? kQuantizeRunsOf32 : kQuantizeEvenRuns;
  return kernel[spec.rounding][spec.dtype](x, run_size, runs, spec, scale, zero_point, codes);
}

bool quantize_measured(const float* x, size_t n, float scale, int32_t zero_point, CodeFormat format, void* codes,
                       ErrorSums& sums) {
  return kQuantizeMeasured[format.rounding][format.dtype](x, n, scale, zero_point, format.dtype, codes, sums);
}

void dequantize_uniform(const void* codes, DType dtype, size_t n, float scale, int32_t zero_point, float* x) {
  kDequantizeUniform[dtype](codes, n, scale, zero_point, x);
}

void dequantize_each(const void* codes, DType dtype, size_t n, const float* scale, const int32_t* zero_point, float* x) {
  kDequantizeEach[dtype](codes, n, scale, zero_point, x);
}

void accumulate_error(const float* x, const float* y, size_t n, ErrorSums& sums) {
  accumulate_error_of(x, FloatValues{y}, n, sums);
}

void accumulate_code_error(const float* x, const void* codes, DType dtype, size_t n, float scale, int32_t zero_point,
                           ErrorSums& sums) {
  kAccumulateCodeError[dtype](x, codes, n, scale, zero_point, sums);
}

void copy_steps(const float* from, size_t from_step, size_t n, float factor, float* to, size_t to_step) {
  // LLVM would put vectors together from single values, or take them apart.
  for (size_t i = 0; i < n; i++, from = opaque(from + from_step), to = opaque(to + to_step)) *to = factor * *from;
}

}  // namespace scalepoint::kernels
