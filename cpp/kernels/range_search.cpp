#include "range_search.h"

#include "../round.h"
#include "lanes.h"

namespace scalepoint::kernels {
namespace {

using namespace lanes;

constexpr size_t kBlock = 512;

F32x4 positive(F32x4 a) { return pmax(splat(0.0f), a); }

/// Four sums over blocks.
class FourSums {
 public:
  void add_block(F32x4 a) {
    low_ = add(low_, widen_low(a));
    high_ = add(high_, widen_high(a));
  }
  [[nodiscard]] F32x4 get() const { return narrow(low_, high_); }

 private:
  F64x2 low_ = splat(0.0), high_ = splat(0.0);
};

struct BlockSums {
  F32x4 error = splat(0.0f), slope = splat(0.0f), up = splat(0.0f), down = splat(0.0f);
};

template <bool kWeighted, Sums kSums>
inline void add_value(BlockSums& sums, const float* p, F32x4 t, const Trials& trials) {
  const F32x4 v = mul(splat(p[0]), t), near = nearest(v);
  const F32x4 r = sub(v, kSums == Sums::kError ? near : pmin(pmax(near, trials.low), trials.high));
  // A weight counts once in each sum.
  const F32x4 weighted = kWeighted ? mul(r, splat(p[1])) : r;
  sums.error = add(sums.error, mul(weighted, r));
  if constexpr (kSums != Sums::kError) sums.slope = add(sums.slope, mul(weighted, v));
  if constexpr (kSums == Sums::kWindows) {
    // One level further up, what is more than half a level above the highest gets closer by one level, and what is nearest to the
    // lowest goes to the next: the squares change by twice the distance from the middle between the two levels.
    const F32x4 half = splat(0.5f), one = splat(1.0f);
    const F32x4 below = sub(add(trials.low, half), v), above = sub(v, add(trials.high, half));
    F32x4 up = sub(positive(below), positive(above));
    F32x4 down = sub(positive(add(above, one)), positive(sub(below, one)));
    if constexpr (kWeighted) {
      up = mul(up, splat(p[1]));
      down = mul(down, splat(p[1]));
    }
    sums.up = add(sums.up, up);
    sums.down = add(sums.down, down);
  }
}

template <bool kWeighted, Sums kSums>
void try_each(const Run& run, F32x4 t, const Trials& trials, TrialSums& out) {
  constexpr size_t kStep = kWeighted ? 2 : 1;
  FourSums error, slope, up, down;
  for (size_t at = 0; at < run.n; at += kBlock) {
    const size_t size = run.n - at < kBlock ? run.n - at : kBlock;
    // Two sets of sums, as additions wait for each other.
    BlockSums even, odd;
    const float* p = run.x + kStep * at;
    SCALEPOINT_NO_UNROLL
    for (const float* const end = p + kStep * (size - size % 2); p != end; p += 2 * kStep) {
      add_value<kWeighted, kSums>(even, p, t, trials);
      add_value<kWeighted, kSums>(odd, p + kStep, t, trials);
    }
    if (size % 2 != 0) add_value<kWeighted, kSums>(even, p, t, trials);
    error.add_block(add(even.error, odd.error));
    if constexpr (kSums != Sums::kError) slope.add_block(add(even.slope, odd.slope));
    if constexpr (kSums == Sums::kWindows) {
      up.add_block(add(even.up, odd.up));
      down.add_block(add(even.down, odd.down));
    }
  }
  out.error = error.get();
  if constexpr (kSums != Sums::kError) out.slope = slope.get();
  if constexpr (kSums == Sums::kWindows) {
    out.up = up.get();
    out.down = down.get();
  }
}

/// The sums of one candidate: with T = float those that add_value makes in a lane.
template <class T>
void try_one(const Run& run, T t, T low, T high, bool with_windows, float* out) {
  const size_t step = run.weighted ? 2 : 1;
  double sums[4] = {};
  for (size_t at = 0; at < run.n; at += kBlock) {
    const size_t size = run.n - at < kBlock ? run.n - at : kBlock;
    T of_block[2][4] = {};
    for (size_t i = 0; i < size; i++) {
      const float* const p = run.x + step * (at + i);
      const T v = *p * t, r = v - clamp(round_half_even(v), low, high);
      const T weight = run.weighted ? p[1] : 1, weighted = r * weight;
      T* const to = of_block[i % 2];
      to[0] += weighted * r;
      to[1] += weighted * v;
      if (!with_windows) continue;
      const T half = static_cast<T>(0.5), below = low + half - v, above = v - (high + half);
      to[2] += ((below > 0 ? below : 0) - (above > 0 ? above : 0)) * weight;
      to[3] += ((above + 1 > 0 ? above + 1 : 0) - (below - 1 > 0 ? below - 1 : 0)) * weight;
    }
    for (int i = 0; i < 4; i++) sums[i] += of_block[0][i] + of_block[1][i];
  }
  for (int i = 0; i < 4; i++) out[4 * i] = static_cast<float>(sums[i]);
}

/// One candidate after the other.
void try_one_by_one(const Run& run, double t_per_u, const Trials& trials, bool with_windows, TrialSums& out) {
  float u[4], low[4], high[4], sums[16];
  store(u, trials.u);
  store(low, trials.low);
  store(high, trials.high);
  SCALEPOINT_NO_UNROLL
  for (int lane = 0; lane < 4; lane++) {
    if (run.n <= kFewValues && !run.weighted) {
      try_one<double>(run, u[lane] * t_per_u, low[lane], high[lane], with_windows, sums + lane);
    } else {
      try_one<float>(run, u[lane] * static_cast<float>(t_per_u), low[lane], high[lane], with_windows, sums + lane);
    }
  }
  out = {load(sums), load(sums + 4), load(sums + 8), load(sums + 12)};
}

double total(F32x4 a) {
  float lanes[4];
  store(lanes, a);
  return (static_cast<double>(lanes[0]) + lanes[1]) + (static_cast<double>(lanes[2]) + lanes[3]);
}

/// The sum of f over the values, four at a time; `filler` stands in for what is missing at the end. f takes a pointer.
template <class F>
double sum_blocks(const float* x, size_t n, float filler, F f) {
  double sum = 0;
  for (size_t at = 0; at < n; at += kBlock) {
    const size_t size = n - at < kBlock ? n - at : kBlock;
    F32x4 even = splat(0.0f), odd = even;
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < size; i += 8) {
      const float* p = x + at + i;
      float rest[8];
      if (size - i < 8) {
        for (size_t j = 0; j < 8; j++) rest[j] = i + j < size ? p[j] : filler;
        p = rest;
      }
      even = add(even, f(p));
      odd = add(odd, f(p + 4));
    }
    sum += total(add(even, odd));
  }
  return sum;
}

}  // namespace

