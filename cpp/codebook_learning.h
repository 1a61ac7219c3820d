// Codebooks that are made for the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codebook.h"
#include "status.h"

namespace scalepoint {

/// Memory in which a codebook is learned: it sees the data piece by piece and then gives the values. Aligned to 8 bytes.
[[nodiscard]] size_t codebook_learner_bytes() noexcept;
/// Puts the memory into the state that observe_codebook starts from.
[[nodiscard]] Status clear_codebook_learner(std::span<std::byte> learner) noexcept;
/// Adds the quotients of x, counted with absmax^2, which is what an error of theirs costs in x, to a histogram: bins are 2^-12 wide
/// relative to the quotient, down to a size of 2^-32, and know the mean of what fell into them.
/// Shape and status as quantize_codebook.
[[nodiscard]] Status observe_codebook(std::span<const float> x, Blocks blocks, std::span<const float> absmax,
                                      std::span<std::byte> learner) noexcept;
/// The values, in ascending order, that make the squared error of x small: the best partition of the histogram, with bins joined
/// until 2048 are left, by dynamic programming; then Lloyd's iteration over all bins until nothing changes. Of data with fewer
/// bins in use than values the means of the bins, the largest repeated; 0 where there was nothing but zeros. What the memory holds
/// afterwards means nothing.
/// Status:  kSizeMismatch for fewer than 2 values or more than kMaxCodebookSize.
[[nodiscard]] Status learn_codebook(std::span<std::byte> learner, std::span<float> values) noexcept;

}  // namespace scalepoint
