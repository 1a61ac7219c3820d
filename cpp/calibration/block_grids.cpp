#include "calibration/block_grids.h"

#include <algorithm>
#include <cmath>

#include "ggml/best_search_loops.h"
#include "ggml/ggml_blocks.h"
#include "lanes/float16.h"
#include "ranges/range_weighted.h"
#include "ranges/range_weighted_loops.h"

namespace scalepoint {
namespace {

using loops::BestRule;
using loops::BlockParts;

/// A number rounded to float16.
float as_half(float x) { return float16_value(float16_of(x)); }

/// The uneven levels of a type; null for even ones.
const Levels* levels_of(const BestRule& rule) {
  if (rule.values == loops::Values::kEven) return nullptr;
  return rule.values == loops::Values::kIQ4 ? &kIQ4Levels : &kE2M1Levels;
}

/// The largest code of a type, counted from 0.
float top_of(const BestRule& rule) { return static_cast<float>(rule.top - rule.bottom); }

/// Room of d above the largest inner scale, for weights that grow.
constexpr float kHeadroom = 1.15f;

bool is_super(const BestRule& rule) { return rule.highest != 0; }

/// The grid of symmetric codes.
WeightedGrid symmetric_grid(const BestRule& rule, float (*store)(float)) {
  return {.qmin = static_cast<float>(rule.bottom),
          .qmax = static_cast<float>(rule.top),
          .negative = rule.bottom != -rule.top,
          .store = store};
}

/// A whole number within a range, nearest to x. NaN becomes the lower bound.
float whole_within(float x, int low, int high) {
  const float nearest = std::nearbyint(x);
  if (!(nearest > static_cast<float>(low))) return static_cast<float>(low);
  return std::min(nearest, static_cast<float>(high));
}

/// Tries the whole numbers around a wanted scale and a wanted minimum of a group, and keeps the pair with the least error.
class InnerSearch {
 public:
  InnerSearch(const float* x, const float* weights, size_t n, const BestRule& rule, const BlockNumbers& block)
      : x_(x), weights_(weights), n_(n), rule_(rule), block_(block) {}

  void affine(const WeightedLine& wanted) {
    const float step = std::nearbyint(wanted.scale / block_.d), below = block_.dmin > 0 ? -wanted.low / block_.dmin : 0;
    for (int i = -1; i <= 1; i++) {
      for (int k = -1; k <= 1; k++) try_pair(step + static_cast<float>(i), below + static_cast<float>(k));
    }
  }

  /// @param reach steps to either side
  void symmetric(float wanted, int reach = 1) {
    const float middle = wanted == 0 ? 0 : std::nearbyint(wanted / block_.d);
    for (int i = -reach; i <= reach; i++) try_pair(middle + static_cast<float>(i), 0);
  }

  float scale = 0, minimum = 0;

 private:
  void try_pair(float wanted_scale, float wanted_minimum) {
    const float inner = whole_within(wanted_scale, rule_.lowest, rule_.highest);
    const float below = rule_.affine ? whole_within(wanted_minimum, 0, rule_.most) : 0;
    const float step = block_.d * inner, offset = block_.dmin * below;
    for (size_t i = 0; i < n_; i++) moved_[i] = x_[i] + offset;
    const auto low = static_cast<float>(rule_.bottom), high = static_cast<float>(rule_.top);
    // A scale of 0 restores all codes as the minimum.
    const float inverse = step == 0 ? 0 : 1 / step;
    const double error = loops::sum_weighted_codes(moved_, weights_, n_, step, inverse, low, high, levels_of(rule_)).error;
    if (!(error < least_)) return;
    least_ = error;
    scale = inner;
    minimum = below;
  }

