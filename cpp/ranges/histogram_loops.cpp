// With SIMD, finds the bins of four values at a time. Counts one value at a time, because wasm has no vector instruction that scatters.
#include "ranges/histogram_loops.h"

#include "lanes/lanes.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

/// One value at a time.
void count_one_by_one(const float* x, size_t n, const Bins& bins, uint32_t* counts, Outside& outside) {
  const size_t last = bins.count - 1;
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < n; i++) {
    const float v = x[i];
    if (v < bins.min) {
      outside.below++;
    } else if (v > bins.max) {
      outside.above++;
    } else if (v == v) {
      const auto bin = static_cast<size_t>((v - bins.low) * bins.per_unit);
      counts[bin < last ? bin : last]++;
    }
  }
}

#ifdef SCALEPOINT_SIMD_LANES
/// Counts four values in `table`, where a bin has kPerBin counts: 1, or 4, one for each lane. Unless all are within [min, max], counts them
/// one by one in `counts`.
template <size_t kPerBin>
void count_four(const float* x, const Bins& bins, uint32_t* table, uint32_t* counts, Outside& outside) {
  const F32x4 v = load(x);
  // NaN differs from its clamped value, too.
  if (top_bits(equal(pmin(splat(bins.max), pmax(splat(bins.min), v)), v)) != 15)
    return count_one_by_one(x, 4, bins, counts, outside);
  const F64x2 low = splat(bins.low), per_unit = splat(bins.per_unit);
  const I32x4 last = splat(static_cast<int32_t>(bins.count - 1));
  int32_t bin[4];
  store(bin, min_signed(narrow_to_int(mul(sub(widen_low(v), low), per_unit), mul(sub(widen_high(v), low), per_unit)), last));
  for (size_t lane = 0; lane < 4; lane++) table[kPerBin * static_cast<uint32_t>(bin[lane]) + lane % kPerBin]++;
}

/// A number of values that is divisible by 4.
void count_by_four(const float* x, size_t n, const Bins& bins, uint32_t* counts, Outside& outside) {
  SCALEPOINT_NO_UNROLL
  for (const float* const end = x + n; x != end; x += 4) count_four<1>(x, bins, counts, counts, outside);
}

/// The same with a count for each lane. Passes values whose bin is uncertain in float32 to count_four.
[[gnu::noinline]] void count_by_lanes(const float* x, size_t n, const Bins& bins, uint32_t* table, uint32_t* counts,
                                      Outside& outside) {
  // The difference, the factor and the product are rounded once each, so that a place below `count` is off by less than
  // count * 2^-22. Infinities and NaN are never clear of it.
  const float count = static_cast<float>(bins.count), doubt = count * 0x1p-22f;
  const F32x4 low = splat(bins.min), per_unit = splat(static_cast<float>(bins.per_unit)), magic = splat(kMagic);
  // A square is rounded, so its root may be off by 2^-24 of it.
  const F32x4 near = splat(doubt), far = splat(count - doubt), near_squared = splat(doubt * doubt * (1 + 0x1p-20f));
  const I32x4 magic_bits = opaque(splat(kMagicBits));
  SCALEPOINT_NO_UNROLL
  for (const float* const end = x + n; x != end; x += 4) {
    const F32x4 place = mul(sub(load(x), low), per_unit), sum = add(place, magic), above = sub(place, sub(sum, magic));
    const I32x4 clear = bit_and(greater(mul(above, above), near_squared), bit_and(greater(place, near), greater(far, place)));
    if (top_bits(clear) != 15) {
      count_four<4>(x, bins, table, counts, outside);
      continue;
    }
    // Rounded to the nearest, so one too far where it is above the place.
    // Offsets in bytes. Store them to memory, because loading the lanes takes less time than extracting them.
    int32_t four[4], *const offset = opaque(four);
    store(offset, shift_left<4>(add(sub(bits(sum), magic_bits), greater(splat(0.0f), above))));
    for (size_t lane = 0; lane < 4; lane++) {
      auto* const bin = reinterpret_cast<std::byte*>(table) + static_cast<uint32_t>(offset[lane]);
      reinterpret_cast<uint32_t*>(bin)[lane]++;
    }
  }
}

/// Largest number of bins with a count for each lane. Values of one bin would wait for one another in a single count.
constexpr size_t kBinsInTable = 1024;

/// Counts all values except the last n % 4. Returns their number.
size_t count_fours(const float* x, size_t n, const Bins& bins, uint32_t* counts, Outside& outside) {
  const size_t fours = n - n % 4;
  // Few values are counted in less time than adding up a table takes.
  if (bins.count > kBinsInTable || n < 4 * bins.count) {
    count_by_four(x, fours, bins, counts, outside);
    return fours;
  }
  uint32_t table[4 * kBinsInTable];
  for (size_t i = 0; i < 4 * bins.count; i++) table[i] = 0;
  count_by_lanes(x, fours, bins, table, counts, outside);
  for (size_t i = 0; i < bins.count; i++) {
    const uint32_t* const of = table + 4 * i;
    counts[i] += of[0] + of[1] + of[2] + of[3];
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

}  // namespace scalepoint::loops
