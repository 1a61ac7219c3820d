// Elements of files as floats, and the arena that all codecs work on.
#include <cmath>

#include "arrays/minifloat_loops.h"
#include "codecs/copy.h"
#include "codecs_helpers.h"
#include "ggml/ggml_blocks.h"

namespace scalepoint::tests {
namespace {

using codecs::Copy;
using codecs::element_size;
using codecs::ValueRange;

struct Block {
  BlockType type;
  size_t elements, bytes;
};
constexpr Block kBlocks[] = {
    {BlockType::kQ4_0, 32, 18},     {BlockType::kQ4_1, 32, 20},     {BlockType::kQ5_0, 32, 22},    {BlockType::kQ5_1, 32, 24},
    {BlockType::kQ8_0, 32, 34},     {BlockType::kQ2_K, 256, 84},    {BlockType::kQ3_K, 256, 110},  {BlockType::kQ4_K, 256, 144},
    {BlockType::kQ5_K, 256, 176},   {BlockType::kQ6_K, 256, 210},   {BlockType::kIQ4_NL, 32, 18},  {BlockType::kMXFP4, 32, 17},
    {BlockType::kIQ4_XS, 256, 136}, {BlockType::kTQ1_0, 256, 54},   {BlockType::kTQ2_0, 256, 66},  {BlockType::kQ1_0, 128, 18},
    {BlockType::kQ2_0, 64, 18},     {BlockType::kIQ3_XXS, 256, 98}, {BlockType::kIQ3_S, 256, 110}, {BlockType::kIQ2_XXS, 256, 66},
    {BlockType::kIQ2_XS, 256, 74},  {BlockType::kIQ2_S, 256, 82},   {BlockType::kIQ1_S, 256, 50},  {BlockType::kIQ1_M, 256, 56}};

constexpr size_t kSizes[] = {0, 1, 2, 3, 7, 16, 17, 511, 512, 513, 16383, 16384, 16385, 40000};

std::vector<float> decoded(const Tile& tile) {
  const float* x = nullptr;
  const auto n = static_cast<size_t>(tile.size());
  const auto memory = run_in_memory([&](Arena& arena) { return decode(tile, arena, x); });
  return {x, x + n};
}

TEST(StepOver, takes_whole_lines_and_whole_blocks_of_the_sums) {
  for (const uint64_t line :
       {1, 2, 3, 8, 27, 32, 100, 128, 147, 512, 768, 1000, 1001, 4096, 11008, 16384, 16385, 50257, 1 << 20}) {
    const uint64_t step = codecs::step_over(line, uint64_t{1} << 40);
    EXPECT_EQ(step % line, 0u) << line;
    EXPECT_EQ(step % 512, 0u) << line;
    EXPECT_LE(step, std::max<uint64_t>(codecs::kStepSize, line * 512)) << line;
    EXPECT_EQ(codecs::step_over(line, line), line);
  }
  EXPECT_EQ(codecs::step_over(128, uint64_t{1} << 40), codecs::kStepSize);
  EXPECT_EQ(codecs::step_over(768, uint64_t{1} << 40), 15360u);
}

TEST(ElementSize, knows_all_types_and_no_others) {
  for (int32_t type = -5; type < 300; type++) {
    size_t elements = 0, bytes = 0;
    if (type == 0) elements = 1, bytes = 4;
    if (type == 1 || type == 30) elements = 1, bytes = 2;
    if (type == 28) elements = 1, bytes = 8;
    for (const Block& block : kBlocks) {
      if (type == static_cast<int32_t>(block.type)) elements = block.elements, bytes = block.bytes;
    }
    EXPECT_EQ(element_size(type).elements, elements) << type;
    EXPECT_EQ(element_size(type).bytes, bytes) << type;
  }
}

TEST(Decode, gives_the_value_of_every_element) {
  Random random(1);
  for (const ElementType type : kElementTypes) {
    for (const size_t n : kSizes) {
      const std::vector<uint8_t> source = reference::store_elements(hard_rows(random, 1 + n / 97, 97, 8, 6e4), type);
      const size_t bytes = n * element_size(static_cast<int32_t>(type)).bytes;
      const std::vector<uint8_t> cut(source.begin(), source.begin() + static_cast<ptrdiff_t>(bytes));
      EXPECT_TRUE(same(floats_of(cut, type), decoded(tile_of(cut, 1, n, type)))) << n;
    }
  }
}

TEST(Decode, gives_all_values_of_16_bits) {
  for (const ElementType type : {ElementType::kF16, ElementType::kBF16}) {
    std::vector<uint8_t> source;
    for (int bits = 0; bits < 65536; bits++) {
      source.push_back(static_cast<uint8_t>(bits % 256));
      source.push_back(static_cast<uint8_t>(bits / 256));
    }
    const std::vector<float> expected = floats_of(source, type), actual = decoded(tile_of(source, 256, 256, type));
    for (size_t i = 0; i < expected.size(); i++) {
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(actual[i])) << i;
      } else {
        EXPECT_EQ(float_bits(expected[i]), float_bits(actual[i])) << i;
      }
    }
  }
}

