// Blocks with an importance matrix. The bytes of all types are held to ggml's in tests/web/arrays/weights.node.test.ts; here is what
// rows, sizes and types have to do with weights, and an oracle for the simplest type.
#include "codecs/ggml.h"
#include "codecs_helpers.h"

namespace scalepoint::tests {
namespace {

using codecs::Ggml;
using Floats = std::vector<float>;

constexpr BlockType kWeighted[] = {BlockType::kQ4_0, BlockType::kQ4_1,   BlockType::kQ5_0,  BlockType::kQ5_1,
                                   BlockType::kQ2_K, BlockType::kQ3_K,   BlockType::kQ4_K,  BlockType::kQ5_K,
                                   BlockType::kQ6_K, BlockType::kIQ4_NL, BlockType::kIQ4_XS};
constexpr BlockType kOthers[] = {BlockType::kQ8_0,  BlockType::kMXFP4, BlockType::kTQ1_0,
                                 BlockType::kTQ2_0, BlockType::kQ1_0,  BlockType::kQ2_0};

std::string name(BlockType type) { return "block type " + std::to_string(static_cast<int>(type)); }

std::vector<std::byte> made(std::span<const float> x, BlockType type, std::span<const float> importance,
                            Status expected = Status::kOk) {
  Buffer<std::byte> blocks(blocks_bytes(type, x.size()));
  EXPECT_EQ(quantize_blocks(x, type, blocks, importance), expected) << name(type);
  return blocks.values();
}

/// Some of them 0.
Floats importances(Random& random, size_t n) {
  Floats values = random.uniform_values(n, -1, 3);
  for (float& v : values) v = std::max(v, 0.0f);
  return values;
}

/// Q4_0: the scale of least weighted error over the candidates, and its levels.
std::vector<uint8_t> block_of_q4_0(std::span<const float> x, std::span<const float> importance, float mean) {
  float far = 0;
  for (const float v : x) far = std::fabs(v) > std::fabs(far) ? v : far;
  float best_scale = 0, best = 0;
  std::vector<int> best_levels(32, 0);
  for (int step = -10; step <= 9 && std::fabs(far) >= 1e-15f; step++) {
    if (step == 0) continue;
    const bool plain = step == -10;
    const float inverse = -(8 + (plain ? 0 : 0.1f * static_cast<float>(step))) / far;
    float lx = 0, l2 = 0;
    std::vector<int> levels;
    for (size_t i = 0; i < 32; i++) {
      const int level = std::clamp(static_cast<int>(std::nearbyint(inverse * x[i])), -8, 7);
      const float w = importance[i] * std::sqrt(mean + x[i] * x[i]), l = static_cast<float>(level);
      lx += w * x[i] * l;
      l2 += w * l * l;
      levels.push_back(level + 8);
    }
    if (!plain && !(l2 > 0 && lx * lx > best * l2)) continue;
    best_scale = l2 != 0 ? lx / l2 : 0;
    best = best_scale * lx;
    best_levels = levels;
  }
  const uint16_t half = reference::encode(best_scale, reference::kFloat16);
  std::vector<uint8_t> block = {static_cast<uint8_t>(half), static_cast<uint8_t>(half >> 8)};
  for (size_t i = 0; i < 16; i++) block.push_back(static_cast<uint8_t>(best_levels[i] | best_levels[i + 16] << 4));
  return block;
}

TEST(Weights, make_the_blocks_of_the_description) {
  Random random(71);
  for (const size_t blocks : {1, 2, 3, 5, 15, 16, 17, 40}) {
    const size_t columns = 32 * blocks, rows = 5;
    Floats x = random.uniform_values(columns * rows, -1, 1);
    for (size_t i = 0; i < columns; i++) x[i] = 0;
    for (float& v : x) v = random.below(9) == 0 ? 0 : v * random.power(-6, 2);
    const Floats importance = importances(random, columns);
    std::vector<uint8_t> expected;
    for (size_t row = 0; row < rows; row++) {
      const auto values = std::span(x).subspan(row * columns, columns);
      float sum = 0;
      for (const float v : values) sum += v * v;
      const float mean = sum / static_cast<float>(columns);
      for (size_t b = 0; b < blocks; b++) {
        const auto block = block_of_q4_0(values.subspan(32 * b, 32), std::span(importance).subspan(32 * b, 32), mean);
        expected.insert(expected.end(), block.begin(), block.end());
      }
    }
    Buffer<float> input(x, 1), given(importance, 3);
    EXPECT_TRUE(same(std::as_bytes(std::span(expected)), std::span<const std::byte>(made(input, BlockType::kQ4_0, given))));
  }
}

TEST(Weights, apply_to_each_row_alone) {
  Random random(72);
  for (const BlockType type : kWeighted) {
    const size_t elements = block_size(type).elements;
    for (const size_t blocks : {1, 3, 7}) {
      const size_t columns = blocks * elements;
      Floats x = random.uniform_values(columns * 9, -1, 1);
      for (size_t i = 0; i < 3 * columns; i++) x[i] *= 100;
      const Floats importance = importances(random, columns);
      const auto all = made(x, type, importance);
      std::vector<std::byte> rows;
      for (size_t row = 0; row < 9; row++) {
        const auto one = made(std::span(x).subspan(row * columns, columns), type, importance);
        rows.insert(rows.end(), one.begin(), one.end());
      }
      EXPECT_TRUE(same(rows, all)) << name(type) << ' ' << blocks;
      EXPECT_FALSE(same(made(x, type, {}), all)) << name(type) << ' ' << blocks;
    }
  }
}

TEST(Weights, mean_nothing_to_other_types) {
  Random random(73);
  for (const BlockType type : kOthers) {
    const Floats x = random.uniform_values(2048, -1, 1), importance = importances(random, 512);
    EXPECT_TRUE(same(made(x, type, {}), made(x, type, importance))) << name(type);
  }
}

TEST(Weights, refuse_what_is_no_whole_row) {
  Random random(74);
  for (const BlockFacts& facts : kBlockTypes) {
    const auto [type, size] = std::pair(facts.type, facts.size);
    const Floats x = random.uniform_values(1024, -1, 1);
    for (const size_t columns : {size_t{1}, size_t{size.elements} / 2, size_t{size.elements} + 1, size_t{768}, size_t{2048}}) {
      made(x, type, Floats(columns, 1.0f), Status::kSizeMismatch);
    }
  }
}

TEST(Weights, refuse_what_is_not_finite) {
  Random random(75);
  for (const BlockType type : kWeighted) {
    for (const float bad : kNonFinites) {
      Floats x = random.uniform_values(2048, -1, 1);
      x[random.below(x.size())] = bad;
      made(x, type, Floats(256, 1.0f), Status::kNonFinite);
    }
    made(Floats(2048, 0x1p40f), type, Floats(256, 1.0f), Status::kOverflow);
  }
}

TEST(Weights, reach_the_tiles_of_a_model) {
  Random random(76);
  for (const BlockType type : kWeighted) {
    for (const size_t columns : {256, 768, 4864}) {
      const size_t rows = 20;
      const Floats x = random.uniform_values(rows * columns, -1, 1), importance = importances(random, columns);
      const std::vector<uint8_t> source = reference::store_elements({x.begin(), x.end()}, ElementType::kF32);
      Tile tile = tile_of(source, rows, columns, ElementType::kF32);
      tile.importance = importance.data();
      Encoded result;
      const auto memory = run_in_memory([&](Arena& arena) { return encode(tile, Ggml{type}, arena, result); });
      EXPECT_TRUE(same(byte_values(made(x, type, importance)), byte_values(result.data))) << name(type) << ' ' << columns;
      Floats y(x.size());
      ASSERT_EQ(dequantize_blocks({result.data.data, result.data.size}, type, y), Status::kOk);
      ErrorSums sums = result.sums;  // see EncodeGgml.adds_up_errors_by_the_importance_of_columns for the weighted ones
      sums.weighted_error = sums.weighted_x = 0;
      EXPECT_TRUE(same_sums(sums_of(x, y), sums));
    }
    // A value too large is named by its row.
    std::vector<double> values(4096, 0.25);
    values[3000] = 0x1p40;
    const std::vector<uint8_t> source = reference::store_elements(values, ElementType::kF32);
    const Floats importance(1024, 1.0f);
    Tile tile = tile_of(source, 4, 1024, ElementType::kF32);
    tile.importance = importance.data();
    Encoded result;
    const auto memory = run_in_memory([&](Arena& arena) { return encode(tile, Ggml{type}, arena, result); });
    EXPECT_TRUE(same_problem({codecs::ProblemKind::kOverflow, 3000, 0x1p40}, result.problem)) << name(type);
  }
}

}  // namespace
}  // namespace scalepoint::tests
