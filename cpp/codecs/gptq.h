// Codes with scales in the layouts of GPTQ and AWQ, whose matrices have the inputs of a layer down the rows and its outputs in them. A tile
// is the transpose: a row for each output, with all inputs.
// Source: github.com/AutoGPTQ/AutoGPTQ 9f7d3707, auto_gptq/nn_modules/qlinear; ModelCloud/GPTQModel f4c327a1; casper-hansen/AutoAWQ
// 88e4c76b, awq/modules/linear/gemm.py.
#pragma once

#include "codecs/codec.h"
#include "codecs/elements.h"

namespace scalepoint::codecs {

struct Gptq {
  int32_t bits = 4;  ///< 2, 3, 4 or 8; with `outputs` 4
  /// Neighbors in a row that share a scale; the last group of a row may be shorter. 0: whole rows. Without meaning if `grouped`.
  uint32_t group_size = 128;
  /// True: AWQ's words, each of eight neighbors in a column of the tile, in the order 0 2 4 6 1 3 5 7. False: GPTQ's words, which hold
  /// neighbors in a row of the tile.
  bool outputs = false;
  /// True: zero points are stored minus 1, as in GPTQ's first version.
  bool less_one = true;
  /// True: a part has the index of the group of each column. Such codes are read only.
  bool grouped = false;
  bool symmetric = true;                  ///< for encoding: zero points are 2^(bits - 1)
  ElementType scale = ElementType::kF16;  ///< kF32, kF16 or kBF16; for encoding kF16
  bool search = false;                    ///< for encoding: the ranges with the least squared errors
};

/// Codes, scales and zero points are those of CompressedTensors with the same bits, groups and scales.
/// Parts, for R rows, C columns and G groups in a row:
///   data        words [C * bits / 32, R]: a column of words holds the codes of a row, lowest bits first; codes of 3 bits cross words.
///               AWQ: words [C, R / 8]
///   scale       [G, R]
///   zero point  [G, R * bits / 32], codes of a group's rows, lowest bits first; AWQ: words [G, R / 8] as the codes
/// Special: as CompressedTensors.
/// Status:  those of CompressedTensors; kBadDType; kBadLayout unless words hold whole codes: rows and columns are multiples of 32 (AWQ: rows
///          are a multiple of 8), and groups divide rows; for asymmetric codes with `less_one`, which cannot hold a zero point of 0.
[[nodiscard]] Status encode(const Tile& tile, const Gptq& codes, Arena& arena, Encoded& result) noexcept;

/// The same with importance and moments, as CompressedTensors.
[[nodiscard]] Status encode_with_feedback(const Tile& tile, const Gptq& codes, const Moments& moments, Arena& arena,
                                          Encoded& result) noexcept;

/// Restores floats: scale * (code - zero point), rounded once in float32. Rows of a tile may be fewer than those of the matrix, as long as
/// they are whole words.
/// Status:  kBadDType, kBadLayout, kSizeMismatch; kBadScale if a scale is not finite; kBadRange if the index of a group is too large.
[[nodiscard]] Status decode(const Stored& stored, const Gptq& codes, Arena& arena, const float*& x) noexcept;

}  // namespace scalepoint::codecs
