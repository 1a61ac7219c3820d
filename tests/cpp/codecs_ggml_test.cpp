// Tiles of floats to ggml's blocks. The bytes of blocks have tests of their own: here they are what quantize_blocks makes of all
// floats at once.
#include "codecs/cast.h"
#include "codecs/ggml.h"
#include "codecs_helpers.h"

namespace scalepoint::tests {
namespace {

using codecs::Ggml;

struct Result {
  Encoded encoded;
  std::vector<uint8_t> data;
};

Result to_blocks(const Tile& tile, BlockType type) {
  Result result;
  const auto memory = run_in_memory([&](Arena& arena) { return encode(tile, Ggml{type}, arena, result.encoded); });
  result.data = byte_values(result.encoded.data);
  return result;
}

TEST(EncodeGgml, makes_the_blocks_of_all_elements) {
  Random random(1);
  size_t turn = 0;
  for (const BlockFacts& facts : kBlockTypes) {
    const BlockType type = facts.type;
    const auto [elements, bytes] = facts.size;
    turn++;
    for (const ElementType from : kElementTypes) {
      for (const size_t blocks :
           {size_t{0}, size_t{1}, size_t{2}, size_t{5}, size_t{16384 / elements}, size_t{16384 / elements + 3}}) {
        // All block types take the steps of a large tile alike, and so do all element types. One pair of each type is enough.
        if (facts.importance == Importance::kNeeded) continue;
        if (blocks > 5 && from != kElementTypes[turn % std::size(kElementTypes)]) continue;
        const size_t n = blocks * elements;
        const std::vector<uint8_t> source = reference::store_elements(hard_rows(random, blocks, elements, 8, 6e4), from);
        const std::vector<float> x = floats_of(source, from);
        std::vector<std::byte> expected(blocks * bytes);
        std::vector<float> y(n);
        ASSERT_EQ(quantize_blocks(x, type, expected), Status::kOk);
        ASSERT_EQ(dequantize_blocks(expected, type, y), Status::kOk);
        Tile tile = tile_of(source, blocks, elements, from);
        Result result = to_blocks(tile, type);
        EXPECT_TRUE(same(byte_values(expected), result.data)) << static_cast<int>(type) << " " << blocks;
        EXPECT_TRUE(same_sums(sums_of(x, y), result.encoded.sums));
        EXPECT_TRUE(same_problem({}, result.encoded.problem));
        tile.measure = false;
        result = to_blocks(tile, type);
        EXPECT_TRUE(same(byte_values(expected), result.data));
        EXPECT_TRUE(same_sums({}, result.encoded.sums));
      }
    }
  }
}

TEST(EncodeGgml, names_the_first_element_that_is_not_finite) {
  for (const BlockFacts& facts : kBlockTypes) {
    const BlockType type = facts.type;
    if (facts.importance == Importance::kNeeded) continue;
    for (const ElementType from : kElementTypes) {
      for (const size_t index : {0, 255, 16384, 16900}) {
        for (const double value : {std::nan(""), -HUGE_VAL, 1e300}) {
          if (value == 1e300 && from != ElementType::kF64) continue;
          // Elements are read and checked before blocks are made of them. So one type of blocks sees all cases, and the others
          // those of one element type.
          if (type != BlockType::kQ4_0 && (from != ElementType::kF64 || value == -HUGE_VAL)) continue;
          std::vector<double> x(67 * 256, 0.5);
          x[67 * 256 - 1] = HUGE_VAL;
          x[index] = value;
          // Values too large for a block come second, in front of it too.
          if (from != ElementType::kF16) x[300] = 1e38;
          const std::vector<uint8_t> source = reference::store_elements(x, from);
          const ProblemKind kind = value == 1e300 ? ProblemKind::kBeyondFloat32 : ProblemKind::kNonFinite;
          EXPECT_TRUE(same_problem({kind, index, value}, to_blocks(tile_of(source, 67, 256, from), type).encoded.problem));
        }
      }
    }
  }
}

TEST(EncodeGgml, names_the_value_that_a_blocks_scale_cannot_hold) {
  for (const BlockFacts& facts : kBlockTypes) {
    const BlockType type = facts.type;
    if (type == BlockType::kMXFP4) continue;  // its scales reach as far as float32
    if (facts.importance == Importance::kNeeded) continue;
    for (const size_t index : {0, 31, 700, 16384, 16500}) {
      std::vector<double> x(67 * 256);
      for (size_t i = 0; i < x.size(); i++) x[i] = static_cast<double>(i % 7) - 3;
      // Of two that are as far from 0 the first counts, of several blocks the first.
      x[index] = -5e8f;
      x[(index / 32 * 32) + 31] = index % 32 == 31 ? -5e8f : 5e8f;
      x[67 * 256 - 1] = 6e8f;
      const std::vector<uint8_t> source = reference::store_elements(x, ElementType::kF32);
      EXPECT_TRUE(same_problem({ProblemKind::kOverflow, index, -5e8f},
                               to_blocks(tile_of(source, 67, 256, ElementType::kF32), type).encoded.problem))
          << static_cast<int>(type);
    }
  }
}

TEST(EncodeGgml, makes_blocks_from_blocks) {
  Random random(3);
  const std::vector<float> x = random.uniform_values(17 * 1024, -1, 1);
  std::vector<std::byte> blocks(x.size() / 256 * 144);
  ASSERT_EQ(quantize_blocks(x, BlockType::kQ4_K, blocks), Status::kOk);
  std::vector<float> restored(x.size());
  ASSERT_EQ(dequantize_blocks(blocks, BlockType::kQ4_K, restored), Status::kOk);
  std::vector<std::byte> expected(x.size() / 32 * 34);
  ASSERT_EQ(quantize_blocks(restored, BlockType::kQ8_0, expected), Status::kOk);
  const std::vector<uint8_t> source = byte_values(blocks);
  const Tile tile = tile_of(source, 17, 1024, static_cast<int32_t>(BlockType::kQ4_K));
  EXPECT_TRUE(same(byte_values(expected), to_blocks(tile, BlockType::kQ8_0).data));
}

/// Sums of pairs by the importance of their columns, and the bound of accumulate_weighted_error: 67 additions and four roundings of a term.
void expect_weighted(const std::vector<float>& x, const std::vector<float>& y, const std::vector<float>& importance,
                     const ErrorSums& sums) {
  constexpr long double kBound = 71 * 0x1p-24L;
  long double error = 0, squares = 0;
  for (size_t i = 0; i < x.size(); i++) {
    const long double w = importance[i % importance.size()], v = x[i], e = v - y[i];
    error += w * e * e;
    squares += w * v * v;
  }
  EXPECT_LE(std::fabs(sums.weighted_error - error), kBound * error);
  EXPECT_LE(std::fabs(sums.weighted_x - squares), kBound * squares);
}

TEST(EncodeGgml, adds_up_errors_by_the_importance_of_columns) {
  Random random(7);
  for (const BlockFacts& facts : kBlockTypes) {
    const auto [type, size] = std::pair(facts.type, facts.size);
    for (const double largest : {1.0, 1e-30, 1e4}) {  // float32 does not reach the squares of the second
      // Large blocks reach beyond one step of 16384 elements.
      const size_t rows = 13, columns = 5 * size_t{size.elements};
      const std::vector<uint8_t> source =
          reference::store_elements(hard_rows(random, rows, columns, 8, largest), ElementType::kF32);
      const std::vector<float> x = floats_of(source, ElementType::kF32);
      std::vector<float> importance = random.uniform_values(columns, 0, 2);
      importance[3] = 0;
      Tile tile = tile_of(source, rows, columns, ElementType::kF32);
      tile.importance = importance.data();
      const Result result = to_blocks(tile, type);
      std::vector<float> y(x.size());
      ASSERT_EQ(dequantize_blocks(bytes_of(result.data), type, y), Status::kOk);
      expect_weighted(x, y, importance, result.encoded.sums);
      ErrorSums sums = result.encoded.sums;
      sums.weighted_error = sums.weighted_x = 0;
      EXPECT_TRUE(same_sums(sums_of(x, y), sums));
    }
  }
}

TEST(EncodeCast, adds_up_errors_by_the_importance_of_columns) {
  Random random(8);
  for (const size_t columns : {1, 7, 512, 700, 20000}) {
    const std::vector<uint8_t> source = reference::store_elements(hard_rows(random, 3, columns, 8, 1e3), ElementType::kF32);
    const std::vector<float> x = floats_of(source, ElementType::kF32), importance = random.uniform_values(columns, 0, 9);
    Tile tile = tile_of(source, 3, columns, ElementType::kF32);
    tile.importance = importance.data();
    Encoded encoded;
    const auto memory = run_in_memory([&](Arena& arena) {
      return encode(tile, codecs::Cast{ElementType::kBF16, false}, arena, encoded);
    });
    expect_weighted(x, floats_of(byte_values(encoded.data), ElementType::kBF16), importance, encoded.sums);
  }
}

TEST(EncodeGgml, refuses_what_is_no_block) {
  const std::vector<uint8_t> source(33 * 4);
  Arena arena;
  Encoded result;
  EXPECT_EQ(encode(tile_of(source, 1, 33, ElementType::kF32), Ggml{}, arena, result), Status::kBadLayout);
  EXPECT_EQ(encode(tile_of(source, 1, 33, ElementType::kF32), Ggml{static_cast<BlockType>(4)}, arena, result), Status::kBadDType);
  EXPECT_EQ(encode(tile_of(source, 1, 32, ElementType::kF32), Ggml{}, arena, result), Status::kSizeMismatch);
}

}  // namespace
}  // namespace scalepoint::tests
