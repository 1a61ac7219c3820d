// Scales and zero points of blocks with the least squared error.
#pragma once

#include <span>

#include "block_codes.h"

namespace scalepoint::codecs {

/// What a block's zero point may be.
enum class ZeroPointKind { kWhole, kFloat };

/// The sum of squared errors of a block.
[[nodiscard]] double block_error(std::span<const float> x, const BlockScale& block, float levels);

/// A block whose range begins at its smallest value and ends at its largest one, with a zero point that is a float of the scale's type.
[[nodiscard]] BlockScale choose_float_block(float min, float max, float levels, ElementType type);

/// Improves scale and zero point: those that fit the codes best, by least squares, then the codes that follow, and so on while the
/// error becomes less. Takes the better of a block and of another one to begin with.
void fit_block(std::span<const float> x, float levels, ElementType type, ZeroPointKind kind, BlockScale& block,
               const BlockScale& other);

}  // namespace scalepoint::codecs
