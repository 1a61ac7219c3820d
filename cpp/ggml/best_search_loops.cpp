#include "ggml/best_search_loops.h"

#include <cmath>
#include <cstring>
#include <iterator>

#include "lanes/float16.h"
#include "lanes/lanes.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

constexpr size_t kLongest = 32;  ///< elements of the longest sub-block
constexpr size_t kMostSubBlocks = 16;

// Some functions are marked noinline, because copies of them would only make the module larger.

/// Candidate k is the scale at which the element of the largest magnitude is end + kFirst + k * kStep, where `end` is the last
/// level. For uneven values, whose steps are larger at the ends, it is end + (kFirst + k * kStep) * kUnevenStep.
constexpr int kCandidates = 20;
constexpr float kFirst = -1.25f, kStep = 0.38f, kUnevenStep = 8;
/// With a minimum, candidate k divides the range into top + (kFirst + k * kStep) * kAffinePart steps.
constexpr float kAffinePart = 0.75f;
/// Rounds of least squares.
constexpr int kRounds = 4;

constexpr float kIQ4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr float kE2M1[15] = {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12};

/// x is about scale * level + low. Both can be rounded to float16, the form they are stored in.
struct Fit {
  float scale = 0, low = 0;
};

/// Sums of products of two numbers p and q of each element, and of the x that is to be p * first + q * second.
struct Normal {
  double pp = 0, pq = 0, qq = 0, px = 0, qx = 0;
};

/// Least squares. Keeps the given second factor if the equations are singular.
[[gnu::noinline]] Fit solve(const Normal& n, float second) {
  const double spread = n.pp * n.qq - n.pq * n.pq;
  if (spread > 0) {
    return {static_cast<float>((n.px * n.qq - n.qx * n.pq) / spread), static_cast<float>((n.pp * n.qx - n.pq * n.px) / spread)};
  }
  if (n.pp > 0) return {static_cast<float>(n.px / n.pp), second};
  return {0, n.qq > 0 ? static_cast<float>(n.qx / n.qq) : second};
}

/// The elements of a sub-block with their weights.
struct Elements {
  const float *x, *weights;
};

/// x as float16: its bits, and their value.
struct Half {
  uint16_t bits;
  float value;
};
[[gnu::noinline]] Half half_of(float x) {
  const uint16_t bits = float16_of(x);
  return {bits, float16_value(bits)};
}

float sum_of(F32x4 lanes) {
  float v[4];
  store(v, lanes);
  return (v[0] + v[1]) + (v[2] + v[3]);
}

// ------------------------------------------------------------------------------------------------------------------ sub-blocks

/// A sub-block on the way to its best fit.
class Search {
 public:
  explicit Search(const BestRule& rule) : rule_(rule) {}

