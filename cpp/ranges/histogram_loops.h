// The loop that counts values into bins. histogram.cpp checks arguments.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint::loops {

/// The bins of [min, max].
struct Bins {
  float min;
  float max;
  double low;       ///< min
  double per_unit;  ///< the bin of x is floor((x - min) * per_unit), or the last
  size_t count;
};

/// Counts of values outside of the bins.
struct Outside {
  uint64_t below;
  uint64_t above;
};

/// Adds 1 to the bin of each x within [min, max]. Counts the others, except NaN.
Outside count_into_bins(const float* x, size_t n, const Bins& bins, uint32_t* counts);

}  // namespace scalepoint::loops
