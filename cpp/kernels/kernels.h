// The hot loops. No checks: the callers in cpp/*.cpp have made them. Pointers need no alignment; any n is fine, 0 too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../scalepoint.h"

namespace scalepoint::kernels {

/// The range of x and the largest |x|, the latter as bits (see kAbsMask): at least kInfinityBits if x holds NaN or an infinity.
struct Range {
  float min;
  float max;
  uint32_t largest;
};

/// min and max over x, starting from +infinity and -infinity. NaN is left out of both; infinities are not.
Range range(const float* x, size_t n);
/// The same over the finite values alone.
Range finite_range(const float* x, size_t n);

/// min[i] = min(min[i], x[i]), max likewise; NaN is left out, and infinities too if finite_only. Returns the largest |x| as bits.
uint32_t range_each(const float* x, size_t n, bool finite_only, float* min, float* max);

/// How the codes of a run or of a call are made; see quantize_value.
struct CodeFormat {
  DType dtype;
  Rounding rounding;
};

/// Largest size of a zero point up to which the fast rounding holds for kOnnx and kReciprocal: every code's x / scale is then at most
/// 2^22 in size. Beyond it the callers go value by value.
inline constexpr int32_t kMaxFastZeroPoint = kMaxZeroPoint - 65536;

/// Codes with one scale and zero point. Returns the largest |x| as bits.
uint32_t quantize_uniform(const float* x, size_t n, float scale, int32_t zero_point, CodeFormat format, void* codes);
/// Codes with a scale and zero point for every element.
uint32_t quantize_each(const float* x, size_t n, const float* scale, const int32_t* zero_point, CodeFormat format, void* codes);

/// Four runs of run_size elements side by side: range, parameters and codes. run_size is a multiple of 16; the dtype has at most 8 bits,
/// the scheme is symmetric or includes zero. Returns the largest |x| as bits; if that is not finite the results mean nothing.
uint32_t quantize_four_runs(const float* x, size_t run_size, const QuantizationSpec& spec, float* scale, int32_t* zero_point,
                            void* codes);

void dequantize_uniform(const void* codes, DType dtype, size_t n, float scale, int32_t zero_point, float* x);
void dequantize_each(const void* codes, DType dtype, size_t n, const float* scale, const int32_t* zero_point, float* x);

/// Adds the pairs to sums, as accumulate_error says, with blocks counted from x.
void accumulate_error(const float* x, const float* y, size_t n, ErrorSums& sums);

void float16_to_float32(const uint16_t* bits, size_t n, float* x);
void bfloat16_to_float32(const uint16_t* bits, size_t n, float* x);

}  // namespace scalepoint::kernels
