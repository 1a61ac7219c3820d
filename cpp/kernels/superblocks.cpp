#include <cmath>
#include <cstdint>
#include <cstring>

#include "../float16.h"
#include "blocks.h"
#include "lanes.h"

namespace scalepoint::kernels {
namespace {

using namespace lanes;

constexpr size_t kElements = 256;

// ----------------------------------------------------------------------------------------------------------------- layouts

/// x = d * scale * level - dmin * min, sub-blocks of 16; scales[i] holds scale and min of sub-block i. 2.625 bits per weight.
struct BlockQ2K {
  uint8_t scales[16], low[64], d[2], dmin[2];
};
/// x = d * (scale - 32) * (level - 4), sub-blocks of 16. 3.4375 bits per weight.
struct BlockQ3K {
  uint8_t high[32], low[64], scales[12], d[2];
};
/// x = d * scale * level - dmin * min, sub-blocks of 32. 4.5 bits per weight.
struct BlockQ4K {
  uint8_t d[2], dmin[2], scales[12], low[128];
};
/// The same with a fifth bit. 5.5 bits per weight.
struct BlockQ5K {
  uint8_t d[2], dmin[2], scales[12], high[32], low[128];
};
/// x = d * scale * (level - 32), sub-blocks of 16, signed scales. 6.5625 bits per weight.
struct BlockQ6K {
  uint8_t low[128], high[64], scales[16], d[2];
};
static_assert(sizeof(BlockQ2K) == 84 && sizeof(BlockQ3K) == 110 && sizeof(BlockQ4K) == 144 && sizeof(BlockQ5K) == 176 &&
              sizeof(BlockQ6K) == 210);

// Levels are packed and unpacked eight bytes at a time.
constexpr uint64_t kEachByte = 0x0101010101010101u;

inline uint64_t load_word(const uint8_t* p) {
  uint64_t word;
  std::memcpy(&word, p, 8);
  return word;
}

inline void store_word(uint8_t* p, uint64_t word) { std::memcpy(p, &word, 8); }

/// Where the bits of an element lie. `count` elements, `distance` apart, put `bits` bits of their levels, from bit `from` on, into
/// one byte, the first lowest. A run of `distance` bytes holds a run of count * distance elements.
struct Packing {
  size_t count, distance;
  uint32_t bits, from;
};
constexpr Packing kNibbles = {2, 32, 4, 0};  // Q4_K, Q5_K: all or the low bits
constexpr Packing kFifth = {8, 32, 1, 4};    // Q5_K
constexpr Packing kPairs = {4, 32, 2, 0};    // Q2_K, Q3_K: all or the low bits
constexpr Packing kThird = {8, 32, 1, 2};    // Q3_K
constexpr Packing kLowFour = {2, 64, 4, 0};  // Q6_K
constexpr Packing kHighTwo = {4, 32, 2, 4};  // Q6_K

template <Packing kPacking>
void pack(const uint8_t* __restrict levels, uint8_t* __restrict to) {
  constexpr uint64_t kMask = kEachByte * ((1u << kPacking.bits) - 1);
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < kElements; i += kPacking.count * kPacking.distance) {
    SCALEPOINT_NO_UNROLL
    for (size_t e = 0; e < kPacking.distance; e += 8, to += 8) {
      uint64_t word = 0;
      for (size_t k = 0; k < kPacking.count; k++) {
        word |= (load_word(levels + i + k * kPacking.distance + e) >> kPacking.from & kMask) << (k * kPacking.bits);
      }
      store_word(to, word);
    }
  }
}

/// Adds those bits to levels that are 0 there.
void unpack(const uint8_t* __restrict from, const Packing& packing, uint8_t* __restrict levels) {
  const uint64_t mask = kEachByte * ((1u << packing.bits) - 1);
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < kElements; i += packing.count * packing.distance) {
    SCALEPOINT_NO_UNROLL
    for (size_t e = 0; e < packing.distance; e += 8, from += 8) {
      const uint64_t word = load_word(from);
      SCALEPOINT_NO_UNROLL
      for (size_t k = 0; k < packing.count; k++) {
        uint8_t* p = levels + i + k * packing.distance + e;
        store_word(p, load_word(p) | (word >> (k * packing.bits) & mask) << packing.from);
      }
    }
  }
}

// ----------------------------------------------------------------------------------------------------------------- float16

/// Stores x as float16 and returns what was stored.
float store_float16(float x, uint8_t (&to)[2]) {
  const uint16_t half = float16_of(x);
  to[0] = static_cast<uint8_t>(half);
  to[1] = static_cast<uint8_t>(half >> 8);
  return float16_value(half);
}

float load_float16(const uint8_t (&from)[2]) { return float16_value(static_cast<uint16_t>(from[0] | from[1] << 8)); }

// ---------------------------------------------------------------------------------------------------------------- rounding

/// ggml's rounding, half to even. It takes the value from the low 23 bits of the sum, so that it wraps beyond +-2^22 and gives 0
/// for NaN.
int32_t nearest_int(float x) { return (bit_cast<int32_t>(x + kMagic) & 0x007FFFFF) - 0x00400000; }

/// Sub-blocks whose largest magnitude is less count as zeros (types without a minimum).
constexpr float kTooSmall = 1e-15f;

// -------------------------------------------------------------------------------------- one sub-block with scale and minimum

