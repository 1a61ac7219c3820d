// Sums of errors.
#include "arrays/linear_loops.h"
#include "arrays/metrics_loops.h"
#include "helpers.h"

namespace scalepoint::tests {
namespace {

/// The header's bound on the rounding errors of a sum: 67 float32 additions in a row, and up to three roundings of a term (e = x
/// - y and the two of a square), each by at most 2^-24. The doubles that collect the blocks add nothing that counts.
constexpr long double kBound = 70 * 0x1p-24L;
/// The same for the product, relative to sqrt(sum x^2 sum y^2): where it is (sx + sy - se) / 2 of sums that are each off by
/// kBound, with 16 se <= sx and therefore 9/16 sx <= sy <= 25/16 sx, that makes kBound (1 + 25/16 + 1/16) / 2 sx / sqrt(9/16) sx.
constexpr long double kProductBound = 125 * 0x1p-24L;
/// x - y is rounded once.
constexpr long double kMaxBound = 0x1p-24L;
/// The header's length of a block, which is summed in float32 or, where that would not do, in double.
constexpr size_t kBlock = 512;

ErrorSums summed(const std::vector<float>& x, const std::vector<float>& y, size_t offset = 0) {
  ErrorSums sums;
  EXPECT_EQ(accumulate_error(Buffer<float>(x, offset), Buffer<float>(y, (offset + 1) % 4), sums), Status::kOk);
  return sums;
}

testing::AssertionResult within(const char* what, double actual, long double expected, long double bound) {
  if (std::fabs(actual - expected) <= bound) return testing::AssertionSuccess();
  return testing::AssertionFailure() << what << ": expected " << expected << ", got " << actual << ", bound " << bound;
}

/// Compares every sum with the oracle. The terms of the product have signs and may cancel, so its error is relative to
/// sqrt(sum x^2 sum y^2), which is at least the sum of their sizes.
void expect_sums(const std::vector<float>& x, const std::vector<float>& y, const ErrorSums& sums) {
  const reference::Sums expected = reference::accumulate_error(x, y);
  EXPECT_TRUE(within("squared_error", sums.squared_error, expected.squared_error, kBound * expected.squared_error));
  EXPECT_TRUE(within("absolute_error", sums.absolute_error, expected.absolute_error, kBound * expected.absolute_error));
  EXPECT_TRUE(within("max_absolute_error", sums.max_absolute_error, expected.max_absolute_error,
                     kMaxBound * expected.max_absolute_error));
  EXPECT_TRUE(within("squared_x", sums.squared_x, expected.squared_x, kBound * expected.squared_x));
  EXPECT_TRUE(within("squared_y", sums.squared_y, expected.squared_y, kBound * expected.squared_y));
  EXPECT_TRUE(
      within("product", sums.product, expected.product, kProductBound * std::sqrt(expected.squared_x * expected.squared_y)));
  EXPECT_EQ(sums.non_finite, static_cast<double>(expected.non_finite));
}

void expect_identical(const ErrorSums& expected, const ErrorSums& actual) {
  EXPECT_EQ(expected.squared_error, actual.squared_error);
  EXPECT_EQ(expected.absolute_error, actual.absolute_error);
  EXPECT_EQ(expected.max_absolute_error, actual.max_absolute_error);
  EXPECT_EQ(expected.squared_x, actual.squared_x);
  EXPECT_EQ(expected.squared_y, actual.squared_y);
  EXPECT_EQ(expected.product, actual.product);
  EXPECT_EQ(expected.non_finite, actual.non_finite);
}

TEST(AccumulateError, stays_within_its_bound_for_every_length_and_alignment) {
  Random random(41);
  SCOPED_TRACE("seed 41");
  for (const size_t length : kLengths) {
    for (size_t offset = 0; offset < 4; offset++) {
      const std::vector<float> x = random.uniform_values(length, -1, 1);
      std::vector<float> y = x;
      for (float& value : y) value += random.uniform(-0.01f, 0.01f);
      expect_sums(x, y, summed(x, y, offset));
    }
  }
}

TEST(AccumulateError, is_exact_for_small_integers) {
  // All partial sums are integers below 2^24, so float32 holds every one of them, whatever the order.
  Random random(42);
  SCOPED_TRACE("seed 42");
  for (const size_t length : kLengths) {
    std::vector<float> x(length), y(length);
    for (size_t i = 0; i < length; i++) {
      x[i] = static_cast<float>(random.integer(-50, 50));
      y[i] = static_cast<float>(random.integer(-50, 50));
      if (random.below(20) == 0) (random.coin() ? x : y)[i] = kNonFinites[random.below(std::size(kNonFinites))];
    }
    const reference::Sums expected = reference::accumulate_error(x, y);
    const ErrorSums sums = summed(x, y);
    EXPECT_EQ(sums.squared_error, expected.squared_error);
    EXPECT_EQ(sums.absolute_error, expected.absolute_error);
    EXPECT_EQ(sums.max_absolute_error, expected.max_absolute_error);
    EXPECT_EQ(sums.squared_x, expected.squared_x);
    EXPECT_EQ(sums.squared_y, expected.squared_y);
    EXPECT_EQ(sums.product, expected.product);
    EXPECT_EQ(sums.non_finite, static_cast<double>(expected.non_finite));
  }
}

TEST(AccumulateError, counts_every_position_once) {
  for (const size_t length :
       {size_t{1}, size_t{5}, size_t{16}, size_t{17}, size_t{63}, size_t{64}, size_t{65}, kBlock, kBlock + 3}) {
    for (size_t position = 0; position < length; position++) {
      std::vector<float> x(length, 0.0f), y(length, 0.0f);
      x[position] = 3;
      y[position] = -1;
      const ErrorSums sums = summed(x, y);
      ASSERT_EQ(sums.squared_error, 16) << position;
      ASSERT_EQ(sums.absolute_error, 4) << position;
      ASSERT_EQ(sums.max_absolute_error, 4) << position;
      ASSERT_EQ(sums.squared_x, 9) << position;
      ASSERT_EQ(sums.squared_y, 1) << position;
      ASSERT_EQ(sums.product, -3) << position;
    }
  }
}

TEST(AccumulateError, finds_no_error_between_identical_arrays) {
  Random random(43);
  SCOPED_TRACE("seed 43");
  for (const size_t length : kLengths) {
    for (const int exponent : {-149, -100, -70, -20, 0, 20, 60, 64, 100, 127}) {
      std::vector<float> x(length);
      for (float& value : x) value = std::ldexp(random.uniform(-1, 1), exponent);
      const ErrorSums sums = summed(x, x);
      EXPECT_EQ(sums.squared_error, 0);
      EXPECT_EQ(sums.absolute_error, 0);
      EXPECT_EQ(sums.max_absolute_error, 0);
      EXPECT_EQ(sums.product, sums.squared_x) << "2^" << exponent << " length " << length;
      EXPECT_EQ(sums.squared_y, sums.squared_x) << "2^" << exponent << " length " << length;
      expect_sums(x, x, sums);
    }
  }
}

TEST(AccumulateError, stays_within_its_bound_for_values_of_any_size) {
  Random random(44);
  SCOPED_TRACE("seed 44");
  for (int exponent = -149; exponent <= 127; exponent++) {
    std::vector<float> x(kBlock + 40), y(kBlock + 40);
    for (size_t i = 0; i < x.size(); i++) {
      x[i] = std::ldexp(random.uniform(-1, 1), exponent);
      y[i] = x[i] * random.uniform(0.9f, 1.1f);
    }
    SCOPED_TRACE("2^" + std::to_string(exponent));
    expect_sums(x, y, summed(x, y));
  }
}

TEST(AccumulateError, stays_within_its_bound_for_errors_of_any_size) {
  // x and y near 2^exponent whose difference is a few units in the last place: the squares of the errors vanish in float32 long
  // before those of the values do.
  Random random(45);
  SCOPED_TRACE("seed 45");
  for (int exponent = -149; exponent <= 126; exponent++) {
    std::vector<float> x(kBlock + 4), y(kBlock + 4);
    for (size_t i = 0; i < x.size(); i++) {
      x[i] = std::ldexp(random.uniform(1, 2), exponent);
      y[i] = random.below(3) == 0 ? x[i] : std::nextafter(x[i], random.coin() ? 0 : kInfinity);
    }
    SCOPED_TRACE("2^" + std::to_string(exponent));
    expect_sums(x, y, summed(x, y));
  }
}

TEST(AccumulateError, stays_within_its_bound_where_one_pair_hides_the_rest) {
  // One pair makes a sum ordinary while another sum of the same block holds nothing but tiny terms.
  Random random(46);
  SCOPED_TRACE("seed 46");
  const struct {
    const char* about;
    float first_x, first_y, x, y;
  } kCases[] = {
      {"large values without error, tiny values with it", 1, 1, 1e-20f, 1.1e-20f},
      {"the same with denormal squares", 1, 1, 1e-18f, 1.001e-18f},
      {"the same with denormal values", 1, 1, 1e-40f, 3e-40f},
      {"tiny y", 1, 1e-25f, 1, 1e-25f},
      {"tiny x", 1e-25f, 1, 1e-25f, 1},
      {"tiny products of ordinary x", 1, 0, 1e-10f, 1e-35f},
      {"only the first y is not zero", 1, 1e-30f, 1, 0},
      {"only the first x is not zero", 1e-30f, 1, 0, 1},
      {"one huge value", 1e30f, 1.1e30f, 1, 1.01f},
      {"one huge value without error", 1e30f, 1e30f, 1, 1.01f},
      {"one huge value without error among tiny ones", 1e30f, 1e30f, 1e-30f, 1.01e-30f},
      {"one huge x", 1e30f, 0, 1e-30f, 1e-30f},
      {"one huge y", 0, -1e30f, 1e-30f, 2e-30f},
      {"nothing but zeros and one tiny value", 0, 1e-30f, 0, 0},
      {"nothing but zeros and one denormal", kDenormal, 0, 0, 0},
  };
  for (const auto& [about, first_x, first_y, other_x, other_y] : kCases) {
    for (const size_t position : {size_t{0}, size_t{1}, size_t{7}, size_t{100}, kBlock - 1}) {
      for (const size_t length : {kBlock, kBlock + 44, 2 * kBlock + 88}) {
        std::vector<float> x(length), y(length);
        for (size_t i = 0; i < length; i++) {
          const float factor = random.uniform(0.5f, 1.5f);
          x[i] = other_x * factor;
          y[i] = other_y * factor;
        }
        x[position] = first_x;
        y[position] = first_y;
        SCOPED_TRACE(about);
        expect_sums(x, y, summed(x, y));
        if (HasFailure()) return;
      }
    }
  }
}

TEST(AccumulateError, stays_within_its_bound_for_products_smaller_than_both_arrays) {
  // The squares of x, of y and of the error are ordinary, each thanks to one element; the products are denormal in float32.
  std::vector<float> x(kBlock, 1e-20f), y(kBlock, 1.1e-23f);
  x[0] = 1, y[0] = 0;
  x[1] = 0, y[1] = 1;
  expect_sums(x, y, summed(x, y));
  expect_sums(y, x, summed(y, x));
}

TEST(AccumulateError, stays_within_its_bound_near_the_ends_of_float32_squares) {
  // A sum of squares overflows before one square does, and a square loses bits before it vanishes.
  Random random(47);
  SCOPED_TRACE("seed 47");
  for (const float size : {1e-24f, 3e-23f, 1e-22f, 1e-21f, 1e-20f, 1.0842022e-19f, 1e-19f, 3e-19f, 1e-18f, 5e17f, 1e18f, 2e18f,
                           4e18f, 1e19f, 1.8e19f, 1.85e19f, 3e19f, kLargest / 2, kLargest}) {
    for (const float ratio : {1.0f, 0.999f, 0.5f, -1.0f, 0.0f}) {
      for (const size_t length : {size_t{4}, size_t{64}, kBlock, 2 * kBlock - 24}) {
        const std::vector<float> x(length, size), y(length, size * ratio);
        SCOPED_TRACE(exact(size) + " length " + std::to_string(length) + " ratio " + std::to_string(ratio));
        expect_sums(x, y, summed(x, y));
        expect_sums(y, x, summed(y, x));
        if (HasFailure()) return;
      }
    }
  }
}

TEST(AccumulateError, leaves_out_and_counts_pairs_that_are_not_finite) {
  Random random(48);
  SCOPED_TRACE("seed 48");
  for (const size_t length : kLengths) {
    for (const size_t rarity : {1, 2, 10, 300}) {
      std::vector<float> x = random.uniform_values(length, -2, 2), y = random.uniform_values(length, -2, 2);
      for (size_t i = 0; i < length; i++) {
        if (random.below(rarity) != 0) continue;
        const size_t which = random.below(3);
        if (which != 0) x[i] = kNonFinites[random.below(std::size(kNonFinites))];
        if (which != 1) y[i] = kNonFinites[random.below(std::size(kNonFinites))];
      }
      expect_sums(x, y, summed(x, y));
    }
  }
  const ErrorSums none = summed({kNan, kInfinity, 1, kInfinity}, {kNan, kInfinity, kNan, -kInfinity});
  expect_identical(ErrorSums{.non_finite = 4}, none);
}

TEST(AccumulateError, adds_to_what_is_there) {
  ErrorSums sums = {.squared_error = 1,
                    .absolute_error = 2,
                    .max_absolute_error = 3,
                    .squared_x = 4,
                    .squared_y = 5,
                    .product = 6,
                    .non_finite = 7};
  const std::vector<float> x = {1, 2, kNan}, y = {2, 4, 0};
  ASSERT_EQ(accumulate_error(x, y, sums), Status::kOk);
  expect_identical({.squared_error = 6,
                    .absolute_error = 5,
                    .max_absolute_error = 3,
                    .squared_x = 9,
                    .squared_y = 25,
                    .product = 16,
                    .non_finite = 8},
                   sums);
  ASSERT_EQ(accumulate_error(std::vector<float>{10}, std::vector<float>{0}, sums), Status::kOk);
  EXPECT_EQ(sums.max_absolute_error, 10);
  const ErrorSums before = sums;
  ASSERT_EQ(accumulate_error({}, {}, sums), Status::kOk);
  expect_identical(before, sums);
}

TEST(AccumulateError, sums_blocks_alike_whether_they_come_in_one_call_or_many) {
  Random random(49);
  SCOPED_TRACE("seed 49");
  const std::vector<float> x = random.uniform_values(1031, -1, 1), y = random.uniform_values(1031, -1, 1);
  ErrorSums sums;
  for (size_t start = 0; start < x.size(); start += kBlock) {
    const size_t size = std::min(kBlock, x.size() - start);
    ASSERT_EQ(accumulate_error(piece(x, start, size), piece(y, start, size), sums), Status::kOk);
  }
  expect_identical(summed(x, y), sums);
}

TEST(AccumulateError, does_not_depend_on_the_alignment) {
  Random random(50);
  SCOPED_TRACE("seed 50");
  for (const size_t length : kLengths) {
    const std::vector<float> x = random.uniform_values(length, -1, 1), y = random.uniform_values(length, -1, 1);
    for (size_t offset = 1; offset < 4; offset++) expect_identical(summed(x, y), summed(x, y, offset));
  }
}

TEST(AccumulateError, refuses_lengths_that_differ) {
  const std::vector<float> x(4), shorter(3), longer(5);
  ErrorSums sums;
  EXPECT_EQ(accumulate_error(x, shorter, sums), Status::kSizeMismatch);
  EXPECT_EQ(accumulate_error(x, longer, sums), Status::kSizeMismatch);
  EXPECT_EQ(accumulate_error(x, {}, sums), Status::kSizeMismatch);
}

// ------------------------------------------------------------------------------------------------------------ of codes

TEST(AccumulateCodeError, equals_dequantizing_first_for_every_layout) {
  Random random(51);
  SCOPED_TRACE("seed 51");
  size_t turn = 0;
  for (const Partition& partition : all_partitions()) {
    const DType dtype = kDTypes[turn++ % std::size(kDTypes)];
    const size_t n = partition.size(), parameters = partition.parameter_count();
    std::vector<float> x = random.uniform_values(n, -3, 3), scale = random.uniform_values(parameters, 0.001f, 0.1f);
    if (turn % 5 == 0) x[random.below(n)] = kNan;
    if (turn % 7 == 0) scale[random.below(parameters)] = 1e38f;  // most of its values dequantize to infinity
    std::vector<int32_t> zero_point(parameters);
    for (int32_t& value : zero_point) value = random.below(10) == 0 ? kMaxZeroPoint : random.code(dtype);
    const std::vector<std::byte> codes = store_codes(random.codes(n, dtype), dtype);
    const Layout layout = layout_of(partition);

    for (const size_t longest : {SIZE_MAX, size_t{2000}, size_t{400}, size_t{37}}) {
      size_t start = 0;
      for (const size_t size : random.pieces(n, longest)) {
        std::vector<float> restored(size);
        const size_t width = dtype.storage_bytes();
        const auto piece_codes = piece(codes, start * width, size * width);
        ASSERT_EQ(dequantize_linear(piece_codes, dtype, layout, start, scale, zero_point, restored), Status::kOk);
        ErrorSums expected, sums;
        ASSERT_EQ(accumulate_error(piece(x, start, size), restored, expected), Status::kOk);
        ASSERT_EQ(accumulate_code_error(Buffer<float>(piece(x, start, size), start % 4),
                                        Buffer<std::byte>(piece_codes, start % 3 * width), dtype, layout, start, scale,
                                        zero_point, sums),
                  Status::kOk);
        expect_identical(expected, sums);
        if (HasFailure()) FAIL() << name(partition) << " " << name(dtype) << " piece of " << size << " from " << start;
        start += size;
      }
    }
  }
}

TEST(AccumulateCodeError, is_zero_for_values_on_the_grid) {
  Random random(52);
  SCOPED_TRACE("seed 52");
  for (const DType dtype : kDTypes) {
    for (const size_t length : kLengths) {
      const std::vector<int32_t> codes = random.codes(length, dtype);
      const std::vector<float> scale = {0.1f};
      const std::vector<int32_t> zero_point = {random.code(dtype)};
      std::vector<float> x(length);
      for (size_t i = 0; i < length; i++) x[i] = reference::dequantize_value(codes[i], scale[0], zero_point[0]);
      ErrorSums sums;
      ASSERT_EQ(accumulate_code_error(x, store_codes(codes, dtype), dtype, {}, 0, scale, zero_point, sums), Status::kOk);
      EXPECT_EQ(sums.squared_error, 0) << name(dtype);
      EXPECT_EQ(sums.max_absolute_error, 0) << name(dtype);
      EXPECT_EQ(sums.product, sums.squared_x) << name(dtype);
    }
  }
}

TEST(AccumulateCodeError, refuses_what_dequantize_linear_refuses) {
  const std::vector<float> x(12, 1), scale(4, 1), bad_scale = {1, 0, 1, 1}, few(3, 1);
  const std::vector<int32_t> zero_point(4), bad_zero_point = {0, 0, kMaxZeroPoint + 1, 0}, few_zero_points(3);
  const std::vector<std::byte> codes(12), wrong(11);
  const Layout layout = {.granularity = Granularity::kPerChannel, .axis_size = 4, .inner_size = 3};
  const Layout bad_layout = {.granularity = Granularity::kPerChannel, .axis_size = 0, .inner_size = 3};
  ErrorSums sums;
  EXPECT_EQ(accumulate_code_error(x, codes, kInt8, layout, 0, scale, zero_point, sums), Status::kOk);
  EXPECT_EQ(accumulate_code_error(x, codes, {9, true}, layout, 0, scale, zero_point, sums), Status::kBadDType);
  EXPECT_EQ(accumulate_code_error(x, codes, kInt8, bad_layout, 0, scale, zero_point, sums), Status::kBadLayout);
  EXPECT_EQ(accumulate_code_error(x, wrong, kInt8, layout, 0, scale, zero_point, sums), Status::kSizeMismatch);
  EXPECT_EQ(accumulate_code_error(x, codes, kInt16, layout, 0, scale, zero_point, sums), Status::kSizeMismatch);
  EXPECT_EQ(accumulate_code_error(x, codes, kInt8, layout, 0, few, zero_point, sums), Status::kSizeMismatch);
  EXPECT_EQ(accumulate_code_error(x, codes, kInt8, layout, 0, scale, few_zero_points, sums), Status::kSizeMismatch);
  EXPECT_EQ(accumulate_code_error(x, codes, kInt8, layout, 0, bad_scale, zero_point, sums), Status::kBadScale);
  EXPECT_EQ(accumulate_code_error(x, codes, kInt8, layout, 0, scale, bad_zero_point, sums), Status::kBadZeroPoint);
}

// -------------------------------------------------------------------------------------------- quantization that measures

/// Holds quantize_linear_measured to quantize_linear and accumulate_code_error, over one piece.
void expect_same_in_one_pass(std::span<const float> x, const Layout& layout, uint64_t start, const std::vector<float>& scale,
                             const std::vector<int32_t>& zero_point, const QuantizationSpec& spec) {
  const size_t width = spec.dtype.storage_bytes();
  std::vector<std::byte> codes(x.size() * width);
  const Status status = quantize_linear(x, layout, start, scale, zero_point, spec, codes);
  ErrorSums expected = {.squared_error = 1, .product = 2, .non_finite = 3}, sums = expected;
  ASSERT_EQ(accumulate_code_error(x, codes, spec.dtype, layout, start, scale, zero_point, expected), Status::kOk);
  Buffer<std::byte> measured(codes.size(), start % 3 * width);
  ASSERT_EQ(quantize_linear_measured(Buffer<float>(x, start % 4), layout, start, scale, zero_point, spec, measured, sums),
            status);
  ASSERT_EQ(measured.values(), codes);
  expect_identical(expected, sums);
}

TEST(QuantizeLinearMeasured, equals_two_passes_for_every_type_rounding_and_layout) {
  Random random(71);
  SCOPED_TRACE("seed 71");
  size_t turn = 0;
  for (const Partition& partition : all_partitions()) {
    const DType dtype = kDTypes[turn++ % std::size(kDTypes)];
    const size_t n = partition.size(), parameters = partition.parameter_count();
    std::vector<float> x = random.uniform_values(n, -3, 3), scale = random.uniform_values(parameters, 0.001f, 0.1f);
    if (turn % 4 == 0) x[random.below(n)] = kNonFinites[random.below(std::size(kNonFinites))];
    if (turn % 7 == 0) scale[random.below(parameters)] = 0x1p-140f;  // too small for a reciprocal
    std::vector<int32_t> zero_point(parameters);
    for (int32_t& value : zero_point) value = random.below(10) == 0 ? kMaxZeroPoint : random.code(dtype);
    for (const Rounding rounding : {Rounding::kOnnx, Rounding::kFused, Rounding::kReciprocal}) {
      const NonFinite policy = random.coin() ? NonFinite::kError : NonFinite::kSaturate;
      const QuantizationSpec spec = {.dtype = dtype, .rounding = rounding, .non_finite = policy};
      size_t start = 0;
      for (const size_t size : random.pieces(n, random.coin() ? SIZE_MAX : 400)) {
        expect_same_in_one_pass(piece(x, start, size), layout_of(partition), start, scale, zero_point, spec);
        if (HasFailure()) FAIL() << name(partition) << " " << name(spec) << " piece of " << size << " from " << start;
        start += size;
      }
    }
  }
}

TEST(QuantizeLinearMeasured, equals_three_steps_with_a_scale_for_each_element) {
  Random random(72);
  SCOPED_TRACE("seed 72");
  size_t possible = 0, done = 0;
  for (const size_t n : kLengths) {
    for (const DType dtype : {DType{8, true}, DType{8, false}, DType{4, true}, DType{2, false}}) {
      const int32_t zero_point = random.code(dtype);
      std::vector<float> x = random.uniform_values(n, -3, 3);
      const std::vector<float> scale = random.uniform_values(n, 0.001f, 0.1f);
      if (n > 0 && random.coin()) x[random.below(n)] = random.coin() ? -0.0f : 1e5f;
      const bool finite = n == 0 || random.below(4) > 0;
      if (!finite) x[random.below(n)] = kNonFinites[random.below(std::size(kNonFinites))];
      const std::vector<int32_t> zero_points(n, zero_point);
      std::vector<uint8_t> codes(n), measured(n);
      ErrorSums expected = {.squared_error = 1, .product = 2, .non_finite = 3}, sums = expected, before = expected;
      EXPECT_EQ(loops::quantize_each(x.data(), n, scale.data(), zero_points.data(), {dtype, Rounding::kOnnx}, codes.data()),
                finite);
      std::vector<float> restored(n);
      loops::dequantize_each(codes.data(), dtype, n, scale.data(), zero_points.data(), restored.data());
      if (finite) loops::accumulate_error(x.data(), restored.data(), n, expected);
      const bool holds = loops::quantize_each_measured(x.data(), n, scale.data(), zero_point, dtype, measured.data(), sums);
      possible += finite;
      done += holds;
      if (holds) EXPECT_EQ(measured, codes) << n << " " << dtype.bits;
      expect_identical(holds ? expected : before, sums);
      EXPECT_TRUE(finite || !holds) << n << " " << dtype.bits;
    }
  }
  // Without vectors it always refuses.
  EXPECT_TRUE(done == possible || done == 0);
}

TEST(QuantizeLinearMeasured, equals_two_passes_for_runs_within_a_block) {
  Random random(73);
  SCOPED_TRACE("seed 73");
  std::vector<Partition> partitions;
  for (const size_t size : {8, 16, 24, 32, 40, 128, 250, 256, 512}) {
    partitions.push_back({.shape = {7, size}, .granularity = Granularity::kPerChannel});
    partitions.push_back({.shape = {2, 9, size}, .granularity = Granularity::kPerChannel, .axis = 1});
    for (const size_t columns : {1000, 1536}) {
      partitions.push_back({.shape = {5, columns}, .granularity = Granularity::kPerGroup, .axis = 1, .group_size = size});
    }
  }
  for (const Partition& partition : partitions) {
    const size_t n = partition.size(), parameters = partition.parameter_count();
    std::vector<float> x = random.uniform_values(n, -3, 3);
    const std::vector<float> scale = random.uniform_values(parameters, 0.001f, 0.1f);
    if (random.coin()) x[random.below(n)] = kNan;
    for (const DType dtype : {DType{8, true}, DType{8, false}, DType{4, true}}) {
      std::vector<int32_t> zero_point(parameters);
      for (int32_t& value : zero_point) value = random.code(dtype);
      for (const Rounding rounding : {Rounding::kOnnx, Rounding::kFused, Rounding::kReciprocal}) {
        const QuantizationSpec spec = {.dtype = dtype, .rounding = rounding, .non_finite = NonFinite::kSaturate};
        const Layout layout = layout_of(partition);
        for (const size_t start : {size_t{0}, partition.shape.back() / 2, random.below(n)}) {
          const size_t size = random.coin() ? n - start : 1 + random.below(n - start);
          const std::span<const float> from = piece(x, start, size);
          expect_same_in_one_pass(from, layout, start, scale, zero_point, spec);
          std::vector<std::byte> codes(size);
          std::vector<float> restored(size);
          ASSERT_EQ(quantize_linear(from, layout, start, scale, zero_point, spec, codes), Status::kOk);
          ASSERT_EQ(dequantize_linear(codes, dtype, layout, start, scale, zero_point, restored), Status::kOk);
          ErrorSums expected, sums;
          ASSERT_EQ(accumulate_error(from, restored, expected), Status::kOk);
          ASSERT_EQ(accumulate_code_error(from, codes, dtype, layout, start, scale, zero_point, sums), Status::kOk);
          expect_identical(expected, sums);
          if (HasFailure()) FAIL() << name(partition) << " " << name(spec) << " piece of " << size << " from " << start;
        }
      }
    }
  }
}

TEST(QuantizeLinearMeasured, equals_two_passes_at_ties_ends_and_specials) {
  Random random(72);
  SCOPED_TRACE("seed 72");
  for (const DType dtype : kDTypes) {
    for (const Rounding rounding : {Rounding::kOnnx, Rounding::kFused, Rounding::kReciprocal}) {
      for (const int32_t zero_point :
           {reference::lowest_code(dtype), 0, 7, reference::highest_code(dtype), kMaxZeroPoint, -kMaxZeroPoint}) {
        for (const float scale : {0.5f, 0.1f, 1e-30f, 1e30f}) {
          // Two blocks of sums and a part of one.
          std::vector<float> x;
          for (size_t i = 0; i < 1100; i++) x.push_back((static_cast<float>(random.integer(-300, 300)) + 0.5f) * scale);
          for (const float special : {kInfinity, -kInfinity, kNan, kNegativeNan, -0.0f, kLargest, -kLargest, kDenormal}) {
            if (random.coin()) x[random.below(x.size())] = special;
          }
          const QuantizationSpec spec = {.dtype = dtype, .rounding = rounding, .non_finite = NonFinite::kSaturate};
          for (const size_t length :
               {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{9}, size_t{511}, size_t{513}, x.size()}) {
            expect_same_in_one_pass(piece(x, 0, length), {}, 0, {scale}, {zero_point}, spec);
            if (HasFailure()) FAIL() << name(spec) << " zero point " << zero_point << " scale " << scale << " length " << length;
          }
        }
      }
    }
  }
}

TEST(AddSquares, adds_those_of_each_column_from_any_column_on) {
  Random random(9);
  for (const size_t columns : {1, 3, 64}) {
    const std::vector<float> x = random.uniform_values(5 * columns + 2, -3, 3);
    std::vector<double> sums(columns, 0.5), expected = sums;
    const size_t first = columns - 1;
    for (size_t i = 0; i < x.size(); i++) expected[(first + i) % columns] += static_cast<double>(x[i]) * x[i];
    EXPECT_EQ(add_squares(x, first, sums), Status::kOk);
    EXPECT_EQ(sums, expected);
    EXPECT_EQ(add_squares(x, columns, sums), Status::kSizeMismatch);
    EXPECT_EQ(sums, expected);
  }
}

}  // namespace
}  // namespace scalepoint::tests
