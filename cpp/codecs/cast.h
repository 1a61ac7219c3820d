// Floats of another type.
#pragma once

#include "codecs/codec.h"
#include "codecs/elements.h"

namespace scalepoint::codecs {

struct Cast {
  ElementType to = ElementType::kF16;  ///< kF32, kF16 or kBF16
  /// For 16 bits. True: finite values beyond the type become its largest one, and values that would become 0, such as an epsilon in a
  /// divisor, its smallest one.
  bool saturate = false;
};

/// Rounds half to even, float64 too: once, from the stored value. Part: data.
/// Special: NaN stays NaN, infinities stay infinite; the sums count them. A finite value that becomes an infinity is kOverflow,
///          unless it saturates.
/// Sums:    against the elements as float32; with the number of elements that became the largest value.
/// Status:  those of check and Arena; kBadDType for types without a cast.
[[nodiscard]] Status encode(const Tile& tile, const Cast& cast, Arena& arena, Encoded& result) noexcept;

}  // namespace scalepoint::codecs
