// The search for the scales of many sub-blocks without a minimum (Q6_K and Q3_K; see k_quants_columns_loops.h). Sub-blocks of Q3_K
// that these loops cannot follow exactly go to the reference.
#include "ggml/k_quants_columns_loops.h"
#include "ggml/k_quants_search_loops.h"
#include "lanes/lanes.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

/// The first element of each sub-block that is farthest from 0. `length` counts the elements of all four.
F32x4 farthest_of_column(const float* column, size_t length) {
  const F32x4 zero = splat(0.0f);
  F32x4 low = zero, high = zero;
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < length; i += 4) {
    const F32x4 x = load(column + i);
    low = pmin(low, x);
    high = pmax(high, x);
  }
  const F32x4 down = abs(low);
  if (!any(bit_and(equal(high, down), greater(high, zero)))) return select(greater(high, down), high, low);
  // The order matters only if elements of both signs are equally far from 0.
  F32x4 far = zero;
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < length; i += 4) {
    const F32x4 x = load(column + i);
    far = select(greater(abs(x), abs(far)), x, far);
  }
  return far;
}

// --------------------------------------------------------------------------------------------------------- Q6_K, and weighted

/// Four sub-blocks. The x, weight and weight * x of an element lie at fixed distances from one walking pointer.
struct ScaleGroup {
  static constexpr size_t kCandidates = 20, kLongest = 4 * kLongestSubBlock;

  float x[kLongest], weights[kLongest], products[kLongest];
  F32x4 top, bottom;  ///< the largest level and the smallest
  F32x4 far, inverse[kCandidates + 2];
  I32x4 live;  ///< all ones unless the sub-block is too small
  F32x4 lx[kCandidates], l2[kCandidates];
};

void begin(ScaleGroup& g, const float* x, const ScaleRule& rule, const float* weights) {
  const size_t size = rule.size;
  to_column({x, x + size, x + 2 * size, x + 3 * size}, size, g.x);
  if (weights != nullptr) to_column({weights, weights + size, weights + 2 * size, weights + 3 * size}, size, g.weights);
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < 4 * size; i += 4) {
    const F32x4 v = load(g.x + i), w = weights != nullptr ? load(g.weights + i) : mul(v, v);
    store(g.weights + i, w);
    store(g.products + i, mul(w, v));
  }
  g.top = splat(static_cast<float>(rule.top - 1));
  g.bottom = splat(static_cast<float>(-rule.top));
  const F32x4 far = farthest_of_column(g.x, 4 * size);
  g.live = bit_and_not(splat(-1), greater(splat(kTooSmall), abs(far)));
  g.far = select(g.live, far, splat(1.0f));
  for (size_t k = 0; k < 2; k++) g.inverse[k] = div(splat(kSpans.negated(k, rule)), g.far);
}

/// Clamps with minimums of integers, on the bits of floats. Signed: the bits of negative floats are below those of the top.
/// Unsigned: the bits of floats below the bottom are above those of the bottom.
template <bool kHigh, bool kLow>
inline F32x4 clamped_level(F32x4 x, F32x4 inverse, F32x4 top, F32x4 bottom) {
  I32x4 level = bits(nearest(mul(x, inverse)));
  if (kHigh) level = min_signed(level, bits(top));
  if (kLow) level = min_unsigned(level, bits(bottom));
  return from_bits(level);
}

/// Two candidates at a time share the loads. The divisions of the next two run beside this loop.
template <bool kHigh, bool kLow>
inline void sum_candidates(ScaleGroup& g, const ScaleRule& rule, size_t k) {
  const F32x4 inverse0 = g.inverse[k], inverse1 = g.inverse[k + 1], top = g.top, bottom = g.bottom;
  for (size_t j = k + 2; j < k + 4; j++) g.inverse[j] = div(splat(kSpans.negated(j, rule)), g.far);
  F32x4 lx0 = splat(0.0f), l20 = lx0, lx1 = lx0, l21 = lx0;
  const float* p = opaque(g.x);
  const float* end = opaque(p + 4 * rule.size);
  SCALEPOINT_NO_UNROLL
  do {
    const F32x4 x = load(p), weight = load(p + ScaleGroup::kLongest), product = load(p + 2 * ScaleGroup::kLongest);
    const F32x4 level0 = clamped_level<kHigh, kLow>(x, inverse0, top, bottom);
    const F32x4 level1 = clamped_level<kHigh, kLow>(x, inverse1, top, bottom);
    lx0 = add(lx0, mul(product, level0));
    l20 = add(l20, mul(mul(weight, level0), level0));
    lx1 = add(lx1, mul(product, level1));
    l21 = add(l21, mul(mul(weight, level1), level1));
    p += 4;
  } while (p != end);
  g.lx[k] = lx0;
  g.l2[k] = l20;
  g.lx[k + 1] = lx1;
  g.l2[k + 1] = l21;
}

// -------------------------------------------------------------------------------------------------------------------- Q3_K

