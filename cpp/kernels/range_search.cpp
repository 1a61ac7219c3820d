#include "range_search.h"

#include <algorithm>

#include "lanes.h"

namespace scalepoint::kernels {
namespace {

using namespace lanes;

struct Sums {
  F32x4 error, slope, weight;
};

/// The product with the reciprocal is within an ulp or two of the quotient. So only values next to the middle of two levels may
/// go to the other level, which is as far from them.
template <bool kFit>
inline void add_fit(Sums& sums, F32x4 x, F32x4 reciprocal, F32x4 scale, F32x4 low, F32x4 high) {
  const F32x4 q = pmin(pmax(nearest(mul(x, reciprocal)), low), high);
  const F32x4 e = sub(x, mul(scale, q));
  sums.error = add(sums.error, mul(e, e));
  if constexpr (kFit) {
    sums.slope = add(sums.slope, mul(e, q));
    sums.weight = add(sums.weight, mul(q, q));
  }
}

Sums sums_of_four(const FourRuns& runs, F32x4 scale, F32x4 zero) {
  const F32x4 reciprocal = div(splat(1.0f), scale);
  const F32x4 low = sub(splat(runs.qmin), zero), high = sub(splat(runs.qmax), zero);
  Sums sums = {splat(0.0f), splat(0.0f), splat(0.0f)};
  const float* x = runs.x;
  const float* const end = x + 4 * (runs.n - runs.n % 2);
  SCALEPOINT_NO_UNROLL
  for (; x != end; x += 8) {
    add_fit<true>(sums, load(x), reciprocal, scale, low, high);
    add_fit<true>(sums, load(x + 4), reciprocal, scale, low, high);
  }
  if (runs.n % 2 != 0) add_fit<true>(sums, load(x), reciprocal, scale, low, high);
  return sums;
}

/// The nearest zero point that may be chosen.
F32x4 within(const FourRuns& runs, F32x4 zero) { return pmin(pmax(zero, splat(runs.lowest_zero)), splat(runs.highest_zero)); }

/// The largest lane, clamped to [0, 100].
float largest_lane(F32x4 a) {
  float lanes[4];
  store(lanes, pmin(pmax(splat(0.0f), a), splat(100.0f)));
  return std::max(std::max(lanes[0], lanes[1]), std::max(lanes[2], lanes[3]));
}

double total(F32x4 a) {
  float lanes[4];
  store(lanes, a);
  return (static_cast<double>(lanes[0]) + lanes[1]) + (static_cast<double>(lanes[2]) + lanes[3]);
}

constexpr size_t kBlock = 512;

/// The sums of a run; without kFit the errors alone.
template <bool kFit>
void add_run(const float* x, size_t n, float factor, float scale, float low, float high, double* out) {
  const F32x4 s = splat(scale), reciprocal = splat(1.0f / scale), bottom = splat(low), top = splat(high), times = splat(factor);
  for (size_t at = 0; at < n; at += kBlock) {
    const size_t size = n - at < kBlock ? n - at : kBlock, whole = size - size % 8;
    // Two sets of sums, as additions wait for each other.
    Sums even = {splat(0.0f), splat(0.0f), splat(0.0f)}, odd = even;
    const float* p = x + at;
    SCALEPOINT_NO_UNROLL
    for (const float* const end = p + whole; p != end; p += 8) {
      add_fit<kFit>(even, mul(load(p), times), reciprocal, s, bottom, top);
      add_fit<kFit>(odd, mul(load(p + 4), times), reciprocal, s, bottom, top);
    }
    if (whole < size) {
      // What is missing is filled with a level, which has no error.
      float rest[8];
      const float filler = scale * (low > 0 ? low : high < 0 ? high : 0.0f);
      for (size_t i = 0; i < 8; i++) rest[i] = whole + i < size ? p[i] * factor : filler;
      add_fit<kFit>(even, load(rest), reciprocal, s, bottom, top);
      add_fit<kFit>(odd, load(rest + 4), reciprocal, s, bottom, top);
    }
    out[0] += total(add(even.error, odd.error));
    if constexpr (kFit) {
      out[1] += total(add(even.slope, odd.slope));
      out[2] += total(add(even.weight, odd.weight));
    }
  }
}

}  // namespace

void search_four(const FourRuns& runs, float* error, float* scale, float* zero) {
  F32x4 best_error = load(error), best_scale = load(scale), best_zero = load(zero);
  const F32x4 min = load(runs.min), max = load(runs.max), from = load(runs.from), width = sub(load(runs.to), from);
  const F32x4 qmin = splat(runs.qmin), qmax = splat(runs.qmax);
  for (int step = 0; step < runs.steps; step++) {
    const F32x4 tried = add(from, mul(width, splat((static_cast<float>(step) + 0.5f) / static_cast<float>(runs.steps))));
    const F32x4 all_low = within(runs, sub(qmin, div(min, tried)));
    const F32x4 spare = sub(within(runs, sub(qmax, div(max, tried))), all_low);
    const int shares =
        runs.most_zeros == 1 ? 1 : std::min(runs.most_zeros, static_cast<int>(largest_lane(sub(splat(0.0f), spare))) + 2);
    for (int share = 0; share < shares; share++) {
      const float part = shares == 1 ? 0.0f : static_cast<float>(share) / static_cast<float>(shares - 1);
      const F32x4 z = nearest(add(all_low, mul(spare, splat(part))));
      const Sums sums = sums_of_four(runs, tried, z);
      // With the codes of this scale fixed, scale + slope / weight has the least error. Where all codes are 0 that is NaN,
      // which is never less.
      const F32x4 move = div(sums.slope, sums.weight), improved = sub(sums.error, mul(sums.slope, move));
      const I32x4 better = greater(best_error, improved);
      best_error = select(better, improved, best_error);
      best_scale = select(better, add(tried, move), best_scale);
      best_zero = select(better, z, best_zero);
    }
  }
  store(error, best_error);
  store(scale, best_scale);
  store(zero, best_zero);
}

void errors_of_four(const FourRuns& runs, const float* scale, const float* zero, float* error) {
  store(error, sums_of_four(runs, load(scale), load(zero)).error);
}

void fit_run(const float* x, size_t n, float factor, float scale, float low, float high, double* out) {
  add_run<true>(x, n, factor, scale, low, high, out);
}

double error_of_run(const float* x, size_t n, float factor, float scale, float low, float high) {
  double out[3] = {};
  add_run<false>(x, n, factor, scale, low, high, out);
  return out[0];
}

void count_magnitudes(const float* x, size_t n, double per_unit, uint32_t* counts, size_t bins) {
  for (const float* const end = x + n; x != end; x = opaque(x + 1)) {
    const auto bin = static_cast<size_t>((*x < 0 ? -*x : *x) * per_unit);
    counts[bin < bins ? bin : bins - 1]++;
  }
}

size_t take_outside(const float* x, size_t n, float low, float high, float* to, size_t room) {
  size_t count = 0;
  const auto take = [&](float value) {
    if (!(value < low || value > high)) return;
    if (count < room) to[count] = value;
    count++;
  };
  const F32x4 bottom = splat(low), top = splat(high);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    I32x4 outside = splat(0);
    for (size_t j = 0; j < 16; j += 4) {
      const F32x4 v = load(x + i + j);
      outside = bit_or(outside, bit_or(greater(bottom, v), greater(v, top)));
    }
    if (any(outside)) {
      for (size_t j = 0; j < 16; j++) take(x[i + j]);
    }
  }
  for (; i < n; i++) take(x[i]);
  return count;
}

}  // namespace scalepoint::kernels
