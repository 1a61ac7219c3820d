// Loops over ggml's blocks. ggml_blocks.cpp checks arguments. n counts blocks. The results are ggml's, byte for byte:
// float32 throughout, sums in the order of the elements, no contraction of products and sums.
#pragma once

#include <cstddef>

namespace scalepoint::loops {

/// Returns false if x holds NaN or an infinity, or if a scale or minimum is beyond float16; `out` is then undefined.
bool quantize_q8_0(const float* x, size_t n, std::byte* out);
bool quantize_q4_0(const float* x, size_t n, std::byte* out);
bool quantize_q4_1(const float* x, size_t n, std::byte* out);
bool quantize_q5_0(const float* x, size_t n, std::byte* out);
bool quantize_q5_1(const float* x, size_t n, std::byte* out);
bool quantize_iq4_nl(const float* x, size_t n, std::byte* out);
bool quantize_mxfp4(const float* x, size_t n, std::byte* out);
bool quantize_iq4_xs(const float* x, size_t n, std::byte* out);
bool quantize_tq1_0(const float* x, size_t n, std::byte* out);
bool quantize_tq2_0(const float* x, size_t n, std::byte* out);
bool quantize_q1_0(const float* x, size_t n, std::byte* out);
bool quantize_q2_0(const float* x, size_t n, std::byte* out);

/// K-quants. All of x is finite. `weights` are those of the squared errors of elements; null if they follow from x.
void quantize_q2_k(const float* x, const float* weights, size_t n, std::byte* out);
void quantize_q3_k(const float* x, const float* weights, size_t n, std::byte* out);
void quantize_q4_k(const float* x, const float* weights, size_t n, std::byte* out);
void quantize_q5_k(const float* x, const float* weights, size_t n, std::byte* out);
void quantize_q6_k(const float* x, const float* weights, size_t n, std::byte* out);

/// Types that search only with weights, and types with uneven levels. All of x is finite.
void quantize_weighted_q4_0(const float* x, const float* weights, size_t n, std::byte* out);
void quantize_weighted_q4_1(const float* x, const float* weights, size_t n, std::byte* out);
void quantize_weighted_q5_0(const float* x, const float* weights, size_t n, std::byte* out);
void quantize_weighted_q5_1(const float* x, const float* weights, size_t n, std::byte* out);
void quantize_weighted_iq4_nl(const float* x, const float* weights, size_t n, std::byte* out);
void quantize_weighted_iq4_xs(const float* x, const float* weights, size_t n, std::byte* out);

/// Types with grids. All of x is finite. Weights as for K-quants, but IQ2_XXS, IQ2_XS and IQ1_S require them. Returns false if a
/// scale is beyond float16, or if numbers in the search exceed float32.
bool quantize_iq3_xxs(const float* x, const float* weights, size_t n, std::byte* out);
bool quantize_iq3_s(const float* x, const float* weights, size_t n, std::byte* out);
bool quantize_iq2_xxs(const float* x, const float* weights, size_t n, std::byte* out);
bool quantize_iq2_xs(const float* x, const float* weights, size_t n, std::byte* out);
bool quantize_iq2_s(const float* x, const float* weights, size_t n, std::byte* out);
bool quantize_iq1_s(const float* x, const float* weights, size_t n, std::byte* out);
bool quantize_iq1_m(const float* x, const float* weights, size_t n, std::byte* out);

/// The sum of the squares of n elements in their order.
float sum_squares(const float* x, size_t n);

/// weights[i] = importance[i] * sqrt(mean + x[i]^2).
void make_weights(const float* x, const float* importance, size_t n, float mean, float* weights);

/// Restores floats from blocks. Any bytes are valid.
void dequantize_q8_0(const std::byte* blocks, size_t n, float* x);
void dequantize_q4_0(const std::byte* blocks, size_t n, float* x);
void dequantize_q4_1(const std::byte* blocks, size_t n, float* x);
void dequantize_q5_0(const std::byte* blocks, size_t n, float* x);
void dequantize_q5_1(const std::byte* blocks, size_t n, float* x);
void dequantize_iq4_nl(const std::byte* blocks, size_t n, float* x);
void dequantize_mxfp4(const std::byte* blocks, size_t n, float* x);
void dequantize_q2_k(const std::byte* blocks, size_t n, float* x);
void dequantize_q3_k(const std::byte* blocks, size_t n, float* x);
void dequantize_q4_k(const std::byte* blocks, size_t n, float* x);
void dequantize_q5_k(const std::byte* blocks, size_t n, float* x);
void dequantize_q6_k(const std::byte* blocks, size_t n, float* x);
void dequantize_iq4_xs(const std::byte* blocks, size_t n, float* x);
void dequantize_tq1_0(const std::byte* blocks, size_t n, float* x);
void dequantize_tq2_0(const std::byte* blocks, size_t n, float* x);
void dequantize_q1_0(const std::byte* blocks, size_t n, float* x);
void dequantize_q2_0(const std::byte* blocks, size_t n, float* x);
void dequantize_iq3_xxs(const std::byte* blocks, size_t n, float* x);
void dequantize_iq3_s(const std::byte* blocks, size_t n, float* x);
void dequantize_iq2_xxs(const std::byte* blocks, size_t n, float* x);
void dequantize_iq2_xs(const std::byte* blocks, size_t n, float* x);
void dequantize_iq2_s(const std::byte* blocks, size_t n, float* x);
void dequantize_iq1_s(const std::byte* blocks, size_t n, float* x);
void dequantize_iq1_m(const std::byte* blocks, size_t n, float* x);

}  // namespace scalepoint::loops