/// How the types with a minimum differ.
struct AffineRule {
  size_t size;      ///< elements of a sub-block
  int32_t top;      ///< largest level
  int32_t steps;    ///< candidates 0 to steps
  float first;      ///< candidate k stretches the range over first + 0.1 k + top levels
  bool absolute;    ///< weights |x| and absolute errors; else mean size + |x| and squares
  int32_t largest;  ///< largest quantized scale and minimum
};
constexpr AffineRule kRuleQ2K = {16, 3, 15, -0.5f, true, 15};
constexpr AffineRule kRuleQ4K = {32, 15, 20, -1.0f, false, 63};
constexpr AffineRule kRuleQ5K = {32, 31, 15, -0.5f, false, 63};

void affine_weights(const float* x, const AffineRule& rule, float* weights) {
  float mean = 0;
  if (!rule.absolute) {
    for (size_t i = 0; i < rule.size; i++) mean += x[i] * x[i];
    mean = std::sqrt(mean / static_cast<float>(rule.size));
  }
  for (size_t i = 0; i < rule.size; i++) weights[i] = mean + std::fabs(x[i]);
}

struct Affine {
  float scale, minimum;  ///< x is about scale * level - minimum
};

/// The weighted sum of errors of x = scale * level + low.
float affine_error(const float* x, const float* weights, const uint8_t* levels, const AffineRule& rule, float scale, float low) {
  float sum = 0;
  for (size_t i = 0; i < rule.size; i++) {
    const float difference = scale * static_cast<float>(levels[i]) + low - x[i];
    sum += weights[i] * (rule.absolute ? std::fabs(difference) : difference * difference);
  }
  return sum;
}

/// Fits scale and minimum to the levels of several candidate ranges by least squares, and keeps the fit with the least error.
Affine search_affine(const float* x, const AffineRule& rule, uint8_t* levels) {
  float weights[32];
  affine_weights(x, rule, weights);
  float low = x[0], high = x[0], sum_w = 0, sum_x = 0;
  for (size_t i = 0; i < rule.size; i++) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  if (low > 0) low = 0;
  if (high == low) {
    std::memset(levels, 0, rule.size);
    return {0, -low};
  }
  const auto round_levels = [&](float inverse, uint8_t* to) {
    for (size_t i = 0; i < rule.size; i++) {
      to[i] = static_cast<uint8_t>(clamp(nearest_int(inverse * (x[i] - low)), int32_t{0}, rule.top));
    }
  };
  const float inverse = static_cast<float>(rule.top) / (high - low);
  float scale = 1 / inverse;
  round_levels(inverse, levels);
  float best = affine_error(x, weights, levels, rule, scale, low);
  for (int32_t k = 0; k <= rule.steps; k++) {
    uint8_t candidate[32];
    round_levels((rule.first + 0.1f * static_cast<float>(k) + static_cast<float>(rule.top)) / (high - low), candidate);
    float sum_l = 0, sum_l2 = 0, sum_xl = 0;
    for (size_t i = 0; i < rule.size; i++) {
      const auto level = static_cast<float>(candidate[i]);
      sum_l += weights[i] * level;
      sum_l2 += weights[i] * level * level;
      sum_xl += weights[i] * level * x[i];
    }
    const float determinant = sum_w * sum_l2 - sum_l * sum_l;
    if (!(determinant > 0)) continue;
    float new_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    float new_low = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    if (new_low > 0) {
      new_low = 0;
      new_scale = sum_xl / sum_l2;
    }
    const float error = affine_error(x, weights, candidate, rule, new_scale, new_low);
    if (!(error < best)) continue;
    // From here on the candidates start at the new minimum, as ggml's do.
    std::memcpy(levels, candidate, rule.size);
    best = error;
    scale = new_scale;
    low = new_low;
  }
  return {scale, -low};
}

// ----------------------------------------------------------------------------------------------- one sub-block without a minimum

/// The first of the elements that are farthest from 0.
float farthest(const float* x) {
  float far = 0, size = 0;
  for (size_t i = 0; i < 16; i++) {
    if (std::fabs(x[i]) > size) size = std::fabs(far = x[i]);
  }
  return far;
}

/// Sums of (w * x) * level and (w * level) * level, w = x * x.
struct Sums {
  float lx = 0, l2 = 0;

  void take(float x, int32_t level) {
    const float w = x * x, l = static_cast<float>(level);
    lx += w * x * l;
    l2 += w * l * l;
  }
};

/// How far the candidates of Q6_K stretch the farthest element, in ggml's order: 32 levels, then 31.1 to 32.9.
struct Spans {
  static constexpr size_t kCount = 19;
  float span[kCount + 3] = {};  ///< padded for loops that take two and look two ahead

  constexpr Spans() {
    for (int32_t k = 0; k < static_cast<int32_t>(kCount); k++) {
      const int32_t step = k == 0 ? 0 : k < 10 ? k - 10 : k - 9;
      span[k] = -(32 + 0.1f * static_cast<float>(step));
    }
  }
};
constexpr Spans kSpans;

/// Q6_K: levels 0 to 63 for -32 to 31.
float search_scale(const float* x, uint8_t* levels) {
  std::memset(levels, 0, 16);
  const float far = farthest(x);
  if (std::fabs(far) < kTooSmall) return 0;
  float scale = 0, best = 0;
  for (size_t k = 0; k < Spans::kCount; k++) {
    const float inverse = kSpans.span[k] / far;
    uint8_t candidate[16];
    Sums sums;
    for (size_t i = 0; i < 16; i++) {
      const int32_t level = clamp(nearest_int(inverse * x[i]), -32, 31);
      candidate[i] = static_cast<uint8_t>(level + 32);
      sums.take(x[i], level);
    }
    // The first is taken in any case.
    if (k > 0 && !(sums.l2 > 0 && sums.lx * sums.lx > best * sums.l2)) continue;
    std::memcpy(levels, candidate, 16);
    scale = sums.l2 != 0 ? sums.lx / sums.l2 : 0;
    best = scale * sums.lx;
  }
  return scale;
}