TEST(Decode, rounds_float64_to_the_nearest_float32) {
  const double one_up = 1 + 0x1p-23, largest = kLargest, half_up = 0x1p103;
  const struct {
    double value;
    float expected;
  } kCases[] = {{1 + 0x1p-24, 1},
                {one_up + 0x1p-24, static_cast<float>(1 + 0x1p-22)},
                {1 + 0x1.000001p-24, static_cast<float>(one_up)},
                {0x1p-150, 0},
                {-0x1.8p-150, -kDenormal},
                {0x1.8p-149, 2 * kDenormal},
                {largest + half_up * 0.999, kLargest},
                {largest + half_up, kInfinity},
                {-1e300, -kInfinity},
                {-HUGE_VAL, -kInfinity},
                {-0.0, -0.0f}};
  for (const auto& [value, expected] : kCases) {
    const std::vector<uint8_t> source = reference::store_elements({value}, ElementType::kF64);
    EXPECT_TRUE(same({expected}, decoded(tile_of(source, 1, 1, ElementType::kF64)))) << value;
  }
}

TEST(Decode, gives_all_values_of_8_bits) {
  for (const auto& [type, format] :
       {std::pair{ElementType::kF8_E4M3, Minifloat::kFloat8E4M3FN}, std::pair{ElementType::kF8_E5M2, Minifloat::kFloat8E5M2}}) {
    std::vector<uint8_t> source(256);
    for (size_t i = 0; i < source.size(); i++) source[i] = static_cast<uint8_t>(i);
    std::vector<float> expected(256);
    loops::minifloat_to_float32(source.data(), source.size(), format, expected.data());
    EXPECT_TRUE(same(expected, decoded(tile_of(source, 1, 256, type))));
    EXPECT_EQ(element_size(static_cast<int32_t>(type)).bytes, 1u);
  }
}

TEST(Decode, adds_in_float32) {
  Random random(5);
  for (const ElementType type : kElementTypes) {
    for (const size_t n : {size_t{1}, size_t{7}, size_t{16385}}) {
      std::vector<double> x(n);
      for (double& value : x) value = random.uniform(-1, 1);
      const std::vector<uint8_t> source = reference::store_elements(x, type);
      std::vector<float> expected = floats_of(source, type);
      for (float& value : expected) value += 1;
      Tile tile = tile_of(source, 1, n, type);
      tile.add = 1;
      const float* y = nullptr;
      const auto memory = run_in_memory([&](Arena& arena) { return decode(tile, arena, y); });
      // Reading twice gives the same.
      EXPECT_TRUE(n == 0 || reinterpret_cast<const std::byte*>(y) != tile.source.data);
      EXPECT_TRUE(same(expected, {y, y + n}));
    }
  }
}

