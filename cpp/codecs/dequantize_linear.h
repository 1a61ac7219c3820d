// Codes with scales as ONNX's DequantizeLinear takes them, made as onnxruntime's quantization tools make them.
// Sources: DequantizeLinear-25 of ONNX; github.com/microsoft/onnxruntime 1.20, onnxruntime/python/tools/quantization/quant_utils.py
// (compute_scale_zp).
#pragma once

#include "codecs/codec.h"
#include "codecs/elements.h"
#include "ranges/range_search.h"

namespace scalepoint::codecs {

/// The elements of a tile that share a scale.
enum class Sharing : int32_t {
  kTile = 0,          ///< all of them
  kRows = 1,          ///< those of a row
  kColumns = 2,       ///< those of a column
  kRowBlocks = 3,     ///< neighbors in a row
  kColumnBlocks = 4,  ///< neighbors in a column
};

struct DequantizeLinear {
  int32_t bits = 8;  ///< 2, 4 or 8
  bool is_signed = true;
  bool symmetric = true;
  /// True: codes of 8 bits have the range of a 7-bit integer, so that 16 bits hold each sum of two products with uint8.
  bool reduced = false;
  Sharing sharing = Sharing::kTile;
  uint32_t block_size = 0;                ///< elements of a block; the last block of a line may be shorter
  ElementType scale = ElementType::kF32;  ///< kF32 or kF16
  /// True: searches for ranges. Otherwise they reach from the smallest to the largest value.
  bool search = false;
  RangeMethod method = RangeMethod::kMse;
  double percentile = 100;  ///< of RangeMethod::kPercentile
  /// Smaller scales, and those of sets of zeros, become this one. Only for symmetric codes without blocks; 0 for any scale.
  float least_scale = 0;
  /// True if observe continues from rows before these, whose ranges lie at the beginning of the same memory. Only for ranges of columns
  /// without a search.
  bool goes_on = false;
};

/// Codes with a scale for each set of elements that share one.
///
/// Range:   from the smallest to the largest value, widened to hold 0; or from search_qparams. For sets larger than a tile, tile.ranges has
///          the range of each set, or, with a search, its scale and zero point (see observe).
/// Scale:   without blocks symmetric 2 absmax / (2^bits - 2), asymmetric (max - min) / (2^bits - 1), in double, rounded to float32
///          last. Below the smallest normal float it is 1, and the zero point 0. In blocks as choose_blocks has it. The bits of reduced
///          codes are 7 here.
///          At least least_scale.
/// Zero:    symmetric 0, or 2^(bits - 1) if unsigned; asymmetric round_half_even(qmin - min / scale) with the scale in double.
/// Codes:   saturate(round_half_even(x / scale) + zero point), with the scale as it is stored. In blocks as choose_blocks has it.
///
/// Parts:   data        codes of less than 8 bits side by side, lowest bits first; the last byte is filled with zeros
///          scale       one for each set, in row-major order
///          zero point  likewise, as the codes
/// Special: NaN and infinities are problems. So is a scale beyond float16: kOverflow, at the set's element of largest magnitude.
/// Status:  those of check, Arena and search_qparams; kBadDType for unsupported codes or scales; kBadLayout if the tile is empty, or for
///          blocks without a size.
///
/// With importance, scales and zero points have the least weighted error among those that search_weighted_scale tries, as they are stored;
/// those of blocks may be negative. Inputs, which importance weighs, are the rows of the tile where columns share scales, else the columns;
/// kTile is a layout without them. `search` counts for nothing then, and the tile has no ranges.
[[nodiscard]] Status encode(const Tile& tile, const DequantizeLinear& codes, Arena& arena, Encoded& result) noexcept;

/// The same with importance, for codes that pass their errors on. OutputJudge chooses the outputs that take these. A measured
/// tile has the errors of outputs before and after.
/// Status:  also kBadLayout without importance.
[[nodiscard]] Status encode_with_feedback(const Tile& tile, const DequantizeLinear& codes, const Moments& moments, Arena& arena,
                                          Encoded& result) noexcept;

/// Restores floats: (code - zero point) * scale. Zero points that are not stored are 0, or 2^(bits - 1) for symmetric codes without a sign.
/// Status:  kBadDType, kBadLayout, kSizeMismatch.
[[nodiscard]] Status decode(const Stored& stored, const DequantizeLinear& codes, Arena& arena, const float*& x) noexcept;

/// Observes sets that are larger than a tile, for encode. Results, one for each set, in the arena: the smallest and the largest of its
/// values in this tile, which may be widened to hold 0; or, with a search, its scale and its zero point, for which the tile has to hold the
/// whole set.
[[nodiscard]] Status observe(const Tile& tile, const DequantizeLinear& codes, Arena& arena, const ValueRange*& ranges,
                             uint32_t& count, Problem& problem) noexcept;

}  // namespace scalepoint::codecs
