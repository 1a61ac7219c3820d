// float16, bfloat16 and the floats of a byte, and back.
#include "helpers.h"

namespace scalepoint::tests {
namespace {

using reference::FloatFormat;
using reference::kBfloat16;
using reference::kFloat16;

struct Format {
  const char* name;
  FloatFormat format;
  Status (*decode)(std::span<const uint16_t>, std::span<float>) noexcept;
  Status (*encode)(std::span<const float>, std::span<uint16_t>) noexcept;
};
constexpr Format kFormats[] = {{"float16", kFloat16, float16_to_float32, float32_to_float16},
                               {"bfloat16", kBfloat16, bfloat16_to_float32, float32_to_bfloat16}};

std::vector<uint16_t> every_code() {
  std::vector<uint16_t> codes(65536);
  for (size_t i = 0; i < codes.size(); i++) codes[i] = static_cast<uint16_t>(i);
  return codes;
}

std::vector<float> decoded(const Format& format, const std::vector<uint16_t>& codes, size_t offset = 0) {
  Buffer<float> x(codes.size(), offset);
  EXPECT_EQ(format.decode(Buffer<uint16_t>(codes, offset), x), Status::kOk);
  return x.values();
}

std::vector<uint16_t> encoded(const Format& format, const std::vector<float>& x, size_t offset = 0) {
  Buffer<uint16_t> codes(x.size(), offset);
  EXPECT_EQ(format.encode(Buffer<float>(x, offset), codes), Status::kOk);
  return codes.values();
}

/// Result for x, NaN included: the sign, all exponent bits, and at least the bit that makes it quiet.
testing::AssertionResult is_encoded(const Format& format, float x, uint16_t code) {
  if (!std::isnan(x)) {
    const uint16_t expected = reference::encode(x, format.format);
    if (code == expected) return testing::AssertionSuccess();
    return testing::AssertionFailure() << format.name << " of " << exact(x) << ": expected " << expected << ", got " << code;
  }
  const int quiet_bit = 1 << (format.format.mantissa_bits - 1);
  const int exponent_bits = ((1 << format.format.exponent_bits) - 1) << format.format.mantissa_bits;
  const bool quiet = (code & (exponent_bits | quiet_bit)) == (exponent_bits | quiet_bit);
  if (quiet && (code >> 15 == 1) == std::signbit(x)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << format.name << " of " << exact(x) << ": got " << code;
}

TEST(Minifloat, decodes_every_float16_by_the_formula) {
  const std::vector<uint16_t> codes = every_code();
  const std::vector<float> x = decoded(kFormats[0], codes);
  for (size_t i = 0; i < codes.size(); i++) {
    const double expected = reference::decode(codes[i], kFloat16);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(x[i])) << codes[i];
    } else {
      ASSERT_EQ(float_bits(x[i]), float_bits(static_cast<float>(expected))) << codes[i];  // the conversion is exact
    }
  }
}

TEST(Minifloat, decodes_every_bfloat16_to_the_upper_half_of_the_bits) {
  const std::vector<uint16_t> codes = every_code();
  const std::vector<float> x = decoded(kFormats[1], codes);
  for (size_t i = 0; i < codes.size(); i++) {
    ASSERT_EQ(float_bits(x[i]), static_cast<uint32_t>(codes[i]) << 16) << codes[i];
    const double expected = reference::decode(codes[i], kBfloat16);
    if (std::isnan(expected)) continue;
    ASSERT_EQ(x[i], expected) << codes[i];
  }
}

TEST(Minifloat, restores_every_code) {
  const std::vector<uint16_t> codes = every_code();
  for (const Format& format : kFormats) {
    const std::vector<float> x = decoded(format, codes);
    const std::vector<uint16_t> again = encoded(format, x);
    for (size_t i = 0; i < codes.size(); i++) {
      if (std::isnan(x[i])) continue;
      ASSERT_EQ(again[i], codes[i]) << format.name;
    }
  }
}

TEST(Minifloat, rounds_halfway_between_any_two_neighbours_to_even) {
  for (const Format& format : kFormats) {
    const auto past_the_end = static_cast<uint16_t>(((1 << format.format.exponent_bits) - 1) << format.format.mantissa_bits);
    std::vector<float> x;
    for (uint16_t code = 0; code < past_the_end; code++) {
      const double low = reference::decode(code, format.format);
      // The neighbour above the largest number is where the next binade would start.
      const bool last = code + 1 == past_the_end;
      const double high =
          last ? std::ldexp(1.0, 1 << (format.format.exponent_bits - 1)) : reference::decode(code + 1, format.format);
      const auto middle = static_cast<float>((low + high) / 2);  // exact: one bit more than the format has
      for (const float value : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, kInfinity)}) {
        x.push_back(value);
        x.push_back(-value);
      }
    }
    const std::vector<uint16_t> codes = encoded(format, x);
    for (size_t i = 0; i < x.size(); i++) ASSERT_TRUE(is_encoded(format, x[i], codes[i]));
  }
}

