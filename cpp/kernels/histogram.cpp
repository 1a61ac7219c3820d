// One value at a time: a vector would have to be taken apart, because its lanes may meet in one bin.
#include "histogram.h"

namespace scalepoint::kernels {

Outside count_into_bins(const float* x, size_t n, const Bins& bins, uint32_t* counts) {
  const float min = bins.min, max = bins.max;
  const double low = min, per_unit = bins.per_unit;
  const size_t last = bins.count - 1;
  Outside outside = {0, 0};
  for (size_t i = 0; i < n; i++) {
    const float v = x[i];
    if (v < min) {
      outside.below++;
    } else if (v > max) {
      outside.above++;
    } else if (v == v) {
      const auto bin = static_cast<size_t>((v - low) * per_unit);
      counts[bin < last ? bin : last]++;
    }
  }
  return outside;
}

}  // namespace scalepoint::kernels
