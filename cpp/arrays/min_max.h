// Ranges of the values that share a parameter: the smallest and the largest value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/layout.h"
#include "arrays/spec.h"
#include "arrays/status.h"

namespace scalepoint {

/// Sets min and max to the empty range, from which observe starts: +infinity and -infinity.
void clear_range(std::span<float> min, std::span<float> max) noexcept;

/// Widens the range [min[p], max[p]] of every parameter p to hold the finite elements that use p. x is the piece
/// [start, start + x.size()) of an array.
/// Special: -0 counts as 0. NaN and infinities are skipped under NonFinite::kSaturate.
/// Status:  kBadLayout, kSizeMismatch if min or max is too short, kNonFinite if x holds NaN or an infinity under kError.
[[nodiscard]] Status observe(std::span<const float> x, const Layout& layout, uint64_t start, NonFinite non_finite,
                             std::span<float> min, std::span<float> max) noexcept;

/// The index of the first NaN or infinity, or x.size() if all of x is finite.
[[nodiscard]] size_t first_non_finite(std::span<const float> x) noexcept;

}  // namespace scalepoint
