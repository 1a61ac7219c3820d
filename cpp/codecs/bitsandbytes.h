// Codes of bitsandbytes: 4-bit floats in blocks of a matrix read as one row, and int8 codes with a scale for each row.
// Source: github.com/bitsandbytes-foundation/bitsandbytes 95f9af30, bitsandbytes/functional.py, bitsandbytes/backends/default/ops.py and
// csrc/kernels.cu.
#pragma once

#include "codebooks/codebook.h"
#include "codecs/codec.h"
#include "codecs/elements.h"

namespace scalepoint::codecs {

struct BitsAndBytes {
  /// True: int8 codes; the other members have no meaning. False: indices of 4 bits, the first of two in the upper half of a byte.
  bool int8 = false;
  PublishedCodebook book = PublishedCodebook::kNf4;
  uint32_t block_size = 64;            ///< elements that share a scale
  uint32_t outer_size = 0;             ///< scales that share a scale of their own; 0: scales are float32
  float offset = 0;                    ///< added to scales of scales
  ElementType to = ElementType::kF32;  ///< type that restored elements are rounded to: kF32, kF16 or kBF16
};

/// Restores floats of a tile that begins with a block, and with a block of scales.
///   int8     code * scale * float32(1 / 127), both products rounded; scale: float32, one for each row
///   4 bits   table[code] * scale, rounded to float32, then to the type; scale: float32, or table[code] * outer scale + offset of a byte's
///            code, both operations rounded; the last block may be shorter
/// Status:  kBadDType, kBadLayout, kSizeMismatch; kBadScale if a scale is not finite.
[[nodiscard]] Status decode(const Stored& stored, const BitsAndBytes& codes, Arena& arena, const float*& x) noexcept;

}  // namespace scalepoint::codecs
