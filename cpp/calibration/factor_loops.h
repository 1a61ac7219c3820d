// The loops of factor.cpp.
#pragma once

#include <cstddef>

namespace scalepoint::loops {

/// Rows that are factored before the rows above them change.
inline constexpr size_t kFactorBlock = 64;
/// Columns of a panel.
inline constexpr size_t kFactorPanel = 4;

/// row[i] -= factor * other[i].
void subtract_row(double* row, const double* other, double factor, size_t n);

/// h[k, i] -= sum over rows j of a[j][k] * b[j][i], for four k and four i.
/// a and b: panels of four columns, row by row. `stride`: doubles from one row of h to the next.
void subtract_products(const double* a, const double* b, size_t rows, double* h, size_t stride);

}  // namespace scalepoint::loops
