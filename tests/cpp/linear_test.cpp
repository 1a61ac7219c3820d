// Layouts; codes from values, and values from codes.
#include "helpers.h"

namespace scalepoint::tests {
namespace {

struct Given {
  std::vector<float> scale;
  std::vector<int32_t> zero_point;
};

std::vector<int32_t> expected_codes(const std::vector<float>& x, const Partition& partition, const Given& given,
                                    const QuantizationSpec& spec) {
  const std::vector<size_t> parameters = partition.parameters();
  std::vector<int32_t> codes(x.size());
  for (size_t i = 0; i < x.size(); i++) {
    const size_t p = parameters[i];
    codes[i] = reference::quantize_value(x[i], given.scale[p], given.zero_point[p], spec.dtype, spec.rounding);
  }
  return codes;
}

/// The first code that differs from the oracle's, with all that went into it.
testing::AssertionResult same_codes(const std::vector<float>& x, const Partition& partition, const Given& given,
                                    const QuantizationSpec& spec, std::span<const std::byte> bytes) {
  const std::vector<int32_t> expected = expected_codes(x, partition, given, spec), codes = load_codes(bytes, spec.dtype);
  if (codes == expected) return testing::AssertionSuccess();
  const std::vector<size_t> parameters = partition.parameters();
  for (size_t i = 0; i < std::min(expected.size(), codes.size()); i++) {
    if (codes[i] == expected[i]) continue;
    return testing::AssertionFailure() << "x[" << i << "] = " << exact(x[i]) << ", scale " << exact(given.scale[parameters[i]])
                                       << ", zero point " << given.zero_point[parameters[i]] << ": expected " << expected[i]
                                       << ", got " << codes[i] << "; " << name(spec) << ", " << name(partition);
  }
  return testing::AssertionFailure() << "expected " << expected.size() << " codes, got " << codes.size();
}

/// Quantizes x in one call and compares with the oracle. Values that are not finite need NonFinite::kSaturate.
testing::AssertionResult quantizes(const std::vector<float>& x, const Partition& partition, const Given& given,
                                   const QuantizationSpec& spec, size_t x_offset = 0, size_t codes_offset = 0) {
  const size_t width = spec.dtype.storage_bytes();
  Buffer<std::byte> codes(x.size() * width, codes_offset * width);
  const Status status = quantize_linear(Buffer<float>(x, x_offset), layout_of(partition), 0, Buffer<float>(given.scale, 1),
                                        Buffer<int32_t>(given.zero_point, 1), spec, codes);
  if (status != Status::kOk)
    return testing::AssertionFailure() << "status " << testing::PrintToString(status) << ", " << name(spec);
  return same_codes(x, partition, given, spec, codes);
}

/// The same once with one parameter for all and once with one for each, which are different loops.
testing::AssertionResult quantizes_both_ways(const std::vector<float>& x, float scale, int32_t zero_point,
                                             const QuantizationSpec& spec) {
  const auto together = quantizes(x, {.shape = {x.size()}}, {{scale}, {zero_point}}, spec);
  if (!together || x.empty()) return together;
  const Given each = {std::vector<float>(x.size(), scale), std::vector<int32_t>(x.size(), zero_point)};
  return quantizes(x, {.shape = {x.size()}, .granularity = Granularity::kPerChannel}, each, spec);
}

QuantizationSpec spec_of(DType dtype, Rounding rounding = Rounding::kOnnx, NonFinite non_finite = NonFinite::kError) {
  return {.dtype = dtype, .rounding = rounding, .non_finite = non_finite};
}

/// Both ends of the type, their neighbours, and some of either parity between.
std::vector<int32_t> zero_points_inside(DType dtype) {
  const int32_t qmin = reference::lowest_code(dtype), qmax = reference::highest_code(dtype);
  std::vector<int32_t> zero_points;
  for (const int32_t value :
       {qmin, qmin + 1, qmin + 2, -2, -1, 0, 1, 2, (qmin + qmax) / 2, (qmin + qmax) / 2 + 1, qmax - 2, qmax - 1, qmax}) {
    if (value >= qmin && value <= qmax) zero_points.push_back(value);
  }
  std::sort(zero_points.begin(), zero_points.end());
  zero_points.erase(std::unique(zero_points.begin(), zero_points.end()), zero_points.end());
  return zero_points;
}

/// Beyond the type, up to the largest, and around 2^22 - 2^16, up to which choose_qparams goes.
std::vector<int32_t> zero_points_outside(DType dtype) {
  std::vector<int32_t> zero_points = {reference::lowest_code(dtype) - 1, reference::highest_code(dtype) + 1};
  for (const int32_t size :
       {1000, 65537, 1000001, kMaxZeroPoint - 65537, kMaxZeroPoint - 65536, kMaxZeroPoint - 65535, kMaxZeroPoint - 32768,
        kMaxZeroPoint - 129, kMaxZeroPoint - 128, kMaxZeroPoint - 127, kMaxZeroPoint - 1, kMaxZeroPoint}) {
    zero_points.push_back(size);
    zero_points.push_back(-size);
  }
  return zero_points;
}

/// (k + 0.5) scale, its float32 neighbours and k scale, for codes k + zero_point all over the type and a little past its ends; of
/// a 16-bit type the ends, the middle and random ones.
std::vector<float> values_on_ties(DType dtype, float scale, int32_t zero_point, Random& random) {
  const int32_t qmin = reference::lowest_code(dtype), qmax = reference::highest_code(dtype);
  std::vector<int32_t> codes;
  const auto add = [&](int32_t from, int32_t to) {
    for (int32_t code = from; code <= to; code++) codes.push_back(code);
  };
  if (dtype.bits <= 8) {
    add(qmin - 4, qmax + 4);
  } else {
    add(qmin - 4, qmin + 6);
    add(qmax - 6, qmax + 4);
    add(zero_point - 3, zero_point + 3);
    for (int i = 0; i < 40; i++) codes.push_back(random.code(dtype));
  }
  std::vector<float> x;
  for (const int32_t code : codes) {
    // In double, so that a large zero point does not round the half away before the one rounding to float32.
    const auto tie = static_cast<float>((static_cast<double>(code) - zero_point + 0.5) * scale);
    const auto whole = static_cast<float>((static_cast<double>(code) - zero_point) * scale);
    x.insert(x.end(), {tie, std::nextafter(tie, -kInfinity), std::nextafter(tie, kInfinity), whole});
  }
  return x;
}

// ------------------------------------------------------------------------------------------------------------------ layout

TEST(Layout, ends_its_parameters_with_the_largest_that_a_piece_uses) {
  Random random(61);
  SCOPED_TRACE("seed 61");
  for (const Partition& partition : all_partitions()) {
    const std::vector<size_t> parameters = partition.parameters();
    const Layout layout = layout_of(partition);
    ASSERT_EQ(layout.parameter_end(0, parameters.size()), partition.parameter_count()) << name(partition);
    for (int i = 0; i < 100; i++) {
      const size_t start = random.below(parameters.size()), size = 1 + random.below(parameters.size() - start);
      const size_t largest = *std::max_element(parameters.begin() + start, parameters.begin() + start + size);
      ASSERT_EQ(layout.parameter_end(start, size), largest + 1) << name(partition) << " piece of " << size << " from " << start;
    }
  }
}

TEST(Layout, counts_the_groups_of_an_axis) {
  for (const uint64_t axis_size : {1, 2, 31, 32, 33, 64, 100}) {
    for (const uint64_t group_size : {1, 2, 31, 32, 33, 64, 1000}) {
      uint64_t groups = 0;
      for (uint64_t a = 0; a < axis_size; a += group_size) groups++;
      EXPECT_EQ((Layout{Granularity::kPerGroup, axis_size, 5, group_size}).groups_per_axis(), groups);
    }
  }
}

TEST(Layout, counts_one_group_of_any_size_that_holds_the_axis) {
  for (const uint64_t group_size : {uint64_t{10}, uint64_t{1} << 32, uint64_t{1} << 63, UINT64_MAX - 9, UINT64_MAX}) {
    const Layout layout = {.granularity = Granularity::kPerGroup, .axis_size = 10, .group_size = group_size};
    EXPECT_EQ(layout.groups_per_axis(), 1u) << group_size;
    EXPECT_EQ(layout.parameter_end(0, 20), 2u) << group_size;
  }
}

TEST(Layout, is_valid_if_no_size_that_it_reads_is_zero) {
  for (const uint64_t axis_size : {0, 1, 7}) {
    for (const uint64_t inner_size : {0, 1, 7}) {
      const bool sizes = axis_size > 0 && inner_size > 0;
      EXPECT_TRUE((Layout{Granularity::kPerTensor, axis_size, inner_size, 0}).valid());
      EXPECT_EQ((Layout{Granularity::kPerChannel, axis_size, inner_size, 1}).valid(), sizes);
      EXPECT_EQ((Layout{Granularity::kPerGroup, axis_size, inner_size, 4}).valid(), sizes);
      EXPECT_FALSE((Layout{Granularity::kPerGroup, axis_size, inner_size, 0}).valid());
    }
  }
}

// --------------------------------------------------------------------------------------------------------- quantize_linear

TEST(QuantizeLinear, gives_the_values_worked_out_by_hand) {
  const struct {
    DType dtype;
    Rounding rounding;
    float scale;
    int32_t zero_point;
    std::vector<float> x;
    std::vector<int32_t> codes;
  } kCases[] = {
      // The example of the ONNX specification.
      {kUint8, Rounding::kOnnx, 2, 128, {0, 2, 3, 1000, -254, -1000}, {128, 129, 130, 255, 1, 0}},
      // Printed in a notebook: (code - zero point) does not fit int8.
      {kInt8,
       Rounding::kFused,
       3.5f,
       -70,
       {191.6f, -13.5f, 728.6f, 92.14f, 295.5f, -184, 0, 684.6f, 245.5f},
       {-15, -74, 127, -44, 14, -123, -70, 126, 0}},
      // An odd zero point turns the ties of the sum the other way.
      {kInt8, Rounding::kOnnx, 2, 1, {-5, -3, -1, 1, 3, 5}, {-1, -1, 1, 1, 3, 3}},
      {kInt8, Rounding::kReciprocal, 2, 1, {-5, -3, -1, 1, 3, 5}, {-1, -1, 1, 1, 3, 3}},
      {kInt8, Rounding::kFused, 2, 1, {-5, -3, -1, 1, 3, 5}, {-2, 0, 0, 2, 2, 4}},
      {kInt8, Rounding::kOnnx, 2, 0, {-5, -3, -1, 1, 3, 5}, {-2, -2, 0, 0, 2, 2}},
      {kInt8, Rounding::kFused, 2, 0, {-5, -3, -1, 1, 3, 5}, {-2, -2, 0, 0, 2, 2}},
      // The last halves before saturation.
      {kInt8, Rounding::kOnnx, 1, 0, {126.5f, 127.5f, -128.5f, -129, 127, -128}, {126, 127, -128, -128, 127, -128}},
      {kUint4, Rounding::kOnnx, 0.5f, 15, {0.25f, -0.25f, -0.75f, -7.5f, -8, 100}, {15, 15, 13, 0, 0, 15}},
      {kInt2, Rounding::kOnnx, 1, 0, {-3, -2, -1.5f, -0.5f, 0.5f, 1.5f}, {-2, -2, -2, 0, 0, 1}},
      // Division gives less than the half, the product with the reciprocal the half or more.
      {kUint8, Rounding::kOnnx, 0.00214854861f, 0, {0.273939937f}, {127}},
      {kUint8, Rounding::kFused, 0.00214854861f, 0, {0.273939937f}, {127}},
      {kUint8, Rounding::kReciprocal, 0.00214854861f, 0, {0.273939937f}, {128}},
      {kInt16, Rounding::kOnnx, 0.00214854861f, 0, {0.273939937f, -0.273939937f}, {127, -127}},
      {kInt16, Rounding::kReciprocal, 0.00214854861f, 0, {0.273939937f, -0.273939937f}, {128, -128}},
      // Zero points outside the type.
      {kInt8,
       Rounding::kOnnx,
       1,
       kMaxZeroPoint,
       {-4194304, -4194303.5f, -4194302.5f, -4194431.5f, -4194432, 0},
       {0, 0, 2, -128, -128, 127}},
      {kInt8,
       Rounding::kOnnx,
       1,
       -kMaxZeroPoint,
       {4194304, 4194303.5f, 4194304.5f, 4194305.5f, 4194431.5f, 0},
       {0, 0, 0, 2, 127, -128}},
  };
  for (const auto& [dtype, rounding, scale, zero_point, x, codes] : kCases) {
    std::vector<std::byte> bytes(x.size() * dtype.storage_bytes());
    ASSERT_EQ(quantize_linear(x, {}, 0, {&scale, 1}, {&zero_point, 1}, spec_of(dtype, rounding), bytes), Status::kOk);
    EXPECT_EQ(load_codes(bytes, dtype), codes) << name(spec_of(dtype, rounding)) << " zero point " << zero_point;
    EXPECT_TRUE(quantizes_both_ways(x, scale, zero_point, spec_of(dtype, rounding)));
  }
}

TEST(QuantizeLinear, rounds_ties_at_every_zero_point_for_every_type_and_rounding) {
  Random random(62);
  SCOPED_TRACE("seed 62");
  constexpr float kScales[] = {1, 0x1p-10f, 0x1p20f, 0.1f, 0.0123f, 3, 1 / 3.0f, 2.5e-5f, 7e10f, 0.00214854861f};
  for (const DType dtype : kDTypes) {
    for (const int32_t zero_point : zero_points_inside(dtype)) {
      for (const float scale : kScales) {
        const std::vector<float> x = values_on_ties(dtype, scale, zero_point, random);
        for (const Rounding rounding : kRoundings)
          ASSERT_TRUE(quantizes_both_ways(x, scale, zero_point, spec_of(dtype, rounding)));
      }
    }
  }
}

TEST(QuantizeLinear, takes_zero_points_outside_the_type) {
  Random random(63);
  SCOPED_TRACE("seed 63");
  for (const DType dtype : kDTypes) {
    for (const int32_t zero_point : zero_points_outside(dtype)) {
      for (const float scale : {1.0f, 0x1p-10f, 0.0123f, 1 / 3.0f, 2.5e-5f}) {
        std::vector<float> x = values_on_ties(dtype, scale, zero_point, random);
        x.insert(x.end(), {0.0f, -0.0f, 1.0f, -1.0f, kLargest, -kLargest, scale * 0x1p22f, -scale * 0x1p22f, scale * 0x1p23f,
                           -scale * 0x1p23f, scale * 0x1p24f, -scale * 0x1p24f});
        for (const Rounding rounding : kRoundings)
          ASSERT_TRUE(quantizes_both_ways(x, scale, zero_point, spec_of(dtype, rounding)));
      }
    }
  }
}

TEST(QuantizeLinear, takes_every_scale_and_special_value) {
  std::vector<float> x = {
      0.0f, -0.0f, kDenormal, -kDenormal, 1e-40f, -1e-40f, kSmallestNormal, -kSmallestNormal, 1e-20f, 0.5f,     -0.5f,
      1,    -1,    1.5f,      2.5f,       -2.5f,  100,     1e10f,           -1e10f,           3e38f,  kLargest, -kLargest};
  x.insert(x.end(), std::begin(kNonFinites), std::end(kNonFinites));
  const float kScales[] = {kDenormal, 3 * kDenormal,   1e-42f,   0x1p-129f, 0x1p-128f, 0x1.000002p-128f,
                           0x1p-127f, kSmallestNormal, 1e-30f,   1e-10f,    1,         0.1f,
                           1e10f,     1e30f,           0x1p126f, 0x1p127f,  kLargest};
  for (const DType dtype : kDTypes) {
    std::vector<int32_t> zero_points = zero_points_inside(dtype);
    zero_points.insert(zero_points.end(), {-1000000, 1000000, -kMaxZeroPoint, kMaxZeroPoint});
    for (const int32_t zero_point : zero_points) {
      for (const float scale : kScales) {
        for (const Rounding rounding : kRoundings) {
          ASSERT_TRUE(quantizes_both_ways(x, scale, zero_point, spec_of(dtype, rounding, NonFinite::kSaturate)));
        }
      }
    }
  }
}

TEST(QuantizeLinear, gives_nan_the_zero_point_and_infinities_the_ends) {
  const std::vector<float> x = {kNan, kNegativeNan, kSignalingNan, kNegativeSignalingNan, kInfinity, -kInfinity};
  for (const DType dtype : kDTypes) {
    const int32_t qmin = reference::lowest_code(dtype), qmax = reference::highest_code(dtype);
    for (const int32_t zero_point : {qmin - 1000000, qmin - 1, qmin, qmin + 1, qmax - 1, qmax, qmax + 1, qmax + 1000000}) {
      const int32_t nan_code = std::clamp(zero_point, qmin, qmax);
      for (const Rounding rounding : kRoundings) {
        const QuantizationSpec spec = spec_of(dtype, rounding, NonFinite::kSaturate);
        std::vector<std::byte> codes(x.size() * dtype.storage_bytes());
        ASSERT_EQ(quantize_linear(x, {}, 0, std::vector<float>{0.5f}, std::vector<int32_t>{zero_point}, spec, codes),
                  Status::kOk);
        ASSERT_EQ(load_codes(codes, dtype), (std::vector<int32_t>{nan_code, nan_code, nan_code, nan_code, qmax, qmin}))
            << name(spec) << " zero point " << zero_point;
      }
    }
  }
}

TEST(QuantizeLinear, accepts_finite_values_whose_quotient_is_not) {
  for (const Rounding rounding : kRoundings) {
    // 0 times the infinite reciprocal of the last scale is NaN, and yet 0 is finite.
    const std::vector<float> x = {kLargest, -kLargest, 0, 1, -1, kDenormal};
    for (const float scale : {1e-30f, 0x1p-127f, 0x1p-128f, kDenormal}) {
      ASSERT_TRUE(quantizes_both_ways(x, scale, 3, spec_of(kInt8, rounding)));
      ASSERT_TRUE(quantizes_both_ways(x, scale, 3, spec_of(kUint16, rounding)));
    }
  }
}

TEST(QuantizeLinear, reports_values_that_are_not_finite_after_converting_all) {
  Random random(64);
  SCOPED_TRACE("seed 64");
  for (const size_t length : {1, 3, 4, 5, 16, 17, 33, 64, 65, 130}) {
    const Partition partitions[] = {
        {.shape = {length}},
        {.shape = {length, 1}, .granularity = Granularity::kPerChannel},
        {.shape = {1, length}, .granularity = Granularity::kPerGroup, .axis = 1, .group_size = 32},
        {.shape = {1, length}, .granularity = Granularity::kPerGroup, .axis = 0, .group_size = 2},
    };
    for (const Partition& partition : partitions) {
      const Given given = {std::vector<float>(partition.parameter_count(), 0.1f),
                           std::vector<int32_t>(partition.parameter_count(), 3)};
      for (size_t position = 0; position < length; position++) {
        std::vector<float> x = random.uniform_values(length, -10, 10);
        x[position] = kNonFinites[position % std::size(kNonFinites)];
        for (const DType dtype : {kInt8, kUint16}) {
          const QuantizationSpec spec = spec_of(dtype, kRoundings[position % 3]);
          std::vector<std::byte> codes(length * dtype.storage_bytes());
          ASSERT_EQ(quantize_linear(x, layout_of(partition), 0, given.scale, given.zero_point, spec, codes), Status::kNonFinite)
              << name(partition) << " at " << position;
          ASSERT_TRUE(same_codes(x, partition, given, spec, codes));
        }
      }
    }
  }
}

TEST(QuantizeLinear, converts_any_length_from_and_to_any_alignment) {
  Random random(65);
  SCOPED_TRACE("seed 65");
  for (const DType dtype : kDTypes) {
    for (const size_t length : kLengths) {
      const std::vector<float> x = random.uniform_values(length, -10, 10);
      for (size_t offset = 0; offset < 4; offset++) {
        const QuantizationSpec spec = spec_of(dtype, kRoundings[(length + offset) % 3]);
        const Given given = {{random.uniform(0.01f, 3)}, {random.code(dtype)}};
        ASSERT_TRUE(quantizes(x, {.shape = {length}}, given, spec, offset, random.below(16))) << "length " << length;
      }
    }
  }
}

/// Parameters for a partition, and an array of which half lies on ties.
struct Example {
  Given given;
  std::vector<float> x;
};
Example example(const Partition& partition, DType dtype, Random& random) {
  Example result;
  const int32_t qmin = reference::lowest_code(dtype), qmax = reference::highest_code(dtype);
  const std::vector<int32_t> inside = zero_points_inside(dtype), outside = zero_points_outside(dtype);
  const bool leave_the_type = random.below(4) == 0;
  for (size_t p = 0; p < partition.parameter_count(); p++) {
    result.given.scale.push_back(random.coin() ? std::ldexp(1.0f, random.integer(-8, 8)) : random.uniform(0.001f, 2));
    const auto& zero_points = leave_the_type && random.below(4) == 0 ? outside : inside;
    result.given.zero_point.push_back(zero_points[random.below(zero_points.size())]);
  }
  for (const size_t p : partition.parameters()) {
    const double code = random.integer(qmin - 3, qmax + 3) + (random.coin() ? 0.5 : random.uniform(0, 1));
    result.x.push_back(static_cast<float>((code - result.given.zero_point[p]) * result.given.scale[p]));
  }
  return result;
}

TEST(QuantizeLinear, agrees_with_the_oracle_for_every_layout) {
  Random random(66);
  SCOPED_TRACE("seed 66");
  size_t turn = 0;
  for (const Partition& partition : all_partitions()) {
    for (int i = 0; i < 4; i++) {
      const DType dtype = kDTypes[turn++ % std::size(kDTypes)];
      const Example data = example(partition, dtype, random);
      for (const Rounding rounding : kRoundings) {
        ASSERT_TRUE(quantizes(data.x, partition, data.given, spec_of(dtype, rounding), random.below(4), random.below(4)));
      }
    }
  }
}

TEST(QuantizeLinear, gives_pieces_the_same_bytes_as_the_whole) {
  Random random(67);
  SCOPED_TRACE("seed 67");
  size_t turn = 0;
  for (const Partition& partition : all_partitions()) {
    const DType dtype = kDTypes[turn % std::size(kDTypes)];
    const QuantizationSpec spec = spec_of(dtype, kRoundings[turn++ % 3]);
    const Example data = example(partition, dtype, random);
    const Layout layout = layout_of(partition);
    for (const size_t longest : {1, 3, 7, 20, 100, 1000}) {
      Buffer<std::byte> codes(data.x.size() * dtype.storage_bytes(), random.below(4) * dtype.storage_bytes());
      size_t start = 0;
      for (const size_t size : random.pieces(data.x.size(), longest)) {
        const auto output = codes.span().subspan(start * dtype.storage_bytes(), size * dtype.storage_bytes());
        ASSERT_EQ(quantize_linear(Buffer<float>(piece(data.x, start, size), random.below(4)), layout, start, data.given.scale,
                                  data.given.zero_point, spec, output),
                  Status::kOk);
        start += size;
      }
      ASSERT_TRUE(same_codes(data.x, partition, data.given, spec, codes)) << "pieces of up to " << longest;
    }
  }
}

TEST(QuantizeLinear, needs_no_parameters_beyond_those_of_the_piece) {
  Random random(80);
  SCOPED_TRACE("seed 80");
  for (const Partition& partition : all_partitions()) {
    const DType dtype = kDTypes[random.below(std::size(kDTypes))];
    const Example data = example(partition, dtype, random);
    const Layout layout = layout_of(partition);
    const size_t n = data.x.size(), width = dtype.storage_bytes();
    std::vector<std::byte> whole(n * width);
    ASSERT_EQ(quantize_linear(data.x, layout, 0, data.given.scale, data.given.zero_point, spec_of(dtype), whole), Status::kOk);
    for (int i = 0; i < 4; i++) {
      const size_t start = random.below(n), size = 1 + random.below(n - start);
      const size_t end = layout.parameter_end(start, size);
      Buffer<float> scale(piece(data.given.scale, 0, end));
      Buffer<int32_t> zero_point(piece(data.given.zero_point, 0, end));
      Buffer<std::byte> codes(size * width);
      ASSERT_EQ(quantize_linear(piece(data.x, start, size), layout, start, scale, zero_point, spec_of(dtype), codes),
                Status::kOk);
      ASSERT_TRUE(same(piece(whole, start * width, size * width), std::span<const std::byte>(codes.span()))) << name(partition);
      Buffer<float> x(size);
      ASSERT_EQ(dequantize_linear(codes, dtype, layout, start, scale, zero_point, x), Status::kOk);
    }
  }
}

TEST(QuantizeLinear, finds_the_channels_of_a_piece_far_into_a_large_array) {
  const Layout layout = {.granularity = Granularity::kPerChannel, .axis_size = 7, .inner_size = 3};
  const uint64_t start = (uint64_t{1} << 40) + 5;
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const Given given = {{1, 0.5f, 0.25f, 2, 4, 8, 0.1f}, {0, 1, 2, 3, 4, 5, 6}};
  std::vector<std::byte> codes(x.size());
  ASSERT_EQ(quantize_linear(x, layout, start, given.scale, given.zero_point, spec_of(kInt8), codes), Status::kOk);
  std::vector<float> restored(x.size());
  ASSERT_EQ(dequantize_linear(codes, kInt8, layout, start, given.scale, given.zero_point, restored), Status::kOk);
  for (size_t i = 0; i < x.size(); i++) {
    const size_t p = (start + i) / 3 % 7;
    const int32_t code = reference::quantize_value(x[i], given.scale[p], given.zero_point[p], kInt8, Rounding::kOnnx);
    EXPECT_EQ(load_codes(codes, kInt8)[i], code) << i;
    EXPECT_EQ(restored[i], reference::dequantize_value(code, given.scale[p], given.zero_point[p])) << i;
  }
}

TEST(QuantizeLinear, quantizes_random_bits_like_the_oracle) {
  Random random(68);
  SCOPED_TRACE("seed 68");
  for (const DType dtype : kDTypes) {
    for (int i = 0; i < 12; i++) {
      std::vector<float> x(1000);
      const float scale = random.power(-149, 128);
      for (size_t j = 0; j < x.size(); j++) {
        // Half of them of a size that does not saturate.
        x[j] = j % 2 == 0 ? random.any_float() : static_cast<float>(static_cast<double>(scale) * random.uniform(-300, 300));
      }
      const int32_t zero_point = random.coin() ? random.code(dtype) : random.integer(-kMaxZeroPoint, kMaxZeroPoint);
      for (const Rounding rounding : kRoundings) {
        ASSERT_TRUE(quantizes_both_ways(x, scale, zero_point, spec_of(dtype, rounding, NonFinite::kSaturate)));
      }
    }
  }
}

TEST(QuantizeLinear, restores_what_does_not_saturate_within_half_a_step) {
  Random random(69);
  SCOPED_TRACE("seed 69");
  for (const DType dtype : kDTypes) {
    const int32_t qmin = reference::lowest_code(dtype), qmax = reference::highest_code(dtype);
    for (int i = 0; i < 20; i++) {
      const float scale = random.power(-60, 60);
      const int32_t zero_point = random.code(dtype);
      std::vector<float> x(500), restored(500);
      for (float& value : x)
        value = random.uniform(static_cast<float>(qmin - zero_point), static_cast<float>(qmax - zero_point)) * scale;
      for (const Rounding rounding : kRoundings) {
        std::vector<std::byte> codes(x.size() * dtype.storage_bytes());
        ASSERT_EQ(quantize_linear(x, {}, 0, {&scale, 1}, {&zero_point, 1}, spec_of(dtype, rounding), codes), Status::kOk);
        ASSERT_EQ(dequantize_linear(codes, dtype, {}, 0, {&scale, 1}, {&zero_point, 1}, restored), Status::kOk);
        for (size_t j = 0; j < x.size(); j++) {
          // x / scale is off by up to 2^-24 of itself, x * (1 / scale) by twice that and a little; the sum with the zero point by
          // 2^-24 of a code, which is below 2^16; the product that restores x by 2^-24 of it. Half a step from rounding to a
          // code.
          const double bound = scale * (0.5 + 0x1p-24 * 0x1p16) + std::fabs(x[j]) * 0x1p-22;
          ASSERT_LE(std::fabs(static_cast<double>(restored[j]) - x[j]), bound)
              << name(spec_of(dtype, rounding)) << exact(x[j]) << " scale " << exact(scale) << " zero point " << zero_point;
        }
      }
    }
  }
}

TEST(QuantizeLinear, takes_no_elements) {
  const std::vector<float> scale = {1, 1};
  const std::vector<int32_t> zero_point = {0, 0};
  for (const Layout& layout : {Layout{}, Layout{Granularity::kPerChannel, 2, 1, 1}, Layout{Granularity::kPerGroup, 2, 1, 1}}) {
    EXPECT_EQ(quantize_linear({}, layout, 0, scale, zero_point, spec_of(kInt8), {}), Status::kOk);
    EXPECT_EQ(dequantize_linear({}, kInt8, layout, 0, scale, zero_point, {}), Status::kOk);
  }
}

TEST(QuantizeValue, agrees_with_the_oracle) {
  Random random(70);
  SCOPED_TRACE("seed 70");
  for (const DType dtype : kDTypes) {
    const int32_t qmin = reference::lowest_code(dtype), qmax = reference::highest_code(dtype);
    ASSERT_EQ(dtype.qmin(), qmin) << name(dtype);
    ASSERT_EQ(dtype.qmax(), qmax) << name(dtype);
    for (const auto& zero_points : {zero_points_inside(dtype), zero_points_outside(dtype)}) {
      for (const int32_t zero_point : zero_points) {
        std::vector<float> x = values_on_ties(dtype, 0.1f, zero_point, random);
        x.insert(x.end(), std::begin(kNonFinites), std::end(kNonFinites));
        for (const Rounding rounding : kRoundings) {
          for (const float value : x) {
            ASSERT_EQ(quantize_value(value, 0.1f, zero_point, qmin, qmax, rounding),
                      reference::quantize_value(value, 0.1f, zero_point, dtype, rounding))
                << exact(value) << " " << name(spec_of(dtype, rounding)) << " zero point " << zero_point;
          }
        }
      }
    }
  }
}

// ------------------------------------------------------------------------------------------------------ dequantize_linear

std::vector<float> expected_values(const std::vector<int32_t>& codes, const Partition& partition, const Given& given) {
  const std::vector<size_t> parameters = partition.parameters();
  std::vector<float> x(codes.size());
  for (size_t i = 0; i < x.size(); i++) {
    x[i] = reference::dequantize_value(codes[i], given.scale[parameters[i]], given.zero_point[parameters[i]]);
  }
  return x;
}

TEST(DequantizeLinear, restores_every_code_at_every_zero_point) {
  for (const DType dtype : kDTypes) {
    std::vector<int32_t> codes;
    for (int32_t code = reference::lowest_code(dtype); code <= reference::highest_code(dtype); code += dtype.bits == 16 ? 13 : 1)
      codes.push_back(code);
    codes.push_back(reference::highest_code(dtype));
    const std::vector<std::byte> bytes = store_codes(codes, dtype);
    const std::vector<int32_t> all_zero_points[] = {zero_points_inside(dtype), zero_points_outside(dtype)};
    for (const auto& zero_points : all_zero_points) {
      for (const int32_t zero_point : zero_points) {
        for (const float scale : {1.0f, 0.1f, 1e-30f, kDenormal, 0x1p-127f, 1e30f, 3e36f, kLargest}) {
          std::vector<float> x(codes.size());
          ASSERT_EQ(dequantize_linear(bytes, dtype, {}, 0, {&scale, 1}, {&zero_point, 1}, x), Status::kOk);
          ASSERT_TRUE(same(expected_values(codes, {.shape = {codes.size()}}, {{scale}, {zero_point}}), x))
              << name(dtype) << " scale " << exact(scale) << " zero point " << zero_point;
        }
      }
    }
  }
}

TEST(DequantizeLinear, converts_any_length_from_and_to_any_alignment) {
  Random random(71);
  SCOPED_TRACE("seed 71");
  for (const DType dtype : kDTypes) {
    for (const size_t length : kLengths) {
      for (size_t offset = 0; offset < 4; offset++) {
        const Given given = {{random.uniform(0.01f, 3)}, {random.code(dtype)}};
        const std::vector<int32_t> codes = random.codes(length, dtype);
        Buffer<float> x(length, offset);
        ASSERT_EQ(dequantize_linear(Buffer<std::byte>(store_codes(codes, dtype), random.below(16) * dtype.storage_bytes()), dtype,
                                    {}, 0, given.scale, given.zero_point, x),
                  Status::kOk);
        ASSERT_TRUE(same(expected_values(codes, {.shape = {length}}, given), x.values())) << name(dtype) << " length " << length;
      }
    }
  }
}

TEST(DequantizeLinear, agrees_with_the_oracle_for_every_layout_in_one_call_and_in_pieces) {
  Random random(72);
  SCOPED_TRACE("seed 72");
  size_t turn = 0;
  for (const Partition& partition : all_partitions()) {
    const DType dtype = kDTypes[turn++ % std::size(kDTypes)];
    const Given given = example(partition, dtype, random).given;
    const std::vector<int32_t> codes = random.codes(partition.size(), dtype);
    const std::vector<std::byte> bytes = store_codes(codes, dtype);
    const std::vector<float> expected = expected_values(codes, partition, given);
    const size_t width = dtype.storage_bytes();
    const Layout layout = layout_of(partition);
    for (const size_t longest : {SIZE_MAX, size_t{1}, size_t{5}, size_t{33}, size_t{200}}) {
      Buffer<float> x(codes.size(), random.below(4));
      size_t start = 0;
      for (const size_t size : random.pieces(codes.size(), longest)) {
        ASSERT_EQ(dequantize_linear(Buffer<std::byte>(piece(bytes, start * width, size * width), random.below(4) * width), dtype,
                                    layout, start, given.scale, given.zero_point, x.span().subspan(start, size)),
                  Status::kOk);
        start += size;
      }
      ASSERT_TRUE(same(expected, x.values())) << name(dtype) << " " << name(partition) << " pieces of up to " << longest;
    }
  }
}

// ------------------------------------------------------------------------------------------------------------------ misuse

TEST(LinearStatus, names_each_misuse) {
  const std::vector<float> x(12, 1);
  const Layout layout = {Granularity::kPerChannel, 4, 3, 1};
  const Given good = {std::vector<float>(4, 1), std::vector<int32_t>(4, 0)};
  const auto both = [&](DType dtype, const Layout& used_layout, const Given& given, size_t code_bytes, Status expected) {
    std::vector<std::byte> codes(code_bytes);
    std::vector<float> restored(12);
    EXPECT_EQ(quantize_linear(x, used_layout, 0, given.scale, given.zero_point, spec_of(dtype), codes), expected);
    EXPECT_EQ(dequantize_linear(codes, dtype, used_layout, 0, given.scale, given.zero_point, restored), expected);
  };
  both(kInt8, layout, good, 12, Status::kOk);
  both(kUint16, layout, good, 24, Status::kOk);

  for (const int32_t bits : kBadBits) {
    for (const bool is_signed : {true, false}) both({bits, is_signed}, layout, good, bits > 8 ? 24 : 12, Status::kBadDType);
  }
  for (const Layout& bad : {Layout{Granularity::kPerChannel, 0, 3, 1}, Layout{Granularity::kPerChannel, 4, 0, 1},
                            Layout{Granularity::kPerGroup, 0, 3, 2}, Layout{Granularity::kPerGroup, 4, 0, 2},
                            Layout{Granularity::kPerGroup, 4, 3, 0}}) {
    both(kInt8, bad, good, 12, Status::kBadLayout);
  }
  for (const size_t code_bytes : {0, 11, 13, 24}) both(kInt8, layout, good, code_bytes, Status::kSizeMismatch);
  for (const size_t code_bytes : {0, 12, 22, 23, 25, 26}) both(kInt16, layout, good, code_bytes, Status::kSizeMismatch);
  for (const size_t length : {0, 3}) {
    both(kInt8, layout, {std::vector<float>(length, 1), good.zero_point}, 12, Status::kSizeMismatch);
    both(kInt8, layout, {good.scale, std::vector<int32_t>(length)}, 12, Status::kSizeMismatch);
  }
  both(kInt8, {}, {{}, {0}}, 12, Status::kSizeMismatch);
  both(kInt8, {}, {{1}, {}}, 12, Status::kSizeMismatch);
  for (size_t position = 0; position < 4; position++) {
    for (const float scale : {0.0f, -0.0f, -1.0f, -kDenormal, kNan, kNegativeNan, kInfinity, -kInfinity}) {
      Given bad = good;
      bad.scale[position] = scale;
      both(kInt8, layout, bad, 12, Status::kBadScale);
    }
    for (const int32_t zero_point : {kMaxZeroPoint + 1, -kMaxZeroPoint - 1, INT32_MAX, INT32_MIN, INT32_MIN + 1}) {
      Given bad = good;
      bad.zero_point[position] = zero_point;
      both(kInt8, layout, bad, 12, Status::kBadZeroPoint);
    }
    for (const int32_t zero_point : {kMaxZeroPoint, -kMaxZeroPoint}) {
      Given large = good;
      large.zero_point[position] = zero_point;
      both(kInt8, layout, large, 12, Status::kOk);
    }
  }
}

// ----------------------------------------------------------------------------------------------------------- quantize_runs

struct Quantized {
  Status status = Status::kOk;
  std::vector<float> scale;
  std::vector<int32_t> zero_point;
  std::vector<std::byte> codes;
};

struct Runs {
  size_t line_size;
  size_t run_size;
};

size_t run_count(size_t n, Runs runs) { return n / runs.line_size * ((runs.line_size + runs.run_size - 1) / runs.run_size); }

Quantized in_one_pass(const std::vector<float>& x, Runs runs, const QuantizationSpec& spec, Random& random) {
  Quantized result;
  const size_t count = run_count(x.size(), runs);
  Buffer<float> scale(count, random.below(4));
  Buffer<int32_t> zero_point(count, random.below(4));
  Buffer<std::byte> codes(x.size() * spec.dtype.storage_bytes(), random.below(4) * spec.dtype.storage_bytes());
  result.status = quantize_runs(Buffer<float>(x, random.below(4)), runs.line_size, runs.run_size, spec, scale, zero_point, codes);
  result.scale = scale.values();
  result.zero_point = zero_point.values();
  result.codes = codes.values();
  return result;
}

Quantized step_by_step(const std::vector<float>& x, Runs runs, const QuantizationSpec& spec) {
  const size_t count = run_count(x.size(), runs);
  Quantized result;
  result.scale.resize(count);
  result.zero_point.resize(count);
  result.codes.resize(x.size() * spec.dtype.storage_bytes());
  const Layout layout = {.granularity = Granularity::kPerGroup, .axis_size = runs.line_size, .group_size = runs.run_size};
  std::vector<float> min(count), max(count);
  clear_range(min, max);
  result.status = observe(x, layout, 0, spec.non_finite, min, max);
  if (result.status == Status::kOk) result.status = choose_qparams(min, max, spec, result.scale, result.zero_point);
  if (result.status == Status::kOk) {
    result.status = quantize_linear(x, layout, 0, result.scale, result.zero_point, spec, result.codes);
  }
  return result;
}

testing::AssertionResult same_quantized(const Quantized& expected, const Quantized& actual) {
  if (expected.status != actual.status) {
    return testing::AssertionFailure() << "expected " << testing::PrintToString(expected.status) << ", got "
                                       << testing::PrintToString(actual.status);
  }
  if (expected.status != Status::kOk) return testing::AssertionSuccess();
  if (const auto result = same(expected.scale, actual.scale); !result)
    return testing::AssertionFailure() << "scale " << result.message();
  if (const auto result = same(expected.zero_point, actual.zero_point); !result) {
    return testing::AssertionFailure() << "zero point " << result.message();
  }
  if (const auto result = same(expected.codes, actual.codes); !result)
    return testing::AssertionFailure() << "byte " << result.message();
  return testing::AssertionSuccess();
}

/// Runs of one kind each: ordinary, beside zero, constant, zero, tiny, huge, on ties.
void fill_run(std::span<float> run, Random& random) {
  const size_t kind = random.below(12);
  const float constant = random.uniform(-2, 2), exponent = random.power(-149, 127);
  for (float& x : run) {
    const float unit = random.uniform(-1, 1);
    switch (kind) {
      case 0:
        x = unit + 10;
        break;
      case 1:
        x = unit - 10;
        break;
      case 2:
        x = constant;
        break;
      case 3:
        x = random.coin() ? 0.0f : -0.0f;
        break;
      case 4:
        x = unit * 1e-38f;
        break;
      case 5:
        x = unit * 1e-43f;
        break;
      case 6:
        x = random.below(8) == 0 ? std::copysign(kLargest, unit) : unit * 1e38f;
        break;
      case 7:
        x = static_cast<float>(random.integer(-254, 254)) * 0.5f;
        break;
      case 8:
        x = unit * exponent;
        break;
      case 9:
        x = unit + 1e6f;
        break;
      default:
        x = unit * constant;
    }
  }
}

std::vector<float> filled_runs(size_t lines, Runs runs, Random& random) {
  std::vector<float> x(lines * runs.line_size);
  for (size_t line = 0; line < lines; line++) {
    for (size_t start = 0; start < runs.line_size; start += runs.run_size) {
      const size_t size = std::min(runs.run_size, runs.line_size - start);
      fill_run(std::span<float>(x).subspan(line * runs.line_size + start, size), random);
    }
  }
  return x;
}

QuantizationSpec random_spec(Random& random) {
  return {.dtype = kDTypes[random.below(std::size(kDTypes))],
          .scheme = kSchemes[random.below(2)],
          .symmetric_range = kSymmetricRanges[random.below(2)],
          .include_zero = random.below(4) != 0,
          .rounding = kRoundings[random.below(3)],
          .non_finite = random.coin() ? NonFinite::kError : NonFinite::kSaturate};
}

/// Calls f(lines, runs) for lines of one run, of several, of several and a short one, and of less than one.
template <class F>
void for_each_shape_of_runs(F f) {
  for (const size_t run_size : {1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 48, 64, 128, 160}) {
    for (const size_t line_size :
         {run_size, 2 * run_size, 3 * run_size, 4 * run_size, 5 * run_size + 3, 9 * run_size, run_size / 2 + 1, size_t{1}}) {
      for (const size_t lines : {1, 2, 3, 4, 5, 9}) f(lines, Runs{line_size, run_size});
    }
  }
}

std::string name(size_t lines, Runs runs) {
  return std::to_string(lines) + " lines of " + std::to_string(runs.line_size) + " in runs of " + std::to_string(runs.run_size);
}

TEST(QuantizeRuns, equals_the_three_steps) {
  Random random(73);
  SCOPED_TRACE("seed 73");
  for_each_shape_of_runs([&](size_t lines, Runs runs) {
    for (int i = 0; i < 5; i++) {
      const std::vector<float> x = filled_runs(lines, runs, random);
      const QuantizationSpec spec = random_spec(random);
      ASSERT_TRUE(same_quantized(step_by_step(x, runs, spec), in_one_pass(x, runs, spec, random)))
          << name(lines, runs) << ", " << tests::name(spec);
    }
  });
}

TEST(QuantizeRuns, equals_the_three_steps_for_every_spec) {
  Random random(74);
  SCOPED_TRACE("seed 74");
  for (QuantizationSpec spec : all_specs()) {
    for (const Rounding rounding : kRoundings) {
      spec.rounding = rounding;
      for (const Runs runs : {Runs{32, 32}, Runs{200, 64}, Runs{257, 257}, Runs{35, 7}}) {
        const std::vector<float> x = filled_runs(9, runs, random);
        ASSERT_TRUE(same_quantized(step_by_step(x, runs, spec), in_one_pass(x, runs, spec, random)))
            << name(9, runs) << ", " << tests::name(spec);
      }
    }
  }
}

TEST(QuantizeRuns, equals_the_three_steps_for_long_runs) {
  Random random(81);
  SCOPED_TRACE("seed 81");
  for (const Runs runs : {Runs{1040, 1040}, Runs{4096, 4096}, Runs{4112, 4112}, Runs{8192, 8192}, Runs{9000, 4096}}) {
    for (int i = 0; i < 6; i++) {
      const std::vector<float> x = filled_runs(5, runs, random);
      const QuantizationSpec spec = random_spec(random);
      ASSERT_TRUE(same_quantized(step_by_step(x, runs, spec), in_one_pass(x, runs, spec, random)))
          << name(5, runs) << ", " << tests::name(spec);
    }
  }
}

TEST(QuantizeRuns, equals_the_three_steps_with_values_that_are_not_finite) {
  Random random(75);
  SCOPED_TRACE("seed 75");
  for_each_shape_of_runs([&](size_t lines, Runs runs) {
    std::vector<float> x = filled_runs(lines, runs, random);
    for (size_t i = random.below(3); i < 3; i++) x[random.below(x.size())] = kNonFinites[random.below(std::size(kNonFinites))];
    QuantizationSpec spec = random_spec(random);
    for (const NonFinite non_finite : {NonFinite::kError, NonFinite::kSaturate}) {
      spec.non_finite = non_finite;
      ASSERT_TRUE(same_quantized(step_by_step(x, runs, spec), in_one_pass(x, runs, spec, random)))
          << name(lines, runs) << ", " << tests::name(spec);
    }
  });
}

TEST(QuantizeRuns, reports_a_value_that_is_not_finite_wherever_it_is) {
  Random random(76);
  SCOPED_TRACE("seed 76");
  for (const Runs runs : {Runs{16, 16}, Runs{64, 32}, Runs{20, 16}, Runs{7, 7}}) {
    const std::vector<float> x = random.uniform_values(runs.line_size * 5, -1, 1);
    for (size_t position = 0; position < x.size(); position++) {
      std::vector<float> bad = x;
      bad[position] = kNonFinites[position % std::size(kNonFinites)];
      for (const DType dtype : {kInt8, kUint4, kInt16}) {
        ASSERT_EQ(in_one_pass(bad, runs, spec_of(dtype), random).status, Status::kNonFinite)
            << position << " " << tests::name(dtype);
        ASSERT_TRUE(same_quantized(step_by_step(bad, runs, spec_of(dtype, Rounding::kOnnx, NonFinite::kSaturate)),
                                   in_one_pass(bad, runs, spec_of(dtype, Rounding::kOnnx, NonFinite::kSaturate), random)));
      }
    }
  }
}

TEST(QuantizeRuns, gives_runs_without_a_finite_value_the_parameters_of_zero) {
  Random random(77);
  SCOPED_TRACE("seed 77");
  std::vector<float> x(16 * 5, 1);
  for (size_t i = 0; i < 32; i++) x[i] = i % 2 == 0 ? kNan : -kInfinity;
  for (QuantizationSpec spec : all_specs()) {
    spec.non_finite = NonFinite::kSaturate;
    const Quantized got = in_one_pass(x, {16, 16}, spec, random);
    ASSERT_EQ(got.status, Status::kOk);
    EXPECT_EQ(got.scale[0], 1);
    EXPECT_EQ(got.scale[1], 1);
    const bool middle = spec.scheme == Scheme::kSymmetric && !spec.dtype.is_signed;
    EXPECT_EQ(got.zero_point[0], middle ? (reference::highest_code(spec.dtype) + 1) / 2 : 0) << tests::name(spec);
    ASSERT_TRUE(same_quantized(step_by_step(x, {16, 16}, spec), got)) << tests::name(spec);
  }
}

TEST(QuantizeRuns, quantizes_the_channels_of_a_notebook) {
  // Printed there: the codes of int8, symmetric, one scale a row, of a 3 by 3 array.
  Random random(78);
  const std::vector<float> x = {191.6f, -13.5f, 728.6f, 92.14f, 295.5f, -184, 0, 684.6f, 245.5f};
  const Quantized got = in_one_pass(x, {3, 3}, spec_of(kInt8), random);
  ASSERT_EQ(got.status, Status::kOk);
  EXPECT_EQ(load_codes(got.codes, kInt8), (std::vector<int32_t>{33, -2, 127, 40, 127, -79, 0, 127, 46}));
  EXPECT_TRUE(
      same({static_cast<float>(5.737007681779035), static_cast<float>(2.326771653543307), static_cast<float>(5.39055098886565)},
           got.scale));
}

TEST(QuantizeRuns, restores_everything_within_half_a_step) {
  Random random(79);
  SCOPED_TRACE("seed 79");
  for (int i = 0; i < 300; i++) {
    const Runs runs = {100, 32};
    const std::vector<float> x = filled_runs(6, runs, random);
    QuantizationSpec spec = random_spec(random);
    spec.rounding = Rounding::kOnnx;
    const Quantized got = in_one_pass(x, runs, spec, random);
    ASSERT_EQ(got.status, Status::kOk);
    const std::vector<int32_t> codes = load_codes(got.codes, spec.dtype);
    for (size_t j = 0; j < x.size(); j++) {
      const size_t run = j / 100 * 4 + j % 100 / 32;
      const double restored = static_cast<double>(got.scale[run]) * (codes[j] - got.zero_point[run]);
      // As for the ends of a range: half a step, as much again where the scale was lowered for values near the largest float, and
      // the roundings of the scale (2^-23 of x if it is denormal) and of the division.
      const double steps = std::fabs(x[j]) > 0x1p126f ? 1 : 0.5;
      ASSERT_LE(std::fabs(restored - x[j]), got.scale[run] * (steps + 0x1p-22) + std::fabs(x[j]) * 0x1p-22)
          << tests::name(spec) << " " << exact(x[j]) << " scale " << exact(got.scale[run]) << " zero point "
          << got.zero_point[run];
    }
  }
}

TEST(QuantizeRuns, takes_no_elements) { EXPECT_EQ(quantize_runs({}, 4, 2, spec_of(kInt8), {}, {}, {}), Status::kOk); }

TEST(QuantizeRuns, names_each_misuse) {
  const std::vector<float> x(12, 1);
  const auto status = [&](size_t line_size, size_t run_size, DType dtype, size_t scales, size_t zero_points, size_t code_bytes) {
    std::vector<float> scale(scales);
    std::vector<int32_t> zero_point(zero_points);
    std::vector<std::byte> codes(code_bytes);
    return quantize_runs(x, line_size, run_size, spec_of(dtype), scale, zero_point, codes);
  };
  EXPECT_EQ(status(6, 4, kInt8, 4, 4, 12), Status::kOk);
  EXPECT_EQ(status(6, 4, kInt16, 4, 4, 24), Status::kOk);
  EXPECT_EQ(status(0, 4, kInt8, 4, 4, 12), Status::kBadLayout);
  EXPECT_EQ(status(6, 0, kInt8, 4, 4, 12), Status::kBadLayout);
  EXPECT_EQ(status(5, 4, kInt8, 4, 4, 12), Status::kBadLayout);  // a line crosses the end of the data
  EXPECT_EQ(status(24, 4, kInt8, 6, 6, 12), Status::kBadLayout);
  for (const size_t count : {0, 3, 5}) {
    EXPECT_EQ(status(6, 4, kInt8, count, 4, 12), Status::kSizeMismatch) << count;
    EXPECT_EQ(status(6, 4, kInt8, 4, count, 12), Status::kSizeMismatch) << count;
  }
  for (const size_t code_bytes : {0, 11, 13, 24}) EXPECT_EQ(status(6, 4, kInt8, 4, 4, code_bytes), Status::kSizeMismatch);
  for (const int32_t bits : kBadBits) EXPECT_EQ(status(6, 4, {bits, true}, 4, 4, bits > 8 ? 24 : 12), Status::kBadDType) << bits;
}

}  // namespace
}  // namespace scalepoint::tests