TEST(Minifloat, encodes_known_values) {
  const struct {
    float x;
    uint16_t float16, bfloat16;
  } kCases[] = {
      {0.0f, 0x0000, 0x0000},      {-0.0f, 0x8000, 0x8000},       {1.0f, 0x3C00, 0x3F80},        {-2.0f, 0xC000, 0xC000},
      {65504.0f, 0x7BFF, 0x4780},  {65519.996f, 0x7BFF, 0x4780},  {65520.0f, 0x7C00, 0x4780},    {-65520.0f, 0xFC00, 0xC780},
      {0x1p-24f, 0x0001, 0x3380},  {0x1p-25f, 0x0000, 0x3300},    {0x1.8p-25f, 0x0001, 0x3340},  {0x1.8p-24f, 0x0002, 0x33C0},
      {0x1p-14f, 0x0400, 0x3880},  {kInfinity, 0x7C00, 0x7F80},   {-kInfinity, 0xFC00, 0xFF80},  {kLargest, 0x7C00, 0x7F80},
      {-kLargest, 0xFC00, 0xFF80}, {0x1.fep127f, 0x7C00, 0x7F7F}, {kDenormal, 0x0000, 0x0000},   {-kDenormal, 0x8000, 0x8000},
      {0x1p-133f, 0x0000, 0x0001}, {1.00390625f, 0x3C04, 0x3F80}, {1.01171875f, 0x3C0C, 0x3F82},
  };
  for (const auto& [x, float16, bfloat16] : kCases) {
    EXPECT_EQ(encoded(kFormats[0], {x})[0], float16) << exact(x);
    EXPECT_EQ(encoded(kFormats[1], {x})[0], bfloat16) << exact(x);
  }
}

TEST(Minifloat, encodes_nan_as_a_quiet_nan_of_the_same_sign) {
  for (const Format& format : kFormats) {
    for (const uint32_t payload : {1u, 2u, 0x1FFFu, 0x2000u, 0x8000u, 0xFFFFu, 0x10000u, 0x3FFFFFu, 0x400000u, 0x7FFFFFu}) {
      for (const uint32_t sign : {0u, 0x80000000u}) {
        const auto nan = std::bit_cast<float>(sign | 0x7F800000u | payload);
        EXPECT_TRUE(is_encoded(format, nan, encoded(format, {nan})[0]));
      }
    }
  }
}

TEST(Minifloat, encodes_random_bits_like_the_oracle) {
  Random random(31);
  SCOPED_TRACE("seed 31");
  std::vector<float> x(100000);
  for (size_t i = 0; i < x.size(); i++)
    x[i] = i % 2 == 0 ? random.any_float() : random.power(-27, 17) * (random.coin() ? 1.0f : -1.0f);
  for (const Format& format : kFormats) {
    const std::vector<uint16_t> codes = encoded(format, x);
    for (size_t i = 0; i < x.size(); i++) ASSERT_TRUE(is_encoded(format, x[i], codes[i]));
  }
}

TEST(Minifloat, converts_any_length_from_any_alignment) {
  Random random(32);
  SCOPED_TRACE("seed 32");
  for (const Format& format : kFormats) {
    for (const size_t length : kLengths) {
      for (size_t offset = 0; offset < 4; offset++) {
        std::vector<float> x(length);
        for (float& value : x) value = random.any_finite();
        const std::vector<uint16_t> codes = encoded(format, x, offset);
        for (size_t i = 0; i < length; i++) ASSERT_TRUE(is_encoded(format, x[i], codes[i])) << length << " " << offset;
        const std::vector<float> again = decoded(format, codes, offset);
        for (size_t i = 0; i < length; i++) {
          ASSERT_EQ(again[i], reference::decode(codes[i], format.format)) << format.name << " " << length << " " << offset;
        }
      }
    }
  }
}

