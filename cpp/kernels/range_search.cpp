#include "range_search.h"

#include "../round.h"
#include "lanes.h"

namespace scalepoint::kernels {
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

template <class T>
struct OneSums {
  T error = 0, slope = 0, up = 0, down = 0;

  template <bool kWeighted, Sums kSums>
  void add(const float* p, T t, T low, T high) {
    const T v = *p * t, near = round_half_even(v), r = v - (kSums == Sums::kError ? near : clamp(near, low, high));
    const T weight = kWeighted ? p[1] : 1, weighted = kWeighted ? r * weight : r;
    error += weighted * r;
    if constexpr (kSums != Sums::kError) slope += weighted * v;
    if constexpr (kSums == Sums::kWindows) {
      const T half = static_cast<T>(0.5), below = low + half - v, above = v - (high + half);
      const T raised = (below > 0 ? below : 0) - (above > 0 ? above : 0);
      const T lowered = (above + 1 > 0 ? above + 1 : 0) - (below - 1 > 0 ? below - 1 : 0);
      up += kWeighted ? raised * weight : raised;
      down += kWeighted ? lowered * weight : lowered;
    }
  }
};

/// The sums of one candidate: with T = float those that add_value makes in a lane.
template <class T, bool kWeighted, Sums kSums>
void try_one(const Run& run, T t, T low, T high, float* out) {
  constexpr size_t kStep = kWeighted ? 2 : 1;
  struct {
    double error = 0, slope = 0, up = 0, down = 0;
  } sums;
  for (size_t at = 0; at < run.n; at += kBlock) {
    const size_t size = run.n - at < kBlock ? run.n - at : kBlock;
    const float* p = run.x + kStep * at;
    OneSums<T> even, odd;
    SCALEPOINT_NO_UNROLL
    for (const float* const end = p + kStep * (size - size % 2); p != end; p += 2 * kStep) {
      even.template add<kWeighted, kSums>(p, t, low, high);
      odd.template add<kWeighted, kSums>(p + kStep, t, low, high);
    }
    if (size % 2 != 0) even.template add<kWeighted, kSums>(p, t, low, high);
    sums.error += even.error + odd.error;
    sums.slope += even.slope + odd.slope;
    sums.up += even.up + odd.up;
    sums.down += even.down + odd.down;
  }
  out[0] = static_cast<float>(sums.error);
  out[4] = static_cast<float>(sums.slope);
  out[8] = static_cast<float>(sums.up);
  out[12] = static_cast<float>(sums.down);
}

/// One candidate after the other.
template <class T, bool kWeighted, Sums kSums>
void try_one_by_one(const Run& run, double t_per_u, const Trials& trials, TrialSums& out) {
  float u[4], low[4], high[4], sums[16];
  store(u, trials.u);
  store(low, trials.low);
  store(high, trials.high);
  SCALEPOINT_NO_UNROLL
  for (int lane = 0; lane < 4; lane++) {
    try_one<T, kWeighted, kSums>(run, u[lane] * static_cast<T>(t_per_u), low[lane], high[lane], sums + lane);
  }
  out = {load(sums), load(sums + 4), load(sums + 8), load(sums + 12)};
}

template <bool kWeighted, Sums kSums>
void try_all(const Run& run, double t_per_u, const Trials& trials, TrialSums& sums) {
  if constexpr (!kWeighted) {
    if (run.n <= kFewValues) return try_one_by_one<double, false, kSums>(run, t_per_u, trials, sums);
  }
  if constexpr (kSimd) {
    try_each<kWeighted, kSums>(run, mul(trials.u, splat(static_cast<float>(t_per_u))), trials, sums);
  } else {
    try_one_by_one<float, kWeighted, kSums>(run, t_per_u, trials, sums);
  }
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

/// Values for which `sum_steps` prepares its loop at a time.
constexpr size_t kChunk = 64;
/// Places on a grid have so many bits behind the point. A grid has less than 2^9 steps, so that sums of two fit into 31 bits.
constexpr int kPlaceBits = 21;

struct StepSums {
  F64x2 energy = splat(0.0), products = energy, squares = energy;
};

/// What the changes of the levels of some values need. Its own pass, as nothing in it depends on how many changes there are.
struct Chunk {
  float x[kChunk], weight[kChunk];
  double change[2 * kChunk];  ///< of both sums at the first place
  int32_t at[kChunk];         ///< the place where the level changes first
  int32_t apart[kChunk];      ///< from there to the next
  int32_t stop[kChunk];       ///< behind the last

  void take(const Run& run, size_t from, size_t n) {
    for (size_t i = 0; i < n; i++) {
      x[i] = run.weighted ? run.x[2 * (from + i)] : run.x[from + i];
      weight[i] = run.weighted ? run.x[2 * (from + i) + 1] : 1;
    }
    for (size_t i = n; i % 4 != 0; i++) x[i] = weight[i] = 0;
  }

  void place(size_t n, const Grid& grid, float low, float high, StepSums& totals) {
    const F32x4 first = splat(static_cast<float>(grid.first)), half = splat(0.5f), zero = splat(0.0f), one = splat(1.0f);
    const F32x4 per_step = splat(static_cast<float>(1 / grid.step)), start = splat(static_cast<float>(grid.first / grid.step));
    const F32x4 size = splat(static_cast<float>(grid.size)), unit = splat(static_cast<float>(1 << kPlaceBits));
    const F32x4 highest = splat(high), lowest = splat(-low);
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < n; i += 4) {
      const F32x4 v = load(x + i), w = load(weight + i), magnitude = abs(v), most = select(greater(zero, v), lowest, highest);
      const F32x4 level = pmin(floor(add(mul(magnitude, first), half)), most);
      const F32x4 steps = div(per_step, magnitude), away = pmax(zero, sub(mul(add(level, half), steps), start));
      const F32x4 last = add(away, mul(sub(sub(most, level), half), steps));
      store(at + i, truncate(mul(pmin(size, away), unit)));
      store(apart + i, truncate(mul(pmin(size, steps), unit)));
      store(stop + i, truncate(mul(pmin(size, last), unit)));
      const F64x2 w0 = widen_low(w), w1 = widen_high(w), m0 = widen_low(magnitude), m1 = widen_high(magnitude);
      const F64x2 k0 = widen_low(level), k1 = widen_high(level), p0 = mul(w0, m0), p1 = mul(w1, m1);
      totals.energy = add(totals.energy, add(mul(p0, m0), mul(p1, m1)));
      totals.products = add(totals.products, add(mul(p0, k0), mul(p1, k1)));
      totals.squares = add(totals.squares, add(mul(mul(w0, k0), k0), mul(mul(w1, k1), k1)));
      const F32x4 odd = add(add(level, level), one);
      store_pairs(change + 2 * i, p0, mul(w0, widen_low(odd)));
      store_pairs(change + 2 * i + 4, p1, mul(w1, widen_high(odd)));
    }
  }

  void count(size_t n, LevelSums* sums) const {
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < n; i++) {
      const int32_t end = stop[i], on = apart[i];
      F64x2 adds = load(change + 2 * i);
      const F64x2 more = pair(0, 2.0 * weight[i]);
      SCALEPOINT_NO_UNROLL
      for (int32_t place = at[i]; place < end; place += on) {
        double* const to = &sums[(place >> kPlaceBits) + 1].products;
        store(to, add(load(to), adds));
        adds = add(adds, more);
      }
    }
  }
};

}  // namespace

