// Loops over products of narrow matrices.
#pragma once

#include <cstddef>

namespace scalepoint::loops {

/// Columns of a panel.
inline constexpr size_t kLowRankPanel = 8;

/// y[r][c] = x[r][c] + factor * sum over k of up[r * rank + k] * panel[k * kLowRankPanel + c], for `columns` columns, at most those of a panel.
/// Sums begin at 0 and go in the order of k. Rows of x and y are `stride` elements apart.
void add_panel_of_products(const float* x, size_t rows, size_t columns, size_t stride, const float* up, const float* panel,
                           size_t rank, float factor, float* y);

}  // namespace scalepoint::loops
