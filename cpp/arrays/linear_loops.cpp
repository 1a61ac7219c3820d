#include "arrays/linear_loops.h"

#include <cstring>

#include "arrays/dispatch_loops.h"
#include "arrays/rounding_loops.h"
#include "lanes/lanes.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

template <Rounding kRounding, class Code>
bool quantize_uniform_as(const float* x, size_t n, float scale, int32_t zero_point, DType dtype, void* to) {
  const Params p = Params::make<kRounding>(splat(scale), splat(zero_point));
  Code* codes = static_cast<Code*>(to);
  I32x4 farthest = splat(0);
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) quantize_step<kRounding>(x + i, codes + i, p, dtype, farthest);
  if (i < n && n >= kStep) {
    // Repeat the last step up to the end. It makes the same codes where it overlaps.
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
bool quantize_each_as(const float* x, size_t n, const float* scale, const int32_t* zero_point, DType dtype, void* to) {
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

template <class Code>
inline void dequantize_step(const Code* codes, F32x4 scale, I32x4 zero_point, float* x) {
  I32x4 c[4];
  load_codes(codes, c);
  for (int j = 0; j < 4; j++) store(x + 4 * j, mul(scale, to_float(opaque(sub(c[j], zero_point)))));
}

template <class Code>
void dequantize_uniform_as(const void* from, size_t n, float scale, int32_t zero_point, float* x) {
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
void dequantize_each_as(const void* from, size_t n, const float* scale, const int32_t* zero_point, float* x) {
  const Code* codes = static_cast<const Code*>(from);
  size_t i = 0;
  // Continue in steps of eight, because stretches with a parameter for each element are often that short.
  for (; i + 8 <= n; i += 8) {
    I32x4 c[2];
    load_eight_codes(codes + i, c);
    for (size_t j = 0; j < 2; j++) {
      const size_t k = i + 4 * j;
      store(x + k, mul(load(scale + k), to_float(opaque(sub(c[j], load(zero_point + k))))));
    }
  }
  for (; i < n; i++) x[i] = scale[i] * static_cast<float>(codes[i] - zero_point[i]);
}

constexpr PerRounding<PerCodeType<bool (*)(const float*, size_t, float, int32_t, DType, void*)>> kQuantizeUniform =
    SCALEPOINT_PER_ROUNDING(quantize_uniform_as);
constexpr PerRounding<PerCodeType<bool (*)(const float*, size_t, const float*, const int32_t*, DType, void*)>> kQuantizeEach =
    SCALEPOINT_PER_ROUNDING(quantize_each_as);
constexpr PerCodeType<void (*)(const void*, size_t, float, int32_t, float*)> kDequantizeUniform =
    SCALEPOINT_PER_CODE_TYPE(dequantize_uniform_as);
constexpr PerCodeType<void (*)(const void*, size_t, const float*, const int32_t*, float*)> kDequantizeEach =
    SCALEPOINT_PER_CODE_TYPE(dequantize_each_as);

}  // namespace

bool quantize_uniform(const float* x, size_t n, float scale, int32_t zero_point, CodeFormat format, void* codes) {
  return kQuantizeUniform[format.rounding][format.dtype](x, n, scale, zero_point, format.dtype, codes);
}

bool quantize_each(const float* x, size_t n, const float* scale, const int32_t* zero_point, CodeFormat format, void* codes) {
  return kQuantizeEach[format.rounding][format.dtype](x, n, scale, zero_point, format.dtype, codes);
}

void dequantize_uniform(const void* codes, DType dtype, size_t n, float scale, int32_t zero_point, float* x) {
  kDequantizeUniform[dtype](codes, n, scale, zero_point, x);
}

void dequantize_each(const void* codes, DType dtype, size_t n, const float* scale, const int32_t* zero_point, float* x) {
  kDequantizeEach[dtype](codes, n, scale, zero_point, x);
}

}  // namespace scalepoint::loops