void try_levels(const Run& run, double t_per_u, const Trials& trials, Sums which, TrialSums& sums) {
  switch (which) {
    case Sums::kError:
      return run.weighted ? try_all<true, Sums::kError>(run, t_per_u, trials, sums)
                          : try_all<false, Sums::kError>(run, t_per_u, trials, sums);
    case Sums::kFit:
      return run.weighted ? try_all<true, Sums::kFit>(run, t_per_u, trials, sums)
                          : try_all<false, Sums::kFit>(run, t_per_u, trials, sums);
    case Sums::kWindows:
      return run.weighted ? try_all<true, Sums::kWindows>(run, t_per_u, trials, sums)
                          : try_all<false, Sums::kWindows>(run, t_per_u, trials, sums);
  }
}

double sum_steps(const Run& run, const Grid& grid, double low, double high, LevelSums* sums) {
  for (size_t i = 0; i <= grid.size; i++) sums[i] = {0, 0};
  StepSums totals;
  for (size_t i = 0; i < run.n; i += kChunk) {
    Chunk chunk;
    const size_t n = run.n - i < kChunk ? run.n - i : kChunk;
    chunk.take(run, i, n);
    chunk.place(n, grid, static_cast<float>(low), static_cast<float>(high), totals);
    chunk.count(n, sums);
  }
  double lanes[6];
  store(lanes, totals.energy);
  store(lanes + 2, totals.products);
  store(lanes + 4, totals.squares);
  sums[0] = {lanes[2] + lanes[3], lanes[4] + lanes[5]};
  return lanes[0] + lanes[1];
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
  // Compares bits: of floats the engine would make a branch.
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

}  // namespace scalepoint::kernels