/// Facts of each sub-block of Q3_K: the element farthest from 0 (0 if that is too small), and the sums of its levels.
struct DescentSums {
  alignas(16) float far[16 * kDescents], lx[16 * kDescents], l2[16 * kDescents];
};

/// Four sub-blocks on their way down.
struct DescentGroup {
  float x[64], squares[64], levels[64];
  F32x4 lx, l2;
  I32x4 changed;
  I32x4 largest_quotient;  ///< twice its magnitude's bits
};

inline F32x4 clamped_descent_level(F32x4 x) {
  return from_bits(min_unsigned(min_signed(bits(nearest(x)), bits(splat(3.0f))), bits(splat(-4.0f))));
}

/// The sums of the levels that the descents begin with.
void begin_descents(const float* x, size_t sub_blocks, DescentSums& sums) {
  const F32x4 zero = splat(0.0f);
  SCALEPOINT_NO_UNROLL
  for (size_t b = 0; b < sub_blocks; b += 4) {
    const float* p = x + 16 * b;
    float column[64];
    to_column({p, p + 16, p + 32, p + 48}, 16, column);
    const F32x4 far = farthest_of_column(column, 64);
    const I32x4 small = greater(splat(kTooSmall), abs(far));
    const F32x4 inverse = div(splat(-4.0f), select(small, splat(1.0f), far));
    F32x4 lx = zero, l2 = zero;
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < 64; i += 4) {
      const F32x4 v = load(column + i), level = clamped_descent_level(mul(v, inverse)), square = mul(v, v);
      lx = add(lx, mul(mul(square, v), level));
      l2 = add(l2, mul(mul(square, level), level));
    }
    store(sums.far + b, from_bits(bit_and_not(bits(far), small)));
    store(sums.lx + b, lx);
    store(sums.l2 + b, l2);
  }
}

/// Lists the sub-blocks that may move, filled up to a multiple of four with the last of them. Returns their number.
///
/// A sub-block moves only if its farthest element is below 0. Otherwise level and x differ in sign everywhere, so no term of lx
/// is above 0. The rounded sum is not above any of its terms, so lx without one of them is not above 0.
size_t list_moving(const DescentSums& sums, size_t sub_blocks, size_t* moving) {
  size_t n = 0;
  for (size_t b = 0; b < sub_blocks; b++) {
    moving[n] = b;
    n += sums.far[b] < 0;
  }
  for (size_t i = n; i % 4 != 0; i++) moving[i] = moving[n - 1];
  return n;
}

/// Loads the four sub-blocks with the numbers b.
inline void begin(DescentGroup& g, const float* x, const size_t* b, const DescentSums& sums) {
  to_column({x + 16 * b[0], x + 16 * b[1], x + 16 * b[2], x + 16 * b[3]}, 16, g.x);
  const auto gather = [&](const float* from) {
    const float four[4] = {from[b[0]], from[b[1]], from[b[2]], from[b[3]]};
    return load(four);
  };
  const F32x4 inverse = div(splat(-4.0f), gather(sums.far));
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < 64; i += 4) {
    const F32x4 v = load(g.x + i);
    store(g.squares + i, mul(v, v));
    store(g.levels + i, clamped_descent_level(mul(v, inverse)));
  }
  g.lx = gather(sums.lx);
  g.l2 = gather(sums.l2);
  g.largest_quotient = splat(0);
}

/// One element of four sub-blocks to its best level.
inline void descend(DescentGroup& g, size_t i) {
  const F32x4 x = load(g.x + i), square = load(g.squares + i), level = load(g.levels + i);
  const F32x4 zero = splat(0.0f), cube = mul(square, x);
  const F32x4 lx = sub(g.lx, mul(cube, level)), l2 = sub(g.l2, mul(mul(square, level), level));
  const F32x4 quotient = div(mul(x, l2), lx), other = clamped_descent_level(quotient);
  const F32x4 new_lx = add(lx, mul(cube, other)), new_l2 = add(l2, mul(mul(square, other), other));
  const I32x4 possible = bit_and(bit_and_not(greater(lx, zero), equal(other, level)), greater(new_l2, zero));
  const I32x4 better = bit_and(possible, greater(mul(mul(new_lx, new_lx), g.l2), mul(mul(g.lx, g.lx), new_l2)));
  g.largest_quotient = max_unsigned(g.largest_quotient, twice_magnitude_bits(quotient));
  g.changed = bit_or(g.changed, better);
  store(g.levels + i, select(better, other, level));
  g.lx = select(better, new_lx, g.lx);
  g.l2 = select(better, new_l2, g.l2);
}

