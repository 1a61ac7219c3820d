// The types with grids against an oracle that tries one candidate and one point after the other. Their bytes are held to ggml's in
// tests/web/arrays/grids.node.test.ts.
#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <map>
#include <numeric>

#include "ggml/ggml_blocks.h"
#include "ggml/iq_grid_search_loops.h"
#include "helpers.h"

namespace scalepoint::tests {
namespace {

using loops::GridBlock;
using loops::GridName;
using loops::GridRule;
using Floats = std::vector<float>;
using Levels = std::vector<int>;

/// The grids, with their points and the shells of neighbors.
struct Known {
  GridName name;
  size_t count, each, shells;
};
constexpr Known kGrids[] = {{GridName::kIQ3_XXS, 256, 4, 2}, {GridName::kIQ3_S, 512, 4, 3},  {GridName::kIQ2_XXS, 256, 8, 2},
                            {GridName::kIQ2_XS, 512, 8, 2},  {GridName::kIQ2_S, 1024, 8, 1}, {GridName::kIQ1, 2048, 8, 3}};

constexpr GridRule kRules[] = {
    {GridName::kIQ3_XXS, 32, 4, 1e-8f, 15, 0.2f, true, false, false, false},
    {GridName::kIQ3_S, 32, 4, 0x1p-149f, 9, 0.2f, false, false, true, true},
    {GridName::kIQ2_XS, 16, 8, 1e-15f, 9, 0.1f, true, false, false, false},
    {GridName::kIQ2_S, 16, 8, 1e-8f, 9, 0.1f, false, false, false, false},
};

const Known& known(GridName name) {
  return *std::find_if(std::begin(kGrids), std::end(kGrids), [=](const Known& one) { return one.name == name; });
}

Levels levels_of(uint32_t point, size_t each) {
  Levels levels;
  for (size_t i = 0; i < each; i++) levels.push_back(static_cast<int>(point >> 4 * i & 15) / 2);
  return levels;
}

/// Candidates of a search: the point with these levels, or its neighbors in ggml's order. Searches ask for the same levels often,
/// so answers are kept.
const std::vector<size_t>& choices(const Known& grid, const Levels& levels) {
  static std::map<std::pair<GridName, Levels>, std::vector<size_t>> known_choices;
  const auto [place, is_new] = known_choices.try_emplace({grid.name, levels});
  std::vector<size_t>& found = place->second;
  if (!is_new) return found;
  const uint32_t* points = loops::grid_points(grid.name);
  std::vector<int> distances;
  for (size_t k = 0; k < grid.count; k++) {
    const Levels other = levels_of(points[k], grid.each);
    int sum = 0;
    for (size_t i = 0; i < grid.each; i++) sum += (levels[i] - other[i]) * (levels[i] - other[i]);
    distances.push_back(sum);
  }
  std::vector<size_t> order(grid.count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return distances[a] < distances[b]; });
  if (distances[order[0]] == 0) return found = {order[0]};
  size_t shells = 0;
  for (size_t i = 0; i < order.size(); i++) {
    if (i == 0 || distances[order[i]] != distances[order[i - 1]]) shells++;
    if (shells > grid.shells) break;
    found.push_back(order[i]);
  }
  return found;
}

/// Figures that a search keeps of a candidate.
struct Fit {
  std::vector<size_t> points;
  std::vector<bool> rounded;
  float qx = 0, q2 = 0;
};

/// The best points of a group for a scale.
void choose(const Known& grid, const float* x, const float* w, float inverse, float scale, Fit& fit) {
  const int top = grid.each == 4 ? 7 : 2;
  Levels levels;
  for (size_t i = 0; i < grid.each; i++) {
    levels.push_back(std::clamp(static_cast<int>(std::nearbyint(0.5f * (inverse * x[i] - 1))), 0, top));
  }
  const std::vector<size_t>& found = choices(grid, levels);
  float least = FLT_MAX;
  size_t best = found[0];
  for (const size_t k : found) {
    const Levels other = levels_of(loops::grid_points(grid.name)[k], grid.each);
    float sum = 0;
    for (size_t i = 0; i < grid.each; i++) {
      const float difference = scale * static_cast<float>(2 * other[i] + 1) - x[i];
      sum += std::sqrt(w[i]) * difference * difference;
    }
    if (found.size() > 1 && sum < least) {
      least = sum;
      best = k;
    }
  }
  fit.points.push_back(best);
  fit.rounded.push_back(found.size() == 1);
}

void add_up(const Known& grid, const Floats& x, const Floats& w, Fit& fit) {
  fit.qx = fit.q2 = 0;
  for (size_t i = 0; i < x.size(); i++) {
    const Levels levels = levels_of(loops::grid_points(grid.name)[fit.points[i / grid.each]], grid.each);
    const auto q = static_cast<float>(2 * levels[i % grid.each] + 1);
    fit.qx += w[i] * x[i] * q;
    fit.q2 += w[i] * q * q;
  }
}

/// Magnitudes, and the signs of eights.
Floats without_signs(const Floats& x, const Floats& w, bool even, std::vector<uint8_t>& signs) {
  Floats magnitudes;
  for (size_t i = 0; i < x.size(); i += 8) {
    unsigned bits = 0;
    size_t cheapest = 0;
    for (size_t k = 0; k < 8; k++) {
      bits |= (x[i + k] < 0 ? 1u : 0u) << k;
      magnitudes.push_back(std::fabs(x[i + k]));
      const auto cost = [&](size_t j) { return w[i + j] * x[i + j] * x[i + j]; };
      if (cost(k) < cost(cheapest)) cheapest = k;
    }
    if (even && std::popcount(bits) % 2 == 1) {
      magnitudes[i + cheapest] = -magnitudes[i + cheapest];
      bits ^= 1u << cheapest;
    }
    signs.push_back(static_cast<uint8_t>(even ? bits & 127 : bits));
  }
  return magnitudes;
}

/// The scale and points of a sub-block that is not all zeros.
GridBlock search(const Floats& given, const Floats& w, const GridRule& rule) {
  const Known& grid = known(rule.grid);
  std::vector<uint8_t> signs;
  const Floats x = without_signs(given, w, rule.even, signs);
  const float most = *std::max_element(x.begin(), x.end()), top = grid.each == 4 ? 15 : 5;
  float scale = most / top, best = 0;
  const size_t groups = x.size() / grid.each;
  Fit kept{std::vector<size_t>(groups), std::vector<bool>(groups, !rule.all_again)};
  for (int k = -rule.steps; k <= rule.steps; k++) {
    const float inverse = (top + static_cast<float>(k) * rule.by) / most;
    Fit fit;
    for (size_t g = 0; g < groups; g++) {
      choose(grid, &x[g * grid.each], &w[g * grid.each], inverse, 1 / inverse, fit);
    }
    add_up(grid, x, w, fit);
    if (!(fit.q2 > 0 && fit.qx * fit.qx > best * fit.q2)) continue;
    scale = fit.qx / fit.q2;
    best = scale * fit.qx;
    kept = fit;
  }
  if (std::count(kept.rounded.begin(), kept.rounded.end(), false) > 0 && scale > 0) {
    for (size_t g = 0; g < groups; g++) {
      Fit again;
      choose(grid, &x[g * grid.each], &w[g * grid.each], 1 / scale, scale, again);
      if (rule.all_again || !kept.rounded[g]) kept.points[g] = again.points[0];
    }
    add_up(grid, x, w, kept);
    if (kept.q2 > 0) scale = kept.qx / kept.q2;
  }
  GridBlock block = {scale, false, {}, {}};
  for (size_t g = 0; g < groups; g++) block.point[g] = static_cast<uint16_t>(kept.points[g]);
  std::copy(signs.begin(), signs.end(), block.signs);
  return block;
}

TEST(Grids, hold_points_in_the_order_of_their_codes) {
  for (const Known& one : kGrids) {
    const uint32_t* points = loops::grid_points(one.name);
    EXPECT_EQ(loops::grid_of(one.name).count, one.count);
    for (size_t k = 0; k < one.count; k++) {
      for (const int level : levels_of(points[k], one.each)) EXPECT_LE(level, one.each == 4 ? 7 : 2);
      EXPECT_TRUE(k == 0 || points[k] > points[k - 1]);
    }
  }
}

TEST(Grids, list_the_nearest_points_in_order) {
  Random random(80);
  for (const Known& one : kGrids) {
    const loops::Grid grid = loops::grid_of(one.name);
    const int radix = one.each == 4 ? 8 : 3;
    for (int i = 0; i < 20; i++) {
      const int code = static_cast<int>(random.below(one.each == 4 ? 4096 : 6561));
      Levels levels;
      for (size_t k = 0, rest = static_cast<size_t>(code); k < one.each; k++, rest /= static_cast<size_t>(radix)) {
        levels.push_back(static_cast<int>(rest) % radix);
      }
      const std::vector<size_t> expected = choices(one, levels);
      const int place = grid.places[code];
      if (place >= 0) {
        EXPECT_EQ(expected, std::vector<size_t>{static_cast<size_t>(place)});
        continue;
      }
      const uint16_t* list = grid.neighbors - 1 - place;
      EXPECT_EQ(expected, std::vector<size_t>(list + 1, list + 1 + list[0]));
    }
  }
}

TEST(Grids, are_searched_as_one_candidate_after_the_other) {
  Random random(81);
  for (const GridRule& rule : kRules) {
    for (int i = 0; i < 6; i++) {
      Floats x = random.uniform_values(rule.size, -1, 1);
      const Floats w = random.uniform_values(rule.size, 0, 1);
      // Ties between levels, and between elements.
      if (i % 3 == 1)
        for (float& v : x) v = std::nearbyint(v * 4) / 4 + 0.125f;
      if (i % 3 == 2)
        for (float& v : x) v = v * v * v;
      const GridBlock expected = search(x, w, rule);
      GridBlock found;
      ASSERT_TRUE(loops::search_grid(x.data(), w.data(), rule, found));
      EXPECT_EQ(found.scale, expected.scale);
      for (size_t k = 0; k < rule.size / rule.each; k++) EXPECT_EQ(found.point[k], expected.point[k]);
      for (size_t k = 0; k < rule.size / 8; k++) EXPECT_EQ(found.signs[k], expected.signs[k]);
    }
  }
}

TEST(Grids, are_refused_without_importance_where_ggml_refuses_them) {
  const Floats x(256, 0.5f), importance(256, 1.0f);
  for (const BlockFacts& facts : kBlockTypes) {
    const BlockType type = facts.type;
    std::vector<std::byte> blocks(blocks_bytes(type, 256));
    EXPECT_EQ(quantize_blocks(x, type, blocks), facts.importance == Importance::kNeeded ? Status::kBadDType : Status::kOk);
    EXPECT_EQ(quantize_blocks(x, type, blocks, importance), Status::kOk);
  }
}

/// Values within what each type restores of numbers up to 1, with and without importance, and from any bytes.
TEST(Grids, restore_what_they_quantized) {
  Random random(82);
  const Floats x = random.uniform_values(512, -1, 1), importance(256, 1.0f);
  // The square root of the mean squared error, at most. Three bits come to 0.1, two to 0.2, and one to 0.35.
  for (const auto& [type, bound] : std::vector<std::pair<BlockType, double>>{{BlockType::kIQ3_S, 0.1},
                                                                             {BlockType::kIQ3_XXS, 0.12},
                                                                             {BlockType::kIQ2_S, 0.2},
                                                                             {BlockType::kIQ2_XS, 0.2},
                                                                             {BlockType::kIQ2_XXS, 0.25},
                                                                             {BlockType::kIQ1_M, 0.4},
                                                                             {BlockType::kIQ1_S, 0.4}}) {
    std::vector<std::byte> blocks(blocks_bytes(type, 512)), any(blocks_bytes(type, 512));
    Floats y(512);
    ASSERT_EQ(quantize_blocks(x, type, blocks, importance), Status::kOk);
    ASSERT_EQ(dequantize_blocks(blocks, type, y), Status::kOk);
    double sum = 0;
    for (size_t i = 0; i < x.size(); i++) sum += std::pow(x[i] - y[i], 2);
    EXPECT_LT(std::sqrt(sum / 512), bound) << static_cast<int>(type);
    for (std::byte& b : any) b = static_cast<std::byte>(random.below(256));
    EXPECT_EQ(dequantize_blocks(any, type, y), Status::kOk);
  }
}

}  // namespace
}  // namespace scalepoint::tests