/// Q3_K: levels 0 to 7 for -4 to 3. Moves one element after the other to its best level, five times at most.
float search_descent(const float* x, uint8_t* levels) {
  std::memset(levels, 0, 16);
  const float far = farthest(x);
  if (std::fabs(far) < kTooSmall) return 0;
  const float inverse = -4 / far;
  int32_t level[16];
  Sums sums;
  for (size_t i = 0; i < 16; i++) {
    level[i] = clamp(nearest_int(inverse * x[i]), -4, 3);
    sums.take(x[i], level[i]);
  }
  bool changed = true;
  for (int sweep = 0; sweep < 5 && changed; sweep++) {
    changed = false;
    for (size_t i = 0; i < 16; i++) {
      const float w = x[i] * x[i], l = static_cast<float>(level[i]);
      Sums without = {sums.lx - w * x[i] * l, sums.l2 - w * l * l};
      if (!(without.lx > 0)) continue;
      const int32_t other = clamp(nearest_int(x[i] * without.l2 / without.lx), -4, 3);
      if (other == level[i]) continue;
      without.take(x[i], other);
      if (!(without.l2 > 0 && without.lx * without.lx * sums.l2 > sums.lx * sums.lx * without.l2)) continue;
      level[i] = other;
      sums = without;
      changed = true;
    }
  }
  for (size_t i = 0; i < 16; i++) levels[i] = static_cast<uint8_t>(level[i] + 4);
  return sums.l2 > 0 ? sums.lx / sums.l2 : 0;
}

#ifdef SCALEPOINT_SIMD_LANES

// ---------------------------------------------------------------------------------------------- many sub-blocks side by side
//
// The sums of a sub-block run over its elements in order, so the lanes are sub-blocks: four of them form a group, a column of as
// many vectors as a sub-block has elements. Levels stay floats. Sub-blocks that these loops cannot follow exactly, and levels that
// the final rounding does not replace, come from the functions above.

/// Four sub-blocks to a column: element i of sub-block k becomes lane k of vector i.
void to_column(const float* const (&rows)[4], size_t size, float* column) {
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < size; i += 4, column += 16) {
    F32x4 a = load(rows[0] + i), b = load(rows[1] + i), c = load(rows[2] + i), d = load(rows[3] + i);
    transpose(a, b, c, d);
    store(column, a);
    store(column + 4, b);
    store(column + 8, c);
    store(column + 12, d);
  }
}

constexpr size_t kGroups = 4;

/// Four sub-blocks with scale and minimum. An element's x, weight and level lie at fixed distances from one walking pointer, and so
/// do those of the next group.
struct AffineGroup {
  static constexpr size_t kLongest = 128;

  float x[kLongest], weights[kLongest], levels[kLongest];
  F32x4 high, sum_w, sum_x;
  F32x4 scale, low, best;             ///< of the best candidate so far
  F32x4 inverse, new_scale, new_low;  ///< of the candidate at hand
  I32x4 solvable;                     ///< whether there is one
  I32x4 empty;
  F32x4 reach, margin;  ///< the least of range - reach; above 0, levels are exact
};
constexpr size_t kWeights = AffineGroup::kLongest, kLevels = 2 * kWeights, kNextGroup = sizeof(AffineGroup) / sizeof(float);

/// level = max(round((x - low) * inverse), 0), at most top where kClamp. The bits of floats from 0 on order like integers, and
/// integer minimums and maximums do not compete with additions.
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

/// Takes the candidate where it is better.
inline void accept(AffineGroup& g, F32x4 error) {
  // No branch: acceptance cannot be predicted.
  const I32x4 better = bit_and(g.solvable, greater(g.best, error));
  g.best = select(better, error, g.best);
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
void begin(AffineGroup& g, const float* x, const AffineRule& rule) {
  const size_t length = 4 * rule.size;
  to_column({x, x + rule.size, x + 2 * rule.size, x + 3 * rule.size}, rule.size, g.x);
  F32x4 mean = splat(0.0f);
  if (!rule.absolute) {
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < length; i += 4) mean = add(mean, mul(load(g.x + i), load(g.x + i)));
    mean = sqrt(div(mean, splat(static_cast<float>(rule.size))));
  }
  F32x4 low = splat(0.0f), high = load(g.x), sum_w = splat(0.0f), sum_x = sum_w;
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < length; i += 4) {
    const F32x4 v = load(g.x + i), w = add(mean, abs(v));
    store(g.weights + i, w);
    low = pmin(low, v);
    high = pmax(high, v);
    sum_w = add(sum_w, w);
    sum_x = add(sum_x, mul(w, v));
  }
  g.sum_w = sum_w;
  g.sum_x = sum_x;
  // Where low comes close to high on the way, or passes it, levels could be as large as 2^22, where ggml's rounding wraps.
  g.reach = mul(low, splat(-0x1p-16f));
  g.margin = splat(1.0f);
  // An empty range gets a width: all its levels are 0, and no candidate is solvable.
  g.empty = equal(high, low);
  high = select(g.empty, add(low, splat(1.0f)), high);
  g.low = low;
  g.high = high;
  const F32x4 top = splat(static_cast<float>(rule.top)), inverse = div(top, sub(high, low));
  round_levels<false>(g, length, inverse, top);
  g.new_scale = div(splat(1.0f), inverse);
  g.new_low = low;
  g.scale = g.new_scale;
  // The first is taken in any case, but for an error that is infinite or NaN: none is better than that.
  g.solvable = splat(-1);
  g.best = splat(__builtin_inff());
}

