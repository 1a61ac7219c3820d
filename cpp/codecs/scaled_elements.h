// Elements of eight bits with scales for rectangles of a matrix, as several tools store float8 weights: one scale for a tensor, for a row,
// or for each block, as in DeepSeek's checkpoints.
#pragma once

#include "codecs/codec.h"
#include "codecs/elements.h"

namespace scalepoint::codecs {

/// Types of such elements.
enum class ScaledType : int32_t { kF8_E4M3 = 0, kF8_E5M2 = 1, kI8 = 2 };

struct ScaledElements {
  ScaledType type = ScaledType::kF8_E4M3;
  ElementType scale = ElementType::kF32;  ///< kF32, kF16 or kBF16
  /// Rows and columns of the tensor that share a scale, from its first ones on. 0: all of them.
  uint32_t block_rows = 0;
  uint32_t block_columns = 0;
  /// True for kI8 with one scale, and a zero point of the same type beside it.
  bool has_zero_point = false;
};

/// Restores floats: element * scale in float32, or (element - zero point) * scale. A tile begins with a block, and scales are those of its blocks, row by row.
/// Status: kBadDType, also for a zero point of others; kBadLayout for an empty tile, kSizeMismatch, kBadScale if a scale is negative or not finite.
[[nodiscard]] Status decode(const Stored& stored, const ScaledElements& elements, Arena& arena, const float*& x) noexcept;

}  // namespace scalepoint::codecs
