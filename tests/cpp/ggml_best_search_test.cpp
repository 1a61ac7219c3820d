// The search for lower errors: what it promises on numbers of all kinds. Bytes are compared between the builds in tests/web.
#include "codecs_helpers.h"
#include "ggml/best_search_loops.h"
#include "ggml/ggml_blocks.h"

namespace scalepoint::tests {
namespace {

/// The sum of squared errors of some elements, each by the importance of its column.
double error_of(const std::vector<float>& x, const std::vector<float>& y, const std::vector<float>& importance, size_t from,
                size_t n) {
  double sum = 0;
  for (size_t i = from; i < from + n; i++) {
    const double error = static_cast<double>(x[i]) - y[i];
    sum += (importance.empty() ? 1 : importance[i % importance.size()]) * error * error;
  }
  return sum;
}

TEST(BestBlocks, have_no_larger_errors_than_those_of_ggml) {
  Random random(3);
  for (const BlockFacts& facts : kBlockTypes) {
    if (!facts.searched) continue;
    const auto [type, size] = std::pair(facts.type, facts.size);
    const size_t rows = 10, columns = 2 * size_t{size.elements};
    for (const double largest : {1.0, 1e-30, 1e-6, 6e4}) {
      const std::vector<double> values = hard_rows(random, rows, columns, 8, largest);
      const std::vector<float> x(values.begin(), values.end());
      for (const float most : {0.0f, 1.0f, 1e-30f, 1e15f}) {
        std::vector<float> importance;
        if (most > 0) importance = random.uniform_values(columns, -most / 4, most);
        for (float& v : importance) v = v < 0 ? 0 : v;
        std::vector<std::byte> usual(blocks_bytes(type, x.size())), best = usual;
        std::vector<float> y(x.size()), z = y;
        const Status status = quantize_blocks(x, type, usual, importance);
        ASSERT_EQ(quantize_blocks(x, type, best, importance, BlockSearch::kBest), status);
        if (status != Status::kOk) continue;
        ASSERT_EQ(dequantize_blocks(usual, type, y), Status::kOk);
        ASSERT_EQ(dequantize_blocks(best, type, z), Status::kOk);
        for (size_t i = 0; i < x.size(); i += size.elements) {
          const double before = error_of(x, y, importance, i, size.elements);
          EXPECT_LE(error_of(x, z, importance, i, size.elements), before)
              << static_cast<int>(type) << " " << largest << " " << most;
        }
      }
    }
  }
}

TEST(BestBlocks, are_for_types_that_have_such_a_search) {
  const std::vector<float> x(256);
  for (const BlockFacts& facts : kBlockTypes) {
    const BlockType type = facts.type;
    std::vector<std::byte> blocks(blocks_bytes(type, x.size()));
    const Status expected = facts.searched ? Status::kOk : Status::kBadDType;
    EXPECT_EQ(quantize_blocks(x, type, blocks, {}, BlockSearch::kBest), expected) << static_cast<int>(type);
  }
}

TEST(BestBlocks, are_no_way_around_what_is_not_finite_or_too_large) {
  std::vector<float> x(256, 1.0f);
  std::vector<std::byte> blocks(blocks_bytes(BlockType::kQ4_K, x.size()));
  x[100] = -kInfinity;
  EXPECT_EQ(quantize_blocks(x, BlockType::kQ4_K, blocks, {}, BlockSearch::kBest), Status::kNonFinite);
  x[100] = 1e30f;
  EXPECT_EQ(quantize_blocks(x, BlockType::kQ4_K, blocks, {}, BlockSearch::kBest), Status::kOverflow);
}

}  // namespace
}  // namespace scalepoint::tests