TEST(Decode, takes_negative_exponentials_before_it_adds) {
  Random random(6);
  for (const ElementType type : kElementTypes) {
    std::vector<double> x(100);
    for (double& value : x) value = random.uniform(-1, 1);
    const std::vector<uint8_t> source = reference::store_elements(x, type);
    for (const float add : {0.0f, 1.0f}) {
      std::vector<float> expected = floats_of(source, type);
      // Rounded once, from more digits than the float64 of the core has.
      for (float& value : expected) value = static_cast<float>(-std::exp(static_cast<long double>(value))) + add;
      Tile tile = tile_of(source, 1, x.size(), type);
      tile.negative_exp = true;
      tile.add = add;
      EXPECT_TRUE(same(expected, decoded(tile)));
    }
  }
}

TEST(Decode, multiplies_by_factors_one_after_the_other_before_it_adds) {
  Random random(7);
  for (const ElementType type : kElementTypes) {
    // More elements than a piece, in rows that pieces cut.
    for (const size_t columns : {size_t{1}, size_t{7}, size_t{3000}}) {
      const size_t rows = 9000 / columns;
      std::vector<double> x(rows * columns);
      for (double& value : x) value = random.uniform(-1, 1);
      std::vector<float> factors(rows);
      std::vector<float> of_columns(columns);
      for (float& factor : factors) factor = static_cast<float>(random.uniform(0.1, 2));
      for (float& factor : of_columns) factor = static_cast<float>(random.uniform(0.1, 2));
      const std::vector<uint8_t> source = reference::store_elements(x, type);
      for (const float factor : {1.0f, 0.7f}) {
        for (const int by : {0, 1, 2, 3}) {
          const bool by_rows = by % 2 == 1, by_columns = by > 1;
          std::vector<float> expected = floats_of(source, type);
          for (size_t i = 0; i < expected.size(); i++) {
            // The product of two float32 is exact in float64.
            expected[i] = static_cast<float>(static_cast<double>(expected[i]) * factor);
            if (by_rows) expected[i] = static_cast<float>(static_cast<double>(expected[i]) * factors[i / columns]);
            if (by_columns) expected[i] = static_cast<float>(static_cast<double>(expected[i]) * of_columns[i % columns]);
            expected[i] += 1;
          }
          Tile tile = tile_of(source, rows, columns, type);
          tile.factor = factor;
          tile.row_factors = by_rows ? factors.data() : nullptr;
          tile.column_factors = by_columns ? of_columns.data() : nullptr;
          tile.add = 1;
          EXPECT_TRUE(same(expected, decoded(tile)));
          // In pieces, as codecs read them.
          const auto memory = run_in_memory([&](Arena& arena) {
            codecs::Floats floats(tile, 1000, arena);
            if (arena.status() != Status::kOk) return arena.status();
            for (size_t at = 0; at < expected.size(); at += 1000) {
              const size_t n = std::min<size_t>(1000, expected.size() - at);
              const float* const y = floats.read(at, n);
              EXPECT_TRUE(same(std::vector<float>(&expected[at], &expected[at] + n), std::vector<float>(y, y + n)));
            }
            return Status::kOk;
          });
        }
      }
    }
  }
}

TEST(Decode, rounds_to_three_values_as_float32_and_as_float16) {
  // 1 / 0.3 = 3.3333333: ties of x * (1 / 0.3) at 0.5 go to 0.
  const std::vector<double> x = {0, 0.1, 0.14999, 0.15001, 0.3, 0.9, -0.1, -0.15001, -5};
  const float inverse = 1 / 0.3f;
  for (const ElementType type : {ElementType::kF32, ElementType::kF16}) {
    const std::vector<uint8_t> source = reference::store_elements(x, type);
    std::vector<float> expected = floats_of(source, type);
    // 1 / (1 / 0.3f) is 0.3f, and the nearest float16 is 1229 / 4096.
    const float size = type == ElementType::kF16 ? 1229.0f / 4096 : 1 / inverse;
    for (float& value : expected) {
      const float code = std::nearbyint(value * inverse);
      value = std::min(1.0f, std::max(-1.0f, code)) * size;
    }
    Tile tile = tile_of(source, 1, x.size(), type);
    tile.ternary = 0.3f;
    EXPECT_TRUE(same(expected, decoded(tile)));
    EXPECT_EQ(expected.back(), -size);
  }
}

