// Blocks of codes as onnxruntime's MatMulNBits quantizer makes them.
// Source: github.com/microsoft/onnxruntime 0400008, onnxruntime/core/mlas/lib/q4_dq.cpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "codecs/elements.h"
#include "codecs/scales.h"

namespace scalepoint::codecs {

/// The scale of a block, its reciprocal, and its zero point among codes without a sign: an integer, unless the form has float zero points.
struct BlockScale {
  float scale = 0;
  float reciprocal = 0;
  float zero_point = 0;
};

/// Sets the scale of a block.
void set_scale(BlockScale& block, float scale, ElementType type);

/// saturate(round_half_away(x / scale + zero point)), without a sign.
inline uint8_t block_code(float x, const BlockScale& block, float levels) {
  float code = x * block.reciprocal + block.zero_point;
  code = code > 0 ? code : 0.0f;
  code = code < levels ? code : levels;
  // Round halves up. Adding the float below 1/2 keeps the next lower float from going up, too.
  return static_cast<uint8_t>(static_cast<int32_t>(code + 0x1.fffffep-2f));
}

inline float block_value(uint8_t code, const BlockScale& block) {
  return (static_cast<float>(code) - block.zero_point) * block.scale;
}

}  // namespace scalepoint::codecs
