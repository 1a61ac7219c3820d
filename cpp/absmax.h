// The scale of each block of a codebook's codes, called absmax.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codebook.h"
#include "status.h"

namespace scalepoint {

/// absmax[b] = max(absmax[b], |x|) over the elements of block b: start from 0.
/// Shape:  absmax.size() == blocks.count(x.size()).
/// Status: kBadLayout, kSizeMismatch; kNonFinite if x holds NaN or an infinity.
[[nodiscard]] Status observe_absmax(std::span<const float> x, Blocks blocks, std::span<float> absmax) noexcept;

/// Absmax values that lie together on whole multiples, up to 127, of one unit, which is a bfloat16.
inline constexpr size_t kAbsmaxSet = 256;

/// Rounds the absmax values of whole sets (the last may be shorter) to the nearest multiples of the set's unit, of which the largest
/// becomes 127: the unit is the bfloat16 nearest to a 127th of it. Symmetric int8 with kAbsmaxSet values a scale then holds them
/// without loss, if the unit is a normal float.
/// Status: kBadScale if an absmax is not finite.
[[nodiscard]] Status round_absmax(std::span<float> absmax) noexcept;

/// For each block of an array the absmax, negative ones included, with which the codebook restores it with a small squared error. It
/// tries scales on either side of 0, from 1.12 times that at which the largest value has the codebook's largest for a quotient down
/// to 0.67 times, and on while the error is below twice the least; each is improved to the best for its codes (least squares). Never
/// worse than the largest size, unless `rounded`: then the best of those multiples that round_absmax has near each.
/// Shape:   block_size > 0, absmax.size() == the number of blocks.
/// Status:  as quantize_codebook; what was in absmax does not matter.
[[nodiscard]] Status search_absmax(std::span<const float> x, uint64_t block_size, std::span<const float> codebook,
                                   Decision decision, bool rounded, std::span<float> absmax) noexcept;

}  // namespace scalepoint
