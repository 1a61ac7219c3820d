// With SIMD the bins of four values at a time. Counting itself goes value by value: wasm has no vector instruction that scatters.
#include "histogram.h"

#include "lanes.h"

namespace scalepoint::kernels {
namespace {

using namespace lanes;

/// The bins of [min, max] and how many values lie outside of them, one value at a time.
void count_one_by_one(const float* x, size_t n, const Bins& bins, uint32_t* counts, Outside& outside) {
  const float min = bins.min, max = bins.max;
  const double low = min, per_unit = bins.per_unit;
  const size_t last = bins.count - 1;
  SCALEPOINT_NO_UNROLL
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
}

#ifdef SCALEPOINT_SIMD_LANES
/// A number of values that is divisible by 4. Lane i counts into counts[i * step]. Four values that are not all within [min, max]
/// go one by one.
void count_by_four(const float* x, size_t n, const Bins& bins, uint32_t* counts, size_t step, Outside& outside) {
  const F32x4 min = splat(bins.min), max = splat(bins.max);
  const F64x2 low = splat(double{bins.min}), per_unit = splat(bins.per_unit);
  const I32x4 last = splat(static_cast<int32_t>(bins.count - 1));
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < n; i += 4) {
    const F32x4 v = load(x + i);
    // NaN does not equal what it is clamped to, either.
    if (top_bits(equal(pmin(max, pmax(min, v)), v)) != 15) {
      count_one_by_one(x + i, 4, bins, counts, outside);
      continue;
    }
    const I32x4 bin = narrow_to_int(mul(sub(widen_low(v), low), per_unit), mul(sub(widen_high(v), low), per_unit));
    int32_t of[4];
    store(of, min_signed(bin, last));
    counts[of[0]]++;
    counts[step + of[1]]++;
    counts[2 * step + of[2]]++;
    counts[3 * step + of[3]]++;
  }
}

/// So many bins have a table for each lane. Values that share a bin would wait for one another in one table.
constexpr size_t kBinsInTables = 1024;

/// All values but the last n % 4. Returns how many that is.
size_t count_fours(const float* x, size_t n, const Bins& bins, uint32_t* counts, Outside& outside) {
  const size_t fours = n - n % 4, step = bins.count;
  // Few values are counted before the tables are added up.
  if (step > kBinsInTables || n < 4 * step) {
    count_by_four(x, fours, bins, counts, 0, outside);
    return fours;
  }
  uint32_t tables[4 * kBinsInTables];
  for (size_t i = 0; i < 4 * step; i++) tables[i] = 0;
  count_by_four(x, fours, bins, tables, step, outside);
  for (size_t i = 0; i < step; i++) {
    counts[i] += tables[i] + tables[step + i] + tables[2 * step + i] + tables[3 * step + i];
  }
  return fours;
}
#else
size_t count_fours(const float*, size_t, const Bins&, uint32_t*, Outside&) { return 0; }
#endif

}  // namespace

Outside count_into_bins(const float* x, size_t n, const Bins& bins, uint32_t* counts) {
  Outside outside = {0, 0};
  const size_t done = count_fours(x, n, bins, counts, outside);
  count_one_by_one(x + done, n - done, bins, counts, outside);
  return outside;
}

}  // namespace scalepoint::kernels
