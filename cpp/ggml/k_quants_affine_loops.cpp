// The search for the scale and the minimum of many sub-blocks (Q2_K, Q4_K and Q5_K; see k_quants_columns_loops.h). Sub-blocks that
// these loops cannot follow exactly go to the reference.
#include "ggml/k_quants_columns_loops.h"
#include "ggml/k_quants_search_loops.h"
#include "lanes/lanes.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

/// Four sub-blocks with scale and minimum. The x, weight and level of an element lie at fixed distances from one walking pointer,
/// and so do those of the next group.
struct AffineGroup {
  static constexpr size_t kLongest = 4 * kLongestSubBlock;

  float x[kLongest], weights[kLongest], levels[kLongest];
  F32x4 high, sum_w, sum_x;
  F32x4 scale, low, best;             ///< of the best candidate so far
  F32x4 inverse, new_scale, new_low;  ///< of this candidate
  F32x4 best_inverse, best_from;      ///< parameters of the levels of the best candidate
  I32x4 solvable;                     ///< all ones if its equations have a solution
  I32x4 empty;                        ///< all ones if the range has no width
  F32x4 reach;                        ///< least width of ranges
  F32x4 margin;                       ///< the least of range - reach so far; if above 0, levels are exact
};
constexpr size_t kWeights = AffineGroup::kLongest, kLevels = 2 * kWeights, kNextGroup = sizeof(AffineGroup) / sizeof(float);

/// level = max(round((x - low) * inverse), 0), and at most `top` if kClamp. The bits of floats from 0 on order like integers, and
/// the minimums and maximums of integers do not compete with additions for a port.
template <bool kClamp>
inline void round_levels(AffineGroup& g, size_t length, F32x4 inverse, F32x4 top) {
  const I32x4 zero = splat(0);
  const F32x4 low = g.low;
  float* p = opaque(g.x);
  const float* end = opaque(p + length);
  SCALEPOINT_NO_UNROLL
  do {
    for (size_t j = 0; j < 16; j += 4) {
      I32x4 level = max_signed(bits(nearest(mul(sub(load(p + j), low), inverse))), zero);
      if (kClamp) level = min_signed(level, bits(top));
      store(p + j + kLevels, from_bits(level));
    }
    p += 16;
  } while (p != end);
}

struct LevelSums {
  F32x4 l = splat(0.0f), l2 = splat(0.0f), xl = splat(0.0f);

  void take(const float* p) {
    const F32x4 level = load(p + kLevels), wl = mul(load(p + kWeights), level);
    l = add(l, wl);
    l2 = add(l2, mul(wl, level));
    xl = add(xl, mul(wl, load(p)));
  }
};

inline void solve(AffineGroup& g, const LevelSums& sums) {
  const F32x4 determinant = sub(mul(g.sum_w, sums.l2), mul(sums.l, sums.l));
  const F32x4 scale = div(sub(mul(g.sum_w, sums.xl), mul(g.sum_x, sums.l)), determinant);
  const F32x4 low = div(sub(mul(sums.l2, g.sum_x), mul(sums.l, sums.xl)), determinant);
  const I32x4 above = greater(low, splat(0.0f));
  g.solvable = greater(determinant, splat(0.0f));
  g.new_scale = select(above, div(sums.xl, sums.l2), scale);
  g.new_low = from_bits(bit_and_not(bits(low), above));
}

template <bool kAbsolute>
inline F32x4 weighted_error(const float* p, F32x4 scale, F32x4 low) {
  const F32x4 difference = sub(add(mul(scale, load(p + kLevels)), low), load(p));
  return mul(load(p + kWeights), kAbsolute ? abs(difference) : mul(difference, difference));
}

/// Takes the candidate where it is better, without a branch, because the outcome is unpredictable.
inline void accept(AffineGroup& g, F32x4 error) {
  const I32x4 better = bit_and(g.solvable, greater(g.best, error));
  g.best = select(better, error, g.best);
  g.best_inverse = select(better, g.inverse, g.best_inverse);
  g.best_from = select(better, g.low, g.best_from);
  g.scale = select(better, g.new_scale, g.scale);
  g.low = select(better, g.new_low, g.low);
}