TEST(SumMagnitudes, adds_up_in_float64_and_finds_what_is_not_finite) {
  Random random(8);
  for (const size_t n : {size_t{0}, size_t{1}, size_t{5000}}) {
    std::vector<double> x(n);
    double expected = 0;
    for (double& value : x) {
      value = static_cast<float>(random.uniform(-1, 1));
      expected += std::fabs(value);
    }
    const std::vector<uint8_t> source = reference::store_elements(x, ElementType::kF32);
    const Tile tile = tile_of(source, 1, n, ElementType::kF32);
    ValueRange sum;
    Problem problem;
    const auto memory = run_in_memory([&](Arena& arena) { return sum_magnitudes(tile, arena, sum, problem); });
    EXPECT_EQ(problem.kind, ProblemKind::kNone);
    EXPECT_EQ(sum.min, static_cast<float>(expected));
    // 48 bits of the sum.
    EXPECT_NEAR(static_cast<double>(sum.min) + sum.max, expected, expected * 0x1p-46);
  }
  const std::vector<uint8_t> source = reference::store_elements({1, -INFINITY, 2}, ElementType::kF32);
  ValueRange sum;
  Problem problem;
  const Tile tile = tile_of(source, 1, 3, ElementType::kF32);
  const auto memory = run_in_memory([&](Arena& arena) { return sum_magnitudes(tile, arena, sum, problem); });
  EXPECT_EQ(problem.kind, ProblemKind::kNonFinite);
  EXPECT_EQ(problem.index, 1U);
}

TEST(Decode, gives_what_blocks_stand_for) {
  Random random(2);
  for (const Block& block : kBlocks) {
    for (const size_t blocks : {size_t{0}, size_t{1}, size_t{3}, 20000 / block.elements}) {
      std::vector<uint8_t> source(blocks * block.bytes);
      for (uint8_t& byte : source) byte = static_cast<uint8_t>(random.below(256));
      std::vector<float> expected(blocks * block.elements);
      ASSERT_EQ(dequantize_blocks(bytes_of(source), block.type, expected), Status::kOk);
      const Tile tile = tile_of(source, blocks, block.elements, static_cast<int32_t>(block.type));
      EXPECT_TRUE(same(expected, decoded(tile))) << static_cast<int>(block.type);
    }
  }
}

TEST(Decode, refuses_what_does_not_fit) {
  Arena arena;
  const float* x = nullptr;
  const std::vector<uint8_t> source(34 * 4);
  const auto status = [&](size_t bytes, size_t rows, size_t columns, int32_t type) {
    Tile tile = tile_of(source, rows, columns, type);
    tile.source.size = bytes;
    return decode(tile, arena, x);
  };
  EXPECT_EQ(status(8, 1, 2, 0), Status::kOk);
  EXPECT_EQ(status(8, 1, 3, 0), Status::kSizeMismatch);
  EXPECT_EQ(status(9, 1, 2, 0), Status::kSizeMismatch);
  EXPECT_EQ(status(8, 1, 2, 2), Status::kSizeMismatch);
  EXPECT_EQ(status(34, 1, 32, 8), Status::kOk);
  EXPECT_EQ(status(34, 1, 33, 8), Status::kSizeMismatch);
  EXPECT_EQ(status(35, 1, 32, 8), Status::kSizeMismatch);
  EXPECT_EQ(status(8, 1, 2, 4), Status::kBadDType);
  EXPECT_EQ(status(8, 1, 2, -1), Status::kBadDType);
  // Counts whose products pass 2^64.
  EXPECT_EQ(status(0, 0xFFFFFFFF, 0xFFFFFFFF, 0), Status::kSizeMismatch);
  EXPECT_EQ(status(0, 1u << 31, 1u << 31, 0), Status::kSizeMismatch);
}