  /// The values of the levels nearest to x, as floats.
  [[gnu::noinline]] void round(const Elements& e, Fit fit) {
    const F32x4 inverse = splat(fit.scale != 0 ? 1 / fit.scale : 0.0f), low = splat(fit.low);
    const F32x4 bottom = splat(static_cast<float>(rule_.bottom)), top = splat(static_cast<float>(rule_.top));
    const float* const values = rule_.values == Values::kIQ4 ? kIQ4 : kE2M1;
    const size_t count = rule_.values == Values::kIQ4 ? 16 : 15;
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < rule_.size; i += 4) {
      const F32x4 v = pmax(pmin(top, mul(sub(load(e.x + i), low), inverse)), bottom);
      F32x4 level = nearest(v);
      if (rule_.values != Values::kEven) {
        level = bottom;
        SCALEPOINT_NO_UNROLL
        for (size_t k = 1; k < count; k++) {
          level = select(greater(v, splat((values[k - 1] + values[k]) / 2)), splat(values[k]), level);
        }
      }
      store(levels_ + i, level);
    }
  }

  /// The weighted error: sum w (x - scale * level - low)^2.
  [[gnu::noinline]] [[nodiscard]] float error(const Elements& e, Fit fit) const {
    const F32x4 scale = splat(fit.scale), low = splat(fit.low);
    F32x4 sum = splat(0.0f);
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < rule_.size; i += 4) {
      const F32x4 d = sub(load(e.x + i), add(mul(load(levels_ + i), scale), low));
      sum = add(sum, mul(load(e.weights + i), mul(d, d)));
    }
    return sum_of(sum);
  }

  /// Sums over the elements, with p = level and q = 1.
  [[gnu::noinline]] [[nodiscard]] Normal sums(const Elements& e) const {
    F32x4 w = splat(0.0f), wx = w, l = w, ll = w, lx = w;
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < rule_.size; i += 4) {
      const F32x4 x = load(e.x + i), weight = load(e.weights + i), level = load(levels_ + i), weighted = mul(weight, level);
      w = add(w, weight);
      wx = add(wx, mul(weight, x));
      l = add(l, weighted);
      ll = add(ll, mul(weighted, level));
      lx = add(lx, mul(weighted, x));
    }
    return {sum_of(ll), sum_of(l), sum_of(w), sum_of(lx), sum_of(wx)};
  }

  /// Finds the fit with the least error, and leaves its levels.
  [[gnu::noinline]] Fit find(const Elements& e) {
    best_ = {};
    least_ = HUGE_VALF;
    float low = e.x[0], high = e.x[0];
    for (size_t i = 0; i < rule_.size; i++) {
      low = e.x[i] < low ? e.x[i] : low;
      high = e.x[i] > high ? e.x[i] : high;
    }
    if (rule_.most > 0 && low > 0) low = 0;
    const float far = -low > high ? low : high;
    if (rule_.values == Values::kE2M1) {
      find_power(e, std::fabs(far));
    } else {
      const int sides = rule_.affine || rule_.bottom == -rule_.top ? 1 : 2;
      for (int i = 0; i < sides * kCandidates; i++) {
        const float more = kFirst + kStep * static_cast<float>(i % kCandidates);
        const auto end = static_cast<float>(i < kCandidates ? -rule_.bottom : rule_.top);
        const float step = rule_.values == Values::kEven ? more : more * kUnevenStep;
        consider(e, rule_.affine ? Fit{(high - low) / (static_cast<float>(rule_.top) + kAffinePart * more), low}
                                 : Fit{far / (i < kCandidates ? -end - step : end + step), 0});
      }
      for (int k = 0; k < kRounds && consider(e, best_); k++) {
      }
    }
    round(e, best_);
    return best_;
  }

  [[nodiscard]] const float* levels() const { return levels_; }

 private:
  /// Fits scale and minimum to the levels of a fit, and takes the result if it is better than the best one. Returns true if it is. A
  /// minimum is at most 0 if it is stored as a multiple of another number.
  bool consider(const Elements& e, Fit from) {
    round(e, from);
    Normal n = sums(e);
    if (!rule_.affine) n.pq = n.qq = 0;
    Fit fit = solve(n, 0);
    if (rule_.most > 0 && fit.low > 0) n.qq = 0, fit = solve(n, 0);
    if (rule_.highest == 0) fit = {half_of(fit.scale).value, half_of(fit.low).value};
    if (!is_finite(fit.scale) || !is_finite(fit.low)) return false;
    return take(e, fit);
  }

  [[gnu::noinline]] bool take(const Elements& e, Fit fit) {
    round(e, fit);
    const float now = error(e, fit);
    if (!(now < least_)) return false;
    least_ = now;
    best_ = fit;
    return true;
  }

  /// Tries scales that are powers of two, from the largest one that is at most `far`, a magnitude, to a 64th of it.
  void find_power(const Elements& e, float far) {
    const int32_t exponent = static_cast<int32_t>(bit_cast<uint32_t>(far) >> 23);
    for (int32_t k = exponent - 6; k <= exponent; k++) {
      if (k > 0 && k < 254) take(e, {bit_cast<float>(k << 23), 0});
    }
  }

  const BestRule& rule_;
  float levels_[kLongest];
  Fit best_;
  float least_ = 0;
};

// -------------------------------------------------------------------------------------------------------------------- packing

