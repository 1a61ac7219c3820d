// Tensors that stay as they are.
#pragma once

#include "codecs/codec.h"

namespace scalepoint::codecs {

/// The bytes are copied by whoever moves them. The core only looks into them.
struct Copy {};

/// Adds up the sums of floats that lose nothing: they tell how many NaN and infinities there are. There are no parts.
/// Status: those of check and Arena.
[[nodiscard]] Status encode(const Tile& tile, const Copy& copy, Arena& arena, Encoded& result) noexcept;

}  // namespace scalepoint::codecs
