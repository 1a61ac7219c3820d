#include "ranges/range_search_loops.h"

#include "lanes/lanes.h"
#include "lanes/round.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

constexpr size_t kBlock = 512;

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
    const auto positive = [](F32x4 a) { return pmax(splat(0.0f), a); };
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
    // Use two sets of sums, because additions wait for each other.
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

template <class T>
struct OneSums {
  T error = 0, slope = 0, up = 0, down = 0;

  void add(const float* p, T weight, T t, T low, T high, bool with_windows) {
    const T v = *p * t, r = v - clamp(round_half_even(v), low, high), weighted = r * weight;
    error += weighted * r;
    slope += weighted * v;
    if (!with_windows) return;
    const T half = static_cast<T>(0.5), below = low + half - v, above = v - (high + half);
    up += ((below > 0 ? below : 0) - (above > 0 ? above : 0)) * weight;
    down += ((above + 1 > 0 ? above + 1 : 0) - (below - 1 > 0 ? below - 1 : 0)) * weight;
  }
};

/// The sums of one candidate: with T = float those that add_value makes in a lane.
template <class T>
void try_one(const Run& run, T t, T low, T high, bool with_windows, float* out) {
  const size_t step = run.weighted ? 2 : 1;
  double sums[4] = {};
  for (size_t at = 0; at < run.n; at += kBlock) {
    const size_t size = run.n - at < kBlock ? run.n - at : kBlock;
    const float* p = run.x + step * at;
    OneSums<T> even, odd;
    SCALEPOINT_NO_UNROLL
    for (const float* const end = p + step * size; p < end; p += 2 * step) {
      even.add(p, run.weighted ? p[1] : 1, t, low, high, with_windows);
      if (p + step != end) odd.add(p + step, run.weighted ? p[3] : 1, t, low, high, with_windows);
    }
    sums[0] += even.error + odd.error;
    sums[1] += even.slope + odd.slope;
    sums[2] += even.up + odd.up;
    sums[3] += even.down + odd.down;
  }
  for (int i = 0; i < 4; i++) out[4 * i] = static_cast<float>(sums[i]);
}

/// Tries one candidate after the other.
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

/// The sum of f over the values, four at a time; `filler` replaces missing values at the end. f takes a pointer.
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

/// Values for which `sum_steps` prepares its loop at a time.
constexpr size_t kChunk = 64;
/// Fractional bits of places on a grid. A grid has less than 2^9 steps, so that sums of two places fit into 31 bits.
constexpr int kPlaceBits = 21;

/// min(max(a, 0), most), where most is above 0. Computed with integers, because the engine would use branches for floats.
float within(float a, float most) {
  const auto bits = bit_cast<int32_t>(a), top = bit_cast<int32_t>(most), positive = bits < 0 ? 0 : bits;
  return bit_cast<float>(positive < top ? positive : top);
}

/// The places at which the levels of some values change. Computed in a separate pass, which does not depend on the number of changes.
struct Chunk {
  float x[kChunk], weight[kChunk], level[kChunk];  ///< levels at the start of the grid
  int32_t at[kChunk];                              ///< the first place
  int32_t apart[kChunk];                           ///< from there to the next
  int32_t stop[kChunk];                            ///< behind the last

  void take(const Run& run, size_t from, size_t n) {
    const float* p = run.x + (run.weighted ? 2 : 1) * from;
    for (size_t i = 0; i < n; i++, p += run.weighted ? 2 : 1) {
      x[i] = *p;
      weight[i] = run.weighted ? p[1] : 1;
    }
    for (size_t i = n; i % 4 != 0; i++) x[i] = 0;
  }

