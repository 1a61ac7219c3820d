// Tensors that stay as they are.
#pragma once

#include "codec.h"

namespace scalepoint::codecs {

/// The bytes are copied by whoever moves them; the core only looks into them.
struct Copy {};

/// Adds up the sums of floats that lose nothing. There are no parts. The sums tell how many NaN and infinities there are.
/// Status: those of check and Arena.
[[nodiscard]] Status encode(const Tile& tile, const Copy& copy, Arena& arena, Encoded& result) noexcept;

}  // namespace scalepoint::codecs