template <bool kAbsolute>
void search_candidates(AffineGroup* groups, const AffineRule& rule) {
  const auto top = static_cast<float>(rule.top);
  const size_t length = 4 * rule.size;
  SCALEPOINT_NO_UNROLL
  for (int32_t k = -1; k <= rule.steps; k++) {
    if (k >= 0) {
      const float span = rule.first + 0.1f * static_cast<float>(k) + top;
      SCALEPOINT_NO_UNROLL
      for (AffineGroup* g = groups; g != groups + kGroups; g++) {
        const F32x4 range = sub(g->high, g->low);
        g->margin = pmin(g->margin, sub(range, g->reach));
        g->inverse = div(splat(span), range);
      }
      // (x - low) * inverse is at most span, but for rounding.
      if (span > top + 0.45f) {
        SCALEPOINT_NO_UNROLL
        for (AffineGroup* g = groups; g != groups + kGroups; g++) round_levels<true>(*g, length, g->inverse, splat(top));
      } else {
        SCALEPOINT_NO_UNROLL
        for (AffineGroup* g = groups; g != groups + kGroups; g++) round_levels<false>(*g, length, g->inverse, splat(top));
      }
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
    SCALEPOINT_NO_UNROLL
    for (AffineGroup* g = groups; g != groups + kGroups; g += 2) accept_two<kAbsolute>(g, length);
  }
}

/// Scales and minimums of 16 sub-blocks, or of 8 if that is all there are.
void find_affine(const float* x, size_t sub_blocks, const AffineRule& rule, float* scales, float* minimums) {
  AffineGroup groups[kGroups];
  SCALEPOINT_NO_UNROLL
  for (size_t h = 0; h < kGroups; h++) begin(groups[h], x + 4 * h % sub_blocks * rule.size, rule);
  (rule.absolute ? search_candidates<true> : search_candidates<false>)(opaque(groups), rule);
  SCALEPOINT_NO_UNROLL
  for (size_t h = 0; h < kGroups; h++) {
    const AffineGroup& g = groups[h];
    store(scales + 4 * h, from_bits(bit_and_not(bits(g.scale), g.empty)));
    store(minimums + 4 * h, sub(splat(0.0f), g.low));
    float margin[4];
    store(margin, g.margin);
    for (size_t j = 0; j < 4; j++) {
      const size_t b = 4 * h + j;
      if (margin[j] > 0 || b >= sub_blocks) continue;
      uint8_t levels[32];
      const Affine found = search_affine(x + b * rule.size, rule, levels);
      scales[b] = found.scale;
      minimums[b] = found.minimum;
    }
  }
}

/// Four sub-blocks of sixteen without a minimum.
struct ScaleGroup {
  static constexpr size_t kCandidates = 20;

  float x[64], squares[64], cubes[64];
  F32x4 far, inverse[kCandidates + 2];
  I32x4 live;  ///< where not all is too small
  F32x4 lx[kCandidates], l2[kCandidates];
};

/// The first element of each sub-block that is farthest from 0.
F32x4 farthest_of_column(const float* column) {
  const F32x4 zero = splat(0.0f);
  F32x4 low = zero, high = zero;
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < 64; i += 4) {
    const F32x4 x = load(column + i);
    low = pmin(low, x);
    high = pmax(high, x);
  }
  const F32x4 down = abs(low);
  if (!any(bit_and(equal(high, down), greater(high, zero)))) return select(greater(high, down), high, low);
  // Only where two of either sign are equally far does the order count.
  F32x4 far = zero;
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < 64; i += 4) {
    const F32x4 x = load(column + i);
    far = select(greater(abs(x), abs(far)), x, far);
  }
  return far;
}

void begin(ScaleGroup& g, const float* x) {
  to_column({x, x + 16, x + 32, x + 48}, 16, g.x);
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < 64; i += 4) {
    const F32x4 v = load(g.x + i), square = mul(v, v);
    store(g.squares + i, square);
    store(g.cubes + i, mul(square, v));
  }
  const F32x4 far = farthest_of_column(g.x);
  g.live = bit_and_not(splat(-1), greater(splat(kTooSmall), abs(far)));
  g.far = select(g.live, far, splat(1.0f));
  for (size_t k = 0; k < 2; k++) g.inverse[k] = div(splat(kSpans.span[k]), g.far);
}

/// Integer minimums on the bits of floats: signed, all negative floats are below 31; unsigned, they are above -32 if they are
/// larger in size.
template <bool kHigh, bool kLow>
inline F32x4 clamped_level(F32x4 x, F32x4 inverse) {
  I32x4 level = bits(nearest(mul(x, inverse)));
  if (kHigh) level = min_signed(level, bits(splat(31.0f)));
  if (kLow) level = min_unsigned(level, bits(splat(-32.0f)));
  return from_bits(level);
}

