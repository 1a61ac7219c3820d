// Codes of 4 bits with a scale for each 32, as MLC-LLM quantizes weights for WebLLM.
// Source: github.com/mlc-ai/mlc-llm 01ced331, python/mlc_llm/quantization/group_quantization.py; apache/tvm 0906717, python/tvm/contrib/tvmjs.py.
#pragma once

#include "codecs/codec.h"
#include "codecs/elements.h"

namespace scalepoint::codecs {

struct Mlc {
  /// The type that MLC computes in: kF16 for q4f16_1, kF32 for q4f32_1. Scales have this type, too; those of kF32 are stored as bfloat16.
  ElementType floats = ElementType::kF16;
  /// True: searches for the scale with the least squared error, as it is stored.
  bool search = false;
};

/// A code q stands for (q - 7) * scale, rounded to float16 with kF16.
///
/// Rule:    every operation is rounded to the type, the elements first. scale = max|x| / 7; q = x / scale + 7, rounded half to even and
///          saturated to [0, 14]. In a group of scale 0, elements that are 0 have code 0, and others 0 or 14 by their sign. Codes are made
///          with the scale before it is stored.
/// Search:  tries ggml's best scales of Q4_0, which has the same levels from the other end, and with bfloat16 fits them to the codes. Code 15
///          is used, too. Elements are not rounded. Takes what the rule makes if nothing else has a smaller error.
///          With importance, search_weighted_scale finds the scale of these levels with the least weighted error in place of both.
/// Parts:   data   codes of a row, lowest bits first, eight to a word of 32 bits
///          scale  one for each group of 32 neighbors in a row, row by row
/// Special: NaN and infinities are problems. Elements beyond the type are kOverflow.
/// Status:  those of check and Arena; kBadDType; kBadLayout if the tile is empty or groups do not divide its rows.
[[nodiscard]] Status encode(const Tile& tile, const Mlc& codes, Arena& arena, Encoded& result) noexcept;

/// The same for whole rows that pass their errors on: see encode_fed_rows. Groups are searched for.
[[nodiscard]] Status encode_with_feedback(const Tile& tile, const Mlc& codes, const Moments& moments, Arena& arena,
                                          Encoded& result) noexcept;

/// Restores floats, as the model does.
/// Status:  kBadDType, kBadLayout, kSizeMismatch; kBadScale if a scale is not finite.
[[nodiscard]] Status decode(const Stored& stored, const Mlc& codes, Arena& arena, const float*& x) noexcept;

}  // namespace scalepoint::codecs
