// Adapters of low rank, held to the sums of their definition, one element at a time.
#include "codecs/low_rank.h"
#include "codecs_helpers.h"

namespace scalepoint::tests {
namespace {

using codecs::LowRank;

struct Case {
  size_t rows, columns, rank;
};

/// Sizes around the panels of columns and rows of the loops.
constexpr Case kCases[] = {{1, 1, 1}, {3, 5, 2}, {4, 8, 1}, {5, 9, 16}, {8, 64, 4}, {7, 33, 3}, {17, 40, 65}};

struct Matrices {
  std::vector<uint8_t> up, down, middle;
};

std::vector<double> values(Random& random, size_t n) {
  std::vector<double> x(n);
  for (double& value : x) value = random.uniform(-1, 1);
  return x;
}

/// The rule: sums in float32 in the order of the rank, each product rounded first.
std::vector<float> expected_of(const std::vector<float>& x, const std::vector<float>& up, const std::vector<float>& down,
                               Case size, float factor) {
  std::vector<float> y;
  for (size_t row = 0; row < size.rows; row++) {
    for (size_t column = 0; column < size.columns; column++) {
      float sum = 0;
      for (size_t k = 0; k < size.rank; k++) {
        const float product = up[row * size.rank + k] * down[k * size.columns + column];
        sum += product;
      }
      const float scaled = factor * sum;
      y.push_back(x[row * size.columns + column] + scaled);
    }
  }
  return y;
}

/// The transpose of a matrix with `rows` rows.
std::vector<double> transposed(const std::vector<double>& x, size_t rows) {
  const size_t columns = x.size() / rows;
  std::vector<double> y(x.size());
  for (size_t row = 0; row < rows; row++) {
    for (size_t column = 0; column < columns; column++) y[column * rows + row] = x[row * columns + column];
  }
  return y;
}

std::vector<float> added(const std::vector<float>& x, const Matrices& parts, Case size, LowRank pair) {
  pair.rank = static_cast<uint32_t>(size.rank);
  pair.up = part_of(parts.up);
  pair.down = part_of(parts.down);
  pair.middle = part_of(parts.middle);
  std::vector<float> y(x.size());
  run_in_memory([&](Arena& arena) {
    return add_low_rank(x.data(), static_cast<uint32_t>(size.rows), static_cast<uint32_t>(size.columns), pair, arena, y.data());
  });
  // In place, too.
  std::vector<float> same_place = x;
  Arena arena(kEachPiece);
  EXPECT_EQ(add_low_rank(same_place.data(), static_cast<uint32_t>(size.rows), static_cast<uint32_t>(size.columns), pair, arena,
                         same_place.data()),
            Status::kOk);
  EXPECT_TRUE(same(y, same_place));
  return y;
}

TEST(AddLowRank, sums_in_the_order_of_the_rank) {
  Random random(41);
  for (const Case& size : kCases) {
    for (const ElementType type : kElementTypes) {
      for (const bool turned : {false, true}) {
        const std::vector<double> up = values(random, size.rows * size.rank), down = values(random, size.rank * size.columns);
        const std::vector<double> source = values(random, size.rows * size.columns);
        const std::vector<float> x(source.begin(), source.end());
        const std::vector<uint8_t> up_bytes = reference::store_elements(up, type),
                                   down_bytes = reference::store_elements(down, type);
        const std::vector<float> expected = expected_of(x, floats_of(up_bytes, type), floats_of(down_bytes, type), size,
                                                        static_cast<float>(-0.75 * (3.0 / static_cast<double>(size.rank))));
        const Matrices parts = {turned ? reference::store_elements(transposed(up, size.rows), type) : up_bytes,
                                turned ? reference::store_elements(transposed(down, size.rank), type) : down_bytes,
                                {}};
        LowRank pair;
        pair.up_type = pair.down_type = type;
        pair.turned = turned;
        pair.strength = -0.75;
        pair.alpha = 3;
        EXPECT_TRUE(same(expected, added(x, parts, size, pair))) << size.rows << " x " << size.columns << ", rank " << size.rank;
      }
    }
  }
}

TEST(AddLowRank, divides_alpha_by_the_root_of_the_rank) {
  const std::vector<float> x = {1, 2};
  const Matrices parts = {reference::store_elements({1, 1, 1, 1}, ElementType::kF32),
                          reference::store_elements({1, 2, 1, 2, 1, 2, 1, 2}, ElementType::kF32),
                          {}};
  LowRank pair;
  pair.alpha = 8;
  pair.root = true;
  EXPECT_TRUE(same(std::vector<float>{17, 34}, added(x, parts, {1, 2, 4}, pair)));
  pair.root = false;
  EXPECT_TRUE(same(std::vector<float>{9, 18}, added(x, parts, {1, 2, 4}, pair)));
}

TEST(AddLowRank, combines_the_middle_of_a_convolution) {
  Random random(43);
  const size_t rows = 6, inputs = 5, kernel = 9, rank = 4, inner = 3, columns = inputs * kernel;
  // Small integers, whose sums are exact.
  const auto integers = [&](size_t n) {
    std::vector<double> x(n);
    for (double& value : x) value = random.integer(-4, 4);
    return x;
  };
  const std::vector<double> up = integers(rows * rank), down = integers(inner * inputs), middle = integers(rank * inner * kernel);
  const std::vector<double> source = integers(rows * columns);
  std::vector<float> expected;
  for (size_t row = 0; row < rows; row++) {
    for (size_t i = 0; i < inputs; i++) {
      for (size_t p = 0; p < kernel; p++) {
        double sum = 0;
        for (size_t a = 0; a < rank; a++) {
          for (size_t b = 0; b < inner; b++) {
            sum += up[row * rank + a] * middle[(a * inner + b) * kernel + p] * down[b * inputs + i];
          }
        }
        expected.push_back(static_cast<float>(source[row * columns + i * kernel + p] + 0.5 * sum));
      }
    }
  }
  for (const ElementType type : kElementTypes) {
    const Matrices parts = {reference::store_elements(up, type), reference::store_elements(down, type),
                            reference::store_elements(middle, type)};
    LowRank pair;
    pair.up_type = pair.down_type = pair.middle_type = type;
    pair.inner = inner;
    pair.kernel = kernel;
    pair.alpha = 2;
    const std::vector<float> x(source.begin(), source.end());
    EXPECT_TRUE(same(expected, added(x, parts, {rows, columns, rank}, pair)));
  }
}

TEST(AddLowRank, gives_lengths_to_rows_of_the_sum) {
  // Sums of [3, 4] and [6, 8], with norms of 5 and 10.
  const std::vector<float> x = {2, 4, 5, 8};
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
    const Matrices parts = {reference::store_elements({1, 1}, type), reference::store_elements({1, 0}, type), {}};
    const std::vector<uint8_t> lengths = reference::store_elements({2, -5}, type);
    LowRank pair;
    pair.up_type = pair.down_type = pair.magnitude_type = type;
    pair.magnitude = part_of(lengths);
    EXPECT_TRUE(same(std::vector<float>{3 * 0.4f, 4 * 0.4f, -3, -4}, added(x, parts, {2, 2, 1}, pair)));
  }
}

TEST(AddLowRank, refuses_what_does_not_fit) {
  const std::vector<uint8_t> four = reference::store_elements({1, 2, 3, 4}, ElementType::kF32);
  const std::vector<float> x(4);
  std::vector<float> y(4);
  const auto status = [&](uint32_t rank, auto change, uint32_t rows = 2, uint32_t columns = 2) {
    LowRank pair;
    pair.rank = rank;
    pair.up = pair.down = part_of(four);
    change(pair);
    Arena arena(kEachPiece);
    return add_low_rank(x.data(), rows, columns, pair, arena, y.data());
  };
  const auto nothing = [](LowRank&) {};
  EXPECT_EQ(status(2, nothing), Status::kOk);
  EXPECT_EQ(status(1, nothing), Status::kSizeMismatch);
  EXPECT_EQ(status(0, nothing), Status::kBadLayout);
  EXPECT_EQ(status(2, nothing, 0), Status::kBadLayout);
  EXPECT_EQ(status(2, nothing, 2, 0), Status::kBadLayout);
  EXPECT_EQ(status(2, [](LowRank& pair) { pair.up_type = static_cast<ElementType>(2); }), Status::kBadDType);
  EXPECT_EQ(status(2, [](LowRank& pair) { pair.kernel = 0; }), Status::kBadLayout);
  const auto turned = [](LowRank& pair) {
    pair.inner = 1;
    pair.turned = true;
  };
  EXPECT_EQ(status(2, turned), Status::kBadLayout);
  const auto uneven = [](LowRank& pair) {
    pair.inner = 1;
    pair.kernel = 3;
  };
  EXPECT_EQ(status(2, uneven), Status::kBadLayout);
  EXPECT_EQ(status(UINT32_MAX, [](LowRank& pair) { pair.inner = UINT32_MAX; }), Status::kSizeMismatch);
  const std::vector<uint8_t> lengths = reference::store_elements({1, 1}, ElementType::kF32);
  const auto with_lengths = [&](LowRank& pair) {
    pair.alpha = 0;
    pair.magnitude = part_of(lengths);
  };
  EXPECT_EQ(status(2, with_lengths), Status::kBadRange);
  EXPECT_EQ(status(2, [&](LowRank& pair) { pair.magnitude = part_of(four); }), Status::kSizeMismatch);
  EXPECT_EQ(status(2, [](LowRank& pair) { pair.strength = 1e300; }), Status::kBadScale);
  EXPECT_EQ(status(2, [](LowRank& pair) { pair.alpha = kNan; }), Status::kBadScale);
}

}  // namespace
}  // namespace scalepoint::tests
