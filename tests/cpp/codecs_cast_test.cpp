// Tiles of floats of another type.
#include "codecs/cast.h"
#include "codecs_helpers.h"
#include "ggml/ggml_blocks.h"

namespace scalepoint::tests {
namespace {

using codecs::Cast;

constexpr ElementType kTargets[] = {ElementType::kF32, ElementType::kF16, ElementType::kBF16};
constexpr size_t kSizes[] = {0, 1, 2, 3, 15, 16, 17, 511, 512, 513, 16383, 16384, 16385, 40001};

struct Result {
  Encoded encoded;
  std::vector<uint8_t> data;
};

Result cast(const Tile& tile, ElementType to) {
  Result result;
  const auto memory = run_in_memory([&](Arena& arena) { return encode(tile, Cast{to}, arena, result.encoded); });
  result.data = byte_values(result.encoded.data);
  return result;
}

/// Floats of which none is beyond float16.
std::vector<double> values_of(Random& random, size_t n) {
  std::vector<double> x(n);
  for (double& value : x) {
    const int kind = static_cast<int>(random.below(8));
    value = random.uniform(-1, 1);
    if (kind == 1) value = std::ldexp(random.uniform(-1, 1), random.integer(-30, 15));
    if (kind == 2) value = std::ldexp(random.uniform(-1, 1), random.integer(-149, -20));
    if (kind == 3) value = random.integer(0, 1) == 0 ? 0.0 : -0.0;
    // Halfway between two numbers of 11 bits, or of 8.
    if (kind == 4) value = std::ldexp(2 * random.integer(1024, 2047) + 1, random.integer(-40, 3));
    if (kind == 5) value = std::ldexp(2 * random.integer(128, 255) + 1, random.integer(-40, 6));
    // Halfway between two numbers that float16 has units of 2^-24 for.
    if (kind == 6) value = std::ldexp(2 * random.integer(0, 512) + 1, -25);
    // So little beside these that float32 holds no difference.
    if (kind >= 4 && random.below(2) == 0) value *= 1 + std::ldexp(random.integer(0, 1) == 0 ? 1 : -1, -random.integer(26, 52));
  }
  return x;
}

/// The number of a 16-bit type that is nearest to a finite value, of two the even one. In double all of this is exact.
double nearest(double value, ElementType type) {
  const int bits = type == ElementType::kF16 ? 11 : 8, lowest = type == ElementType::kF16 ? -24 : -133;
  const int exponent = value == 0 ? lowest : std::max(lowest, std::ilogb(value) - bits + 1);
  return std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
}

TEST(EncodeCast, rounds_the_sum_with_what_the_tile_adds) {
  // 1 + 2^-11 lies halfway between two numbers of float16. The even one is 1.
  const std::vector<double> values = {0, 0x1p-11, 0x1p-10, -1, 2};
  for (const ElementType from : {ElementType::kF32, ElementType::kF64}) {
    const std::vector<uint8_t> source = reference::store_elements(values, from);
    Tile tile = tile_of(source, 1, 5, from);
    tile.add = 1;
    const std::vector<uint8_t> expected = reference::store_elements({1, 1, 1 + 0x1p-10, 0, 3}, ElementType::kF16);
    EXPECT_EQ(cast(tile, ElementType::kF16).data, expected) << static_cast<int>(from);
  }
}

TEST(EncodeCast, rounds_every_element) {
  Random random(1);
  for (const ElementType from : kElementTypes) {
    for (const ElementType to : kTargets) {
      for (const size_t n : kSizes) {
        std::vector<double> values = values_of(random, n);
        const std::vector<uint8_t> source = reference::store_elements(values, from);
        const std::vector<float> x = floats_of(source, from);
        std::vector<double> rounded(x.begin(), x.end());
        if (from == ElementType::kF64 && to != ElementType::kF32) {
          for (size_t i = 0; i < n; i++) rounded[i] = nearest(values[i], to);
        }
        const std::vector<uint8_t> expected = reference::store_elements(rounded, to);
        const Result result = cast(tile_of(source, 1, n, from), to);
        EXPECT_TRUE(same(expected, result.data)) << n;
        EXPECT_TRUE(same_sums(sums_of(x, floats_of(expected, to)), result.encoded.sums)) << n;
        EXPECT_TRUE(same_problem({}, result.encoded.problem));
      }
    }
  }
}

TEST(EncodeCast, lets_infinities_and_nan_pass_and_counts_them) {
  for (const ElementType from : kElementTypes) {
    for (const ElementType to : kTargets) {
      for (const size_t n : {1, 5, 16, 600, 16390}) {
        std::vector<double> values(n, 0.25);
        values[0] = HUGE_VAL;
        values[n / 2] = std::nan("");
        values[n - 1] = -HUGE_VAL;
        const std::vector<uint8_t> source = reference::store_elements(values, from);
        const Result result = cast(tile_of(source, 1, n, from), to);
        EXPECT_TRUE(same_problem({}, result.encoded.problem));
        EXPECT_EQ(result.encoded.sums.non_finite, n == 1 ? 1 : 3);
        const std::vector<float> y = floats_of(result.data, to);
        for (size_t i = 0; i < n; i++) {
          EXPECT_TRUE(std::isnan(values[i]) ? std::isnan(y[i]) : y[i] == values[i]) << i;
        }
      }
    }
  }
}

TEST(EncodeCast, names_the_first_value_that_would_become_an_infinity) {
  const struct {
    ElementType from, to;
    double largest, beyond;
  } kCases[] = {
      {ElementType::kF32, ElementType::kF16, 65519.996, 65520},
      {ElementType::kF64, ElementType::kF16, 65519.996, -65520},
      {ElementType::kBF16, ElementType::kF16, 65280, 65536},
      {ElementType::kF32, ElementType::kBF16, 0x1.FEFFFEp127, -0x1.FFp127},
      {ElementType::kF64, ElementType::kBF16, 0x1.FEFFFEp127, 0x1.FFp127},
  };
  for (const auto& [from, to, largest, beyond] : kCases) {
    for (const size_t index : {0, 3, 16383, 16384, 20000}) {
      std::vector<double> values(20001, largest);
      values[100] = HUGE_VAL;
      values[20000] = beyond;
      values[index] = beyond;
      const std::vector<uint8_t> source = reference::store_elements(values, from);
      EXPECT_TRUE(
          same_problem({ProblemKind::kOverflow, index, beyond}, cast(tile_of(source, 1, 20001, from), to).encoded.problem));
      values[index] = values[20000] = largest;
      const std::vector<uint8_t> good = reference::store_elements(values, from);
      EXPECT_TRUE(same_problem({}, cast(tile_of(good, 1, 20001, from), to).encoded.problem));
    }
  }
}

TEST(EncodeCast, rounds_float64_once) {
  const struct {
    ElementType to;
    double value;
    uint16_t bits;
  } kCases[] = {
      {ElementType::kF16, 1 + 0x1p-11 + 0x1p-40, 0x3C01},
      {ElementType::kF16, 1 + 0x1p-11, 0x3C00},
      {ElementType::kF16, 1 + 3 * 0x1p-11 - 0x1p-40, 0x3C01},
      {ElementType::kF16, -1 - 0x1p-11 - 0x1p-52, 0xBC01},
      {ElementType::kF16, 0x1p-25 + 0x1p-70, 0x0001},
      {ElementType::kF16, 0x1p-25, 0x0000},
      {ElementType::kF16, 65520 - 0x1p-30, 0x7BFF},
      {ElementType::kF16, -1e-300, 0x8000},
      {ElementType::kBF16, 1 + 0x1p-8 + 0x1p-50, 0x3F81},
      {ElementType::kBF16, 1 + 0x1p-8, 0x3F80},
      {ElementType::kBF16, 0x1p-134 + 0x1p-170, 0x0001},
      {ElementType::kBF16, 0x1.FEFFFFFFFFp127, 0x7F7F},
      {ElementType::kBF16, 5e-324, 0x0000},
  };
  for (const auto& [to, value, bits] : kCases) {
    const std::vector<uint8_t> source = reference::store_elements({value}, ElementType::kF64);
    const Result result = cast(tile_of(source, 1, 1, ElementType::kF64), to);
    EXPECT_TRUE(same_problem({}, result.encoded.problem)) << value;
    ASSERT_EQ(result.data.size(), 2u);
    EXPECT_EQ(result.data[0] | result.data[1] << 8, bits) << value;
  }
}

TEST(EncodeCast, names_the_first_float64_beyond_float32) {
  for (const ElementType to : kTargets) {
    for (const size_t index : {0, 3, 16383, 16384, 20000}) {
      std::vector<double> values(20001, 1);
      values[2] = std::nan("");
      values[20000] = -1e200;
      values[index] = 1e300;
      const std::vector<uint8_t> source = reference::store_elements(values, ElementType::kF64);
      const Result result = cast(tile_of(source, 1, 20001, ElementType::kF64), to);
      EXPECT_TRUE(same_problem({ProblemKind::kOverflow, index, 1e300}, result.encoded.problem));
    }
  }
}

TEST(EncodeCast, reads_blocks) {
  Random random(2);
  const std::vector<float> x = random.uniform_values(17000 / 256 * 256, -1, 1);
  for (const BlockType type : {BlockType::kQ8_0, BlockType::kQ6_K}) {
    const BlockSize size = block_size(type);
    std::vector<std::byte> blocks(x.size() / size.elements * size.bytes);
    ASSERT_EQ(quantize_blocks(x, type, blocks), Status::kOk);
    std::vector<float> restored(x.size());
    ASSERT_EQ(dequantize_blocks(blocks, type, restored), Status::kOk);
    const std::vector<uint8_t> source = byte_values(blocks);
    const Result result = cast(tile_of(source, 1, x.size(), static_cast<int32_t>(type)), ElementType::kF16);
    EXPECT_TRUE(same(reference::store_elements({restored.begin(), restored.end()}, ElementType::kF16), result.data));
  }
}

TEST(EncodeCast, refuses_what_is_no_target) {
  const std::vector<uint8_t> source(64);
  for (const int32_t to : {28, 2, 8, 29, 31, -1}) {
    Arena arena;
    Encoded result;
    const Tile tile = tile_of(source, 1, 16, ElementType::kF32);
    EXPECT_EQ(encode(tile, Cast{static_cast<ElementType>(to)}, arena, result), Status::kBadDType) << to;
  }
}

}  // namespace
}  // namespace scalepoint::tests