void try_levels(const Run& run, double t_per_u, const Trials& trials, Sums which, TrialSums& sums) {
  if (!kSimd || (run.n <= kFewValues && !run.weighted)) {
    return try_one_by_one(run, t_per_u, trials, which == Sums::kWindows, sums);
  }
  const F32x4 t = mul(trials.u, splat(static_cast<float>(t_per_u)));
  switch (which) {
    case Sums::kError:
      return run.weighted ? try_each<true, Sums::kError>(run, t, trials, sums)
                          : try_each<false, Sums::kError>(run, t, trials, sums);
    case Sums::kFit:
      return run.weighted ? try_each<true, Sums::kFit>(run, t, trials, sums) : try_each<false, Sums::kFit>(run, t, trials, sums);
    case Sums::kWindows:
      return run.weighted ? try_each<true, Sums::kWindows>(run, t, trials, sums)
                          : try_each<false, Sums::kWindows>(run, t, trials, sums);
  }
}

double error_of_run(const float* x, size_t n, float factor, float scale, float low, float high) {
  const F32x4 s = splat(scale), reciprocal = splat(1.0f / scale), bottom = splat(low), top = splat(high), times = splat(factor);
  // What is missing at the end is filled with a level, which has no error.
  const float filler = scale * (low > 0 ? low : high < 0 ? high : 0.0f) / factor;
  return sum_blocks(x, n, filler, [&](const float* p) {
    const F32x4 v = mul(load(p), times), e = sub(v, mul(s, pmin(pmax(nearest(mul(v, reciprocal)), bottom), top)));
    return mul(e, e);
  });
}

double fit_scale(const float* x, size_t n, double scale, double low, double high) {
  double products = 0, squares = 0;
  for (size_t i = 0; i < n; i++) {
    const double level = clamp(round_half_even(x[i] / scale), low, high);
    products += x[i] * level;
    squares += level * level;
  }
  return products / squares;
}

size_t small_ones_first(const float* x, size_t n, float factor, float limit, float* to) {
  size_t small = 0;
  for (size_t i = 0, large = n; i < n; i++) {
    const float v = x[i] * factor;
    const bool is_small = (v < 0 ? -v : v) < limit;
    large -= is_small ? 0 : 1;
    to[is_small ? small : large] = v;
    small += is_small ? 1 : 0;
  }
  return small;
}

void add_to_bins(const float* x, size_t n, float middle, float per_unit, int rest_bits, Bin* bins, size_t half) {
  const uint32_t one = 0x3F800000u >> rest_bits, rest = (1u << rest_bits) - 1;
  for (const float* const end = x + n; x != end; x = opaque(x + 1)) {
    const uint32_t bits = bit_cast<uint32_t>(*x - middle),
                   y = bit_cast<uint32_t>(bit_cast<float>(bits & kAbsMask) * per_unit + 1.0f);
    Bin& bin = bins[(y >> rest_bits) - one + (bits >> 31) * half];
    bin.count++;
    bin.rest += y & rest;
  }
}

void count_magnitudes(const Run& run, double per_unit, double* counts, size_t bins) {
  const size_t step = run.weighted ? 2 : 1;
  for (const float *x = run.x, *const end = x + step * run.n; x != end; x = opaque(x + step)) {
    const auto bin = static_cast<size_t>((*x < 0 ? -*x : *x) * per_unit);
    counts[bin < bins ? bin : bins - 1] += run.weighted ? x[1] : 1;
  }
}

}  // namespace scalepoint::kernels
