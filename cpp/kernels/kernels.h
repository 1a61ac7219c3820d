// The hot loops. No checks: the callers in cpp/*.cpp have made them. Pointers need the alignment of their elements; any n
// is fine, 0 too, unless a comment says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../error_sums.h"
#include "../spec.h"

namespace scalepoint::kernels {

/// The range of x and the largest |x|, the latter as bits (see kAbsMask): at least kInfinityBits if x holds NaN or an infinity.
struct Range {
  float min;
  float max;
  uint32_t largest;
};

/// n > 0. If the largest |x| is not finite, min and max mean nothing.
Range range(const float* x, size_t n);
/// min and max over the finite values alone, from +infinity and -infinity; largest is not set. n > 0.
Range finite_range(const float* x, size_t n);

/// min[i] = min(min[i], x[i]), max likewise; NaN is left out, and infinities too if finite_only. Returns the largest |x| as bits.
uint32_t range_each(const float* x, size_t n, bool finite_only, float* min, float* max);

/// How the codes of a run or of a call are made; see quantize_value.
struct CodeFormat {
  DType dtype;
  Rounding rounding;
};

/// Largest size of a zero point up to which the fast rounding holds for kOnnx and kReciprocal: every code's x / scale is then at
/// most 2^22 in size. Beyond it the callers go value by value.
inline constexpr int32_t kMaxFastZeroPoint = kMaxZeroPoint - 65536;

/// Codes with one scale and zero point. Returns whether they hold: false if x has NaN or an infinity, or a quotient below
/// -1.5 * 2^23; such arrays are for quantize_value.
bool quantize_uniform(const float* x, size_t n, float scale, int32_t zero_point, CodeFormat format, void* codes);
/// Codes with a scale and zero point for every element, likewise.
bool quantize_each(const float* x, size_t n, const float* scale, const int32_t* zero_point, CodeFormat format, void* codes);

/// Range, parameters and codes of adjacent runs, four at a time: their horizontal maxima come out of one transpose and their
/// scales out of one division, where one run after the other would wait for each. runs is a multiple of 4, run_size of 16; the
/// dtype has at most 8 bits, and the scheme is symmetric or includes zero. Returns the largest |x| as bits; if that is not finite
/// the results mean nothing.
uint32_t quantize_even_runs(const float* x, size_t run_size, size_t runs, const QuantizationSpec& spec, float* scale,
                            int32_t* zero_point, void* codes);

/// quantize_uniform and accumulate_code_error in one pass, for dtypes of at most 8 bits: the same codes and sums, bit for bit.
/// Sums are left alone if it returns false.
bool quantize_measured(const float* x, size_t n, float scale, int32_t zero_point, CodeFormat format, void* codes,
                       ErrorSums& sums);

void dequantize_uniform(const void* codes, DType dtype, size_t n, float scale, int32_t zero_point, float* x);
void dequantize_each(const void* codes, DType dtype, size_t n, const float* scale, const int32_t* zero_point, float* x);

/// Elements that accumulate_error sums in float32 before it adds to the doubles.
inline constexpr size_t kErrorBlock = 512;

/// Adds the pairs to sums, with blocks counted from x.
void accumulate_error(const float* x, const float* y, size_t n, ErrorSums& sums);
/// The same for y = the dequantized codes; bit for bit what dequantize_uniform and accumulate_error give.
void accumulate_code_error(const float* x, const void* codes, DType dtype, size_t n, float scale, int32_t zero_point,
                           ErrorSums& sums);

/// to[i * to_step] = factor * from[i * from_step], one by one.
void copy_steps(const float* from, size_t from_step, size_t n, float factor, float* to, size_t to_step);

}  // namespace scalepoint::kernels