/// Two candidates at a time share the loads. The divisions of the next two run beside this loop.
template <bool kHigh, bool kLow>
inline void sum_candidates(ScaleGroup& g, size_t k) {
  const F32x4 inverse0 = g.inverse[k], inverse1 = g.inverse[k + 1];
  for (size_t j = k + 2; j < k + 4; j++) g.inverse[j] = div(splat(kSpans.span[j]), g.far);
  F32x4 lx0 = splat(0.0f), l20 = lx0, lx1 = lx0, l21 = lx0;
  const float* p = opaque(g.x);
  const float* end = opaque(p + 64);
  SCALEPOINT_NO_UNROLL
  do {
    const F32x4 x = load(p), square = load(p + 64), cube = load(p + 128);
    const F32x4 level0 = clamped_level<kHigh, kLow>(x, inverse0), level1 = clamped_level<kHigh, kLow>(x, inverse1);
    lx0 = add(lx0, mul(cube, level0));
    l20 = add(l20, mul(mul(square, level0), level0));
    lx1 = add(lx1, mul(cube, level1));
    l21 = add(l21, mul(mul(square, level1), level1));
    p += 4;
  } while (p != end);
  g.lx[k] = lx0;
  g.l2[k] = l20;
  g.lx[k + 1] = lx1;
  g.l2[k + 1] = l21;
}

void find_scales(const float* x, float* scales) {
  ScaleGroup memory[kGroups];
  ScaleGroup* groups = opaque(memory);
  SCALEPOINT_NO_UNROLL
  for (size_t h = 0; h < kGroups; h++) {
    ScaleGroup& g = groups[h];
    begin(g, x + 64 * h);
    // |x * inverse| is at most the span, but for rounding: only a span of 32.5 and more can reach below -32.5, and one of less than
    // 31.5 nothing.
    sum_candidates<true, false>(g, 0);
    sum_candidates<false, false>(g, 2);
    SCALEPOINT_NO_UNROLL
    for (size_t k = 4; k < 14; k += 2) sum_candidates<true, false>(g, k);
    SCALEPOINT_NO_UNROLL
    for (size_t k = 14; k < ScaleGroup::kCandidates; k += 2) sum_candidates<true, true>(g, k);
  }
  F32x4 scale[kGroups], best[kGroups];
  const F32x4 zero = splat(0.0f);
  for (size_t h = 0; h < kGroups; h++) {
    const F32x4 lx = groups[h].lx[0], l2 = groups[h].l2[0];
    scale[h] = from_bits(bit_and_not(bits(div(lx, l2)), equal(l2, zero)));
    best[h] = mul(scale[h], lx);
  }
  // The groups side by side: each is one long chain.
  SCALEPOINT_NO_UNROLL
  for (size_t k = 1; k < Spans::kCount; k++) {
    for (size_t h = 0; h < kGroups; h++) {
      const F32x4 lx = groups[h].lx[k], l2 = groups[h].l2[k], candidate = div(lx, l2);
      const I32x4 better = bit_and(greater(l2, zero), greater(mul(lx, lx), mul(best[h], l2)));
      scale[h] = select(better, candidate, scale[h]);
      best[h] = select(better, mul(candidate, lx), best[h]);
    }
  }
  for (size_t h = 0; h < kGroups; h++) store(scales + 4 * h, from_bits(bit_and(bits(scale[h]), groups[h].live)));
}

/// Super-blocks whose descents run side by side.
constexpr size_t kDescents = 4;

/// Four sub-blocks on their way down.
struct DescentGroup {
  float x[64], squares[64], levels[64];
  F32x4 lx, l2;
  I32x4 changed;
  I32x4 largest_quotient;  ///< its bits without the sign, moved up by one
};

inline F32x4 clamped_descent_level(F32x4 x) {
  return from_bits(min_unsigned(min_signed(bits(nearest(x)), bits(splat(3.0f))), bits(splat(-4.0f))));
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
  g.largest_quotient = max_unsigned(g.largest_quotient, shift_left_one(bits(quotient)));
  g.changed = bit_or(g.changed, better);
  store(g.levels + i, select(better, other, level));
  g.lx = select(better, new_lx, g.lx);
  g.l2 = select(better, new_l2, g.l2);
}

