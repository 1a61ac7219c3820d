// Floats of another type.
#pragma once

#include "codec.h"
#include "elements.h"

namespace scalepoint::codecs {

struct Cast {
  ElementType to = ElementType::kF16;  ///< kF32, kF16 or kBF16
  /// Whether a finite value that the type does not reach becomes its largest one.
  bool saturate = false;
};

/// Rounds half to even, float64 too: once, from the stored value. Part: data.
/// Special: NaN stays NaN, infinities stay infinite; the sums count them. A finite value that becomes an infinity is kOverflow,
///          unless it saturates.
/// Sums:    against the elements as float32.
/// Status:  those of check and Arena; kBadDType if there is no cast to that type.
[[nodiscard]] Status encode(const Tile& tile, const Cast& cast, Arena& arena, Encoded& result) noexcept;

}  // namespace scalepoint::codecs