TEST(Observe, finds_the_range_of_a_tile) {
  Random random(3);
  for (const ElementType type : kElementTypes) {
    for (const size_t n : {1, 2, 5, 511, 513, 16384, 16385, 50001}) {
      for (const size_t place : {size_t{0}, n / 2, n - 1}) {
        std::vector<double> x(n);
        for (double& value : x) value = random.uniform(-1, 1);
        x[place] = 3;
        x[n - 1 - place] = -4;
        const std::vector<uint8_t> source = reference::store_elements(x, type);
        const std::vector<float> values = floats_of(source, type);
        ValueRange range;
        Problem problem = {ProblemKind::kOverflow, 1, 1};
        run_in_memory([&](Arena& arena) { return observe(tile_of(source, 1, n, type), arena, range, problem); });
        EXPECT_TRUE(same_problem({}, problem));
        EXPECT_EQ(range.min, *std::min_element(values.begin(), values.end()));
        EXPECT_EQ(range.max, *std::max_element(values.begin(), values.end()));
      }
    }
  }
}

TEST(Observe, counts_a_negative_zero_as_zero) {
  const std::vector<uint8_t> source = reference::store_elements({-0.0, -0.0}, ElementType::kF32);
  ValueRange range;
  Problem problem;
  run_in_memory([&](Arena& arena) { return observe(tile_of(source, 1, 2, ElementType::kF32), arena, range, problem); });
  EXPECT_FALSE(std::signbit(range.min) || std::signbit(range.max));
}

TEST(Observe, names_the_first_element_that_is_not_finite) {
  for (const ElementType type : kElementTypes) {
    for (const size_t index : {0, 5, 511, 16384, 33000}) {
      for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL, 1e300}) {
        if (value == 1e300 && type != ElementType::kF64) continue;
        std::vector<double> x(33001, 0.5);
        x[index] = value;
        x[33000] = HUGE_VAL;
        if (index == 33000) x[index] = value;
        const std::vector<uint8_t> source = reference::store_elements(x, type);
        ValueRange range;
        Problem problem;
        run_in_memory([&](Arena& arena) { return observe(tile_of(source, 1, x.size(), type), arena, range, problem); });
        const ProblemKind kind = value == 1e300 ? ProblemKind::kBeyondFloat32 : ProblemKind::kNonFinite;
        EXPECT_TRUE(same_problem({kind, index, value}, problem));
      }
    }
  }
}

TEST(Observe, refuses_an_empty_tile) {
  Arena arena;
  ValueRange range;
  Problem problem;
  EXPECT_EQ(observe(tile_of({}, 0, 5, ElementType::kF32), arena, range, problem), Status::kBadLayout);
}

TEST(EncodeCopy, counts_no_double_beyond_float32) {
  const std::vector<uint8_t> source = reference::store_elements({1e300, -1e300, std::nan(""), HUGE_VAL, 1}, ElementType::kF64);
  const Tile tile = tile_of(source, 1, 5, ElementType::kF64);
  Encoded result;
  run_in_memory([&](Arena& arena) { return encode(tile, Copy{}, arena, result); });
  EXPECT_EQ(result.sums.non_finite, 2);
}

TEST(EncodeCopy, adds_up_sums_without_errors) {
  Random random(4);
  for (const ElementType type : kElementTypes) {
    for (const size_t n : kSizes) {
      std::vector<double> values(n);
      for (double& value : values) value = random.uniform(-2, 2);
      if (n > 10) values[7] = std::nan(""), values[n - 1] = HUGE_VAL;
      const std::vector<uint8_t> source = reference::store_elements(values, type);
      const std::vector<float> x = floats_of(source, type);
      Tile tile = tile_of(source, 1, n, type);
      Encoded result;
      run_in_memory([&](Arena& arena) { return encode(tile, Copy{}, arena, result); });
      EXPECT_TRUE(same_sums(sums_of(x, x), result.sums)) << n;
      EXPECT_EQ(result.sums.non_finite, n > 10 ? 2 : 0);
      EXPECT_EQ(result.data.size, 0u);
      tile.measure = false;
      run_in_memory([&](Arena& arena) { return encode(tile, Copy{}, arena, result); });
      EXPECT_TRUE(same_sums({}, result.sums));
    }
  }
}

}  // namespace
}  // namespace scalepoint::tests
