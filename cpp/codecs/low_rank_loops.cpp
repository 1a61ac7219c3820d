#include "codecs/low_rank_loops.h"

#include <algorithm>

#include "lanes/lanes.h"

namespace scalepoint::loops {

using namespace lanes;

namespace {

/// Rows whose sums stay in registers together.
constexpr size_t kRows = 4;

}  // namespace

void add_panel_of_products(const float* x, size_t rows, size_t columns, size_t stride, const float* up, const float* panel,
                           size_t rank, float factor, float* y) {
  const F32x4 factors = splat(factor);
  for (size_t row = 0; row < rows; row += kRows) {
    // Rows behind the last one repeat it.
    const float* a[kRows];
    for (size_t r = 0; r < kRows; r++) a[r] = up + std::min(row + r, rows - 1) * rank;
    F32x4 low[kRows], high[kRows];
    for (size_t r = 0; r < kRows; r++) low[r] = high[r] = splat(0.0f);
    const float* b = panel;
    SCALEPOINT_NO_UNROLL
    for (size_t k = 0; k < rank; k++, b += kLowRankPanel) {
      const F32x4 first = load(b), second = load(b + 4);
      SCALEPOINT_PER_VECTOR
      for (size_t r = 0; r < kRows; r++) {
        const F32x4 value = splat(a[r][k]);
        low[r] = add(low[r], mul(value, first));
        high[r] = add(high[r], mul(value, second));
      }
    }
    for (size_t r = 0; r < kRows && row + r < rows; r++) {
      const size_t at = (row + r) * stride;
      float sums[kLowRankPanel];
      store(sums, mul(factors, low[r]));
      store(sums + 4, mul(factors, high[r]));
      for (size_t c = 0; c < columns; c++) y[at + c] = x[at + c] + sums[c];
    }
  }
}

}  // namespace scalepoint::loops