TEST(Minifloat, refuses_lengths_that_differ) {
  for (const Format& format : kFormats) {
    std::vector<float> x(4);
    for (const size_t length : {0, 3, 5}) {
      std::vector<uint16_t> codes(length);
      EXPECT_EQ(format.decode(codes, x), Status::kSizeMismatch);
      EXPECT_EQ(format.encode(x, codes), Status::kSizeMismatch);
    }
  }
}

constexpr Minifloat kMinifloats[] = {Minifloat::kFloat8E4M3FN, Minifloat::kFloat8E5M2, Minifloat::kFloat4E2M1};
constexpr Overflow kOverflows[] = {Overflow::kSaturate, Overflow::kEscape};

std::vector<uint8_t> encoded(const std::vector<float>& x, Minifloat format, Overflow overflow, size_t offset = 0) {
  Buffer<uint8_t> codes(x.size(), offset);
  EXPECT_EQ(float32_to_minifloat(Buffer<float>(x, offset), format, overflow, codes), Status::kOk);
  return codes.values();
}

void expect_like_the_oracle(const std::vector<float>& x) {
  for (const Minifloat format : kMinifloats) {
    for (const Overflow overflow : kOverflows) {
      const std::vector<uint8_t> codes = encoded(x, format, overflow);
      for (size_t i = 0; i < x.size(); i++) {
        ASSERT_EQ(codes[i], reference::encode_minifloat(x[i], format, overflow))
            << exact(x[i]) << " to format " << static_cast<int>(format) << ", overflow " << static_cast<int>(overflow);
      }
    }
  }
}

TEST(Minifloat, decodes_every_byte_by_the_formula) {
  std::vector<uint8_t> codes(256);
  for (size_t i = 0; i < codes.size(); i++) codes[i] = static_cast<uint8_t>(i);
  for (const Minifloat format : kMinifloats) {
    for (size_t offset = 0; offset < 4; offset++) {
      Buffer<float> buffer(codes.size(), offset);
      ASSERT_EQ(minifloat_to_float32(Buffer<uint8_t>(codes, offset), format, buffer), Status::kOk);
      const std::vector<float> x = buffer.values();
      for (size_t i = 0; i < codes.size(); i++) {
        const double expected = reference::minifloat_value(codes[i], format);
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(x[i]) && std::signbit(x[i]) == (i >= 128)) << i;
        } else {
          ASSERT_EQ(float_bits(x[i]), float_bits(static_cast<float>(expected))) << i;  // the conversion is exact
        }
      }
    }
  }
}

TEST(Minifloat, rounds_to_a_byte_half_to_even) {
  for (const Minifloat format : kMinifloats) {
    std::vector<float> x;
    const auto push = [&](double value) {
      const auto middle = static_cast<float>(value);  // exact
      for (const float v : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, kInfinity)}) {
        x.push_back(v);
        x.push_back(-v);
      }
    };
    double last = 0;
    for (int code = 1; code < 128; code++) {
      const double value = reference::minifloat_value(static_cast<uint8_t>(code), format);
      if (!std::isfinite(value) || value <= last) break;
      push((last + value) / 2);
      push(value);
      last = value;
    }
    // Around the ends: 448 and 480, 57344 and 65536, 6 and 8.
    for (const double value : {464.0, 480.0, 496.0, 61440.0, 65536.0, 7.0, 8.0}) push(value);
    expect_like_the_oracle(x);
  }
}

TEST(Minifloat, rounds_any_bits_to_a_byte_like_the_oracle) {
  Random random(33);
  SCOPED_TRACE("seed 33");
  std::vector<float> x(20000);
  for (size_t i = 0; i < x.size(); i++)
    x[i] = i % 2 == 0 ? random.any_float() : random.power(-20, 18) * (random.coin() ? 1.0f : -1.0f);
  x.insert(x.end(), std::begin(kNonFinites), std::end(kNonFinites));
  x.insert(x.end(), {0.0f, -0.0f, kDenormal, -kDenormal, kLargest, -kLargest});
  expect_like_the_oracle(x);
}

