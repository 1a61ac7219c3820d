#include "arrays/min_max_loops.h"

#include <algorithm>
#include <cstring>

#include "lanes/extremes.h"
#include "lanes/lanes.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

/// x if it is finite, else NaN. Turns -0 into +0.
inline F32x4 nan_unless_finite(F32x4 x) { return add(x, sub(x, x)); }

/// Calls step with vectors that hold every element of x at least once. If n is not a multiple of 4, the last vector overlaps the one
/// before, or repeats x[0]. n > 0.
template <class Step>
inline void for_each_vector(const float* x, size_t n, Step step) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4) step(load(x + i));
  if (i == n) return;
  const float* p = x + n - 4;
  float few[4];
  if (n < 4) {
    for (size_t j = 0; j < 4; j++) few[j] = x[j < n ? j : 0];
    p = few;
  }
  step(load(p));
}

}  // namespace

Range range(const float* x, size_t n) {
  Extremes a, b;
  I32x4 nearest_zero = splat(-1);
  const auto take = [&](F32x4 v, Extremes& e) {
    e.take(v);
    nearest_zero = min_unsigned(nearest_zero, bits(v));
  };
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    take(load(x + i), a);
    take(load(x + i + 4), b);
    take(load(x + i + 8), a);
    take(load(x + i + 12), b);
  }
  for_each_vector(x + i, n - i, [&](F32x4 v) { take(v, a); });
  a.take(b);
  int32_t up[4], down[4], near[4];
  store(up, a.up);
  store(down, a.down);
  store(near, nearest_zero);
  for (int j = 1; j < 4; j++) {
    up[0] = up[j] > up[0] ? up[j] : up[0];
    down[0] = static_cast<uint32_t>(down[j]) > static_cast<uint32_t>(down[0]) ? down[j] : down[0];
    near[0] = static_cast<uint32_t>(near[j]) < static_cast<uint32_t>(near[0]) ? near[j] : near[0];
  }
  // If all values have the same sign bit, the other end of the range is the value nearest to 0. Its bits are the smallest as unsigned
  // integers. Adding 0 turns -0 into +0.
  Range r;
  r.min = bit_cast<float>(down[0] < 0 ? down[0] : near[0]) + 0.0f;
  r.max = bit_cast<float>(up[0] >= 0 ? up[0] : near[0]) + 0.0f;
  const uint32_t below = down[0] < 0 ? static_cast<uint32_t>(down[0]) & kAbsMask : 0;
  const uint32_t above = up[0] >= 0 ? static_cast<uint32_t>(up[0]) : 0;
  r.largest = below > above ? below : above;
  return r;
}

Range finite_range(const float* x, size_t n) {
  const F32x4 infinity = from_bits(splat(static_cast<int32_t>(kInfinityBits)));
  F32x4 low = infinity, high = sub(splat(0.0f), infinity);
  for_each_vector(x, n, [&](F32x4 v) {
    v = nan_unless_finite(v);  // pmin and pmax skip NaN
    low = pmin(low, v);
    high = pmax(high, v);
  });
  float lows[4], highs[4];
  store(lows, low);
  store(highs, high);
  Range r = {lows[0], highs[0], 0};
  for (int j = 1; j < 4; j++) {
    r.min = lows[j] < r.min ? lows[j] : r.min;
    r.max = r.max < highs[j] ? highs[j] : r.max;
  }
  return r;
}

uint32_t range_each(const float* x, size_t n, bool finite_only, float* min, float* max) {
  I32x4 largest = splat(0);
  const auto step = [&](const float* p, float* low, float* high) {
    F32x4 v = load(p);
    largest = max_unsigned(largest, twice_magnitude_bits(v));
    v = finite_only ? nan_unless_finite(v) : add(v, splat(0.0f));  // either makes +0 of -0
    store(low, pmin(load(low), v));
    store(high, pmax(load(high), v));
  };
  size_t i = 0;
  for (; i + 4 <= n; i += 4) step(x + i, min + i, max + i);
  if (i < n) {
    float xs[4] = {}, low[4] = {}, high[4] = {};
    std::memcpy(xs, x + i, (n - i) * sizeof(float));
    std::memcpy(low, min + i, (n - i) * sizeof(float));
    std::memcpy(high, max + i, (n - i) * sizeof(float));
    step(xs, low, high);
    std::memcpy(min + i, low, (n - i) * sizeof(float));
    std::memcpy(max + i, high, (n - i) * sizeof(float));
  }
  return largest_lane(largest) >> 1;
}

