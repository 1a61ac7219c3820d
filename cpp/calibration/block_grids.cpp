#include "calibration/block_grids.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ggml/ggml_blocks.h"
#include "ggml/k_quants_packing_loops.h"
#include "lanes/float16.h"
#include "ranges/range_weighted.h"
#include "ranges/range_weighted_loops.h"

namespace scalepoint {
namespace {

/// A number rounded to float16.
float as_half(float x) { return float16_value(float16_of(x)); }

void put_half(std::byte* to, float x) {
  const uint16_t bits = float16_of(x);
  std::memcpy(to, &bits, 2);
}

/// Facts of a type: codes of `bits` bits; for super-blocks the elements of a group, and the range of its scale.
struct Facts {
  BlockType type;
  int bits;
  bool affine;
  size_t group;       ///< elements
  int scale_low = 0;  ///< of inner scales; minimums begin at 0
  int scale_high = 0;
};

constexpr Facts kFacts[] = {
    {BlockType::kQ4_0, 4, false, 32},          {BlockType::kQ4_1, 4, true, 32},
    {BlockType::kQ5_0, 5, false, 32},          {BlockType::kQ5_1, 5, true, 32},
    {BlockType::kQ8_0, 8, false, 32},          {BlockType::kQ2_K, 2, true, 16, 0, 15},
    {BlockType::kQ3_K, 3, false, 16, -32, 31}, {BlockType::kQ4_K, 4, true, 32, 0, 63},
    {BlockType::kQ5_K, 5, true, 32, 0, 63},    {BlockType::kQ6_K, 6, false, 16, -128, 127},
};

const Facts& facts_of(BlockType type) {
  for (const Facts& facts : kFacts) {
    if (facts.type == type) return facts;
  }
  return kFacts[0];
}

constexpr size_t kSuper = 256;

/// Room of d above the largest inner scale, for weights that grow.
constexpr float kHeadroom = 1.15f;

bool is_super(const Facts& facts) { return facts.scale_high != 0; }

/// The grid of symmetric codes.
WeightedGrid symmetric_grid(const Facts& facts, float (*store)(float)) {
  const float half = static_cast<float>(1 << (facts.bits - 1));
  return {.qmin = facts.bits == 8 ? 1 - half : -half, .qmax = half - 1, .negative = facts.bits != 8, .store = store};
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
  InnerSearch(const float* x, const float* weights, size_t n, const Facts& facts, const BlockNumbers& block)
      : x_(x), weights_(weights), n_(n), facts_(facts), block_(block) {}

  void affine(const WeightedLine& wanted) {
    const float step = std::nearbyint(wanted.scale / block_.d), below = block_.dmin > 0 ? -wanted.low / block_.dmin : 0;
    for (int i = -1; i <= 1; i++) {
      for (int k = -1; k <= 1; k++) try_pair(step + static_cast<float>(i), below + static_cast<float>(k));
    }
  }

  void symmetric(float wanted) {
    for (int i = -1; i <= 1; i++) try_pair(std::nearbyint(wanted / block_.d) + static_cast<float>(i), 0);
  }

  float scale = 0, minimum = 0;

 private:
  void try_pair(float wanted_scale, float wanted_minimum) {
    const float inner = whole_within(wanted_scale, facts_.scale_low, facts_.scale_high);
    const float below = facts_.affine ? whole_within(wanted_minimum, 0, facts_.scale_high) : 0;
    const float step = block_.d * inner, offset = block_.dmin * below;
    for (size_t i = 0; i < n_; i++) moved_[i] = x_[i] + offset;
    const float half = static_cast<float>(1 << (facts_.bits - 1));
    const float low = facts_.affine ? 0 : -half, high = low + 2 * half - 1;
    // A scale of 0 restores all codes as the minimum.
    const float inverse = step == 0 ? 0 : 1 / step;
    const double error = loops::sum_weighted_codes(moved_, weights_, n_, step, inverse, low, high).error;
    if (!(error < least_)) return;
    least_ = error;
    scale = inner;
    minimum = below;
  }

  const float* x_;
  const float* weights_;
  size_t n_;
  const Facts& facts_;
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
  const Facts& facts = facts_of(type);
  return {static_cast<uint32_t>(facts.group), static_cast<uint32_t>(is_super(facts) ? kSuper : 0)};
}

BlockFeedbackGrid::BlockFeedbackGrid(BlockType type, size_t columns, BlockNumbers* numbers)
    : FeedbackGrid(feedback_groups(type).group, feedback_groups(type).outer),
      type_(type),
      blocks_(columns / block_size(type).elements),
      numbers_(numbers) {}

bool BlockFeedbackGrid::begin(size_t row, size_t outer, const float* x, const float* weights, size_t n) {
  const Facts& facts = facts_of(type_);
  BlockNumbers& chosen = block(row, outer);
  chosen = {};
  float largest = 0, deepest = 0;
  const auto levels = static_cast<float>((1 << facts.bits) - 1);
  const WeightedGrid grid = symmetric_grid(facts, nullptr);
  for (size_t at = 0; at < n; at += facts.group) {
    if (facts.affine) {
      const WeightedLine line = search_weighted_line(x + at, weights + at, facts.group, levels, true, nullptr);
      largest = std::max(largest, line.scale);
      deepest = std::max(deepest, -line.low);
      continue;
    }
    const bool zeros = std::all_of(x + at, x + at + facts.group, [](float v) { return v == 0; });
    const float scale = zeros ? 0 : search_weighted_scale(x + at, weights + at, facts.group, grid).scale;
    largest = std::max(largest, std::fabs(scale));
  }
  // Inner scales with a sign reach one step farther down than up.
  const auto top = static_cast<float>(facts.scale_high);
  chosen.d = as_half(kHeadroom * largest / top);
  chosen.dmin = as_half(kHeadroom * deepest / top);
  return std::isfinite(chosen.d) && std::isfinite(chosen.dmin);
}

bool BlockFeedbackGrid::choose(size_t row, size_t group, const float* x, const float* weights, size_t n, RowGrid& grid) {
  const Facts& facts = facts_of(type_);
  const auto levels = static_cast<float>((1 << facts.bits) - 1);
  const WeightedGrid symmetric = symmetric_grid(facts, is_super(facts) ? nullptr : as_half);
  grid.low = facts.affine ? 0 : symmetric.qmin;
  grid.high = facts.affine ? levels : symmetric.qmax;
  if (!is_super(facts)) {
    BlockNumbers& chosen = block(row, group);
    chosen = {};
    if (facts.affine) {
      const WeightedLine line = search_weighted_line(x, weights, n, levels, false, as_half);
      chosen.d = line.scale;
      chosen.dmin = line.low;
      grid.offset = -line.low;
    } else {
      chosen.d = search_weighted_scale(x, weights, n, symmetric).scale;
    }
    grid.scale = chosen.d;
    if (std::all_of(x, x + n, [](float v) { return v == 0; })) chosen.d = 0;
  } else {
    const size_t each = kSuper / facts.group, index = group % each;
    BlockNumbers& chosen = block(row, group / each);
    InnerSearch search(x, weights, n, facts, chosen);
    if (facts.affine) {
      search.affine(search_weighted_line(x, weights, n, levels, true, nullptr));
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

namespace {

using namespace loops::superblocks;

/// The nibbles of a block of 32: element i with element i + 16.
void put_nibbles(const uint8_t* codes, std::byte* to) {
  for (size_t i = 0; i < 16; i++) to[i] = static_cast<std::byte>((codes[i] & 15) | (codes[i + 16] & 15) << 4);
}

/// The fifth bits of a block of 32.
void put_fifth_bits(const uint8_t* codes, std::byte* to) {
  uint32_t bits = 0;
  for (uint32_t i = 0; i < 32; i++) bits |= static_cast<uint32_t>(codes[i] >> 4 & 1) << i;
  std::memcpy(to, &bits, 4);
}

void write_block32(const Facts& facts, const BlockNumbers& block, const uint8_t* codes, std::byte* to) {
  put_half(to, block.d);
  to += 2;
  if (facts.affine) {
    put_half(to, block.dmin);
    to += 2;
  }
  if (facts.bits == 8) {
    // Codes begin at -127.
    for (size_t i = 0; i < 32; i++) to[i] = static_cast<std::byte>(codes[i] - 127);
    return;
  }
  if (facts.bits == 5) {
    put_fifth_bits(codes, to);
    to += 4;
  }
  put_nibbles(codes, to);
}

/// Scales and minimums of eight groups, six bits each, as Q4_K and Q5_K hold them.
void put_six_bits(const BlockNumbers& block, uint8_t* to) {
  for (size_t i = 0; i < 4; i++) {
    const auto scale = static_cast<uint8_t>(block.scale[i]), minimum = static_cast<uint8_t>(block.minimum[i]);
    const auto far_scale = static_cast<uint8_t>(block.scale[i + 4]), far_minimum = static_cast<uint8_t>(block.minimum[i + 4]);
    to[i] = static_cast<uint8_t>(scale | far_scale >> 4 << 6);
    to[i + 4] = static_cast<uint8_t>(minimum | far_minimum >> 4 << 6);
    to[i + 8] = static_cast<uint8_t>((far_scale & 15) | (far_minimum & 15) << 4);
  }
}

void write_super_block(BlockType type, const BlockNumbers& block, const uint8_t* codes, uint8_t* to) {
  const auto put_scale = [](uint8_t* at, float v) { put_half(reinterpret_cast<std::byte*>(at), v); };
  switch (type) {
    case BlockType::kQ2_K:
      for (size_t i = 0; i < 16; i++) {
        to[i] = static_cast<uint8_t>(static_cast<uint8_t>(block.scale[i]) | static_cast<uint8_t>(block.minimum[i]) << 4);
      }
      pack<kPairs>(codes, to + 16);
      put_scale(to + 80, block.d);
      put_scale(to + 82, block.dmin);
      return;
    case BlockType::kQ3_K:
      pack<kThird>(codes, to);
      pack<kPairs>(codes, to + 32);
      std::memset(to + 96, 0, 12);
      for (size_t i = 0; i < 16; i++) {
        const auto scale = static_cast<uint8_t>(block.scale[i] + 32);
        to[96 + i % 8] |= static_cast<uint8_t>((scale & 15) << (i < 8 ? 0 : 4));
        to[104 + i % 4] |= static_cast<uint8_t>(scale >> 4 << (2 * (i / 4)));
      }
      put_scale(to + 108, block.d);
      return;
    case BlockType::kQ4_K:
    case BlockType::kQ5_K:
      put_scale(to, block.d);
      put_scale(to + 2, block.dmin);
      put_six_bits(block, to + 4);
      to += 16;
      if (type == BlockType::kQ5_K) {
        pack<kFifth>(codes, to);
        to += 32;
      }
      pack<kNibbles>(codes, to);
      return;
    default:
      pack<kLowFour>(codes, to);
      pack<kHighTwo>(codes, to + 128);
      for (size_t i = 0; i < 16; i++) to[192 + i] = static_cast<uint8_t>(static_cast<int8_t>(block.scale[i]));
      put_scale(to + 208, block.d);
  }
}

}  // namespace

void BlockFeedbackGrid::write(size_t row, const uint8_t* codes, std::byte* blocks) const {
  const Facts& facts = facts_of(type_);
  const auto [elements, bytes] = block_size(type_);
  for (size_t i = 0; i < blocks_; i++, codes += elements, blocks += bytes) {
    if (is_super(facts)) {
      write_super_block(type_, block(row, i), codes, reinterpret_cast<uint8_t*>(blocks));
    } else {
      write_block32(facts, block(row, i), codes, blocks);
    }
  }
}

}  // namespace scalepoint
