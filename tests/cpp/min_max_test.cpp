// Ranges of arrays, the search for values that are not finite, histograms.
#include "arrays/min_max_loops.h"
#include "helpers.h"

namespace scalepoint::tests {
namespace {

struct Observed {
  Status status = Status::kOk;
  std::vector<float> min;
  std::vector<float> max;
};

/// Observes x in pieces of up to `longest` elements, from pointers at every alignment.
Observed observe_in_pieces(const std::vector<float>& x, const Partition& partition, NonFinite non_finite, size_t longest,
                           Random& random) {
  Observed observed;
  Buffer<float> min(partition.parameter_count(), random.below(4)), max(partition.parameter_count(), random.below(4));
  clear_range(min, max);
  size_t start = 0;
  for (const size_t size : random.pieces(x.size(), longest)) {
    Buffer<float> input(piece(x, start, size), random.below(4));
    const Status status = observe(input, layout_of(partition), start, non_finite, min, max);
    if (observed.status == Status::kOk) observed.status = status;
    start += size;
  }
  observed.min = min.values();
  observed.max = max.values();
  return observed;
}

void expect_observed(const std::vector<float>& x, const Partition& partition, const Observed& observed) {
  const std::vector<reference::Range> expected = reference::observe(x, partition);
  std::vector<float> min, max;
  for (const reference::Range& range : expected) min.push_back(range.min), max.push_back(range.max);
  EXPECT_TRUE(same(min, observed.min)) << "min, " << name(partition);
  EXPECT_TRUE(same(max, observed.max)) << "max, " << name(partition);
}

TEST(ClearRange, leaves_plus_and_minus_infinity) {
  for (const size_t length : kLengths) {
    Buffer<float> min(length, 1), max(length, 3);
    clear_range(min, max);
    EXPECT_TRUE(same(std::vector<float>(length, kInfinity), min.values()));
    EXPECT_TRUE(same(std::vector<float>(length, -kInfinity), max.values()));
  }
}

TEST(Observe, finds_the_extremes_wherever_they_are) {
  // Every position of the smallest and of the largest value, at every alignment.
  for (const size_t length : kLengths) {
    if (length > 129) continue;
    for (size_t position = 0; position < length; position++) {
      std::vector<float> x(length, 0.5f);
      x[position] = -3;
      x[(position + length / 2) % length] = length > 1 ? 7 : -3;
      Buffer<float> input(x, position % 4);
      float min = kInfinity, max = -kInfinity;
      ASSERT_EQ(observe(input, {}, 0, NonFinite::kError, {&min, 1}, {&max, 1}), Status::kOk);
      ASSERT_EQ(min, -3) << length << " " << position;
      ASSERT_EQ(max, length > 1 ? 7 : -3) << length << " " << position;
    }
  }
}

TEST(Observe, agrees_with_the_oracle_for_every_layout) {
  Random random(11);
  SCOPED_TRACE("seed 11");
  for (const Partition& partition : all_partitions()) {
    const std::vector<float> x = random.uniform_values(partition.size(), -10, 10);
    for (const NonFinite non_finite : {NonFinite::kError, NonFinite::kSaturate}) {
      const Observed observed = observe_in_pieces(x, partition, non_finite, SIZE_MAX, random);
      EXPECT_EQ(observed.status, Status::kOk);
      expect_observed(x, partition, observed);
    }
    if (HasFailure()) return;
  }
}

TEST(Observe, sees_the_same_in_pieces_as_in_one_call) {
  Random random(12);
  SCOPED_TRACE("seed 12");
  for (const Partition& partition : all_partitions()) {
    const std::vector<float> x = random.uniform_values(partition.size(), -10, 10);
    for (const size_t longest : {1, 3, 7, 20, 100}) {
      expect_observed(x, partition, observe_in_pieces(x, partition, NonFinite::kError, longest, random));
    }
    if (HasFailure()) return;
  }
}

TEST(Observe, leaves_out_what_is_not_finite_where_that_is_allowed) {
  Random random(13);
  SCOPED_TRACE("seed 13");
  for (const Partition& partition : all_partitions()) {
    std::vector<float> x = random.uniform_values(partition.size(), -10, 10);
    for (float& value : x) {
      if (random.below(3) == 0) value = kNonFinites[random.below(std::size(kNonFinites))];
    }
    for (const size_t longest : {size_t{5}, size_t{50}, SIZE_MAX}) {
      const Observed observed = observe_in_pieces(x, partition, NonFinite::kSaturate, longest, random);
      EXPECT_EQ(observed.status, Status::kOk);
      expect_observed(x, partition, observed);
    }
    if (HasFailure()) return;
  }
}

TEST(Observe, leaves_the_range_empty_if_nothing_is_finite) {
  for (const size_t length : kLengths) {
    for (const float value : kNonFinites) {
      const std::vector<float> x(length, value);
      float min = kInfinity, max = -kInfinity;
      EXPECT_EQ(observe(x, {}, 0, NonFinite::kSaturate, {&min, 1}, {&max, 1}), Status::kOk);
      EXPECT_EQ(min, kInfinity) << length;
      EXPECT_EQ(max, -kInfinity) << length;
    }
  }
}

TEST(Observe, refuses_one_value_that_is_not_finite_wherever_it_is) {
  for (const size_t length : {1, 3, 4, 5, 16, 17, 33, 64, 65}) {
    const Partition partitions[] = {
        {.shape = {length}},
        {.shape = {length, 1}, .granularity = Granularity::kPerChannel},
        {.shape = {1, length}, .granularity = Granularity::kPerChannel},
        {.shape = {1, length}, .granularity = Granularity::kPerGroup, .group_size = 2},
        {.shape = {length}, .granularity = Granularity::kPerGroup, .group_size = 16},
    };
    for (const Partition& partition : partitions) {
      for (size_t position = 0; position < length; position++) {
        for (const float value : kNonFinites) {
          std::vector<float> x(length, 1), min(partition.parameter_count()), max(partition.parameter_count());
          clear_range(min, max);
          x[position] = value;
          const Layout layout = layout_of(partition);
          ASSERT_EQ(observe(x, layout, 0, NonFinite::kError, min, max), Status::kNonFinite)
              << name(partition) << " at " << position;
          ASSERT_EQ(observe(x, layout, 0, NonFinite::kSaturate, min, max), Status::kOk) << name(partition);
        }
      }
    }
  }
}

TEST(Observe, counts_negative_zero_as_zero) {
  const std::vector<std::vector<float>> inputs = {
      {-0.0f}, {-0.0f, 0.0f}, {0.0f, -0.0f}, {-0.0f, -0.0f, -0.0f, -0.0f, -0.0f}, {kNan, -0.0f}};
  for (size_t length : kLengths) {
    for (std::vector<float> x : inputs) {
      if (length > 0) x.resize(std::max(length, x.size()), -0.0f);
      const Partition partitions[] = {
          {.shape = {x.size()}},
          {.shape = {x.size()}, .granularity = Granularity::kPerChannel},
          {.shape = {1, x.size()}, .granularity = Granularity::kPerGroup, .group_size = 1},
      };
      for (const Partition& partition : partitions) {
        std::vector<float> min(partition.parameter_count()), max(partition.parameter_count());
        clear_range(min, max);
        ASSERT_EQ(observe(x, layout_of(partition), 0, NonFinite::kSaturate, min, max), Status::kOk);
        expect_observed(x, partition, {.min = min, .max = max});
        if (HasFailure()) return;
      }
    }
  }
}

TEST(Observe, keeps_denormals_and_the_largest_values) {
  for (const auto& [low, high] : {std::pair{-kLargest, kLargest},
                                  {-kDenormal, kDenormal},
                                  {kDenormal, 2 * kDenormal},
                                  {-kSmallestNormal, -kDenormal},
                                  {kLargest, kLargest}}) {
    for (const size_t length : {2, 5, 18, 70}) {
      std::vector<float> x(length, low);
      x[length / 2] = high;
      float min = kInfinity, max = -kInfinity;
      ASSERT_EQ(observe(x, {}, 0, NonFinite::kError, {&min, 1}, {&max, 1}), Status::kOk);
      EXPECT_EQ(min, low);
      EXPECT_EQ(max, high);
    }
  }
}

TEST(Observe, only_ever_widens_a_range) {
  const std::vector<float> x = {1, 2, 3, -1};
  float min = -5, max = 2.5f;
  ASSERT_EQ(observe(x, {}, 0, NonFinite::kError, {&min, 1}, {&max, 1}), Status::kOk);
  EXPECT_EQ(min, -5);
  EXPECT_EQ(max, 3);
  ASSERT_EQ(observe({}, {}, 0, NonFinite::kError, {&min, 1}, {&max, 1}), Status::kOk);
  EXPECT_EQ(min, -5);
  EXPECT_EQ(max, 3);
}

TEST(Observe, finds_the_channels_of_a_piece_far_into_a_large_array) {
  const Layout layout = {.granularity = Granularity::kPerChannel, .axis_size = 7, .inner_size = 3};
  const uint64_t start = (uint64_t{1} << 40) + 5;
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<float> min(7), max(7), expected_min(7), expected_max(7);
  clear_range(min, max);
  clear_range(expected_min, expected_max);
  for (size_t i = 0; i < x.size(); i++) {
    const size_t channel = (start + i) / 3 % 7;
    expected_min[channel] = std::min(expected_min[channel], x[i]);
    expected_max[channel] = std::max(expected_max[channel], x[i]);
  }
  ASSERT_EQ(observe(x, layout, start, NonFinite::kError, min, max), Status::kOk);
  EXPECT_TRUE(same(expected_min, min));
  EXPECT_TRUE(same(expected_max, max));
}

TEST(Observe, refuses_bad_layouts_and_short_ranges) {
  const std::vector<float> x(12, 1);
  std::vector<float> range(12);
  for (const Layout& layout : {Layout{Granularity::kPerChannel, 0, 1, 1}, Layout{Granularity::kPerChannel, 12, 0, 1},
                               Layout{Granularity::kPerGroup, 0, 1, 4}, Layout{Granularity::kPerGroup, 12, 0, 4},
                               Layout{Granularity::kPerGroup, 12, 1, 0}}) {
    EXPECT_EQ(observe(x, layout, 0, NonFinite::kError, range, range), Status::kBadLayout);
  }
  for (const Layout& layout : {Layout{}, Layout{Granularity::kPerChannel, 4, 3, 1}, Layout{Granularity::kPerGroup, 12, 1, 4}}) {
    const auto needed = layout.parameter_end(0, x.size());
    std::vector<float> enough(needed), too_short(needed - 1);
    EXPECT_EQ(observe(x, layout, 0, NonFinite::kError, enough, too_short), Status::kSizeMismatch);
    EXPECT_EQ(observe(x, layout, 0, NonFinite::kError, too_short, enough), Status::kSizeMismatch);
    EXPECT_EQ(observe(x, layout, 0, NonFinite::kError, enough, enough), Status::kOk);
  }
}

TEST(FirstNonFinite, finds_the_first_at_every_position) {
  for (const size_t length : kLengths) {
    if (length > 300) continue;
    for (size_t position = 0; position < length; position++) {
      std::vector<float> x(length, kLargest);
      x[length - 1] = kNan;
      x[position] = kNonFinites[position % std::size(kNonFinites)];
      ASSERT_EQ(first_non_finite(Buffer<float>(x, position % 4)), position) << "length " << length;
    }
  }
}

TEST(FirstNonFinite, gives_the_length_if_all_are_finite) {
  for (const size_t length : kLengths) {
    for (const float value : {0.0f, -0.0f, kDenormal, -kDenormal, kSmallestNormal, kLargest, -kLargest}) {
      EXPECT_EQ(first_non_finite(Buffer<float>(std::vector<float>(length, value), length % 4)), length) << exact(value);
    }
  }
}

struct Binned {
  Status status;
  std::vector<uint32_t> counts;
  double below = 0;
  double above = 0;
};
Binned binned(const std::vector<float>& x, float min, float max, size_t bins) {
  Buffer<uint32_t> counts(std::vector<uint32_t>(bins, 0));
  Binned result = {};
  result.status = histogram(Buffer<float>(x, 1), min, max, counts, &result.below, &result.above);
  result.counts = counts.values();
  return result;
}

TEST(RangeColumns, holds_zero_and_the_extremes_of_each_column) {
  SCOPED_TRACE("seed 5");
  Random random(5);
  for (const size_t rows : {1, 2, 7, 8, 9, 40}) {
    for (const size_t columns : {4, 5, 7, 8, 17, 64}) {
      std::vector<float> x = random.uniform_values(rows * columns, -1, 1);
      // Columns of one sign, and of zeros with and without a sign.
      for (size_t i = 0; i < x.size(); i++) {
        if (i % columns == 0) x[i] = std::fabs(x[i]);
        if (i % columns == 1) x[i] = -std::fabs(x[i]);
        if (i % columns == 2) x[i] = random.coin() ? 0.0f : -0.0f;
      }
      Buffer<float> min(std::vector<float>(columns, 0.0f), 1), max(std::vector<float>(columns, 0.0f), 3);
      const uint32_t largest = loops::range_columns(Buffer<float>(x, 1).data(), rows, columns, min.data(), max.data());
      float farthest = 0;
      for (size_t i = 0; i < columns; i++) {
        float low = 0, high = 0;
        for (size_t j = i; j < x.size(); j += columns) low = std::min(low, x[j]), high = std::max(high, x[j]);
        EXPECT_EQ(min.values()[i], low) << rows << " " << columns << " " << i;
        EXPECT_EQ(max.values()[i], high) << rows << " " << columns << " " << i;
        farthest = std::max({farthest, -low, high});
      }
      EXPECT_EQ(largest, std::bit_cast<uint32_t>(farthest)) << rows << " " << columns;
      for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
        std::vector<float> with = x;
        with[random.below(with.size())] = bad;
        std::vector<float> low(columns), high(columns);
        EXPECT_GE(loops::range_columns(with.data(), rows, columns, low.data(), high.data()), kInfinityBits) << bad;
      }
    }
  }
}

TEST(AllFiniteNonzero, never_passes_what_is_not) {
  // The build without vectors looks at nothing.
  const float one = 1;
  const bool looks = loops::all_finite_nonzero(&one, 1);
  for (const size_t n : kLengths) {
    const std::vector<float> x(n, -1.5f);
    EXPECT_EQ(loops::all_finite_nonzero(Buffer<float>(x, 1).data(), n), looks) << n;
    for (const float bad : {0.0f, -0.0f, kNan, -kNan, kInfinity, -kInfinity}) {
      for (size_t i = 0; i < n; i++) {
        std::vector<float> with = x;
        with[i] = bad;
        EXPECT_FALSE(loops::all_finite_nonzero(with.data(), n)) << n << " " << i << " " << bad;
      }
    }
    for (const float good : {std::numeric_limits<float>::denorm_min(), -std::numeric_limits<float>::max()}) {
      EXPECT_EQ(loops::all_finite_nonzero(std::vector<float>(n, good).data(), n), looks) << n << " " << good;
    }
  }
}

TEST(Histogram, agrees_with_the_oracle) {
  Random random(14);
  SCOPED_TRACE("seed 14");
  const std::pair<float, float> kRanges[] = {{-1, 1},
                                             {0, 1},
                                             {-0.3f, 0.7f},
                                             {0.1f, 0.2f},
                                             {-5, -4},
                                             {1, 1.0000001f},
                                             {-kLargest, kLargest},
                                             {0, kDenormal},
                                             {-kDenormal, 7 * kDenormal},
                                             {0.5f, 0.5f},
                                             {-0.0f, 0.0f}};
  for (const auto& [min, max] : kRanges) {
    for (const size_t bins : {1, 2, 3, 10, 255, 256, 1000}) {
      std::vector<float> x = {min,
                              max,
                              0.0f,
                              -0.0f,
                              kDenormal,
                              -kDenormal,
                              std::nextafter(min, -kInfinity),
                              std::nextafter(min, kInfinity),
                              std::nextafter(max, -kInfinity),
                              std::nextafter(max, kInfinity)};
      x.insert(x.end(), std::begin(kNonFinites), std::end(kNonFinites));
      for (size_t i = 0; i < 600; i++) x.push_back(random.uniform(min / 2, max / 2) * 2.2f);
      // On the edges of the bins and beside them.
      for (size_t bin = 0; bin <= bins; bin++) {
        const double edge = min + (static_cast<double>(max) - min) * static_cast<double>(bin) / static_cast<double>(bins);
        const auto near = static_cast<float>(edge);
        for (const float value : {near, std::nextafter(near, -kInfinity), std::nextafter(near, kInfinity)}) x.push_back(value);
      }
      const reference::Histogram expected = reference::histogram(x, min, max, bins);
      const Binned got = binned(x, min, max, bins);
      ASSERT_EQ(got.status, Status::kOk);
      ASSERT_TRUE(same(expected.counts, got.counts)) << exact(min) << exact(max) << " bins " << bins;
      ASSERT_EQ(got.below, expected.below) << exact(min) << exact(max) << " bins " << bins;
      ASSERT_EQ(got.above, expected.above) << exact(min) << exact(max) << " bins " << bins;
    }
  }
}

TEST(Histogram, puts_edges_where_they_belong) {
  const Binned got = binned({0, 0.999f, 1, 2, 3, 3.999f, 4, -0.001f, 4.001f, kInfinity, -kInfinity, kNan}, 0, 4, 4);
  EXPECT_EQ(got.status, Status::kOk);
  EXPECT_EQ(got.counts, (std::vector<uint32_t>{2, 1, 1, 3}));
  EXPECT_EQ(got.below, 2);
  EXPECT_EQ(got.above, 2);
}

TEST(Histogram, puts_a_single_value_into_the_first_bin) {
  const Binned got = binned({2, 2, 1, 3, 3, 3, kNan, 2}, 2, 2, 5);
  EXPECT_EQ(got.status, Status::kOk);
  EXPECT_EQ(got.counts, (std::vector<uint32_t>{3, 0, 0, 0, 0}));
  EXPECT_EQ(got.below, 1);
  EXPECT_EQ(got.above, 3);
}

TEST(Histogram, adds_to_what_is_there) {
  std::vector<uint32_t> counts = {10, 20};
  double below = 100, above = 200;
  for (int i = 0; i < 2; i++) {
    ASSERT_EQ(histogram(std::vector<float>{0.5f, 1.5f, 1.5f, -1, 5, 5, 5}, 0, 2, counts, &below, &above), Status::kOk);
  }
  EXPECT_EQ(counts, (std::vector<uint32_t>{12, 24}));
  EXPECT_EQ(below, 102);
  EXPECT_EQ(above, 206);
}

TEST(Histogram, counts_many_values_in_any_number_of_bins) {
  Random random(15);
  SCOPED_TRACE("seed 15");
  for (const size_t bins : {1, 7, 1023, 1024, 1025, 5000}) {
    for (const size_t n : {4 * bins - 1, 4 * bins, 4 * bins + 1, 9 * bins + 3}) {
      std::vector<float> x;
      for (size_t i = 0; i < n; i++) x.push_back(random.uniform(-1, 1));
      // Equal neighbors, and outside values at any place among four.
      for (size_t i = 0; i + 1 < n; i += 3) x[i + 1] = x[i];
      for (size_t i = 0; i < n; i += 101) x[i] = i % 4 == 0 ? kNan : i % 4 == 1 ? 1.5f : i % 4 == 2 ? -kInfinity : 1.0f;
      const reference::Histogram expected = reference::histogram(x, -1, 1, bins);
      std::vector<uint32_t> counts(bins, 3);
      double below = 0, above = 0;
      ASSERT_EQ(histogram(Buffer<float>(x, 1), -1, 1, counts, &below, &above), Status::kOk);
      for (uint32_t& count : counts) count -= 3;
      ASSERT_TRUE(same(expected.counts, counts)) << "bins " << bins << " n " << n;
      ASSERT_EQ(below, expected.below) << "bins " << bins << " n " << n;
      ASSERT_EQ(above, expected.above) << "bins " << bins << " n " << n;
    }
  }
}

TEST(Histogram, takes_no_elements) {
  const Binned got = binned({}, 0, 1, 3);
  EXPECT_EQ(got.status, Status::kOk);
  EXPECT_EQ(got.counts, std::vector<uint32_t>(3, 0));
}

TEST(Histogram, refuses_bad_ranges_and_no_bins) {
  for (const auto& [min, max] : {std::pair{1.0f, 0.0f},
                                 {kNan, 1.0f},
                                 {0.0f, kNan},
                                 {-kInfinity, 0.0f},
                                 {0.0f, kInfinity},
                                 {kInfinity, kInfinity},
                                 {kInfinity, -kInfinity}}) {
    EXPECT_EQ(binned({1, 2}, min, max, 4).status, Status::kBadRange) << min << " " << max;
  }
  EXPECT_EQ(binned({1, 2}, 0, 1, 0).status, Status::kSizeMismatch);
}

}  // namespace
}  // namespace scalepoint::tests
