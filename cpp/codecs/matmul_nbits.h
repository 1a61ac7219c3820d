// Blocks of codes as the operator MatMulNBits of onnxruntime takes them, made as its quantizer makes them.
// Source: github.com/microsoft/onnxruntime 0400008, docs/ContribOperators.md and onnxruntime/core/mlas/lib/q4_dq.cpp.
#pragma once

#include "codecs/codec.h"
#include "codecs/elements.h"

namespace scalepoint::codecs {

struct MatMulNBits {
  int32_t bits = 4;          ///< 2, 4 or 8
  uint32_t block_size = 32;  ///< 16, 32, 64, 128 or 256
  bool symmetric = true;
  /// True if the rows of a tile are the columns of the matrix B, as in Gemm with transB.
  bool transposed = false;
  ElementType scale = ElementType::kF32;  ///< kF32 or kF16
  /// True: searches for the scales and zero points with the least squared error.
  bool search = false;
  /// True if zero points are floats of the scales' type. Only without `symmetric`.
  bool float_zero_points = false;
  /// For a tile in pieces, one call after the other with the same arena: number of rows of B before this piece, and of all rows. Only
  /// without `transposed`; pieces hold whole blocks. The parts and the problem are those of the tile, the sums those of the piece. 0: the
  /// tile is one piece.
  uint32_t row = 0;
  uint32_t all_rows = 0;
};

/// A tile is K rows of some columns of the matrix B [K, N], all of them. Neighbors in a column make a block; the last block of a
/// column may be shorter.
/// Scale, zero point and codes: as in choose_blocks and block_code, or choose_float_block. A search takes those of search_absmax
///          (symmetric) or of search_qparams instead, with codes that are rounded to the nearest; fit_block improves the latter.
/// Parts:   data        for each column its codes without a sign, blocks one after the other, lowest bits first; missing codes of the
///                      last block are 0
///          scale       for each column those of its blocks
///          zero point  likewise, packed as the codes; each column begins at a whole byte. Or floats, as the scales
/// Special: NaN and infinities are problems. So is a scale beyond float16: kOverflow, at the block's element of largest magnitude.
/// Status:  those of check and Arena; kBadDType for unsupported codes or scales; kBadLayout if the tile is empty, or for any other
///          block_size.
///
/// With the importance of the inputs, one for each of the K rows of B, scales and zero points have the least weighted error among those that
/// search_weighted_scale tries, as they are stored; scales may be negative. `search` counts for nothing then, and a tile is one piece.
[[nodiscard]] Status encode(const Tile& tile, const MatMulNBits& codes, Arena& arena, Encoded& result) noexcept;

/// The same with importance, for codes that pass their errors on. OutputJudge chooses the columns that take these codes. A
/// measured tile has the errors of outputs before and after.
/// Status:  also kBadLayout without importance.
[[nodiscard]] Status encode_with_feedback(const Tile& tile, const MatMulNBits& codes, const Moments& moments, Arena& arena,
                                          Encoded& result) noexcept;

/// Restores floats: (code - zero point) * scale. Zero points that are not stored are 2^(bits - 1).
/// Status:  kBadDType, kBadLayout, kSizeMismatch.
[[nodiscard]] Status decode(const Stored& stored, const MatMulNBits& codes, Arena& arena, const float*& x) noexcept;

}  // namespace scalepoint::codecs
