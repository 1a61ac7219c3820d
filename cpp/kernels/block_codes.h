// The loops over blocks of codes without a sign that MatMulNBits takes, and over the columns that they lie in.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint::kernels {

/// How codes of a block are made, and what they stand for.
struct BlockCodes {
  float scale;
  float reciprocal;
  float zero_point;
  float levels;  ///< the largest code
};

/// codes[i] = x[i] * reciprocal + zero_point, saturated to [0, levels], rounded half away from zero. If y is not null,
/// y[i] = (codes[i] - zero_point) * scale. x is finite.
void make_block_codes(const float* x, size_t n, const BlockCodes& block, uint8_t* codes, float* y);

/// columns[i * stride + row] = x[row * width + i] for `some` columns of a matrix that is `width` wide.
void gather_columns(const float* x, size_t rows, size_t width, size_t some, float* columns, size_t stride);

/// Floats from one gathered column to the next: not a power of two, as then all would lie in the same lines of the cache.
constexpr size_t column_stride(size_t rows) { return (rows + 15) / 16 * 16 + 16; }

}  // namespace scalepoint::kernels