/// Two groups at a time, so that two chains of additions run side by side.
template <bool kAbsolute>
inline void accept_two(AffineGroup* g, size_t length) {
  const F32x4 scale0 = g[0].new_scale, low0 = g[0].new_low, scale1 = g[1].new_scale, low1 = g[1].new_low;
  F32x4 error0 = splat(0.0f), error1 = error0;
  const float* p = opaque(g->x);
  const float* end = opaque(p + length);
  SCALEPOINT_NO_UNROLL
  do {
    error0 = add(error0, weighted_error<kAbsolute>(p, scale0, low0));
    error1 = add(error1, weighted_error<kAbsolute>(p + kNextGroup, scale1, low1));
    p += 4;
  } while (p != end);
  accept(g[0], error0);
  accept(g[1], error1);
}

/// Loads the rows of a group, makes its weights, and takes the whole range for the first candidate.
void begin(AffineGroup& g, const float* x, const AffineRule& rule, const float* weights) {
  const size_t length = 4 * rule.size;
  to_column({x, x + rule.size, x + 2 * rule.size, x + 3 * rule.size}, rule.size, g.x);
  if (weights != nullptr) {
    to_column({weights, weights + rule.size, weights + 2 * rule.size, weights + 3 * rule.size}, rule.size, g.weights);
  }
  F32x4 mean = splat(0.0f);
  if (!rule.absolute && weights == nullptr) {
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < length; i += 4) mean = add(mean, mul(load(g.x + i), load(g.x + i)));
    mean = sqrt(div(mean, splat(static_cast<float>(rule.size))));
  }
  F32x4 low = splat(0.0f), high = load(g.x), sum_w = splat(0.0f), sum_x = sum_w;
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < length; i += 4) {
    const F32x4 v = load(g.x + i), w = weights != nullptr ? load(g.weights + i) : add(mean, abs(v));
    store(g.weights + i, w);
    low = pmin(low, v);
    high = pmax(high, v);
    sum_w = add(sum_w, w);
    sum_x = add(sum_x, mul(w, v));
  }
  if (weights != nullptr && any(equal(low, splat(0.0f)))) {
    // A minimum of 0 has the sign of the first zero. Q4_1 and Q5_1 store it.
    SCALEPOINT_NO_UNROLL
    for (size_t i = length; i > 0; i -= 4) {
      const F32x4 v = load(g.x + i - 4);
      low = select(equal(v, low), v, low);
    }
  }
  g.sum_w = sum_w;
  g.sum_x = sum_x;
  // A later candidate may bring low close to high, or past it. Then levels could be as large as 2^22, where ggml's rounding
  // wraps.
  g.reach = mul(low, splat(-0x1p-16f));
  g.margin = splat(1.0f);
  // The inverse of an extremely narrow range is infinite. This matters only for types that store the levels of the search.
  if (weights != nullptr) g.margin = select(greater(splat(1e-30f), sub(high, low)), splat(-1.0f), g.margin);
  // An empty range gets a width. All of its levels are 0, so no candidate is solvable.
  g.empty = equal(high, low);
  high = select(g.empty, add(low, splat(1.0f)), high);
  g.low = low;
  g.high = high;
  const F32x4 top = splat(static_cast<float>(rule.top)), inverse = div(top, sub(high, low));
  round_levels<false>(g, length, inverse, top);
  g.inverse = g.best_inverse = inverse;
  g.best_from = low;
  g.new_scale = div(splat(1.0f), inverse);
  g.new_low = low;
  g.scale = g.new_scale;
  // Always take the first candidate. If its error is infinite or NaN, it stays the best.
  g.solvable = splat(-1);
  g.best = splat(__builtin_inff());
}

