// Ranges that are searched for.
#include "helpers.h"

namespace scalepoint::tests {
namespace {

struct Chosen {
  std::vector<float> scale;
  std::vector<int32_t> zero_point;
};

Chosen chosen_for(const std::vector<float>& x, const Partition& partition, const QuantizationSpec& spec, RangeMethod method,
                  double percentile = 100, Status expected = Status::kOk) {
  const Layout layout = layout_of(partition);
  const size_t parameters = layout.parameter_end(0, x.size());
  Buffer<float> scale(parameters);
  Buffer<int32_t> zero_point(parameters);
  Buffer<std::byte> scratch(search_scratch_bytes(x.size(), layout));
  EXPECT_EQ(search_qparams(Buffer<float>(x), layout, spec, method, percentile, scratch, scale, zero_point), expected);
  return {scale.values(), zero_point.values()};
}

/// The squared error of the elements of a parameter, by the oracle, in double.
double error_of(const std::vector<float>& x, const std::vector<size_t>& of, size_t parameter, const QuantizationSpec& spec,
                float scale, int32_t zero_point) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); i++) {
    if (of[i] != parameter || !std::isfinite(x[i])) continue;
    const int32_t code = reference::quantize_value(x[i], scale, zero_point, spec.dtype, spec.rounding);
    const double e = static_cast<double>(x[i]) - reference::dequantize_value(code, scale, zero_point);
    sum += e * e;
  }
  return sum;
}

enum class Shape { kNormal, kHeavy, kOutliers, kUniform, kOneSided, kBimodal };
constexpr Shape kShapes[] = {Shape::kNormal, Shape::kHeavy, Shape::kOutliers, Shape::kUniform, Shape::kOneSided, Shape::kBimodal};

std::vector<float> draw(Random& random, Shape shape, size_t n) {
  const auto normal = [&] {
    float sum = 0;
    for (int i = 0; i < 8; i++) sum += random.uniform(-1, 1);
    return sum * 0.6124f;
  };
  std::vector<float> x(n);
  for (float& value : x) {
    switch (shape) {
      case Shape::kNormal:
        value = normal();
        break;
      case Shape::kHeavy:
        value = normal() / std::max(0.05f, random.uniform(0, 1));
        break;
      case Shape::kOutliers:
        value = normal() * (random.below(200) == 0 ? 20.0f : 1.0f);
        break;
      case Shape::kUniform:
        value = random.uniform(-1, 1);
        break;
      case Shape::kOneSided:
        value = std::fabs(normal());
        break;
      case Shape::kBimodal:
        value = (random.coin() ? 1.0f : -1.0f) + 0.25f * normal();
        break;
    }
  }
  return x;
}

Chosen by_min_max(const std::vector<float>& x, const Partition& partition, const QuantizationSpec& spec) {
  std::vector<float> min, max;
  for (const auto& range : reference::observe(x, partition)) {
    min.push_back(range.min);
    max.push_back(range.max);
  }
  Chosen chosen = {std::vector<float>(min.size()), std::vector<int32_t>(min.size())};
  EXPECT_EQ(choose_qparams(min, max, spec, chosen.scale, chosen.zero_point), Status::kOk);
  return chosen;
}

