// Blocks of 4-bit floats as the operator MatMulBnb4 of onnxruntime takes them.
// Source: github.com/microsoft/onnxruntime 2944c6f, docs/ContribOperators.md and
// onnxruntime/contrib_ops/cpu/quantization/blockwise_quant_block_bnb4.h.
#pragma once

#include "codebooks/codebook.h"
#include "codecs/codec.h"
#include "codecs/elements.h"

namespace scalepoint::codecs {

struct MatMulBnb4 {
  PublishedCodebook book = PublishedCodebook::kNf4;
  uint32_t block_size = 64;  ///< a divisor of the rows of the matrix B, 16 to 256
  /// True if the rows of a tile are the columns of the matrix B, as in Gemm with transB.
  bool transposed = false;
};

/// A tile is K rows of some columns of the matrix B [K, N], all of them. Neighbors in a column make a block, whose scale is its largest
/// magnitude, or with the importance of rows of B the one with the least error that search_weighted_scale finds. Codes are those of
/// quantize_codebook with bitsandbytes' own decisions.
/// Parts:   data   for each column its codes, two a byte, the first one in the upper half
///          scale  float32, for each column those of its blocks
/// Special: NaN and infinities are problems.
/// Status:  those of check and Arena; kBadLayout if the tile is empty, or for any other block_size.
[[nodiscard]] Status encode(const Tile& tile, const MatMulBnb4& codes, Arena& arena, Encoded& result) noexcept;

/// The same for whole columns that pass their errors on: see encode_fed_rows. Status: also kBadDType for other codebooks than NF4.
[[nodiscard]] Status encode_with_feedback(const Tile& tile, const MatMulBnb4& codes, const Moments& moments, Arena& arena,
                                          Encoded& result) noexcept;

/// Restores floats from stored codes.
/// Status:  kBadLayout, kSizeMismatch.
[[nodiscard]] Status decode(const Stored& stored, const MatMulBnb4& codes, Arena& arena, const float*& x) noexcept;

}  // namespace scalepoint::codecs