  const float* x_;
  const float* weights_;
  size_t n_;
  const BestRule& rule_;
  const BlockNumbers& block_;
  double least_ = INFINITY;
  float moved_[32];
};

}  // namespace

bool has_feedback(BlockType type) noexcept {
  const BlockFacts* const facts = block_facts(type);
  return facts != nullptr && facts->feedback;
}

FeedbackGroups feedback_groups(BlockType type) noexcept {
  const BestRule& rule = loops::best_rule(type);
  return {rule.size, static_cast<uint32_t>(is_super(rule) ? rule.size * rule.count : 0)};
}

BlockFeedbackGrid::BlockFeedbackGrid(BlockType type, size_t columns, BlockNumbers* numbers)
    : FeedbackGrid(feedback_groups(type).group, feedback_groups(type).outer, levels_of(loops::best_rule(type))),
      rule_(loops::best_rule(type)),
      blocks_(columns / block_size(type).elements),
      numbers_(numbers) {}

bool BlockFeedbackGrid::begin(size_t row, size_t outer, const float* x, const float* weights, size_t n) {
  BlockNumbers& chosen = block(row, outer);
  chosen = {};
  if (levels() != nullptr) {
    BlockParts parts;
    loops::find_best(rule_, x, weights, parts);
    chosen.d = as_half(kHeadroom * float16_value(parts.scale));
    return std::isfinite(chosen.d);
  }
  float largest = 0, deepest = 0;
  const WeightedGrid grid = symmetric_grid(rule_, nullptr);
  for (size_t at = 0; at < n; at += rule_.size) {
    if (rule_.affine) {
      const WeightedLine line = search_weighted_line(x + at, weights + at, rule_.size, top_of(rule_), true, nullptr);
      largest = std::max(largest, line.scale);
      deepest = std::max(deepest, -line.low);
      continue;
    }
    const bool zeros = std::all_of(x + at, x + at + rule_.size, [](float v) { return v == 0; });
    const float scale = zeros ? 0 : search_weighted_scale(x + at, weights + at, rule_.size, grid).scale;
    largest = std::max(largest, std::fabs(scale));
  }
  // Inner scales with a sign reach one step farther down than up.
  const auto top = static_cast<float>(rule_.highest);
  chosen.d = as_half(kHeadroom * largest / top);
  chosen.dmin = as_half(kHeadroom * deepest / top);
  return std::isfinite(chosen.d) && std::isfinite(chosen.dmin);
}

bool BlockFeedbackGrid::choose_uneven(BlockNumbers& chosen, size_t index, const float* x, const float* weights, size_t n,
                                      RowGrid& grid) {
  if (is_super(rule_)) {
    InnerSearch search(x, weights, n, rule_, chosen);
    search.symmetric(0, -rule_.lowest);
    chosen.scale[index] = search.scale;
    grid.scale = chosen.d * search.scale;
  } else {
    BlockParts parts;
    loops::find_best(rule_, x, weights, parts);
    const bool is_half = rule_.values == loops::Values::kIQ4;
    // Levels of E2M1 are doubled.
    chosen.d = is_half ? float16_value(parts.scale) : std::ldexp(1.0f, parts.scale - 128);
    if (std::all_of(x, x + n, [](float v) { return v == 0; })) chosen.d = 0;
    grid.scale = chosen.d;
  }
  return std::isfinite(grid.scale);
}

bool BlockFeedbackGrid::choose(size_t row, size_t group, const float* x, const float* weights, size_t n, RowGrid& grid) {
  if (levels() != nullptr) return choose_uneven(block(row, group / rule_.count), group % rule_.count, x, weights, n, grid);
  const WeightedGrid symmetric = symmetric_grid(rule_, is_super(rule_) ? nullptr : as_half);
  grid.low = static_cast<float>(rule_.bottom);
  grid.high = static_cast<float>(rule_.top);
  if (!is_super(rule_)) {
    BlockNumbers& chosen = block(row, group);
    chosen = {};
    if (rule_.affine) {
      const WeightedLine line = search_weighted_line(x, weights, n, top_of(rule_), false, as_half);
      chosen.d = line.scale;
      chosen.dmin = line.low;
      grid.offset = -line.low;
    } else {
      chosen.d = search_weighted_scale(x, weights, n, symmetric).scale;
    }
    grid.scale = chosen.d;
    if (std::all_of(x, x + n, [](float v) { return v == 0; })) chosen.d = 0;
  } else {
    const size_t index = group % rule_.count;
    BlockNumbers& chosen = block(row, group / rule_.count);
    InnerSearch search(x, weights, n, rule_, chosen);
    if (rule_.affine) {
      search.affine(search_weighted_line(x, weights, n, top_of(rule_), true, nullptr));
    } else {
      search.symmetric(search_weighted_scale(x, weights, n, symmetric).scale);
    }
    chosen.scale[index] = search.scale;
    chosen.minimum[index] = search.minimum;
    grid.scale = chosen.d * search.scale;
    grid.offset = chosen.dmin * search.minimum;
  }
  // With a scale of 0 all codes mean the same; a tiny step keeps the inverse finite.
  if (grid.scale != 0) return std::isfinite(grid.scale);
  grid.scale = 1;
  grid.low = grid.high = 0;
  return true;
}

float BlockFeedbackGrid::rescale(size_t row, size_t group, float scale) {
  if (is_super(rule_) || rule_.values == loops::Values::kE2M1) return 0;
  return block(row, group).d = as_half(scale);
}

void BlockFeedbackGrid::write(size_t row, const uint8_t* codes, std::byte* blocks) const {
  const auto [elements, bytes] = block_size(rule_.type);
  // The code of the lowest level, which is 0 in a row.
  const int first = levels() == nullptr ? rule_.bottom + rule_.zero : 0;
  const bool is_e2m1 = rule_.values == loops::Values::kE2M1;
  BlockParts parts;
  for (size_t i = 0; i < blocks_; i++, codes += elements, blocks += bytes) {
    const BlockNumbers& numbers = block(row, i);
    parts.scale = float16_of(numbers.d);
    if (is_e2m1) parts.scale = static_cast<uint16_t>(numbers.d == 0 ? 0 : std::ilogb(numbers.d) + 128);
    parts.minimum = float16_of(numbers.dmin);
    for (size_t j = 0; is_super(rule_) && j < rule_.count; j++) {
      parts.factors[j] = static_cast<uint8_t>(static_cast<int>(numbers.scale[j]) + rule_.scale_zero);
      parts.factors[rule_.count + j] = static_cast<uint8_t>(numbers.minimum[j]);
    }
    for (size_t k = 0; k < elements; k++)
      parts.levels[k] = is_e2m1 ? e2m1_code(codes[k]) : static_cast<uint8_t>(codes[k] + first);
    loops::pack_block(rule_, parts, reinterpret_cast<uint8_t*>(blocks));
  }
}

}  // namespace scalepoint
