// Learns codebooks from the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/status.h"
#include "codebooks/codebook.h"

namespace scalepoint {

/// Bytes of the memory in which a codebook is learned. Its address is a multiple of 8. The learner takes the data piece by piece and then
/// returns the values.
[[nodiscard]] size_t codebook_learner_bytes() noexcept;

/// Puts the memory into the state that observe_codebook starts from. kSizeMismatch if it has another size.
[[nodiscard]] Status clear_codebook_learner(std::span<std::byte> learner) noexcept;

/// Adds the quotients x / absmax to a histogram. A quotient has the weight absmax^2, because squared error in x = absmax^2 * squared error
/// of the quotient. Bins are 2^-12 wide relative to the quotient, down to a magnitude of 2^-32, and record the mean of their quotients.
/// Shape and status as quantize_codebook.
[[nodiscard]] Status observe_codebook(std::span<const float> x, Blocks blocks, std::span<const float> absmax,
                                      std::span<std::byte> learner) noexcept;

/// The values, in ascending order, that make the squared error of x small. Dynamic programming finds the best partition of the
/// histogram, with bins joined until 2048 are left. Then Lloyd's iteration runs over all bins until nothing changes. The memory is
/// undefined afterwards.
/// Special: if there are fewer bins in use than values, the values are the means of the bins, the largest repeated. If all data were zeros,
///          they are 0.
/// Status:  kSizeMismatch for fewer than 2 values or more than kMaxCodebookSize.
[[nodiscard]] Status learn_codebook(std::span<std::byte> learner, std::span<float> values) noexcept;

}  // namespace scalepoint
