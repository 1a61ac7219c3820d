#include "calibration/factor_loops.h"

#include "lanes/lanes.h"

namespace scalepoint::loops {

using namespace lanes;

void subtract_row(double* row, const double* other, double factor, size_t n) {
  const F64x2 factors = splat(factor);
  size_t i = 0;
  for (; i + 2 <= n; i += 2) store(row + i, sub(load(row + i), mul(factors, load(other + i))));
  for (; i < n; i++) row[i] -= factor * other[i];
}

void subtract_products(const double* a, const double* b, size_t rows, double* h, size_t stride) {
  F64x2 low[kFactorPanel], high[kFactorPanel];
  for (size_t k = 0; k < kFactorPanel; k++) low[k] = high[k] = splat(0.0);
  const double* const end = a + rows * kFactorPanel;
  SCALEPOINT_NO_UNROLL
  for (; a != end; a += kFactorPanel, b += kFactorPanel) {
    const F64x2 first = load(b), second = load(b + 2);
    SCALEPOINT_PER_VECTOR
    for (size_t k = 0; k < kFactorPanel; k++) {
      const F64x2 factor = splat(a[k]);
      low[k] = add(low[k], mul(factor, first));
      high[k] = add(high[k], mul(factor, second));
    }
  }
  for (size_t k = 0; k < kFactorPanel; k++, h += stride) {
    store(h, sub(load(h), low[k]));
    store(h + 2, sub(load(h + 2), high[k]));
  }
}

}  // namespace scalepoint::loops
