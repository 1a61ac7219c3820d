// Scales, biases and float zero points as files store them: float32, float16 or bfloat16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codecs/elements.h"

namespace scalepoint::codecs {

/// Bytes of a stored scale: 4 or 2, or 0 for other types than kF32, kF16 and kBF16.
[[nodiscard]] constexpr uint32_t scale_bytes_of(ElementType type) {
  return type == ElementType::kF32 ? 4 : type == ElementType::kF16 || type == ElementType::kBF16 ? 2 : 0;
}

/// Rounds n scales to their type, half to even, and converts them back. `to` and `from` are at addresses that suit the type.
void store_scales(const float* scales, size_t n, ElementType type, std::byte* to);
void load_scales(const std::byte* from, size_t n, ElementType type, float* scales);

/// A scale rounded to its type.
[[nodiscard]] float stored_scale(float scale, ElementType type);

/// The scale of a 16-bit type whose bits are `steps` above those of the nearest one. With other types, the scale itself.
[[nodiscard]] float neighbor_scale(float scale, ElementType type, int32_t steps);

}  // namespace scalepoint::codecs
