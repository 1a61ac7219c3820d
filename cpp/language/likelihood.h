// Likelihoods of tokens, and how far two distributions of the next token are apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/status.h"

namespace scalepoint {

/// A row of logits judged. Sums are in double.
struct TokenJudgment {
  double loss = 0;        ///< -log of the probability of the token that follows
  double divergence = 0;  ///< Kullback and Leibler's, of the reference from these logits: sum p_ref (log p_ref - log p)
  bool same_top = true;   ///< true if both have the same most likely token; the first of equals counts
};

/// Judges one row of logits. `reference` may be empty: then only the loss is set.
/// Status:  kBadLayout if there are no logits; kSizeMismatch if the reference is of another size or token is not among them; kNonFinite
///          for NaN or infinities.
[[nodiscard]] Status judge_token(std::span<const float> logits, std::span<const float> reference, uint32_t token,
                                 TokenJudgment& judgment) noexcept;

}  // namespace scalepoint
