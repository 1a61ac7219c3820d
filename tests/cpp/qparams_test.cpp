// A range becomes a scale and a zero point.
#include "helpers.h"

namespace scalepoint::tests {
namespace {

/// The largest zero point that choose_qparams may give.
constexpr double kZeroPointLimit = kMaxZeroPoint - 65536;

struct Chosen {
  Status status;
  float scale;
  int32_t zero_point;
};

Chosen choose(float min, float max, const QuantizationSpec& spec) {
  Chosen chosen = {};
  chosen.status = choose_qparams({&min, 1}, {&max, 1}, spec, {&chosen.scale, 1}, {&chosen.zero_point, 1});
  return chosen;
}

QuantizationSpec symmetric(DType dtype, SymmetricRange range = SymmetricRange::kRestricted) {
  return {.dtype = dtype, .scheme = Scheme::kSymmetric, .symmetric_range = range};
}
QuantizationSpec asymmetric(DType dtype, bool include_zero = true) {
  return {.dtype = dtype, .scheme = Scheme::kAsymmetric, .include_zero = include_zero};
}

struct Bounds {
  float min;
  float max;
};

/// Ranges around zero, beside it, of zero width and of every size that float32 has.
std::vector<Bounds> make_ranges() {
  std::vector<Bounds> ranges = {
      {0, 0},
      {-0.0f, 0},
      {0, -0.0f},
      {0, 1},
      {-1, 0},
      {-1, 1},
      {-184.0f, 728.6f},
      {10, 20},
      {-20, -10},
      {0.1f, 0.1f},
      {-0.1f, -0.1f},
      {100, 101},
      {-101, -100},
      {-kLargest, kLargest},
      {0, kLargest},
      {-kLargest, 0},
      {-kLargest, -kLargest},
      {kLargest, kLargest},
      {kLargest / 2, kLargest},
      {-kSmallestNormal, kSmallestNormal},
      {0, kSmallestNormal},
      {-kDenormal, kDenormal},
      {0, kDenormal},
      {-kDenormal, 0},
      {kDenormal, kDenormal},
      {-kDenormal, -kDenormal},
      {-1e-40f, 3e-39f},
      {1e-40f, 3e-39f},
      {-3e-36f, 1e-36f},
      {-1e30f, 1e-30f},
      {-1e-30f, 1e30f},
      {kInfinity, -kInfinity},
      {1, -1},
      {2, 1},
      {-1, -2},
      {std::nextafter(1.0f, 0.0f), 1},
      {1, 1.001f},
      {-1.001f, -1},
  };
  // min / scale on a tie for each width of a type: qmin - min / scale has to go to the even neighbour.
  for (const int bits : {2, 3, 4, 5, 6, 7, 8, 16}) {
    const auto steps = static_cast<float>((1 << bits) - 1);
    for (const float k : {0.0f, 1.0f, 2.0f, std::floor(steps / 2), steps - 2, steps - 1}) {
      ranges.push_back({-(k + 0.5f), steps - (k + 0.5f)});
      ranges.push_back({-(k + 0.5f) * 0.125f, (steps - (k + 0.5f)) * 0.125f});
    }
  }
  Random random(1);
  for (int i = 0; i < 2000; i++) {
    float a = 0, b = 0;
    if (i % 4 == 0) {
      a = random.any_finite(), b = random.any_finite();
    } else if (i % 4 == 1) {
      a = random.uniform(-1, 1), b = random.uniform(-1, 1);
    } else if (i % 4 == 2) {
      a = random.power(-149, 127), b = a * random.uniform(0, 1);
      if (random.coin()) a = -a;
    } else {
      a = random.uniform(-100, 100), b = a + random.uniform(0, 1);
    }
    ranges.push_back({std::min(a, b), std::max(a, b)});
  }
  return ranges;
}

const std::vector<Bounds>& ranges() {
  static const std::vector<Bounds> all = make_ranges();
  return all;
}

/// A range that holds one value, not 0, which is too small to be a scale.
bool tiny_constant(float min, float max, const QuantizationSpec& spec) {
  return spec.scheme == Scheme::kAsymmetric && !spec.include_zero && min == max && min != 0 && std::fabs(min) < 0x1p-127f;
}

/// True if all codes that values of the range can get stand for finite values: all of the type, but in a restricted symmetric
/// range, whose values get no code below -qmax.
bool all_finite(float scale, double zero_point, const QuantizationSpec& spec) {
  const bool restricted = spec.scheme == Scheme::kSymmetric && spec.symmetric_range == SymmetricRange::kRestricted;
  const int32_t lowest = reference::lowest_code(spec.dtype) + (restricted ? 1 : 0), highest = reference::highest_code(spec.dtype);
  const auto zero = static_cast<int32_t>(zero_point);
  return std::isfinite(reference::dequantize_value(lowest, scale, zero)) &&
         std::isfinite(reference::dequantize_value(highest, scale, zero));
}

bool widened(const reference::Parameters& parameters) { return std::fabs(parameters.zero_point) > kZeroPointLimit; }

TEST(ChooseQparams, follows_the_formulas_for_every_type_scheme_and_range) {
  SCOPED_TRACE("seed 1");
  for (const QuantizationSpec& spec : all_specs()) {
    for (const auto& [min, max] : ranges()) {
      const reference::Parameters expected = reference::choose_qparams(min, max, spec);
      // Values near the limit of zero points, and tiny constants, have tests of their own.
      if (std::fabs(expected.zero_point) > kMaxZeroPoint - 0x1p18 || tiny_constant(min, max, spec)) continue;
      const Chosen chosen = choose(min, max, spec);
      // Only failures need words, which take longer than all the rest.
      const auto about = [&, low = min, high = max] { return name(spec) + ", range " + exact(low) + " to " + exact(high); };
      const auto scale = static_cast<float>(expected.scale);
      ASSERT_EQ(chosen.status, Status::kOk) << about();
      if (all_finite(scale, expected.zero_point, spec)) {
        ASSERT_EQ(float_bits(chosen.scale), float_bits(scale))
            << about() << ": expected " << exact(scale) << ", got " << exact(chosen.scale);
      }
      ASSERT_EQ(chosen.zero_point, static_cast<int32_t>(expected.zero_point)) << about();
    }
  }
}

TEST(ChooseQparams, gives_the_values_worked_out_by_hand) {
  const struct {
    QuantizationSpec spec;
    float min, max;
    float scale;
    int32_t zero_point;
  } kCases[] = {
      {symmetric(kInt8), -254, 127, 2, 0},
      {symmetric(kInt8), -3, 127, 1, 0},
      {symmetric(kUint8), -254, 127, 2, 128},
      {symmetric(kInt8, SymmetricRange::kFull), -255, 1, 2, 0},
      {symmetric(kUint8, SymmetricRange::kFull), -1, 255, 2, 128},
      {symmetric(kInt4), 0, 7, 1, 0},
      {symmetric(kUint4), 0, 7, 1, 8},
      {symmetric(kInt4, SymmetricRange::kFull), 0, 7.5f, 1, 0},
      {symmetric(kInt2), -3, 1, 3, 0},
      {symmetric(kInt2, SymmetricRange::kFull), -3, 1, 2, 0},
      {symmetric(kUint2), -3, 1, 3, 2},
      {symmetric(kInt16), -32767, 0, 1, 0},
      {symmetric(kUint16), -32767, 0, 1, 32768},
      {asymmetric(kUint8), 0, 255, 1, 0},
      {asymmetric(kUint8), -255, 0, 1, 255},
      {asymmetric(kInt8), 0, 255, 1, -128},
      {asymmetric(kInt8), -255, 0, 1, 127},
      {asymmetric(kUint8), -127.5f, 127.5f, 1, 128},
      {asymmetric(kUint8), -126.5f, 128.5f, 1, 126},
      {asymmetric(kInt8), -127.5f, 127.5f, 1, 0},
      {asymmetric(kInt8), -126.5f, 128.5f, 1, -2},
      {asymmetric(kUint8), 51, 510, 2, 0},
      {asymmetric(kUint8, false), 510, 1020, 2, -255},
      {asymmetric(kInt8, false), 510, 1020, 2, -383},
      {asymmetric(kUint8, false), -1020, -510, 2, 510},
      {asymmetric(kInt8, false), -1020, -510, 2, 382},
      {asymmetric(kUint4, false), -1, 14, 1, 1},
      {asymmetric(kUint2), -3, 3, 2, 2},
      {asymmetric(kInt16), 0, 65535, 1, -32768},
      // Printed in the notebooks: 3.578823433670343, before the rounding to float32, and -77.
      {asymmetric(kInt8), -184, 728.6f, static_cast<float>(3.578823433670343), -77},
      {asymmetric(kUint8), -40.1f, 127.48f, static_cast<float>((127.48f - -40.1f) / 255.0), 61},
  };
  for (const auto& expected : kCases) {
    const Chosen chosen = choose(expected.min, expected.max, expected.spec);
    const std::string about = name(expected.spec) + ", range " + exact(expected.min) + " to " + exact(expected.max);
    EXPECT_EQ(chosen.status, Status::kOk) << about;
    EXPECT_NEAR(chosen.scale, expected.scale, expected.scale * 0x1p-24f) << about;  // the hand's own rounding to float32
    EXPECT_EQ(chosen.zero_point, expected.zero_point) << about;
  }
}

TEST(ChooseQparams, gives_many_ranges_the_same_as_one_at_a_time) {
  const std::vector<Bounds>& all = ranges();
  for (const QuantizationSpec& spec : all_specs()) {
    for (const size_t length : {size_t{0}, size_t{3}, size_t{17}, all.size()}) {
      std::vector<float> min(length), max(length);
      for (size_t i = 0; i < length; i++) min[i] = all[i].min, max[i] = all[i].max;
      Buffer<float> scale(length, 1);
      Buffer<int32_t> zero_point(length, 1);
      ASSERT_EQ(choose_qparams(Buffer<float>(min, 3), Buffer<float>(max, 2), spec, scale, zero_point), Status::kOk);
      for (size_t i = 0; i < length; i++) {
        const Chosen chosen = choose(min[i], max[i], spec);
        ASSERT_EQ(float_bits(scale.span()[i]), float_bits(chosen.scale)) << name(spec) << " at " << i;
        ASSERT_EQ(zero_point.span()[i], chosen.zero_point) << name(spec) << " at " << i;
      }
    }
  }
}

TEST(ChooseQparams, counts_an_empty_range_as_zero) {
  for (const QuantizationSpec& spec : all_specs()) {
    const Chosen zero = choose(0, 0, spec);
    for (const auto& [min, max] : {Bounds{kInfinity, -kInfinity}, Bounds{5, 4}, Bounds{-4, -5}, Bounds{1, -1}}) {
      const Chosen chosen = choose(min, max, spec);
      EXPECT_EQ(chosen.status, Status::kOk) << name(spec);
      EXPECT_EQ(chosen.scale, 1) << name(spec);
      EXPECT_EQ(chosen.scale, zero.scale) << name(spec);
      EXPECT_EQ(chosen.zero_point, zero.zero_point) << name(spec);
    }
  }
}

TEST(ChooseQparams, reads_only_the_fields_that_concern_it) {
  for (const auto& [min, max] : {Bounds{-1, 3}, Bounds{1, 3}, Bounds{2, 2}}) {
    for (const DType dtype : kDTypes) {
      const Chosen expected_symmetric = choose(min, max, symmetric(dtype)),
                   expected_asymmetric = choose(min, max, asymmetric(dtype));
      for (const Rounding rounding : kRoundings) {
        QuantizationSpec spec = symmetric(dtype);
        spec.include_zero = false;
        spec.rounding = rounding;
        spec.non_finite = NonFinite::kSaturate;
        EXPECT_EQ(choose(min, max, spec).scale, expected_symmetric.scale) << name(spec);
        EXPECT_EQ(choose(min, max, spec).zero_point, expected_symmetric.zero_point) << name(spec);
        spec = asymmetric(dtype);
        spec.symmetric_range = SymmetricRange::kFull;
        spec.rounding = rounding;
        spec.non_finite = NonFinite::kSaturate;
        EXPECT_EQ(choose(min, max, spec).scale, expected_asymmetric.scale) << name(spec);
        EXPECT_EQ(choose(min, max, spec).zero_point, expected_asymmetric.zero_point) << name(spec);
      }
    }
  }
}

TEST(ChooseQparams, never_gives_a_scale_without_a_finite_reciprocal) {
  for (const QuantizationSpec& spec : all_specs()) {
    for (const auto& [min, max] : ranges()) {
      const Chosen chosen = choose(min, max, spec);
      ASSERT_EQ(chosen.status, Status::kOk);
      ASSERT_GE(chosen.scale, 0x1p-127f) << name(spec) << exact(min) << exact(max);
      ASSERT_TRUE(std::isfinite(chosen.scale)) << name(spec) << exact(min) << exact(max);
      ASSERT_TRUE(std::isfinite(1.0f / chosen.scale)) << name(spec) << exact(min) << exact(max);
    }
  }
  EXPECT_EQ(kMinScale, 0x1p-127f);
}

TEST(ChooseQparams, keeps_the_zero_point_in_the_type_if_zero_is_in_the_range) {
  for (const QuantizationSpec& spec : all_specs()) {
    for (const auto& [min, max] : ranges()) {
      if (spec.scheme == Scheme::kAsymmetric && !spec.include_zero && !(min <= 0 && max >= 0)) continue;
      const Chosen chosen = choose(min, max, spec);
      ASSERT_GE(chosen.zero_point, reference::lowest_code(spec.dtype)) << name(spec) << exact(min) << exact(max);
      ASSERT_LE(chosen.zero_point, reference::highest_code(spec.dtype)) << name(spec) << exact(min) << exact(max);
    }
  }
}

TEST(ChooseQparams, lowers_a_scale_no_more_than_finite_values_need) {
  size_t cases = 0;
  for (const QuantizationSpec& spec : all_specs()) {
    std::vector<Bounds> large = ranges();
    for (const float size : {kLargest, std::nextafter(kLargest, 0.0f), 0x1.fep127f, 0x1.8p127f}) {
      for (const float other : {size, -size, size / 2, -size / 2, 1.0f, -1.0f, size / 3, -size / 3, size * 0.9f, -size * 0.99f}) {
        large.push_back({std::min(size, other), std::max(size, other)});
        large.push_back({std::min(-size, other), std::max(-size, other)});
      }
    }
    for (const auto& [min, max] : large) {
      const reference::Parameters expected = reference::choose_qparams(min, max, spec);
      // The scale of a constant restores it exactly, whatever the codes that it does not get stand for.
      const bool constant = spec.scheme == Scheme::kAsymmetric && !spec.include_zero && min == max;
      if (constant || widened(expected) || all_finite(static_cast<float>(expected.scale), expected.zero_point, spec)) continue;
      cases++;
      const Chosen chosen = choose(min, max, spec);
      const std::string about = name(spec) + ", range " + exact(min) + " to " + exact(max) + ", scale " + exact(chosen.scale) +
                                ", zero point " + std::to_string(chosen.zero_point);
      ASSERT_EQ(chosen.status, Status::kOk) << about;
      ASSERT_EQ(chosen.zero_point, expected.zero_point) << about;
      ASSERT_TRUE(all_finite(chosen.scale, chosen.zero_point, spec)) << about;
      // The next float32 may still do where the product rounds down to the largest; the one after it never does.
      const float more = std::nextafter(std::nextafter(chosen.scale, kInfinity), kInfinity);
      ASSERT_FALSE(all_finite(more, chosen.zero_point, spec)) << about;
    }
  }
  EXPECT_GT(cases, 100u);
}

TEST(ChooseQparams, restores_both_ends_of_the_range_within_half_a_step) {
  for (QuantizationSpec spec : all_specs()) {
    for (const auto& [min, max] : ranges()) {
      if (min > max) continue;
      const Chosen chosen = choose(min, max, spec);
      for (const float end : {min, max}) {
        const int32_t code = reference::quantize_value(end, chosen.scale, chosen.zero_point, spec.dtype, Rounding::kOnnx);
        const double restored = static_cast<double>(chosen.scale) * (static_cast<double>(code) - chosen.zero_point);
        // Half a step from rounding the zero point or the code, and as much again where the scale was lowered: the code farthest
        // from the zero point was at most half a step past the largest float, and the other end loses no more. The scale's
        // rounding to float32 moves the value by up to 2^-23 of itself (a denormal scale, at least 2^-127, has steps of 2^-149),
        // the division rounds by up to 2^-24 of it.
        const bool lowered = chosen.scale < static_cast<float>(reference::choose_qparams(min, max, spec).scale);
        const double bound = chosen.scale * ((lowered ? 1 : 0.5) + 0x1p-22) + std::fabs(end) * 0x1p-22;
        ASSERT_TRUE(std::isfinite(reference::dequantize_value(code, chosen.scale, chosen.zero_point)))
            << name(spec) << ", range " << exact(min) << " to " << exact(max) << ", scale " << exact(chosen.scale) << ", code "
            << code;
        ASSERT_LE(std::fabs(restored - end), bound)
            << name(spec) << ", range " << exact(min) << " to " << exact(max) << ", scale " << exact(chosen.scale)
            << ", zero point " << chosen.zero_point << ", code " << code;
      }
    }
  }
}

TEST(ChooseQparams, restores_a_constant_exactly_without_zero_in_the_range) {
  Random random(2);
  SCOPED_TRACE("seed 2");
  std::vector<float> constants = {1, 0.1f, 3.3f, 1e-30f, 1e30f, kLargest, kSmallestNormal, 0x1p-127f, 0x1.8p-127f};
  for (int i = 0; i < 200; i++) constants.push_back(random.power(-127, 127));
  for (const DType dtype : kDTypes) {
    for (const float size : constants) {
      for (const float constant : {size, -size}) {
        const Chosen chosen = choose(constant, constant, asymmetric(dtype, false));
        EXPECT_EQ(chosen.scale, size) << name(dtype);
        EXPECT_EQ(chosen.zero_point, constant < 0 && !dtype.is_signed ? 1 : 0) << name(dtype) << exact(constant);
        for (const Rounding rounding : kRoundings) {
          const int32_t code = reference::quantize_value(constant, chosen.scale, chosen.zero_point, dtype, rounding);
          EXPECT_EQ(reference::dequantize_value(code, chosen.scale, chosen.zero_point), constant)
              << name(dtype) << exact(constant);
        }
      }
    }
  }
}

TEST(ChooseQparams, raises_the_scale_of_a_constant_too_small_to_be_one) {
  for (const DType dtype : kDTypes) {
    for (const float size : {kDenormal, 1e-42f, 0x1.fffp-128f}) {
      for (const float constant : {size, -size}) {
        const Chosen chosen = choose(constant, constant, asymmetric(dtype, false));
        ASSERT_EQ(chosen.status, Status::kOk);
        ASSERT_EQ(chosen.scale, 0x1p-127f) << name(dtype) << " " << exact(constant);
        ASSERT_EQ(chosen.zero_point, constant < 0 && !dtype.is_signed ? 1 : 0) << name(dtype) << " " << exact(constant);
      }
    }
  }
}

TEST(ChooseQparams, widens_the_scale_no_more_than_the_zero_point_needs) {
  size_t cases = 0;
  for (const DType dtype : kDTypes) {
    const QuantizationSpec spec = asymmetric(dtype, false);
    std::vector<Bounds> far_away = ranges();
    for (const float size : {1.0f, 1000.0f, 1e-30f, 1e30f, 3e38f, 0x1p-126f}) {
      for (const float gap : {0x1p-23f, 0x1p-22f, 0x1p-20f, 0x1p-16f, 0x1p-12f, 0x1p-8f}) {
        far_away.push_back({size, size * (1 + gap)});
        far_away.push_back({-size * (1 + gap), -size});
      }
    }
    for (const auto& [min, max] : far_away) {
      const reference::Parameters narrow = reference::choose_qparams(min, max, spec);
      if (!all_finite(static_cast<float>(narrow.scale), narrow.zero_point, spec)) continue;
      const Chosen chosen = choose(min, max, spec);
      const std::string about = name(spec) + ", range " + exact(min) + " to " + exact(max) + ", scale " + exact(chosen.scale);
      ASSERT_EQ(chosen.status, Status::kOk) << about;
      ASSERT_LE(std::abs(chosen.zero_point), kZeroPointLimit) << about;
      ASSERT_GE(chosen.scale, static_cast<float>(narrow.scale)) << about;
      if (!widened(narrow)) {
        ASSERT_EQ(chosen.scale, static_cast<float>(narrow.scale)) << about << ", zero point " << narrow.zero_point;
        continue;
      }
      cases++;
      // With |qmin| <= 2^15 the zero point is at the limit when |min| / scale is within 2^15 of it; one step of rounding and the
      // scale's own rounding come on top. A scale wider than that is wider than needed.
      const double bound = std::fabs(min) / (kZeroPointLimit - 32768 - 1) * (1 + 0x1p-22);
      ASSERT_LE(chosen.scale, bound) << about;
    }
  }
  EXPECT_GT(cases, 100u);
}

TEST(ChooseQparams, leaves_zero_points_up_to_the_limit_alone) {
  // Steps of 1, so that the zero point is qmin - min.
  for (const DType dtype : kDTypes) {
    const auto steps = static_cast<float>(reference::highest_code(dtype) - reference::lowest_code(dtype));
    for (const float distance : {0.0f, 1.0f, 100.0f, 32768.0f}) {
      for (const float sign : {1.0f, -1.0f}) {
        const float zero_point = sign * (static_cast<float>(kZeroPointLimit) - distance);
        const float min = static_cast<float>(reference::lowest_code(dtype)) - zero_point;
        const Chosen chosen = choose(min, min + steps, asymmetric(dtype, false));
        ASSERT_EQ(chosen.scale, 1) << name(dtype) << ", range from " << exact(min) << " with steps of 1";
        ASSERT_EQ(chosen.zero_point, zero_point) << name(dtype);
      }
    }
  }
}

TEST(ChooseQparams, restores_zero_exactly_if_it_is_in_the_range) {
  for (const QuantizationSpec& spec : all_specs()) {
    if (spec.scheme == Scheme::kAsymmetric && !spec.include_zero) continue;
    for (const auto& [min, max] : ranges()) {
      const Chosen chosen = choose(min, max, spec);
      for (const Rounding rounding : kRoundings) {
        const int32_t code = reference::quantize_value(0, chosen.scale, chosen.zero_point, spec.dtype, rounding);
        ASSERT_EQ(reference::dequantize_value(code, chosen.scale, chosen.zero_point), 0)
            << name(spec) << exact(min) << exact(max);
      }
    }
  }
}

TEST(ChooseQparams, refuses_bounds_that_are_not_finite) {
  for (const QuantizationSpec& spec : all_specs()) {
    for (const Bounds bad :
         {Bounds{kNan, 1}, Bounds{0, kNan}, Bounds{kNan, kNan}, Bounds{kNegativeNan, 1}, Bounds{0, kInfinity},
          Bounds{-kInfinity, 0}, Bounds{-kInfinity, kInfinity}, Bounds{kInfinity, kInfinity}, Bounds{-kInfinity, -kInfinity}}) {
      for (const size_t position : {0, 1, 4, 9}) {
        std::vector<float> min(10, -1), max(10, 2), scale(10);
        std::vector<int32_t> zero_point(10);
        min[position] = bad.min, max[position] = bad.max;
        EXPECT_EQ(choose_qparams(min, max, spec, scale, zero_point), Status::kBadRange)
            << name(spec) << bad.min << " " << bad.max;
      }
    }
  }
}

TEST(ChooseQparams, refuses_other_types_and_lengths) {
  std::vector<float> min(4, -1), max(4, 1), scale(4);
  std::vector<int32_t> zero_point(4);
  for (const int32_t bits : kBadBits) {
    for (const bool is_signed : {true, false}) {
      EXPECT_EQ(choose_qparams(min, max, symmetric({bits, is_signed}), scale, zero_point), Status::kBadDType) << bits;
    }
  }
  for (const size_t length : {0, 3, 5}) {
    std::vector<float> floats(length, 1);
    std::vector<int32_t> integers(length);
    EXPECT_EQ(choose_qparams(floats, max, symmetric(kInt8), scale, zero_point), Status::kSizeMismatch);
    EXPECT_EQ(choose_qparams(min, floats, symmetric(kInt8), scale, zero_point), Status::kSizeMismatch);
    EXPECT_EQ(choose_qparams(min, max, symmetric(kInt8), floats, zero_point), Status::kSizeMismatch);
    EXPECT_EQ(choose_qparams(min, max, symmetric(kInt8), scale, integers), Status::kSizeMismatch);
  }
}

}  // namespace
}  // namespace scalepoint::tests
