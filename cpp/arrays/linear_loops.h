// Loops between floats and codes with a scale and a zero point. Callers check arguments. Pointers need the alignment of their elements. n
// may be any number, including 0, unless a comment says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arrays/error_sums.h"
#include "arrays/metrics_loops.h"
#include "arrays/spec.h"

namespace scalepoint::loops {

/// Range, rounding and type of codes; see quantize_value.
struct CodeFormat {
  DType dtype;
  Rounding rounding;
};

/// The fast rounding holds for kOnnx and kReciprocal while |zero_point| is at most this: |x / scale| of every code is then at
/// most 2^22. Callers convert value by value beyond it.
inline constexpr int32_t kMaxFastZeroPoint = kMaxZeroPoint - 65536;

/// Makes codes with one scale and one zero point. Returns false if the codes are wrong, because x has NaN or an infinity, or a quotient
/// below -1.5 * 2^23. Use quantize_value for such arrays.
bool quantize_uniform(const float* x, size_t n, float scale, int32_t zero_point, CodeFormat format, void* codes);

/// The same with a scale and a zero point for every element.
bool quantize_each(const float* x, size_t n, const float* scale, const int32_t* zero_point, CodeFormat format, void* codes);

/// Makes range, parameters and codes of adjacent runs, four runs at a time. One transpose gives the ranges of four runs, and one division
/// their scales. Single runs would wait for each of these operations. `runs` is a multiple of 4 and run_size of 16. The dtype has at most 8
/// bits. The scheme is symmetric, or includes zero. Returns the bits of the largest |x|. If that is not finite, the results are undefined.
uint32_t quantize_even_runs(const float* x, size_t run_size, size_t runs, const QuantizationSpec& spec, float* scale,
                            int32_t* zero_point, void* codes);

/// quantize_uniform for each run and accumulate_code_error (metrics_loops.h) in one pass: the same codes and the same sums, bit for bit.
/// The dtype has at most 8 bits. Returns false if the codes are wrong; sums are then unchanged.
bool quantize_measured(const float* x, size_t n, const Runs& runs, CodeFormat format, void* codes, ErrorSums& sums);

/// quantize_each with Rounding::kOnnx, dequantize_each and accumulate_error in one pass, where all zero points are the same: the same codes
/// and the same sums, bit for bit. The dtype has at most 8 bits. Returns false if the codes are wrong; sums are then unchanged. Without
/// vectors it always returns false.
bool quantize_each_measured(const float* x, size_t n, const float* scale, int32_t zero_point, DType dtype, void* codes,
                            ErrorSums& sums);

/// x[i] = scale * (codes[i] - zero_point).
void dequantize_uniform(const void* codes, DType dtype, size_t n, float scale, int32_t zero_point, float* x);

/// The same with a scale and a zero point for every element.
void dequantize_each(const void* codes, DType dtype, size_t n, const float* scale, const int32_t* zero_point, float* x);

}  // namespace scalepoint::loops