/// All sweeps of all groups. A step is a long chain through a division. The groups take their steps in turn, which hides it.
void descend_all(DescentGroup* groups, size_t count) {
  DescentGroup* active[4 * kDescents];
  for (size_t h = 0; h < count; h++) active[h] = groups + h;
  for (int sweep = 0; sweep < 5 && count > 0; sweep++) {
    for (size_t a = 0; a < count; a++) active[a]->changed = splat(0);
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < 64; i += 4) {
      SCALEPOINT_NO_UNROLL
      for (size_t a = 0; a < count; a++) descend(*active[a], i);
    }
    size_t kept = 0;
    for (size_t a = 0; a < count; a++) {
      active[kept] = active[a];
      kept += any(active[a]->changed);
    }
    count = kept;
  }
}

/// Puts the sums of a group back. If a quotient is so large that ggml's rounding wraps, including NaN and infinity, the reference decides.
inline void finish(const DescentGroup& g, const float* x, const size_t* b, DescentSums& sums) {
  float lx[4], l2[4];
  int32_t quotient[4];
  store(lx, g.lx);
  store(l2, g.l2);
  store(quotient, g.largest_quotient);
  for (size_t j = 0; j < 4; j++) {
    sums.lx[b[j]] = lx[j];
    sums.l2[b[j]] = l2[j];
    if (static_cast<uint32_t>(quotient[j]) >= bit_cast<uint32_t>(0x1p22f) << 1) {
      uint8_t levels[16];
      sums.lx[b[j]] = search_descent(x + 16 * b[j], levels);
      sums.l2[b[j]] = 1;
    }
  }
}

}  // namespace

void find_scales(const float* x, const ScaleRule& rule, const float* weights, float* scales, uint8_t* levels) {
  ScaleGroup memory[kGroups];
  ScaleGroup* groups = opaque(memory);
  SCALEPOINT_NO_UNROLL
  for (size_t h = 0; h < kGroups; h++) {
    ScaleGroup& g = groups[h];
    const size_t at = 4 * h * rule.size;
    begin(g, x + at, rule, weights == nullptr ? nullptr : weights + at);
    // |x * inverse| is at most the span, up to rounding. Only a span of at least top + 0.5 can reach below the bottom, and a span
    // of less than top - 0.5 needs no clamp.
    sum_candidates<true, false>(g, rule, 0);
    sum_candidates<false, false>(g, rule, 2);
    SCALEPOINT_NO_UNROLL
    for (size_t k = 4; k < 14; k += 2) sum_candidates<true, false>(g, rule, k);
    SCALEPOINT_NO_UNROLL
    for (size_t k = 14; k < ScaleGroup::kCandidates; k += 2) sum_candidates<true, true>(g, rule, k);
  }
  F32x4 scale[kGroups], best[kGroups], inverse[kGroups];
  const F32x4 zero = splat(0.0f);
  for (size_t h = 0; h < kGroups; h++) {
    const F32x4 lx = groups[h].lx[0], l2 = groups[h].l2[0];
    scale[h] = from_bits(bit_and_not(bits(div(lx, l2)), equal(l2, zero)));
    best[h] = mul(scale[h], lx);
    inverse[h] = groups[h].inverse[0];
  }
  // The groups side by side: each is one long chain.
  SCALEPOINT_NO_UNROLL
  for (size_t k = 1; k < Spans::kCount; k++) {
    for (size_t h = 0; h < kGroups; h++) {
      const F32x4 lx = groups[h].lx[k], l2 = groups[h].l2[k], candidate = div(lx, l2);
      const I32x4 better = bit_and(greater(l2, zero), greater(mul(lx, lx), mul(best[h], l2)));
      scale[h] = select(better, candidate, scale[h]);
      best[h] = select(better, mul(candidate, lx), best[h]);
      inverse[h] = select(better, groups[h].inverse[k], inverse[h]);
    }
  }
  for (size_t h = 0; h < kGroups; h++) {
    ScaleGroup& g = groups[h];
    store(scales + 4 * h, from_bits(bit_and(bits(scale[h]), g.live)));
    if (levels == nullptr) continue;
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < 4 * rule.size; i += 4) {
      store(g.products + i, clamped_level<true, true>(load(g.x + i), inverse[h], g.top, g.bottom));
    }
    from_column(g.products, rule.size, from_bits(g.live), rule.top, levels + 4 * h * rule.size);
  }
}

void find_descents(const float* x, size_t super_blocks, float* scales) {
  const size_t sub_blocks = 16 * super_blocks;
  DescentSums sums;
  begin_descents(x, sub_blocks, sums);
  size_t moving[16 * kDescents + 3];
  const size_t count = (list_moving(sums, sub_blocks, moving) + 3) / 4;
  DescentGroup groups[4 * kDescents];
  SCALEPOINT_NO_UNROLL
  for (size_t h = 0; h < count; h++) begin(groups[h], x, moving + 4 * h, sums);
  descend_all(groups, count);
  for (size_t h = 0; h < count; h++) finish(groups[h], x, moving + 4 * h, sums);
  for (size_t b = 0; b < sub_blocks; b++) scales[b] = sums.far[b] != 0 && sums.l2[b] > 0 ? sums.lx[b] / sums.l2[b] : 0;
}

}  // namespace scalepoint::loops
