// The factor of second moments that GPTQ passes errors on with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/status.h"

namespace scalepoint {

/// Doubles of scratch memory of factor_moments.
[[nodiscard]] size_t factor_scratch_size(size_t columns) noexcept;

/// Factors H + d I = (I + U) D (I + U)', with U strictly upper triangular and D diagonal, and stores U by columns:
/// feedback[j * columns + i] = U[i, j] for i < j; all other entries are 0.
///
/// A row w of weights that is stored as q then has the output error (w - q) H (w - q)' = sum over j of D[j] r[j]^2, where
/// r[j] = w[j] + sum over i < j of (w[i] - q[i]) U[i, j] - q[j]. So rounding w[j] plus that sum, column by column, is what GPTQ does
/// (Frantar et al. 2022, arXiv 2210.17323) without the inverse of H (Chee et al. 2023, arXiv 2307.13304, section 3).
///
///   moments  H in the entries i <= j of row j, as add_moments leaves it. Overwritten.
///   damping  d = damping * mean of the diagonal of H. Ten times as much is tried, up to kMostDamping, until H + d I is positive definite.
///   used     the damping that was used
///   weights  D, one for each column
/// Special: a column whose diagonal is 0 has H[j, j] = 1: it takes and passes on nothing. If all are 0, U is 0.
/// Status:  kBadLayout if columns is 0; kSizeMismatch; kBadRange if damping is not within [0, kMostDamping]; kNonFinite if H holds NaN, an
///          infinity or a negative diagonal, or cannot be factored with kMostDamping.
[[nodiscard]] Status factor_moments(std::span<double> moments, size_t columns, double damping, std::span<double> scratch,
                                    std::span<float> feedback, std::span<float> weights, double& used) noexcept;
inline constexpr double kMostDamping = 10;

/// Sizes of the groups of neighboring columns that share a grid: see FeedbackGrid.
struct FeedbackGroups {
  uint32_t group = 0;
  uint32_t outer = 0;
};

/// The order of columns in which rounding loses less than from left to right, because the columns with the largest inputs come first and
/// pass their errors on to all others. Groups stay together, so that their grids can be chosen when their first column is reached: outer
/// groups with a larger sum of the diagonal come first, so do groups within them, and columns within these. Of equals the first one comes
/// first. Shorter groups at the end of a row stay there.
///   diagonal  of H: mean squares of the inputs
///   groups    sizes as FeedbackGrid takes them
///   sums      scratch memory, 2 for each column
///   order     a permutation: the columns in that order
void falling_order(std::span<const float> diagonal, FeedbackGroups groups, std::span<double> sums,
                   std::span<uint32_t> order) noexcept;

}  // namespace scalepoint
