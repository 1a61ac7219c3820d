#include "calibration/moments.h"

#include <algorithm>
#include <cmath>

#include "calibration/moments_loops.h"

namespace scalepoint {

size_t moments_scratch_size(size_t columns) noexcept {
  return (columns + loops::kMomentPanel - 1) / loops::kMomentPanel * loops::kMomentPanel * loops::kMomentRows;
}

Status add_moments(std::span<const float> x, size_t columns, std::span<float> scratch, std::span<double> moments) noexcept {
  if (columns == 0) return Status::kBadLayout;
  if (x.size() % columns != 0 || moments.size() != columns * columns || scratch.size() < moments_scratch_size(columns)) {
    return Status::kSizeMismatch;
  }
  const size_t rows = x.size() / columns;
  for (size_t row = 0; row < rows; row += loops::kMomentRows) {
    const size_t n = std::min(loops::kMomentRows, rows - row);
    loops::to_panels(x.data() + row * columns, n, columns, scratch.data());
    if (!loops::add_panel_products(scratch.data(), n, columns, moments.data())) return Status::kNonFinite;
  }
  return Status::kOk;
}

void importance_of(std::span<const double> moments, size_t columns, double rows, std::span<float> importance) noexcept {
  for (size_t i = 0; i < columns; i++) importance[i] = static_cast<float>(moments[i * columns + i] / rows);
}

}  // namespace scalepoint