void find_descents(const float* x, size_t super_blocks, float* scales) {
  alignas(16) float far[16 * kDescents], lx[16 * kDescents], l2[16 * kDescents];
  const F32x4 zero = splat(0.0f);
  const size_t sub_blocks = 16 * super_blocks;
  SCALEPOINT_NO_UNROLL
  for (size_t b = 0; b < sub_blocks; b += 4) {
    const float* p = x + 16 * b;
    float column[64];
    to_column({p, p + 16, p + 32, p + 48}, 16, column);
    const F32x4 f = farthest_of_column(column);
    const I32x4 small = greater(splat(kTooSmall), abs(f));
    const F32x4 inverse = div(splat(-4.0f), select(small, splat(1.0f), f));
    F32x4 sum_lx = zero, sum_l2 = zero;
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < 64; i += 4) {
      const F32x4 v = load(column + i), level = clamped_descent_level(mul(v, inverse)), square = mul(v, v);
      sum_lx = add(sum_lx, mul(mul(square, v), level));
      sum_l2 = add(sum_l2, mul(mul(square, level), level));
    }
    store(far + b, from_bits(bit_and_not(bits(f), small)));
    store(lx + b, sum_lx);
    store(l2 + b, sum_l2);
  }
  // Only sub-blocks with the farthest element below 0 ever move. Otherwise level and x differ in sign everywhere, no term of lx
  // is above 0, the rounded sum is not above any of its terms, and lx without one of them is not above 0.
  size_t moving[16 * kDescents + 3], n = 0;
  for (size_t b = 0; b < sub_blocks; b++) {
    moving[n] = b;
    n += far[b] < 0;
  }
  for (size_t i = n; i % 4 != 0; i++) moving[i] = moving[n - 1];
  const size_t groups = (n + 3) / 4;
  DescentGroup group[4 * kDescents];
  DescentGroup* active[4 * kDescents];
  SCALEPOINT_NO_UNROLL
  for (size_t h = 0; h < groups; h++) {
    DescentGroup& g = group[h];
    const size_t* m = moving + 4 * h;
    to_column({x + 16 * m[0], x + 16 * m[1], x + 16 * m[2], x + 16 * m[3]}, 16, g.x);
    const auto gather = [&](const float* from) {
      const float four[4] = {from[m[0]], from[m[1]], from[m[2]], from[m[3]]};
      return load(four);
    };
    const F32x4 inverse = div(splat(-4.0f), gather(far));
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < 64; i += 4) {
      const F32x4 v = load(g.x + i);
      store(g.squares + i, mul(v, v));
      store(g.levels + i, clamped_descent_level(mul(v, inverse)));
    }
    g.lx = gather(lx);
    g.l2 = gather(l2);
    g.largest_quotient = splat(0);
    active[h] = &g;
  }
  // A step is a long chain through a division. The groups take theirs in turn, which hides it.
  size_t left = groups;
  for (int sweep = 0; sweep < 5 && left > 0; sweep++) {
    for (size_t a = 0; a < left; a++) active[a]->changed = splat(0);
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < 64; i += 4) {
      SCALEPOINT_NO_UNROLL
      for (size_t a = 0; a < left; a++) descend(*active[a], i);
    }
    size_t kept = 0;
    for (size_t a = 0; a < left; a++) {
      active[kept] = active[a];
      kept += any(active[a]->changed);
    }
    left = kept;
  }
  for (size_t h = 0; h < groups; h++) {
    float four_lx[4], four_l2[4];
    int32_t quotient[4];
    store(four_lx, group[h].lx);
    store(four_l2, group[h].l2);
    store(quotient, group[h].largest_quotient);
    for (size_t j = 0; j < 4; j++) {
      const size_t b = moving[4 * h + j];
      lx[b] = four_lx[j];
      l2[b] = four_l2[j];
      // ggml's rounding wraps from 2^22 on. NaN and infinity are beyond that.
      if (static_cast<uint32_t>(quotient[j]) >= bit_cast<uint32_t>(0x1p22f) << 1) {
        uint8_t levels[16];
        lx[b] = search_descent(x + 16 * b, levels);
        l2[b] = 1;
      }
    }
  }
  for (size_t b = 0; b < sub_blocks; b++) scales[b] = far[b] != 0 && l2[b] > 0 ? lx[b] / l2[b] : 0;
}

#else

/// Super-blocks whose scales are looked for together.
constexpr size_t kDescents = 1;

void find_affine(const float* x, size_t sub_blocks, const AffineRule& rule, float* scales, float* minimums) {
  uint8_t levels[32];
  for (size_t b = 0; b < sub_blocks; b++) {
    const Affine found = search_affine(x + b * rule.size, rule, levels);
    scales[b] = found.scale;
    minimums[b] = found.minimum;
  }
}

void find_scales(const float* x, float* scales) {
  uint8_t levels[16];
  for (size_t b = 0; b < 16; b++) scales[b] = search_scale(x + 16 * b, levels);
}

void find_descents(const float* x, size_t, float* scales) {
  uint8_t levels[16];
  for (size_t b = 0; b < 16; b++) scales[b] = search_descent(x + 16 * b, levels);
}

#endif

// ------------------------------------------------------------------------------------------------ scales and levels of a super-block

/// clamp(nearest_int((x + minimum) / scale) + zero, 0, top) for the elements of a sub-block.
void final_levels(const float* x, size_t size, float scale, float minimum, int32_t zero, int32_t top, uint8_t* levels) {
  const F32x4 s = splat(scale), m = splat(minimum);
  const I32x4 mask = splat(0x007FFFFF), bias = splat(0x00400000 - zero);
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < size; i += 16) {
    I32x4 l[4];
    for (size_t j = 0; j < 4; j++) {
      l[j] = sub(bit_and(bits(add(div(add(load(x + i + 4 * j), m), s), splat(kMagic))), mask), bias);
    }
    store_codes(levels + i, l[0], l[1], l[2], l[3], 0, top);
  }
}

/// Quantizes values of a super-block's sub-blocks and returns the largest; all 0 unless one is above 0.
float quantize_scales(const float* values, size_t n, int32_t largest, uint8_t* codes) {
  float most = 0;
  for (size_t b = 0; b < n; b++) most = values[b] > most ? values[b] : most;
  const float inverse = most > 0 ? static_cast<float>(largest) / most : 0;
  for (size_t b = 0; b < n; b++) codes[b] = static_cast<uint8_t>(nearest_int(inverse * values[b]));
  return most;
}

struct AffineBlock {
  uint8_t scales[16], minimums[16], levels[kElements];
};