/// Levels of a candidate for all groups.
inline void round_candidate(AffineGroup* groups, const AffineRule& rule, float span) {
  const auto top = static_cast<float>(rule.top);
  const size_t length = 4 * rule.size;
  SCALEPOINT_NO_UNROLL
  for (AffineGroup* g = groups; g != groups + kGroups; g++) {
    const F32x4 range = sub(g->high, g->low);
    g->margin = pmin(g->margin, sub(range, g->reach));
    g->inverse = div(splat(span), range);
  }
  // (x - low) * inverse is at most span, up to rounding.
  if (span > top + 0.45f) {
    SCALEPOINT_NO_UNROLL
    for (AffineGroup* g = groups; g != groups + kGroups; g++) round_levels<true>(*g, length, g->inverse, splat(top));
  } else {
    SCALEPOINT_NO_UNROLL
    for (AffineGroup* g = groups; g != groups + kGroups; g++) round_levels<false>(*g, length, g->inverse, splat(top));
  }
}

/// Scale and minimum of a candidate for all groups.
inline void solve_candidate(AffineGroup* groups, size_t length) {
  SCALEPOINT_NO_UNROLL
  for (AffineGroup* g = groups; g != groups + kGroups; g += 2) {
    LevelSums a, b;
    const float* p = opaque(g->x);
    const float* end = opaque(p + length);
    SCALEPOINT_NO_UNROLL
    do {
      a.take(p);
      b.take(p + kNextGroup);
      p += 4;
    } while (p != end);
    solve(g[0], a);
    solve(g[1], b);
  }
}

template <bool kAbsolute>
void search_candidates(AffineGroup* groups, const AffineRule& rule) {
  const size_t length = 4 * rule.size;
  SCALEPOINT_NO_UNROLL
  for (int32_t k = -1; k <= rule.steps; k++) {
    if (k >= 0) {
      round_candidate(groups, rule, rule.first + rule.by * static_cast<float>(k) + static_cast<float>(rule.top));
      solve_candidate(groups, length);
    }
    SCALEPOINT_NO_UNROLL
    for (AffineGroup* g = groups; g != groups + kGroups; g += 2) accept_two<kAbsolute>(g, length);
  }
}

/// The levels of the best candidates.
void store_levels(AffineGroup& g, const AffineRule& rule, uint8_t* levels) {
  g.low = g.best_from;
  round_levels<true>(g, 4 * rule.size, g.best_inverse, splat(static_cast<float>(rule.top)));
  from_column(g.levels, rule.size, from_bits(bit_and_not(splat(-1), g.empty)), 0, levels);
}

}  // namespace

void find_affine(const float* x, size_t sub_blocks, const AffineRule& rule, const float* weights, float* scales, float* minimums,
                 uint8_t* levels) {
  AffineGroup groups[kGroups];
  SCALEPOINT_NO_UNROLL
  for (size_t h = 0; h < kGroups; h++) {
    const size_t at = 4 * h % sub_blocks * rule.size;
    begin(groups[h], x + at, rule, weights == nullptr ? nullptr : weights + at);
  }
  (rule.absolute ? search_candidates<true> : search_candidates<false>)(opaque(groups), rule);
  SCALEPOINT_NO_UNROLL
  for (size_t h = 0; h < kGroups; h++) {
    const AffineGroup& g = groups[h];
    store(scales + 4 * h, from_bits(bit_and_not(bits(g.scale), g.empty)));
    store(minimums + 4 * h, sub(splat(-0.0f), g.low));
    if (levels != nullptr && 4 * h < sub_blocks) store_levels(groups[h], rule, levels + 4 * h * rule.size);
    float margin[4];
    store(margin, g.margin);
    for (size_t j = 0; j < 4; j++) {
      const size_t b = 4 * h + j, at = b * rule.size;
      if (margin[j] > 0 || b >= sub_blocks) continue;
      uint8_t unused[kLongestSubBlock];
      const Affine found =
          search_affine(x + at, rule, weights == nullptr ? nullptr : weights + at, levels == nullptr ? unused : levels + at);
      scales[b] = found.scale;
      minimums[b] = found.minimum;
    }
  }
}

}  // namespace scalepoint::loops