TEST(Minifloat, converts_any_number_of_bytes_from_any_alignment) {
  Random random(34);
  SCOPED_TRACE("seed 34");
  for (const Minifloat format : kMinifloats) {
    for (const size_t length : kLengths) {
      std::vector<float> x(length);
      for (float& value : x) value = random.power(-12, 10);
      for (size_t offset = 0; offset < 4; offset++) {
        const std::vector<uint8_t> codes = encoded(x, format, Overflow::kSaturate, offset);
        Buffer<float> again(length, offset);
        ASSERT_EQ(minifloat_to_float32(Buffer<uint8_t>(codes, offset), format, again), Status::kOk);
        for (size_t i = 0; i < length; i++) {
          ASSERT_EQ(codes[i], reference::encode_minifloat(x[i], format, Overflow::kSaturate));
          ASSERT_EQ(again.data()[i], reference::minifloat_value(codes[i], format));
        }
      }
    }
  }
}

TEST(Minifloat, refuses_unknown_formats_and_numbers_of_bytes_that_differ) {
  std::vector<float> x(4);
  std::vector<uint8_t> codes(4);
  for (const int format : {-1, 3}) {
    EXPECT_EQ(float32_to_minifloat(x, static_cast<Minifloat>(format), Overflow::kSaturate, codes), Status::kBadDType);
    EXPECT_EQ(minifloat_to_float32(codes, static_cast<Minifloat>(format), x), Status::kBadDType);
  }
  for (const size_t length : {0, 3, 5}) {
    std::vector<uint8_t> others(length);
    EXPECT_EQ(float32_to_minifloat(x, Minifloat::kFloat8E5M2, Overflow::kEscape, others), Status::kSizeMismatch);
    EXPECT_EQ(minifloat_to_float32(others, Minifloat::kFloat8E5M2, x), Status::kSizeMismatch);
  }
}

TEST(Minifloat, divides_by_the_scale_of_each_element_and_multiplies_with_it) {
  Random random(35);
  SCOPED_TRACE("seed 35");
  for (const Partition& partition : all_partitions()) {
    const Layout layout = layout_of(partition);
    const std::vector<size_t> parameters = partition.parameters();
    std::vector<float> x(parameters.size()), scale(partition.parameter_count());
    for (float& v : x) v = random.power(-8, 12) * (random.coin() ? 1.0f : -1.0f);
    for (float& v : scale) v = random.power(-3, 3);
    size_t start = 0;
    for (const size_t size : random.pieces(x.size(), 700)) {
      Buffer<uint8_t> codes(size, 1);
      ASSERT_EQ(quantize_minifloat(piece(x, start, size), layout, start, scale, Minifloat::kFloat8E4M3FN, codes), Status::kOk);
      Buffer<float> y(size);
      ASSERT_EQ(dequantize_minifloat(codes, layout, start, scale, Minifloat::kFloat8E4M3FN, y), Status::kOk);
      for (size_t i = 0; i < size; i++) {
        const float s = scale[parameters[start + i]];
        const uint8_t code = reference::encode_minifloat(x[start + i] / s, Minifloat::kFloat8E4M3FN, Overflow::kSaturate);
        ASSERT_EQ(codes.data()[i], code) << name(partition);
        const auto value = static_cast<float>(reference::minifloat_value(code, Minifloat::kFloat8E4M3FN));
        ASSERT_EQ(y.data()[i], s * value) << name(partition);
      }
      start += size;
    }
  }
}

TEST(Minifloat, refuses_scales_that_do_not_fit) {
  std::vector<float> x(6), scale(2, 1.0f);
  std::vector<uint8_t> codes(6);
  const Layout rows = {.granularity = Granularity::kPerChannel, .axis_size = 2, .inner_size = 3};
  const auto both = [&](const Layout& layout, Minifloat format, Status status) {
    EXPECT_EQ(quantize_minifloat(x, layout, 0, scale, format, codes), status);
    EXPECT_EQ(dequantize_minifloat(codes, layout, 0, scale, format, x), status);
  };
  both(rows, Minifloat::kFloat8E5M2, Status::kOk);
  both(rows, static_cast<Minifloat>(3), Status::kBadDType);
  both({.granularity = Granularity::kPerChannel, .axis_size = 0}, Minifloat::kFloat8E5M2, Status::kBadLayout);
  codes.resize(5);
  both(rows, Minifloat::kFloat8E5M2, Status::kSizeMismatch);
  codes.resize(6);
  for (const float bad : {0.0f, -1.0f, kInfinity, kNan}) {
    scale[1] = bad;
    both(rows, Minifloat::kFloat8E5M2, Status::kBadScale);
  }
  scale.resize(1);
  both(rows, Minifloat::kFloat8E5M2, Status::kSizeMismatch);
}

}  // namespace
}  // namespace scalepoint::tests