/// Scale, minimum and levels of a super-block from what its sub-blocks want.
void finish_affine(const float* x, const AffineRule& rule, const float* scales, const float* minimums, AffineBlock& block,
                   uint8_t (&d)[2], uint8_t (&dmin)[2]) {
  const size_t n = kElements / rule.size;
  const auto largest = static_cast<float>(rule.largest);
  const float scale = store_float16(quantize_scales(scales, n, rule.largest, block.scales) / largest, d);
  const float minimum = store_float16(quantize_scales(minimums, n, rule.largest, block.minimums) / largest, dmin);
  for (size_t b = 0; b < n; b++) {
    uint8_t &s = block.scales[b], &m = block.minimums[b];
    if (rule.largest == 15) {
      // A negative scale overflows its nibble.
      m = static_cast<uint8_t>((m | s >> 4) & 15);
      s &= 15;
    } else {
      s = s < 63 ? s : 63;
      m = m < 63 ? m : 63;
    }
    const float step = scale * static_cast<float>(s);
    const float* p = x + b * rule.size;
    uint8_t* levels = block.levels + b * rule.size;
    if (step == 0) {
      search_affine(p, rule, levels);
    } else {
      final_levels(p, rule.size, step, minimum * static_cast<float>(m), 0, rule.top, levels);
    }
  }
}

/// Calls finish with the blocks one after the other.
template <class Block, class Finish>
void quantize_affine(const float* x, size_t n, std::byte* out, const AffineRule& rule, Finish finish) {
  const size_t per_block = kElements / rule.size, together = 16 / per_block;
  float scales[16], minimums[16];
  for (size_t i = 0; i < n; i++, x += kElements, out += sizeof(Block)) {
    const size_t j = i % together;
    if (j == 0) find_affine(x, (n - i < together ? n - i : together) * per_block, rule, scales, minimums);
    Block block;
    AffineBlock parts;
    finish_affine(x, rule, scales + j * per_block, minimums + j * per_block, parts, block.d, block.dmin);
    finish(block, parts);
    std::memcpy(out, &block, sizeof(block));
  }
}

/// Eight scales and eight minimums of six bits each.
void pack_scales(const AffineBlock& block, uint8_t (&to)[12]) {
  const uint8_t *s = block.scales, *m = block.minimums;
  for (size_t j = 0; j < 4; j++) {
    to[j] = static_cast<uint8_t>(s[j] | s[j + 4] >> 4 << 6);
    to[j + 4] = static_cast<uint8_t>(m[j] | m[j + 4] >> 4 << 6);
    to[j + 8] = static_cast<uint8_t>((s[j + 4] & 15) | m[j + 4] << 4);
  }
}

// -------------------------------------------------------------------------------------------------------------- dequantize

/// x = scale * (level - zero) - minimum for sub-blocks of 16.
void restore(const uint8_t* levels, int32_t zero, const float* scales, const float* minimums, float* x) {
  const I32x4 z = splat(zero);
  SCALEPOINT_NO_UNROLL
  for (size_t b = 0; b < kElements / 16; b++) {
    const F32x4 scale = splat(scales[b]), minimum = splat(minimums[b]);
    I32x4 l[4];
    load_codes(levels + 16 * b, l);
    for (size_t j = 0; j < 4; j++) store(x + 16 * b + 4 * j, sub(mul(scale, to_float(opaque(sub(l[j], z)))), minimum));
  }
}

/// Scales and minimums of sub-blocks of 32, for both halves of each.
void restore_scales(const uint8_t (&packed)[12], float d, float dmin, float* scales, float* minimums) {
  for (size_t j = 0; j < 8; j++) {
    const size_t k = j % 4;
    const int s = j < 4 ? packed[k] & 63 : (packed[k + 8] & 15) | packed[k] >> 6 << 4;
    const int m = j < 4 ? packed[k + 4] & 63 : packed[k + 8] >> 4 | packed[k + 4] >> 6 << 4;
    scales[2 * j] = scales[2 * j + 1] = d * static_cast<float>(s);
    minimums[2 * j] = minimums[2 * j + 1] = dmin * static_cast<float>(m);
  }
}

template <class Block, class Unpack>
void dequantize(const std::byte* blocks, size_t n, int32_t zero, float* x, Unpack unpack_block) {
  for (size_t i = 0; i < n; i++, blocks += sizeof(Block), x += kElements) {
    Block block;
    std::memcpy(&block, blocks, sizeof(Block));
    uint8_t levels[kElements] = {};
    float scales[16], minimums[16] = {};
    unpack_block(block, levels, scales, minimums);
    restore(levels, zero, scales, minimums, x);
  }
}

}  // namespace

// ---------------------------------------------------------------------------------------------------------------- quantize

void quantize_q2_k(const float* x, size_t n, std::byte* out) {
  quantize_affine<BlockQ2K>(x, n, out, kRuleQ2K, [](BlockQ2K& block, const AffineBlock& parts) {
    for (size_t j = 0; j < 16; j++) block.scales[j] = static_cast<uint8_t>(parts.scales[j] | parts.minimums[j] << 4);
    pack<kPairs>(parts.levels, block.low);
  });
}

void quantize_q4_k(const float* x, size_t n, std::byte* out) {
  quantize_affine<BlockQ4K>(x, n, out, kRuleQ4K, [](BlockQ4K& block, const AffineBlock& parts) {
    pack_scales(parts, block.scales);
    pack<kNibbles>(parts.levels, block.low);
  });
}

void quantize_q5_k(const float* x, size_t n, std::byte* out) {
  quantize_affine<BlockQ5K>(x, n, out, kRuleQ5K, [](BlockQ5K& block, const AffineBlock& parts) {
    pack_scales(parts, block.scales);
    pack<kFifth>(parts.levels, block.high);
    pack<kNibbles>(parts.levels, block.low);
  });
}