TEST(RangeSearch, least_error_is_never_worse_than_min_max) {
  Random random(501);
  SCOPED_TRACE("seed 501");
  const Partition partitions[] = {{.shape = {700}},
                                  {.shape = {3000}},
                                  {.shape = {4, 70}, .granularity = Granularity::kPerChannel, .axis = 0},
                                  {.shape = {4, 70}, .granularity = Granularity::kPerChannel, .axis = 1},
                                  {.shape = {3, 100}, .granularity = Granularity::kPerGroup, .axis = 1, .group_size = 32},
                                  {.shape = {50, 6}, .granularity = Granularity::kPerGroup, .axis = 0, .group_size = 16}};
  for (const Shape shape : kShapes) {
    for (QuantizationSpec spec : all_specs()) {
      if (random.below(4) != 0) continue;
      spec.rounding = kRoundings[random.below(3)];
      const Partition& partition = partitions[random.below(std::size(partitions))];
      SCOPED_TRACE(name(partition) + " " + name(spec) + " shape " + std::to_string(static_cast<int>(shape)));
      const std::vector<float> x = draw(random, shape, partition.size());
      const Chosen found = chosen_for(x, partition, spec, RangeMethod::kMse), plain = by_min_max(x, partition, spec);
      const std::vector<size_t> of = partition.parameters();
      for (size_t p = 0; p < found.scale.size(); p++) {
        const double error = error_of(x, of, p, spec, found.scale[p], found.zero_point[p]);
        // Improvements of less than 1e-5, which float32 sums could feign, are not taken; restored values are rounded to float32.
        EXPECT_LE(error, error_of(x, of, p, spec, plain.scale[p], plain.zero_point[p]) * (1 + 1e-6) + 1e-12) << "parameter " << p;
        if (spec.scheme == Scheme::kSymmetric) {
          EXPECT_EQ(found.zero_point[p], plain.zero_point[p]);
        } else if (spec.include_zero) {
          EXPECT_GE(found.zero_point[p], reference::lowest_code(spec.dtype));
          EXPECT_LE(found.zero_point[p], reference::highest_code(spec.dtype));
        }
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

/// The least errors of an exhaustive search over how far each end is clipped, and those of the search, summed over groups.
void expect_near_exhaustive(Random& random, Scheme scheme, size_t n, size_t groups, int steps, double bound) {
  for (const Shape shape : kShapes) {
    for (const int32_t bits : {2, 4, 8}) {
      // Hundreds of steps for each end, in which eight bits would have to be searched, take too long.
      if (scheme == Scheme::kAsymmetric && bits == 8) continue;
      const QuantizationSpec spec = {.dtype = {bits, scheme == Scheme::kSymmetric}, .scheme = scheme};
      const int32_t qmin = reference::lowest_code(spec.dtype), qmax = reference::highest_code(spec.dtype);
      const std::vector<size_t> of(n, 0);
      double least = 0, found = 0;
      for (size_t g = 0; g < groups; g++) {
        const std::vector<float> x = draw(random, shape, n);
        float min = 0, max = 0;
        for (const float v : x) min = std::min(min, v), max = std::max(max, v);
        double best = HUGE_VAL;
        for (int i = 1; i <= steps; i++) {
          for (int j = scheme == Scheme::kSymmetric ? steps : 1; j <= steps; j++) {
            const double low = min * static_cast<double>(j) / steps, high = max * static_cast<double>(i) / steps;
            const double width = scheme == Scheme::kSymmetric ? std::max(-min, max) * static_cast<double>(i) / steps / qmax
                                                              : (high - low) / (qmax - qmin);
            const auto scale = static_cast<float>(width);
            if (!(scale > 0)) continue;
            const double zero = scheme == Scheme::kSymmetric
                                    ? 0
                                    : std::clamp(reference::round_half_even(qmin - low / scale), 1.0 * qmin, 1.0 * qmax);
            best = std::min(best, error_of(x, of, 0, spec, scale, static_cast<int32_t>(zero)));
          }
        }
        least += best;
        const Chosen chosen = chosen_for(x, {.shape = {n}}, spec, RangeMethod::kMse);
        found += error_of(x, of, 0, spec, chosen.scale[0], chosen.zero_point[0]);
      }
      EXPECT_LE(found, least * (1 + bound)) << n << " values of shape " << static_cast<int>(shape) << ", " << bits << " bits";
    }
  }
}

TEST(RangeSearch, least_error_is_near_that_of_an_exhaustive_search) {
  Random random(502);
  SCOPED_TRACE("seed 502");
  expect_near_exhaustive(random, Scheme::kSymmetric, 32, 12, 1000, 0.005);
  expect_near_exhaustive(random, Scheme::kSymmetric, 128, 6, 1000, 0.005);
  expect_near_exhaustive(random, Scheme::kSymmetric, 600, 1, 1000, 0.001);
  expect_near_exhaustive(random, Scheme::kSymmetric, 1500, 1, 1000, 0.001);
}

TEST(RangeSearch, least_error_finds_zero_points_too) {
  Random random(503);
  SCOPED_TRACE("seed 503");
  expect_near_exhaustive(random, Scheme::kAsymmetric, 32, 12, 50, 0.005);
  expect_near_exhaustive(random, Scheme::kAsymmetric, 700, 1, 50, 0.001);
}

TEST(RangeSearch, percentiles_are_those_of_sorted_values) {
  Random random(504);
  SCOPED_TRACE("seed 504");
  for (const Partition& partition : all_partitions()) {
    if (random.below(5) != 0) continue;
    for (const Scheme scheme : kSchemes) {
      const QuantizationSpec spec = {.dtype = kInt8, .scheme = scheme};
      const double percentile = random.coin() ? 99 : 51 + static_cast<double>(random.below(490)) / 10;
      const std::vector<float> x = draw(random, Shape::kHeavy, partition.size());
      const std::vector<size_t> of = partition.parameters();
      const Chosen found = chosen_for(x, partition, spec, RangeMethod::kPercentile, percentile);
      for (size_t p = 0; p < found.scale.size(); p++) {
        std::vector<float> values;
        for (size_t i = 0; i < x.size(); i++) {
          if (of[i] == p) values.push_back(scheme == Scheme::kSymmetric ? std::fabs(x[i]) : x[i]);
        }
        std::sort(values.begin(), values.end());
        const auto quantile = [&](double share) {
          const double at = share * static_cast<double>(values.size() - 1), below = std::floor(at);
          const float low = values[static_cast<size_t>(below)],
                      high = values[std::min(values.size() - 1, static_cast<size_t>(below) + 1)];
          return static_cast<float>(low + (at - below) * (static_cast<double>(high) - low));
        };
        const float high = quantile(percentile / 100),
                    low = scheme == Scheme::kSymmetric ? -high : quantile(1 - percentile / 100);
        float scale;
        int32_t zero_point;
        ASSERT_EQ(choose_qparams({&low, 1}, {&high, 1}, spec, {&scale, 1}, {&zero_point, 1}), Status::kOk);
        EXPECT_EQ(found.scale[p], scale) << name(partition) << " parameter " << p;
        EXPECT_EQ(found.zero_point[p], zero_point);
      }
    }
  }
}

/// TensorRT's rule, step by step as its slides put it: histogram, candidates, merged and spread again, divergence.
double entropy_threshold(const std::vector<float>& x, size_t levels) {
  constexpr size_t kBins = 2048;
  double largest = 0;
  for (const float v : x) largest = std::max<double>(largest, std::fabs(v));
  std::vector<double> counts(kBins);
  for (const float v : x) counts[std::min(kBins - 1, static_cast<size_t>(std::fabs(v) * (kBins / largest)))]++;
  double least = HUGE_VAL, best = largest;
  for (size_t bins = levels; bins <= kBins; bins++) {
    std::vector<double> p(counts.begin(), counts.begin() + static_cast<ptrdiff_t>(bins)), q(bins);
    for (size_t level = 0; level < levels; level++) {
      const size_t from = level * bins / levels, to = (level + 1) * bins / levels;
      double sum = 0, occupied = 0;
      for (size_t i = from; i < to; i++) sum += p[i], occupied += p[i] > 0;
      for (size_t i = from; i < to; i++) q[i] = p[i] > 0 ? sum / occupied : 0;
    }
    for (size_t i = bins; i < kBins; i++) p[bins - 1] += counts[i];
    double all_p = 0, all_q = 0, divergence = 0;
    for (size_t i = 0; i < bins; i++) all_p += p[i], all_q += q[i];
    for (size_t i = 0; i < bins; i++) {
      if (p[i] > 0) divergence += q[i] > 0 ? p[i] / all_p * std::log(p[i] / all_p / (q[i] / all_q)) : HUGE_VAL;
    }
    // Of equal ones the widest.
    if (divergence <= least * (1 + 1e-12)) {
      least = std::min(least, divergence);
      best = static_cast<double>(bins) / (kBins / largest);
    }
  }
  return best;
}

TEST(RangeSearch, entropy_is_that_of_tensorrt) {
  Random random(505);
  SCOPED_TRACE("seed 505");
  for (const Shape shape : kShapes) {
    for (const int32_t bits : {4, 8}) {
      const std::vector<float> x = draw(random, shape, 5000);
      const Chosen found = chosen_for(x, {.shape = {5000}}, {.dtype = {bits, true}}, RangeMethod::kEntropy);
      const double threshold = entropy_threshold(x, size_t{1} << (bits - 1));
      EXPECT_EQ(found.scale[0],
                static_cast<float>(static_cast<double>(static_cast<float>(threshold)) / reference::highest_code({bits, true})))
          << static_cast<int>(shape) << " " << bits << " bits";
    }
  }
}

TEST(RangeSearch, degenerate_data_have_the_parameters_of_min_max) {
  for (const QuantizationSpec& spec : all_specs()) {
    for (const RangeMethod method : {RangeMethod::kMse, RangeMethod::kPercentile, RangeMethod::kEntropy}) {
      for (const float value : {0.0f, -0.0f, 3.5f, -1e30f, kDenormal, kLargest}) {
        for (const size_t n : {0u, 1u, 5u, 40u, 2000u}) {
          const std::vector<float> x(n, value);
          const Partition partition = {.shape = {n}};
          const Layout layout;
          float scale = 0, min, max;
          int32_t zero_point = 0;
          clear_range({&min, 1}, {&max, 1});
          for (const float v : x) min = std::min(min, v), max = std::max(max, v);
          std::vector<std::byte> scratch(search_scratch_bytes(n, layout));
          ASSERT_EQ(search_qparams(x, layout, spec, method, 100, scratch, {&scale, 1}, {&zero_point, 1}), Status::kOk);
          float plain_scale;
          int32_t plain_zero;
          ASSERT_EQ(choose_qparams({&min, 1}, {&max, 1}, spec, {&plain_scale, 1}, {&plain_zero, 1}), Status::kOk);
          EXPECT_EQ(scale, plain_scale) << name(spec) << " " << exact(value) << " x " << n;
          EXPECT_EQ(zero_point, plain_zero);
        }
      }
    }
  }
}

TEST(RangeSearch, takes_values_of_any_size) {
  Random random(506);
  SCOPED_TRACE("seed 506");
  for (const int exponent : {-148, -130, -60, 60, 126}) {
    for (const size_t n : {7u, 33u, 300u}) {
      for (const QuantizationSpec& spec : all_specs()) {
        if (random.below(8) != 0) continue;
        std::vector<float> x = random.uniform_values(n, -1, 1);
        for (float& value : x) value = std::ldexp(value, exponent);
        const Chosen found = chosen_for(x, {.shape = {n}}, spec, RangeMethod::kMse);
        EXPECT_GE(found.scale[0], kMinScale);
        EXPECT_LT(found.scale[0], kInfinity);
      }
    }
  }
}

TEST(RangeSearch, refuses_or_leaves_out_what_is_not_finite) {
  Random random(507);
  for (const size_t n : {50u, 3000u}) {
    std::vector<float> x = random.uniform_values(n, -1, 1);
    const Chosen clean = chosen_for(x, {.shape = {n}}, QuantizationSpec{}, RangeMethod::kPercentile, 100);
    std::vector<float> bad = x;
    for (size_t i = 0; i < 8; i++) bad.push_back(kNonFinites[i]);
    const Partition partition = {.shape = {n + 8}};
    QuantizationSpec spec;
    for (const RangeMethod method : {RangeMethod::kMse, RangeMethod::kPercentile, RangeMethod::kEntropy}) {
      spec.non_finite = NonFinite::kError;
      chosen_for(bad, partition, spec, method, 100, Status::kNonFinite);
      spec.non_finite = NonFinite::kSaturate;
      const Chosen found = chosen_for(bad, partition, spec, method, 100);
      EXPECT_GT(found.scale[0], 0);
      if (method == RangeMethod::kPercentile) {
        EXPECT_EQ(found.scale[0], clean.scale[0]);
      }
      EXPECT_LE(found.scale[0], clean.scale[0] * 1.13f);
    }
  }
  Layout layout;
  const std::vector<float> x(10, 1.0f);
  std::vector<std::byte> scratch(search_scratch_bytes(10, layout));
  float scale[2];
  int32_t zero[2];
  for (const double percentile : {50.0, 100.5, -1.0, static_cast<double>(kNan)}) {
    EXPECT_EQ(search_qparams(x, layout, {}, RangeMethod::kPercentile, percentile, scratch, {scale, 1}, {zero, 1}),
              Status::kBadRange);
  }
  EXPECT_EQ(search_qparams(x, layout, {}, RangeMethod::kMse, 100, std::span(scratch).subspan(4), {scale, 1}, {zero, 1}),
            Status::kSizeMismatch);
  EXPECT_EQ(search_qparams(x, layout, {}, RangeMethod::kMse, 100, scratch, {scale, 2}, {zero, 1}), Status::kSizeMismatch);
  EXPECT_EQ(search_qparams(x, layout, {.dtype = {9, true}}, RangeMethod::kMse, 100, scratch, {scale, 1}, {zero, 1}),
            Status::kBadDType);
  layout = {.granularity = Granularity::kPerGroup, .group_size = 0};
  EXPECT_EQ(search_qparams(x, layout, {}, RangeMethod::kMse, 100, scratch, {scale, 1}, {zero, 1}), Status::kBadLayout);
}

TEST(TakeBetter, takes_what_restores_a_run_better) {
  // At scale 1 the first run is exact and the second is off by 1/2; at scale 1/2 all are exact, and 7 is beyond the codes.
  for (const float unit : {1.0f, 0x1p-140f, 0x1p120f}) {
    const std::vector<float> x({7 * unit, 1 * unit, 3.5f * unit, 0.5f * unit, -0.0f, 0});
    std::vector<float> scale(3, unit);
    const std::vector<float> other(3, unit / 2);
    std::vector<int32_t> zero(3, 0);
    const std::vector<int32_t> other_zero(3, 0);
    EXPECT_EQ(take_better(x, 2, {4, true}, scale, zero, other, other_zero), Status::kOk);
    EXPECT_EQ(scale, (std::vector<float>{unit, unit / 2, unit})) << unit;
  }
  // With the zero point that belongs to it.
  const std::vector<float> x = {-1, 14};
  std::vector<float> scale = {1};
  std::vector<int32_t> zero = {0};
  EXPECT_EQ(take_better(x, 2, {4, true}, scale, zero, std::vector<float>{1}, std::vector<int32_t>{-7}), Status::kOk);
  EXPECT_EQ(zero[0], -7);
  // What is no scale is left alone.
  for (const float no_scale : {0.0f, -1.0f, kNan, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(take_better(x, 2, {4, true}, scale, zero, std::vector<float>{no_scale}, std::vector<int32_t>{0}), Status::kOk);
    EXPECT_EQ(scale[0], 1);
  }
}

TEST(TakeBetter, refuses_what_does_not_fit_together) {
  const std::vector<float> x(4);
  std::vector<float> scale = {1, 1};
  std::vector<int32_t> zero = {0, 0};
  const std::vector<float> other = {1, 1};
  const std::vector<int32_t> other_zero = {0, 0};
  EXPECT_EQ(take_better(x, 3, {4, true}, scale, zero, other, other_zero), Status::kSizeMismatch);
  EXPECT_EQ(take_better(x, 2, {9, true}, scale, zero, other, other_zero), Status::kBadDType);
  EXPECT_EQ(take_better(x, 2, {4, true}, scale, zero, std::span(other).subspan(1), other_zero), Status::kSizeMismatch);
  scale[1] = 0;
  EXPECT_EQ(take_better(x, 2, {4, true}, scale, zero, other, other_zero), Status::kBadScale);
}

}  // namespace
}  // namespace scalepoint::tests