  /// farthest: the magnitudes of the last levels of positive and negative values.
  void place(size_t n, const LevelGrid& grid, const float* farthest) {
    const auto first = static_cast<float>(grid.first), per_step = static_cast<float>(1 / grid.step);
    const auto start = static_cast<float>(grid.first / grid.step), size = static_cast<float>(grid.size);
    constexpr float kUnit = 1 << kPlaceBits;
    if constexpr (kSimd) {
      const F32x4 half = splat(0.5f), zero = splat(0.0f), end = splat(size), positive = splat(farthest[0]);
      const auto place_of = [end](F32x4 steps) {
        const F32x4 place = mul(pmin(end, steps), splat(kUnit));
        return narrow_to_int(widen_low(place), widen_high(place));
      };
      SCALEPOINT_NO_UNROLL
      for (size_t i = 0; i < n; i += 4) {
        const F32x4 v = load(x + i), magnitude = abs(v), most = select(greater(zero, v), splat(farthest[1]), positive);
        const F32x4 k = pmin(floor(add(mul(magnitude, splat(first)), half)), most);
        const F32x4 steps = div(splat(per_step), magnitude);
        const F32x4 away = pmin(end, pmax(zero, sub(mul(add(k, half), steps), splat(start))));
        store(level + i, k);
        store(at + i, place_of(away));
        store(apart + i, place_of(steps));
        store(stop + i, place_of(pmax(zero, add(away, mul(sub(sub(most, k), half), steps)))));
      }
    } else {
      const auto place_of = [size](float steps) { return static_cast<int32_t>(within(steps, size) * kUnit); };
      for (size_t i = 0; i < n; i++) {
        const float magnitude = __builtin_fabsf(x[i]), most = farthest[bit_cast<uint32_t>(x[i]) >> 31];
        const float k = within(__builtin_floorf(magnitude * first + 0.5f), most);
        const float steps = per_step / magnitude, away = within((k + 0.5f) * steps - start, size);
        level[i] = k;
        at[i] = place_of(away);
        apart[i] = place_of(steps);
        stop[i] = place_of(away + (most - k - 0.5f) * steps);
      }
    }
  }

  /// Adds the levels at the start to `first`, and the changes to `sums`. Returns the sum of squares.
  double count(size_t n, LevelSums& first, LevelSums* sums) const {
    double energy = 0;
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < n; i++) {
      const double value = __builtin_fabsf(x[i]), w = weight[i], weighted = w * value, k = level[i];
      energy += weighted * value;
      first.products += weighted * k;
      first.squares += w * k * k;
      const int32_t end = stop[i], on = apart[i];
      F64x2 adds = pair(weighted, w * (k + k + 1));
      const F64x2 more = pair(0, w + w);
      SCALEPOINT_NO_UNROLL
      for (int32_t place = at[i]; place < end; place += on) {
        double* const to = &sums[(place >> kPlaceBits) + 1].products;
        store(to, add(load(to), adds));
        adds = add(adds, more);
      }
    }
    return energy;
  }
};

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

double sum_steps(const Run& run, const LevelGrid& grid, double low, double high, LevelSums* sums) {
  for (size_t i = 0; i <= grid.size; i++) sums[i] = {0, 0};
  const float farthest[2] = {static_cast<float>(high), static_cast<float>(-low)};
  LevelSums first = {0, 0};
  double energy = 0;
  Chunk chunk;
  for (size_t i = 0; i < run.n; i += kChunk) {
    const size_t n = run.n - i < kChunk ? run.n - i : kChunk;
    chunk.take(run, i, n);
    chunk.place(n, grid, farthest);
    energy += chunk.count(n, first, sums);
  }
  sums[0] = first;
  return energy;
}

double error_of_run(const float* x, size_t n, float factor, float scale, float low, float high) {
  const F32x4 s = splat(scale), reciprocal = splat(1.0f / scale), bottom = splat(low), top = splat(high), times = splat(factor);
  // Fill missing values at the end with a level, whose error is 0.
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
  // Compare bits, because the engine would use a branch for floats.
  const uint32_t below = bit_cast<uint32_t>(limit);
  size_t small = 0;
  for (size_t i = 0, large = n; i < n; i++) {
    const float v = x[i] * factor;
    const size_t is_small = (bit_cast<uint32_t>(v) & kAbsMask) < below ? 1 : 0;
    large -= 1 - is_small;
    to[is_small != 0 ? small : large] = v;
    small += is_small;
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

}  // namespace scalepoint::loops
