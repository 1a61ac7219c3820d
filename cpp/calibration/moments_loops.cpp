#include "calibration/moments_loops.h"

#include <algorithm>
#include <cmath>

#include "lanes/lanes.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

/// Rows of a tile of products. A tile has two vectors of columns, so that its sums stay in registers.
constexpr size_t kTileRows = 4;

/// sums[r][c] = sum over rows of a[r] * b[c].
void multiply_panels(const float* a, const float* b, size_t rows, float (*sums)[kMomentPanel]) {
  F32x4 low[kTileRows], high[kTileRows];
  for (size_t r = 0; r < kTileRows; r++) low[r] = high[r] = splat(0.0f);
  const float* const end = b + rows * kMomentPanel;
  SCALEPOINT_NO_UNROLL
  for (; b != end; a += kMomentPanel, b += kMomentPanel) {
    const F32x4 first = load(b), second = load(b + 4);
    SCALEPOINT_PER_VECTOR
    for (size_t r = 0; r < kTileRows; r++) {
      const F32x4 factor = splat(a[r]);
      low[r] = add(low[r], mul(factor, first));
      high[r] = add(high[r], mul(factor, second));
    }
  }
  for (size_t r = 0; r < kTileRows; r++) {
    store(sums[r], low[r]);
    store(sums[r] + 4, high[r]);
  }
}

}  // namespace

void to_panels(const float* x, size_t rows, size_t columns, float* panels) {
  for (size_t first = 0; first < columns; first += kMomentPanel, panels += kMomentRows * kMomentPanel) {
    const size_t n = std::min(kMomentPanel, columns - first);
    for (size_t row = 0; row < rows; row++) {
      const float* const from = x + row * columns + first;
      float* const to = panels + row * kMomentPanel;
      for (size_t i = 0; i < n; i++) to[i] = from[i];
      for (size_t i = n; i < kMomentPanel; i++) to[i] = 0;
    }
  }
}

bool add_panel_products(const float* panels, size_t rows, size_t columns, double* moments) {
  constexpr size_t kPanelSize = kMomentRows * kMomentPanel;
  double check = 0;
  for (size_t j = 0; j < columns; j += kTileRows) {
    const float* const left = panels + j / kMomentPanel * kPanelSize + j % kMomentPanel;
    for (size_t i = 0; i <= j; i += kMomentPanel) {
      float sums[kTileRows][kMomentPanel];
      multiply_panels(left, panels + i / kMomentPanel * kPanelSize, rows, sums);
      for (size_t r = 0; r < kTileRows && j + r < columns; r++) {
        double* const to = moments + (j + r) * columns + i;
        const size_t n = std::min(kMomentPanel, columns - i);
        for (size_t c = 0; c < n; c++) {
          to[c] += sums[r][c];
          check += sums[r][c] * 0.0;  // NaN if the sum is not finite
        }
      }
    }
  }
  return check == 0;
}

}  // namespace scalepoint::loops