/// The code of a level. For IQ4 it is the index of the value; for E2M1 a sign, and the index of the magnitude.
[[gnu::noinline]] uint8_t code_of(const BestRule& rule, float level) {
  if (rule.values == Values::kEven) return static_cast<uint8_t>(static_cast<int32_t>(level) + rule.zero);
  const float* const values = rule.values == Values::kIQ4 ? kIQ4 : kE2M1;
  uint8_t place = 0;
  while (values[place] < level) place++;
  if (rule.values == Values::kIQ4) return place;
  return static_cast<uint8_t>(place < 7 ? 15 - place : place - 7);
}

/// Adds the bits of n codes that a field holds.
[[gnu::noinline]] void put_field(const uint8_t* codes, size_t n, const Field& field, uint8_t* out) {
  const auto [count, distance, bits, from] = field.packing;
  const uint32_t mask = (1u << bits) - 1;
  out += field.to;
  for (size_t i = 0; i < n && count > 0; i += count * distance, out += distance) {
    for (uint32_t shift = 0; shift < count * bits; shift += bits, codes += distance) {
      SCALEPOINT_NO_UNROLL
      for (size_t e = 0; e < distance; e++) out[e] = static_cast<uint8_t>(out[e] | (codes[e] >> from & mask) << shift);
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------- super-blocks

/// v rounded and limited. NaN gives the lowest.
int32_t factor_of(float v, int32_t lowest, int32_t highest) {
  const auto low = static_cast<float>(lowest), high = static_cast<float>(highest);
  return static_cast<int32_t>(round_half_even(v > low ? v < high ? v : high : low));
}

/// A block with codes for the scales of its sub-blocks.
class SuperBlock {
 public:
  SuperBlock(const BestRule& rule, const float* x, const float* weights) : rule_(rule), x_(x), weights_(weights), search_(rule) {
    for (size_t j = 0; j < rule.count; j++) {
      const Fit fit = fits_[j] = search_.find(at(j));
      if (std::fabs(fit.scale) > std::fabs(far_)) far_ = fit.scale;
      if (-fit.low > most_) most_ = -fit.low;
    }
  }

  /// Finds the scale and the minimum of the block, and the codes and levels that go with them.
  void find(BlockParts& best) {
    float least = HUGE_VALF;
    const int sides = rule_.lowest < 0 ? 2 : 1;
    for (int side = 0; side < sides; side++) {
      const auto end = static_cast<float>(side == 0 ? rule_.highest : rule_.lowest);
      set(far_ / end, rule_.affine ? most_ / static_cast<float>(rule_.most) : 0);
      float before = HUGE_VALF;
      for (int k = 0; k <= kRounds; k++) {
        const float now = choose();
        if (now < least) least = now, best = parts_;
        if (!(now < before) || !solve_block()) break;
        before = now;
      }
    }
  }

 private:
  [[nodiscard]] Elements at(size_t j) const { return {x_ + j * rule_.size, weights_ + j * rule_.size}; }

  void set(float scale, float minimum) {
    const Half s = half_of(scale), m = half_of(minimum);
    parts_.scale = s.bits;
    parts_.minimum = m.bits;
    scale_ = s.value;
    minimum_ = m.value;
  }

  /// Chooses codes and levels for the block's scale and minimum: the best of the codes around those of each sub-block's own fit. Returns
  /// the error.
  [[gnu::noinline]] float choose() {
    float total = 0;
    for (size_t j = 0; j < rule_.count; j++) {
      const Elements e = at(j);
      const int32_t s = factor_of(scale_ != 0 ? fits_[j].scale / scale_ : 0, rule_.lowest, rule_.highest);
      const int32_t m = factor_of(minimum_ != 0 ? -fits_[j].low / minimum_ : 0, 0, rule_.most);
      float least = HUGE_VALF;
      for (int32_t i = 0; i < 9; i++) {
        const int32_t scale = s + i % 3 - 1, minimum = m + i / 3 - 1;
        if (scale < rule_.lowest || scale > rule_.highest || minimum < 0 || minimum > rule_.most) continue;
        const Fit fit = {scale_ * static_cast<float>(scale), -minimum_ * static_cast<float>(minimum)};
        search_.round(e, fit);
        const float now = search_.error(e, fit);
        if (!(now < least)) continue;
        least = now;
        scales_[j] = scale;
        minimums_[j] = minimum;
        parts_.factors[j] = static_cast<uint8_t>(scale + rule_.scale_zero);
        parts_.factors[rule_.count + j] = static_cast<uint8_t>(minimum);
        sums_[j] = search_.sums(e);
        for (size_t k = 0; k < rule_.size; k++) parts_.levels[j * rule_.size + k] = code_of(rule_, search_.levels()[k]);
      }
      total += least;
    }
    return total;
  }

  /// Sets the scale and the minimum that fit the codes and levels best. Returns false if no element depends on the scale, or if float16
  /// cannot hold both.
  bool solve_block() {
    Normal n;
    for (size_t j = 0; j < rule_.count; j++) {
      const double s = scales_[j], m = -minimums_[j];
      n.pp += s * s * sums_[j].pp;
      n.pq += s * m * sums_[j].pq;
      n.qq += m * m * sums_[j].qq;
      n.px += s * sums_[j].px;
      n.qx += m * sums_[j].qx;
    }
    const Fit fit = solve(n, minimum_);
    set(fit.scale, fit.low);
    return n.pp > 0 && is_finite(scale_) && is_finite(minimum_);
  }

  const BestRule& rule_;
  const float *x_, *weights_;
  Search search_;
  Fit fits_[kMostSubBlocks];
  float far_ = 0, most_ = 0;
  float scale_ = 0, minimum_ = 0;
  int32_t scales_[kMostSubBlocks] = {}, minimums_[kMostSubBlocks] = {};
  Normal sums_[kMostSubBlocks];
  BlockParts parts_;
};

constexpr BestRule kRules[] = {
    {.type = BlockType::kQ4_0, .size = 32, .count = 1, .bottom = -8, .top = 7, .zero = 8, .levels = {{kHalves, 2}}},
    {.type = BlockType::kQ4_1, .size = 32, .count = 1, .affine = true, .bottom = 0, .top = 15, .levels = {{kHalves, 4}}},
    {.type = BlockType::kQ5_0,
     .size = 32,
     .count = 1,
     .bottom = -16,
     .top = 15,
     .zero = 16,
     .levels = {{kHalves, 6}, {kFifthBits, 2}}},
    {.type = BlockType::kQ5_1,
     .size = 32,
     .count = 1,
     .affine = true,
     .bottom = 0,
     .top = 31,
     .levels = {{kHalves, 8}, {kFifthBits, 4}}},
    {.type = BlockType::kQ8_0, .size = 32, .count = 1, .bottom = -127, .top = 127, .levels = {{{1, 32, 8, 0}, 2}}},
    {.type = BlockType::kQ2_K,
     .size = 16,
     .count = 16,
     .affine = true,
     .bottom = 0,
     .top = 3,
     .levels = {{kPairs, 16}},
     .highest = 15,
     .most = 15,
     .scales = {{kHalves, 0}}},
    {.type = BlockType::kQ3_K,
     .size = 16,
     .count = 16,
     .bottom = -4,
     .top = 3,
     .zero = 4,
     .levels = {{kPairs, 32}, {kThird, 0}},
     .lowest = -32,
     .highest = 31,
     .scale_zero = 32,
     .scales = {{{2, 8, 4, 0}, 96}, {{4, 4, 2, 4}, 104}}},
    {.type = BlockType::kQ4_K,
     .size = 32,
     .count = 8,
     .affine = true,
     .bottom = 0,
     .top = 15,
     .levels = {{kNibbles, 16}},
     .highest = 63,
     .most = 63},
    {.type = BlockType::kQ5_K,
     .size = 32,
     .count = 8,
     .affine = true,
     .bottom = 0,
     .top = 31,
     .levels = {{kNibbles, 48}, {kFifth, 16}},
     .highest = 63,
     .most = 63},
    {.type = BlockType::kQ6_K,
     .size = 16,
     .count = 16,
     .bottom = -32,
     .top = 31,
     .zero = 32,
     .levels = {{kLowFour, 0}, {kHighTwo, 128}},
     .lowest = -128,
     .highest = 127,
     .scales = {{{1, 16, 8, 0}, 192}}},
    {.type = BlockType::kIQ4_NL,
     .size = 32,
     .count = 1,
     .values = Values::kIQ4,
     .bottom = -127,
     .top = 113,
     .levels = {{kHalves, 2}}},
    {.type = BlockType::kIQ4_XS,
     .size = 32,
     .count = 8,
     .values = Values::kIQ4,
     .bottom = -127,
     .top = 113,
     .levels = {{kHalves, 8}},
     .lowest = -32,
     .highest = 31,
     .scale_zero = 32,
     .scales = {{{4, 1, 2, 4}, 2}, {{2, 1, 4, 0}, 4}}},
    {.type = BlockType::kMXFP4,
     .size = 32,
     .count = 1,
     .values = Values::kE2M1,
     .bottom = -12,
     .top = 12,
     .levels = {{kHalves, 1}}},
};

/// True if the types with rules are those with a search, and the rules with minimums those of types with minimums.
constexpr bool rules_fit_types() {
  size_t searched = 0;
  for (const BlockFacts& facts : kBlockTypes) searched += facts.searched ? 1 : 0;
  for (const BestRule& rule : kRules) {
    const BlockFacts& facts = *block_facts(rule.type);
    if (!facts.searched || rule.affine != facts.scale.minimum || rule.size * rule.count != facts.size.elements) return false;
  }
  return searched == std::size(kRules);
}
static_assert(rules_fit_types());

/// Scales weights so that they are 1 on average. Null stands for equal ones.
void normalize_weights(const float* given, size_t n, float* weights) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += given != nullptr ? given[i] : 1;
  const double factor = static_cast<double>(n) / sum;
  for (size_t i = 0; i < n; i++) weights[i] = static_cast<float>((given != nullptr ? given[i] : 1) * factor);
}

}  // namespace

const BestRule& best_rule(BlockType type) {
  const BestRule* rule = kRules;
  while (rule->type != type) rule++;
  return *rule;
}

void pack_block(const BestRule& rule, const BlockParts& parts, uint8_t* out) {
  const BlockFacts& facts = *block_facts(rule.type);
  std::memset(out, 0, facts.size.bytes);
  for (const Field& field : rule.levels) put_field(parts.levels, size_t{rule.size} * rule.count, field, out);
  for (const Field& field : rule.scales) put_field(parts.factors, rule.count * (rule.affine ? 2 : 1), field, out);
  if (rule.most == 63) {
    // Pack eight scales and eight minimums of six bits each, behind the scale and the minimum of the block.
    for (size_t j = 0; j < 4; j++) {
      const uint8_t *s = parts.factors + j, *m = s + 8;
      out[4 + j] = static_cast<uint8_t>(s[0] | s[4] >> 4 << 6);
      out[8 + j] = static_cast<uint8_t>(m[0] | m[4] >> 4 << 6);
      out[12 + j] = static_cast<uint8_t>((s[4] & 15) | m[4] << 4);
    }
  }
  uint8_t* const scale = out + facts.scale.at;
  scale[0] = static_cast<uint8_t>(parts.scale);
  if (rule.values == Values::kE2M1) return;
  scale[1] = static_cast<uint8_t>(parts.scale >> 8);
  if (rule.affine) scale[2] = static_cast<uint8_t>(parts.minimum), scale[3] = static_cast<uint8_t>(parts.minimum >> 8);
}

void find_best(const BestRule& rule, const float* x, const float* given, BlockParts& parts) {
  float weights[kLongestBlock];
  normalize_weights(given, size_t{rule.size} * rule.count, weights);
  if (rule.highest != 0) {
    SuperBlock(rule, x, weights).find(parts);
  } else {
    Search search(rule);
    const Fit fit = search.find({x, weights});
    parts.scale =
        rule.values == Values::kE2M1 ? static_cast<uint16_t>((bit_cast<uint32_t>(fit.scale) >> 23) + 1) : half_of(fit.scale).bits;
    parts.minimum = half_of(fit.low).bits;
    for (size_t i = 0; i < rule.size; i++) parts.levels[i] = code_of(rule, search.levels()[i]);
  }
}

void quantize_best(const BestRule& rule, const float* x, const float* given, std::byte* out) {
  BlockParts parts;
  find_best(rule, x, given, parts);
  pack_block(rule, parts, reinterpret_cast<uint8_t*>(out));
}

}  // namespace scalepoint::loops
