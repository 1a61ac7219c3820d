// Tensors that stay as they are.
#pragma once

#include "codecs/codec.h"

namespace scalepoint::codecs {

/// The caller copies the bytes. The core only reads them.
struct Copy {};

/// Makes the error sums of unchanged floats, which count NaN and infinities. Makes no parts.
/// Status: those of check and Arena.
[[nodiscard]] Status encode(const Tile& tile, const Copy& copy, Arena& arena, Encoded& result) noexcept;

}  // namespace scalepoint::codecs
