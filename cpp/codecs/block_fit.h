// Scales and zero points of blocks with the least squared error.
#pragma once

#include <span>

#include "codecs/block_codes.h"

namespace scalepoint::codecs {

/// Type of a block's zero point: an integer or a float.
enum class ZeroPointKind { kWhole, kFloat };

/// The sum of squared errors of a block.
[[nodiscard]] double block_error(std::span<const float> x, const BlockScale& block, float levels);

/// A block whose range begins at its smallest value and ends at its largest one, with a zero point that is a float of the scale's type.
[[nodiscard]] BlockScale choose_float_block(float min, float max, float levels, ElementType type);

/// Improves the scale and the zero point of a block: fits them to the codes by least squares, makes new codes, and repeats this while the
/// error falls. Starts from `block` and from `other`. Stores the best result in `block`.
void fit_block(std::span<const float> x, float levels, ElementType type, ZeroPointKind kind, BlockScale& block,
               const BlockScale& other);

}  // namespace scalepoint::codecs
