// Blocks of codes as onnxruntime's MatMulNBits quantizer makes them.
// Source: microsoft/onnxruntime core/mlas/lib/q4_dq.cpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "../kernels/minifloat.h"
#include "elements.h"

namespace scalepoint::codecs {

/// The scale of a block, its reciprocal, and its zero point among codes without a sign: a whole number, unless a form has others.
struct BlockScale {
  float scale = 0;
  float reciprocal = 0;
  float zero_point = 0;
};

/// A scale as its type holds it.
inline float stored_scale(float scale, ElementType type) {
  if (type != ElementType::kF16) return scale;
  uint16_t bits = 0;
  kernels::float32_to_float16(&scale, 1, &bits);
  kernels::float16_to_float32(&bits, 1, &scale);
  return scale;
}

/// Gives a block a scale.
inline void set_scale(BlockScale& block, float scale, ElementType type) {
  block.scale = stored_scale(scale, type);
  block.reciprocal = 1.0f / block.scale;
  if (!std::isinf(block.reciprocal)) return;
  block.scale = 0;
  block.reciprocal = 0;
}

/// symmetric   scale = v / -2^(bits - 1), v being the value of largest magnitude, of two the smaller one. So scales may be negative.
///             The zero point is 2^(bits - 1).
/// asymmetric  the range is widened to hold 0; scale = (max - min) / (2^bits - 1), zero point = round_half_away(-min / scale),
///             saturated.
/// All in float32. The reciprocal is that of the scale as it is stored; 0 for a scale of 0. A scale without a finite reciprocal is 0.
inline BlockScale choose_block(float min, float max, int32_t bits, bool symmetric, ElementType type) {
  BlockScale block;
  const auto levels = static_cast<float>((1 << bits) - 1);
  if (symmetric) {
    const float largest = std::fabs(max) > std::fabs(min) ? max : min;
    block.zero_point = static_cast<float>(1 << (bits - 1));
    set_scale(block, largest / -block.zero_point, type);
  } else {
    min = min < 0 ? min : 0.0f;
    max = max > 0 ? max : 0.0f;
    set_scale(block, (max - min) / levels, type);
    const float zero_point = block.scale != 0 ? 0.0f - min / block.scale : min;
    block.zero_point = std::round(zero_point < 0 ? 0.0f : zero_point > levels ? levels : zero_point);
  }
  return block;
}

/// saturate(round_half_away(x / scale + zero point)), without a sign.
inline uint8_t block_code(float x, const BlockScale& block, float levels) {
  float code = x * block.reciprocal + block.zero_point;
  code = code > 0 ? code : 0.0f;
  code = code < levels ? code : levels;
  // Halves go up. The number below 1/2 keeps the next lower float from going up with them.
  return static_cast<uint8_t>(static_cast<int32_t>(code + 0x1.fffffep-2f));
}

inline float block_value(uint8_t code, const BlockScale& block) {
  return (static_cast<float>(code) - block.zero_point) * block.scale;
}

}  // namespace scalepoint::codecs
