// The scale of each block of codebook codes, called absmax.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/status.h"
#include "codebooks/codebook.h"

namespace scalepoint {

/// absmax[b] = max(absmax[b], |x|) over the elements of block b. Start from 0.
/// Shape:  absmax.size() == blocks.count(x.size()).
/// Status: kBadLayout, kSizeMismatch; kBadScale if an absmax is not finite; kNonFinite if x holds NaN or an infinity.
[[nodiscard]] Status observe_absmax(std::span<const float> x, Blocks blocks, std::span<float> absmax) noexcept;

/// Absmax values that are rounded together: to integer multiples, up to 127, of one unit, which is a bfloat16.
inline constexpr size_t kAbsmaxSet = 256;

/// Rounds the absmax values of each set to the nearest multiples of the set's unit. The unit is the bfloat16 nearest to a 127th
/// of the largest, which becomes 127 units. Symmetric int8 in groups of kAbsmaxSet then holds the values without loss, if the
/// unit is a normal float. The last set may be shorter.
/// Status: kBadScale if an absmax is not finite.
[[nodiscard]] Status round_absmax(std::span<float> absmax) noexcept;

/// For each block of an array, finds an absmax of either sign with which the codebook restores the block with a small squared
/// error. It is never worse than the block's largest magnitude, unless `rounded`: then it is the best of the multiples of round_absmax near
/// the result of the search. absmax.cpp documents the scales that are tried.
/// Shape:   block_size > 0, absmax.size() == the number of blocks.
/// Status:  as quantize_codebook. Ignores the previous contents of absmax.
[[nodiscard]] Status search_absmax(std::span<const float> x, uint64_t block_size, std::span<const float> codebook,
                                   Decision decision, bool rounded, std::span<float> absmax) noexcept;

}  // namespace scalepoint