uint32_t range_columns(const float* x, size_t rows, size_t columns, float* min, float* max) {
  // Until all rows are taken, min and max hold the bits of Extremes. Those of 0 are 0.
  constexpr size_t kRowsAtOnce = 8;
  for (size_t row = 0; row < rows; row += kRowsAtOnce) {
    const size_t some = rows - row < kRowsAtOnce ? rows - row : kRowsAtOnce;
    for (size_t i = 0; i < columns; i += 4) {
      // The last columns may be taken twice, which does not change the result.
      const size_t at = i + 4 <= columns ? i : columns - 4;
      Extremes e = {bits(load(max + at)), bits(load(min + at))};
      const float* p = x + row * columns + at;
      SCALEPOINT_NO_UNROLL
      for (size_t j = 0; j < some; j++, p += columns) e.take(load(p));
      store(max + at, from_bits(e.up));
      store(min + at, from_bits(e.down));
    }
  }
  uint32_t largest = 0;
  for (size_t i = 0; i < columns; i++) {
    // NaN and infinities are the farthest, with a sign bit and without.
    for (const float v : {min[i], max[i]}) largest = std::max(largest, bit_cast<uint32_t>(v) & kAbsMask);
    // Without a sign bit in min, all values are at least 0.
    if (bit_cast<int32_t>(min[i]) > 0) min[i] = 0;
  }
  return largest;
}

uint32_t largest_magnitude(const float* x, size_t n) {
  I32x4 largest = splat(0), other = largest;
  size_t i = 0;
  SCALEPOINT_NO_UNROLL
  for (; i + 8 <= n; i += 8) {
    largest = max_unsigned(largest, twice_magnitude_bits(load(x + i)));
    other = max_unsigned(other, twice_magnitude_bits(load(x + i + 4)));
  }
  if (i < n) {
    float rest[8] = {};
    std::memcpy(rest, x + i, (n - i) * sizeof(float));
    largest = max_unsigned(largest, twice_magnitude_bits(load(rest)));
    other = max_unsigned(other, twice_magnitude_bits(load(rest + 4)));
  }
  return largest_lane(max_unsigned(largest, other)) >> 1;
}

bool all_finite_nonzero(const float* x, size_t n) {
  // Without SIMD this takes as long as checking each value, which callers then do.
  if constexpr (!kSimd) return false;
  // After subtracting 1, the bits of 0 are the largest of all.
  I32x4 largest = splat(0), other = largest;
  const auto take = [](F32x4 v, I32x4& e) { e = max_unsigned(e, sub(twice_magnitude_bits(v), splat(1))); };
  size_t i = 0;
  SCALEPOINT_NO_UNROLL
  for (; i + 8 <= n; i += 8) {
    take(load(x + i), largest);
    take(load(x + i + 4), other);
  }
  for (; i < n; i++) {
    const uint32_t magnitude = bit_cast<uint32_t>(x[i]) & kAbsMask;
    if (magnitude == 0 || magnitude >= kInfinityBits) return false;
  }
  return largest_lane(max_unsigned(largest, other)) < 2 * kInfinityBits - 1;
}

void copy_steps(const float* from, size_t from_step, size_t n, float factor, float* to, size_t to_step) {
  // Walking pointers keep LLVM from vectorizing, which would build vectors from single values, or take them apart.
  for (size_t i = 0; i < n; i++, from = opaque(from + from_step), to = opaque(to + to_step)) *to = factor * *from;
}

}  // namespace scalepoint::loops
