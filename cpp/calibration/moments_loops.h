// The loops of moments.cpp.
#pragma once

#include <cstddef>

namespace scalepoint::loops {

/// Columns of a panel. Panels hold eight columns row by row, so that the products of two panels read memory in order.
inline constexpr size_t kMomentPanel = 8;
/// Rows that are summed in float32.
inline constexpr size_t kMomentRows = 256;

/// Copies rows of `columns` floats into panels of kMomentRows rows each. The last panel is filled with zeros.
void to_panels(const float* x, size_t rows, size_t columns, float* panels);

/// moments[j, i] += sum over rows of panels, for i <= j. Returns false if a sum is not finite.
bool add_panel_products(const float* panels, size_t rows, size_t columns, double* moments);

}  // namespace scalepoint::loops