void quantize_q6_k(const float* x, size_t n, std::byte* out) {
  for (size_t i = 0; i < n; i++, x += kElements, out += sizeof(BlockQ6K)) {
    BlockQ6K block = {};
    uint8_t levels[kElements];
    float scales[16];
    find_scales(x, scales);
    const float far = farthest(scales);
    if (!(std::fabs(far) < kTooSmall)) {
      const float inverse = -128 / far, d = store_float16(1 / inverse, block.d);
      for (size_t b = 0; b < 16; b++) {
        const int32_t scale = nearest_int(inverse * scales[b]);
        block.scales[b] = static_cast<uint8_t>(scale < 127 ? scale : 127);
        const float step = d * static_cast<float>(static_cast<int8_t>(block.scales[b]));
        if (step == 0) {
          search_scale(x + 16 * b, levels + 16 * b);
        } else {
          final_levels(x + 16 * b, 16, step, 0, 32, 63, levels + 16 * b);
        }
      }
      pack<kLowFour>(levels, block.low);
      pack<kHighTwo>(levels, block.high);
    }
    std::memcpy(out, &block, sizeof(block));
  }
}

void quantize_q3_k(const float* x, size_t n, std::byte* out) {
  float scales[16 * kDescents];
  for (size_t i = 0; i < n; i++, x += kElements, out += sizeof(BlockQ3K)) {
    const size_t j = i % kDescents;
    if (j == 0) find_descents(x, n - i < kDescents ? n - i : kDescents, scales);
    BlockQ3K block = {};
    uint8_t levels[kElements];
    const float far = farthest(scales + 16 * j), inverse = far != 0 ? -32 / far : 0;
    const float d = far != 0 ? store_float16(1 / inverse, block.d) : 0;
    for (size_t b = 0; b < 16; b++) {
      const int32_t scale = clamp(static_cast<int32_t>(static_cast<int8_t>(nearest_int(inverse * scales[16 * j + b]))), -32, 31);
      const uint32_t code = far != 0 ? static_cast<uint32_t>(scale + 32) : 0;
      block.scales[b % 8] = static_cast<uint8_t>(block.scales[b % 8] | (code & 15) << (b / 8 * 4));
      block.scales[8 + b % 4] = static_cast<uint8_t>(block.scales[8 + b % 4] | code >> 4 << (b / 4 * 2));
      const float step = d * static_cast<float>(scale);
      if (step == 0) {
        search_descent(x + 16 * b, levels + 16 * b);
      } else {
        final_levels(x + 16 * b, 16, step, 0, 4, 7, levels + 16 * b);
      }
    }
    pack<kThird>(levels, block.high);
    pack<kPairs>(levels, block.low);
    std::memcpy(out, &block, sizeof(block));
  }
}

// -------------------------------------------------------------------------------------------------------------- dequantize

void dequantize_q2_k(const std::byte* blocks, size_t n, float* x) {
  dequantize<BlockQ2K>(blocks, n, 0, x, [](const BlockQ2K& block, uint8_t* levels, float* scales, float* minimums) {
    const float d = load_float16(block.d), dmin = load_float16(block.dmin);
    unpack(block.low, kPairs, levels);
    I32x4 both[4];
    load_codes(block.scales, both);
    for (size_t b = 0; b < 4; b++) {
      store(scales + 4 * b, mul(splat(d), to_float(opaque(bit_and(both[b], splat(15))))));
      store(minimums + 4 * b, mul(splat(dmin), to_float(opaque(shift_right<4>(both[b])))));
    }
  });
}

void dequantize_q3_k(const std::byte* blocks, size_t n, float* x) {
  dequantize<BlockQ3K>(blocks, n, 4, x, [](const BlockQ3K& block, uint8_t* levels, float* scales, float*) {
    const float d = load_float16(block.d);
    unpack(block.low, kPairs, levels);
    unpack(block.high, kThird, levels);
    for (size_t b = 0; b < 16; b++) {
      const int low = block.scales[b % 8] >> (b / 8 * 4) & 15, high = block.scales[8 + b % 4] >> (b / 4 * 2) & 3;
      scales[b] = d * static_cast<float>((low | high << 4) - 32);
    }
  });
}

void dequantize_q4_k(const std::byte* blocks, size_t n, float* x) {
  dequantize<BlockQ4K>(blocks, n, 0, x, [](const BlockQ4K& block, uint8_t* levels, float* scales, float* minimums) {
    restore_scales(block.scales, load_float16(block.d), load_float16(block.dmin), scales, minimums);
    unpack(block.low, kNibbles, levels);
  });
}

void dequantize_q5_k(const std::byte* blocks, size_t n, float* x) {
  dequantize<BlockQ5K>(blocks, n, 0, x, [](const BlockQ5K& block, uint8_t* levels, float* scales, float* minimums) {
    restore_scales(block.scales, load_float16(block.d), load_float16(block.dmin), scales, minimums);
    unpack(block.low, kNibbles, levels);
    unpack(block.high, kFifth, levels);
  });
}

void dequantize_q6_k(const std::byte* blocks, size_t n, float* x) {
  dequantize<BlockQ6K>(blocks, n, 32, x, [](const BlockQ6K& block, uint8_t* levels, float* scales, float*) {
    const float d = load_float16(block.d);
    unpack(block.low, kLowFour, levels);
    unpack(block.high, kHighTwo, levels);
    I32x4 stored[4];
    load_codes(reinterpret_cast<const int8_t*>(block.scales), stored);
    for (size_t b = 0; b < 4; b++) store(scales + 4 * b, mul(splat(d), to_float(opaque(stored[b]))));
  });
}

}  // namespace scalepoint::kernels
