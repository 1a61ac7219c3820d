// Moments, their factor, and rounding with feedback.
#include "calibration/block_grids.h"
#include "calibration/factor.h"
#include "calibration/feedback.h"
#include "calibration/moments.h"
#include "helpers.h"

namespace scalepoint::tests {
namespace {

/// Inputs that depend on each other: sums of a few hidden values and noise.
std::vector<float> correlated(size_t rows, size_t columns, uint32_t seed) {
  Random random(seed);
  const size_t hidden = std::max<size_t>(1, columns / 6);
  const std::vector<float> mix = random.uniform_values(hidden * columns, -1, 1);
  std::vector<float> x(rows * columns);
  for (size_t row = 0; row < rows; row++) {
    const std::vector<float> z = random.uniform_values(hidden, -1, 1);
    for (size_t i = 0; i < columns; i++) {
      float sum = random.uniform(-0.5f, 0.5f);
      for (size_t k = 0; k < hidden; k++) sum += z[k] * mix[k * columns + i];
      x[row * columns + i] = sum;
    }
  }
  return x;
}

std::vector<double> moments_of(const std::vector<float>& x, size_t columns) {
  Buffer<double> moments(std::vector<double>(columns * columns));
  Buffer<float> scratch(moments_scratch_size(columns));
  EXPECT_EQ(add_moments(Buffer<float>(x), columns, scratch, moments), Status::kOk);
  return moments.values();
}

TEST(Moments, AreSumsOfProducts) {
  for (const size_t columns : {1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 33}) {
    for (const size_t rows : {0, 1, 3, 255, 256, 257, 600}) {
      const std::vector<float> x = correlated(rows, columns, static_cast<uint32_t>(rows * 100 + columns));
      const std::vector<double> moments = moments_of(x, columns);
      for (size_t j = 0; j < columns; j++) {
        for (size_t i = 0; i <= j; i++) {
          double sum = 0;
          for (size_t first = 0; first < rows; first += 256) {
            float part = 0;
            for (size_t row = first; row < std::min(rows, first + 256); row++)
              part += x[row * columns + i] * x[row * columns + j];
            sum += part;
          }
          ASSERT_EQ(moments[j * columns + i], sum) << rows << " x " << columns << ": " << j << ", " << i;
        }
      }
    }
  }
}

TEST(Moments, AddUp) {
  const size_t columns = 12;
  const std::vector<float> x = correlated(512, columns, 1);
  Buffer<double> moments(std::vector<double>(columns * columns));
  Buffer<float> scratch(moments_scratch_size(columns));
  for (const size_t first : {0, 256}) {
    ASSERT_EQ(add_moments(piece(x, first * columns, 256 * columns), columns, scratch, moments), Status::kOk);
  }
  const std::vector<double> whole = moments_of(x, columns), parts = moments.values();
  for (size_t j = 0; j < columns; j++) {
    for (size_t i = 0; i <= j; i++) EXPECT_EQ(parts[j * columns + i], whole[j * columns + i]);
  }
  Buffer<float> importance(columns);
  importance_of(whole, columns, 512, importance);
  for (size_t j = 0; j < columns; j++) EXPECT_EQ(importance.values()[j], static_cast<float>(whole[j * columns + j] / 512));
}

TEST(Moments, RefuseWhatIsNotFinite) {
  for (const float bad : {kNan, kInfinity, -kInfinity, kLargest}) {
    for (const size_t at : {0, 5, 99}) {
      std::vector<float> x(100, 0.5f);
      x[at] = bad;
      Buffer<double> moments(std::vector<double>(25));
      Buffer<float> scratch(moments_scratch_size(5));
      EXPECT_EQ(add_moments(Buffer<float>(x), 5, scratch, moments), Status::kNonFinite) << bad << " at " << at;
    }
  }
  std::vector<double> moments(25);
  std::vector<float> scratch(moments_scratch_size(5)), x(10);
  EXPECT_EQ(add_moments(x, 0, scratch, moments), Status::kBadLayout);
  EXPECT_EQ(add_moments(piece(x, 0, 9), 5, scratch, moments), Status::kSizeMismatch);
  EXPECT_EQ(add_moments(x, 2, scratch, moments), Status::kSizeMismatch);
  EXPECT_EQ(add_moments(x, 5, piece(scratch, 0, 0).empty() ? std::span<float>() : scratch, moments), Status::kSizeMismatch);
}

struct Factored {
  std::vector<float> feedback, weights;
  double used = 0;
  Status status = Status::kOk;
};

Factored factor(const std::vector<double>& moments, size_t columns, double damping) {
  Buffer<double> h(moments), scratch(factor_scratch_size(columns));
  Buffer<float> feedback(columns * columns), weights(columns);
  Factored result;
  result.status = factor_moments(h, columns, damping, scratch, feedback, weights, result.used);
  result.feedback = feedback.values();
  result.weights = weights.values();
  return result;
}

TEST(Factor, MultipliesToTheMoments) {
  for (const size_t columns : {1, 2, 3, 63, 64, 65, 130}) {
    for (const double damping : {0.0, 0.01, 1.0}) {
      const std::vector<double> h = moments_of(correlated(4 * columns + 8, columns, 7), columns);
      const Factored made = factor(h, columns, damping);
      ASSERT_EQ(made.status, Status::kOk) << columns;
      EXPECT_EQ(made.used, damping);
      double mean = 0;
      for (size_t j = 0; j < columns; j++) mean += h[j * columns + j] / static_cast<double>(columns);
      for (size_t j = 0; j < columns; j++) {
        for (size_t i = 0; i <= j; i++) {
          double sum = 0, magnitudes = 0;
          for (size_t k = j; k < columns; k++) {
            const double a = k == i ? 1 : made.feedback[k * columns + i], b = k == j ? 1 : made.feedback[k * columns + j];
            sum += a * made.weights[k] * b;
            magnitudes += std::fabs(a * made.weights[k] * b);
          }
          // Each of the three factors of a product is rounded to float32. Rounding in double is below a hundredth of that.
          ASSERT_NEAR(sum, h[j * columns + i] + (i == j ? damping * mean : 0), 3.1 * 0x1p-24 * magnitudes) << columns << ' ' << j;
        }
        for (size_t i = j; i < columns; i++) ASSERT_EQ(made.feedback[j * columns + i], 0);
      }
    }
  }
}

TEST(Factor, DampsMoreUntilPositiveDefinite) {
  // A matrix with the eigenvalues 3, -1: positive definite from d = 1 on, which is as large as the mean of the diagonal.
  const Factored made = factor({1, 0, 2, 1}, 2, 0.01);
  EXPECT_EQ(made.status, Status::kOk);
  EXPECT_EQ(made.used, 10);
  // Two equal columns without damping.
  const Factored equal = factor({1, 0, 1, 1}, 2, 0);
  EXPECT_EQ(equal.status, Status::kOk);
  EXPECT_EQ(equal.used, 1e-4);
  EXPECT_EQ(factor({1, 0, 20, 1}, 2, 0.01).status, Status::kNonFinite);
}

TEST(Factor, KeepsColumnsWithoutInputsApart) {
  const size_t columns = 9;
  std::vector<float> x = correlated(60, columns, 3);
  for (size_t row = 0; row < 60; row++) x[row * columns + 4] = 0;
  const Factored made = factor(moments_of(x, columns), columns, 0.01);
  ASSERT_EQ(made.status, Status::kOk);
  EXPECT_EQ(made.weights[4], 1);
  for (size_t i = 0; i < columns; i++) {
    EXPECT_EQ(made.feedback[4 * columns + i], 0);
    EXPECT_EQ(made.feedback[i * columns + 4], 0);
  }
  const Factored nothing = factor(std::vector<double>(16), 4, 0.01);
  EXPECT_EQ(nothing.status, Status::kOk);
  EXPECT_EQ(nothing.feedback, std::vector<float>(16));
}

TEST(Factor, RefusesBadArguments) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, infinity, -infinity, -1.0})
    EXPECT_EQ(factor({1, 0, 0.5, bad}, 2, 0.01).status, Status::kNonFinite);
  for (const double bad : {nan, infinity, -infinity}) EXPECT_EQ(factor({1, 0, bad, 1}, 2, 0.01).status, Status::kNonFinite);
  for (const double bad : {nan, infinity, -0.01, 10.1}) EXPECT_EQ(factor({1, 0, 0.5, 1}, 2, bad).status, Status::kBadRange);
  std::vector<double> h(4), scratch(factor_scratch_size(2));
  std::vector<float> feedback(4), weights(2);
  double used;
  EXPECT_EQ(factor_moments(h, 0, 0, scratch, feedback, weights, used), Status::kBadLayout);
  EXPECT_EQ(factor_moments(std::span(h).first(3), 2, 0, scratch, feedback, weights, used), Status::kSizeMismatch);
  EXPECT_EQ(factor_moments(h, 2, 0, std::span(scratch).first(3), feedback, weights, used), Status::kSizeMismatch);
  EXPECT_EQ(factor_moments(h, 2, 0, scratch, std::span(feedback).first(3), weights, used), Status::kSizeMismatch);
  EXPECT_EQ(factor_moments(h, 2, 0, scratch, feedback, std::span(weights).first(1), used), Status::kSizeMismatch);
}

/// H in float32, with both halves.
std::vector<float> both_halves(const std::vector<double>& h, size_t columns) {
  std::vector<float> all(columns * columns);
  for (size_t i = 0; i < all.size(); i++) {
    const size_t a = i / columns, b = i % columns;
    all[i] = static_cast<float>(h[std::max(a, b) * columns + std::min(a, b)]);
  }
  return all;
}

struct Quantized {
  std::vector<uint8_t> codes;
  std::vector<float> scales, zero_points;
  Status status;
};

/// Codes and groups of a grid.
struct GridChoice {
  WeightedGrid codes;
  size_t group_size = 0;
  bool search = true;
};

/// @param h null: codes are not refined
Quantized quantize(const std::vector<float>& w, size_t columns, const GridChoice& grid, const Factored& factored,
                   const std::vector<uint32_t>& order = {}, const std::vector<double>* h = nullptr) {
  const size_t rows = w.size() / columns, groups = grid.group_size == 0 ? 1 : (columns + grid.group_size - 1) / grid.group_size;
  Buffer<uint8_t> codes(w.size());
  Buffer<float> scales(rows * groups), zero_points(rows * groups);
  LinearFeedbackGrid linear(grid.codes, grid.group_size, groups, grid.search, scales.data(), zero_points.data());
  Buffer<float> scratch(feedback_scratch_size(rows, columns, linear));
  const Status status = quantize_with_feedback(Buffer<float>(w), columns, linear, Buffer<float>(factored.feedback),
                                               Buffer<float>(factored.weights), scratch, codes, order);
  if (h != nullptr) {
    EXPECT_EQ(refine_codes(Buffer<float>(w), columns, linear, both_halves(*h, columns), 0.01, scratch, codes), Status::kOk);
  }
  return {codes.values(), scales.values(), zero_points.values(), status};
}

GridChoice grid_of(int bits, bool asymmetric, size_t group_size, bool search = true) {
  GridChoice grid;
  grid.codes.qmin = static_cast<float>(-(1 << (bits - 1)));
  grid.codes.qmax = -grid.codes.qmin - 1;
  grid.codes.asymmetric = asymmetric;
  grid.group_size = group_size;
  grid.search = search;
  return grid;
}

/// The restored value of each element.
std::vector<float> restored(const Quantized& made, size_t columns, const GridChoice& grid) {
  const size_t group = grid.group_size == 0 ? columns : grid.group_size, groups = (columns + group - 1) / group;
  std::vector<float> values(made.codes.size());
  for (size_t i = 0; i < values.size(); i++) {
    const size_t at = i / columns * groups + i % columns / group;
    values[i] = (static_cast<float>(made.codes[i]) + grid.codes.qmin - made.zero_points[at]) * made.scales[at];
  }
  return values;
}

/// (w - q) H (w - q)' of all rows.
double output_error(const std::vector<float>& w, const std::vector<float>& q, const std::vector<double>& h, size_t columns) {
  double sum = 0;
  for (size_t row = 0; row < w.size() / columns; row++) {
    for (size_t j = 0; j < columns; j++) {
      for (size_t i = 0; i <= j; i++) {
        const double a = w[row * columns + i] - q[row * columns + i], b = w[row * columns + j] - q[row * columns + j];
        sum += (i == j ? 1 : 2) * a * b * h[j * columns + i];
      }
    }
  }
  return sum;
}

/// Every code is the one nearest to the weight plus what the columns before it have passed on.
TEST(Feedback, RoundsWeightsAndPassedOnErrors) {
  for (const size_t columns : {1, 5, 33, 64, 200}) {
    const Factored factored = factor(moments_of(correlated(3 * columns + 9, columns, 5), columns), columns, 0.01);
    for (const size_t rows : {1, 6}) {
      Random random(11);
      const std::vector<float> w = random.uniform_values(rows * columns, -1, 1);
      for (const size_t group : {size_t{0}, size_t{16}, size_t{32}}) {
        for (const int bits : {2, 4, 8}) {
          for (const bool asymmetric : {false, true}) {
            const GridChoice grid = grid_of(bits, asymmetric, group);
            const Quantized made = quantize(w, columns, grid, factored);
            ASSERT_EQ(made.status, Status::kOk);
            const std::vector<float> q = restored(made, columns, grid);
            const size_t size = group == 0 ? columns : group, groups = (columns + size - 1) / size;
            for (size_t i = 0; i < w.size(); i++) {
              const size_t row = i / columns, j = i % columns, at = row * groups + j / size;
              double x = w[i], magnitudes = std::fabs(w[i]);
              for (size_t k = 0; k < j; k++) {
                const double passed = (w[row * columns + k] - q[row * columns + k]) * factored.feedback[j * columns + k];
                x += passed;
                magnitudes += std::fabs(passed);
              }
              const double steps = x / made.scales[at], low = grid.codes.qmin - made.zero_points[at];
              const double nearest = std::clamp(steps, low, low + grid.codes.qmax - grid.codes.qmin);
              const double code = made.codes[i] + low;
              // The sum is in float32: at most 2^-24 of the magnitudes for each addition; and so is the product with 1 / scale.
              const double slack = static_cast<double>(j + 8) * 0x1p-24 * magnitudes / std::fabs(made.scales[at]) + 1e-4;
              ASSERT_LE(std::fabs(code - nearest), 0.5 + slack) << columns << " columns, group " << group << ", element " << i;
            }
          }
        }
      }
    }
  }
}

std::vector<uint32_t> order_of(const std::vector<float>& diagonal, FeedbackGroups groups) {
  Buffer<uint32_t> order(diagonal.size());
  Buffer<double> sums(2 * diagonal.size());
  falling_order(Buffer<float>(diagonal), groups, sums, order);
  return order.values();
}

TEST(Feedback, OrdersGroupsAndColumnsByTheirInputs) {
  using Order = std::vector<uint32_t>;
  EXPECT_EQ(order_of({1, 3, 3, 2}, {0, 0}), (Order{1, 2, 3, 0}));
  // Sums of 5, 9 and 9, and a shorter group with more.
  EXPECT_EQ(order_of({2, 3, 9, 0, 4, 5, 70}, {2, 0}), (Order{2, 3, 5, 4, 1, 0, 6}));
  // Outer sums of 5 and 7. Within them, groups of 1 and 4, and of 5 and 2.
  EXPECT_EQ(order_of({0, 1, 2, 2, 0, 5, 1, 1}, {2, 4}), (Order{5, 4, 6, 7, 2, 3, 1, 0}));
  EXPECT_EQ(order_of({1, 1, 1, 9, 9, 9}, {2, 4}), (Order{3, 2, 0, 1, 4, 5}));
  EXPECT_EQ(order_of({5}, {32, 256}), (Order{0}));
}

/// Rounding in an order is rounding a matrix whose columns are in that order.
TEST(Feedback, RoundsInAnOrder) {
  for (const size_t columns : {size_t{5}, size_t{64}, size_t{70}, size_t{300}}) {
    const std::vector<double> h = moments_of(correlated(2 * columns, columns, 5), columns);
    std::vector<float> diagonal(columns);
    for (size_t i = 0; i < columns; i++)
      diagonal[i] = static_cast<float>(h[i * columns + i]) * static_cast<float>(1 + i * 7 % 11);
    const size_t rows = 6;
    const std::vector<float> w = Random(4).uniform_values(rows * columns, -1, 1);
    for (const size_t group : {size_t{0}, size_t{32}}) {
      const std::vector<uint32_t> order = order_of(diagonal, {static_cast<uint32_t>(group), 0});
      std::vector<double> moved_h(columns * columns);
      std::vector<float> moved_w(w.size());
      for (size_t j = 0; j < columns; j++) {
        for (size_t i = 0; i <= j; i++) {
          const size_t a = std::max(order[i], order[j]), b = std::min(order[i], order[j]);
          moved_h[j * columns + i] = h[a * columns + b];
        }
        for (size_t row = 0; row < rows; row++) moved_w[row * columns + j] = w[row * columns + order[j]];
      }
      const Factored factored = factor(moved_h, columns, 0.01);
      const GridChoice grid = grid_of(3, true, group);
      const Quantized made = quantize(w, columns, grid, factored, order), moved = quantize(moved_w, columns, grid, factored);
      ASSERT_EQ(made.status, Status::kOk);
      const size_t size = group == 0 ? columns : group, groups = (columns + size - 1) / size;
      for (size_t row = 0; row < rows; row++) {
        for (size_t j = 0; j < columns; j++) {
          ASSERT_EQ(made.codes[row * columns + order[j]], moved.codes[row * columns + j])
              << columns << " columns, group " << group;
          ASSERT_EQ(made.scales[row * groups + order[j] / size], moved.scales[row * groups + j / size]);
        }
      }
    }
  }
}

TEST(Feedback, LosesLessOnOutputs) {
  const size_t columns = 96, rows = 8;
  const std::vector<double> h = moments_of(correlated(400, columns, 21), columns);
  const Factored factored = factor(h, columns, 0.01);
  Factored nothing = factored;
  std::fill(nothing.feedback.begin(), nothing.feedback.end(), 0.0f);
  Random random(5);
  for (const int bits : {2, 3, 4, 8}) {
    for (const bool asymmetric : {false, true}) {
      for (const bool search : {false, true}) {
        const std::vector<float> w = random.uniform_values(rows * columns, -1, 1);
        const GridChoice grid = grid_of(bits, asymmetric, 32, search);
        const double with = output_error(w, restored(quantize(w, columns, grid, factored), columns, grid), h, columns);
        const double without = output_error(w, restored(quantize(w, columns, grid, nothing), columns, grid), h, columns);
        EXPECT_LT(with, without / 2) << bits << " bits";
        // Nothing about the outputs that codes were made for gets worse, but for sums in float32.
        std::vector<double> damped = h;
        double trace = 0;
        for (size_t i = 0; i < columns; i++) trace += h[i * columns + i];
        for (size_t i = 0; i < columns; i++) damped[i * columns + i] += 0.01 * trace / static_cast<double>(columns);
        const auto order = order_of(std::vector<float>(factored.weights.rbegin(), factored.weights.rend()), {32, 0});
        for (const auto& given : {std::vector<uint32_t>(), order}) {
          const std::vector<float> first = restored(quantize(w, columns, grid, factored, given), columns, grid),
                                   refined = restored(quantize(w, columns, grid, factored, given, &h), columns, grid);
          for (size_t row = 0; row < rows; row++) {
            const auto of_row = [&](const std::vector<float>& x) {
              return std::vector<float>(x.begin() + row * columns, x.begin() + (row + 1) * columns);
            };
            EXPECT_LE(output_error(of_row(w), of_row(refined), damped, columns),
                      output_error(of_row(w), of_row(first), damped, columns) * (1 + 1e-4));
          }
          EXPECT_LT(output_error(w, refined, damped, columns), 0.97 * output_error(w, first, damped, columns)) << bits << " bits";
        }
      }
    }
  }
}

TEST(Feedback, DoesNotDependOnOtherRows) {
  const size_t columns = 70, rows = 7;
  const Factored factored = factor(moments_of(correlated(200, columns, 9), columns), columns, 0.01);
  const std::vector<float> w = Random(3).uniform_values(rows * columns, -1, 1);
  const GridChoice grid = grid_of(4, true, 32);
  const Quantized whole = quantize(w, columns, grid, factored);
  for (size_t row = 0; row < rows; row++) {
    const Quantized one =
        quantize({w.begin() + static_cast<long>(row * columns), w.begin() + static_cast<long>((row + 1) * columns)}, columns,
                 grid, factored);
    for (size_t i = 0; i < columns; i++) ASSERT_EQ(one.codes[i], whole.codes[row * columns + i]);
    for (size_t i = 0; i < 3; i++) ASSERT_EQ(one.scales[i], whole.scales[row * 3 + i]);
  }
}

TEST(Feedback, RefusesBadArguments) {
  const size_t columns = 8;
  const Factored factored = factor(moments_of(correlated(40, columns, 9), columns), columns, 0.01);
  EXPECT_EQ(quantize(std::vector<float>(16), columns, grid_of(4, false, 0), factored).status, Status::kOk);
  std::vector<float> scales(8), zeros(8), feedback(64), weights(8), w(16);
  const WeightedGrid codes_of_grid = grid_of(4, false, 0).codes;
  LinearFeedbackGrid grid(codes_of_grid, 2, 4, true, scales.data(), zeros.data());
  std::vector<float> scratch(feedback_scratch_size(2, columns, grid));
  std::vector<uint8_t> codes(16);
  EXPECT_EQ(quantize_with_feedback(w, 0, grid, feedback, weights, scratch, codes), Status::kBadLayout);
  EXPECT_EQ(quantize_with_feedback(w, 7, grid, feedback, weights, scratch, codes), Status::kSizeMismatch);
  EXPECT_EQ(quantize_with_feedback(w, 8, grid, feedback, weights, scratch, std::span(codes).first(15)), Status::kSizeMismatch);
  EXPECT_EQ(quantize_with_feedback(w, 8, grid, feedback, weights, std::span(scratch).first(9), codes), Status::kSizeMismatch);
  EXPECT_EQ(quantize_with_feedback(w, 8, grid, feedback, std::span(weights).first(7), scratch, codes), Status::kSizeMismatch);
  EXPECT_EQ(refine_codes(w, 0, grid, feedback, 0, scratch, codes), Status::kBadLayout);
  EXPECT_EQ(refine_codes(w, 8, grid, std::span(feedback).first(63), 0, scratch, codes), Status::kSizeMismatch);
  EXPECT_EQ(refine_codes(w, 8, grid, feedback, 0, std::span(scratch).first(9), codes), Status::kSizeMismatch);
  EXPECT_EQ(refine_codes(w, 8, grid, feedback, 0, scratch, std::span(codes).first(15)), Status::kSizeMismatch);
  // Passed-on errors beyond float32.
  std::fill(feedback.begin(), feedback.end(), 3e38f);
  w.assign(16, 1e20f);
  w[1] = 0.3e20f;
  EXPECT_EQ(quantize_with_feedback(w, 8, grid, feedback, weights, scratch, codes), Status::kOverflow);
}

/// Remembers the grids that a form chooses, and passes them on.
class Recorder final : public FeedbackGrid {
 public:
  Recorder(FeedbackGrid& form, size_t groups)
      : FeedbackGrid(form.group_size(), form.outer_size(), form.levels()), form_(form), groups_(groups) {}
  bool begin(size_t row, size_t outer, const float* x, const float* weights, size_t n) override {
    return form_.begin(row, outer, x, weights, n);
  }
  bool choose(size_t row, size_t group, const float* x, const float* weights, size_t n, RowGrid& grid) override {
    const bool ok = form_.choose(row, group, x, weights, n, grid);
    grids.resize(std::max(grids.size(), row * groups_ + group + 1));
    grids[row * groups_ + group] = grid;
    return ok;
  }
  float rescale(size_t row, size_t group, float scale) override {
    const float stored = form_.rescale(row, group, scale);
    if (stored != 0) grids[row * groups_ + group].scale = stored;
    return stored;
  }
  std::vector<RowGrid> grids;

 private:
  FeedbackGrid& form_;
  size_t groups_;
};

constexpr BlockType kFeedbackTypes[] = {BlockType::kQ4_0, BlockType::kQ4_1, BlockType::kQ5_0,   BlockType::kQ5_1,
                                        BlockType::kQ8_0, BlockType::kQ2_K, BlockType::kQ3_K,   BlockType::kQ4_K,
                                        BlockType::kQ5_K, BlockType::kQ6_K, BlockType::kIQ4_NL, BlockType::kIQ4_XS,
                                        BlockType::kMXFP4};

/// Weights of several kinds in the groups of a row.
std::vector<float> block_weights(size_t n, uint32_t seed) {
  Random random(seed);
  std::vector<float> w = random.uniform_values(n, -1, 1);
  for (size_t at = 0; at + 16 <= n; at += 16) {
    const size_t kind = random.below(9);
    for (size_t i = at; i < at + 16; i++) {
      if (kind == 0) w[i] = 0;
      if (kind == 1) w[i] = std::fabs(w[i]);
      if (kind == 2) w[i] = 0.25f;
      if (kind == 3) w[i] *= 1e-3f;
      if (kind == 4) w[i] = 5 + 0.1f * w[i];
    }
  }
  return w;
}

/// The blocks that are written restore the values that errors were taken from.
TEST(BlockGrids, WriteWhatWasRounded) {
  for (const size_t columns : {256, 512}) {
    const std::vector<double> moments = moments_of(correlated(2 * columns, columns, 5), columns);
    const Factored factored = factor(moments, columns, 0.01);
    const std::vector<float> h = both_halves(moments, columns);
    for (const BlockType type : kFeedbackTypes) {
      EXPECT_TRUE(has_feedback(type));
      // Any order that keeps groups together.
      std::vector<float> diagonal(columns);
      for (size_t i = 0; i < columns; i++) diagonal[i] = static_cast<float>(i * 37 % 101);
      const std::vector<uint32_t> order = order_of(diagonal, feedback_groups(type));
      // Refined ones, too: scales of groups alone change.
      for (const int how : {0, 1, 2, 3}) {
        const bool falling = how % 2 == 1;
        if (how > 1 && feedback_groups(type).outer != 0) continue;
        const size_t rows = columns == 256 ? 5 : 1;
        const std::vector<float> w = block_weights(rows * columns, static_cast<uint32_t>(columns + rows));
        const size_t blocks = columns / block_size(type).elements, bytes = blocks_bytes(type, columns);
        std::vector<BlockNumbers> numbers(rows * blocks);
        BlockFeedbackGrid form(type, columns, numbers.data());
        const size_t groups = columns / form.group_size();
        Recorder grid(form, groups);
        Buffer<uint8_t> codes(w.size());
        Buffer<float> scratch(feedback_scratch_size(rows, columns, grid));
        ASSERT_EQ(quantize_with_feedback(Buffer<float>(w), columns, grid, factored.feedback, factored.weights, scratch, codes,
                                         falling ? order : std::vector<uint32_t>()),
                  Status::kOk);
        if (how > 1) ASSERT_EQ(refine_codes(Buffer<float>(w), columns, grid, h, 0.01, scratch, codes), Status::kOk);
        for (size_t row = 0; row < rows; row++) {
          Buffer<std::byte> made(bytes);
          Buffer<float> restored_row(columns);
          form.write(row, codes.data() + row * columns, made.data());
          ASSERT_EQ(dequantize_blocks(made, type, restored_row), Status::kOk);
          for (size_t j = 0; j < columns; j++) {
            const RowGrid& chosen = grid.grids[row * groups + j / form.group_size()];
            const uint8_t place = codes.data()[row * columns + j];
            const double code = form.levels() != nullptr ? form.levels()->values[place] : place + static_cast<double>(chosen.low);
            const double expected = chosen.scale * code - chosen.offset;
            // Two products and a difference in float32, on either side.
            const double slack = 4 * 0x1p-24 * (std::fabs(chosen.scale * code) + std::fabs(chosen.offset));
            ASSERT_NEAR(restored_row.data()[j], expected, slack)
                << "type " << static_cast<int>(type) << " row " << row << " column " << j;
          }
        }
      }
    }
  }
}

/// Compares the error of outputs with that of ggml's own blocks.
TEST(BlockGrids, LoseLessOnOutputsThanImportance) {
  const size_t columns = 256, rows = 4;
  const std::vector<double> h = moments_of(correlated(700, columns, 21), columns);
  const Factored factored = factor(h, columns, 0.01);
  std::vector<float> importance(columns);
  importance_of(h, columns, 700, importance);
  const std::vector<float> w = Random(8).uniform_values(rows * columns, -1, 1);
  for (const BlockType type : kFeedbackTypes) {
    std::vector<BlockNumbers> numbers(rows * columns / block_size(type).elements);
    BlockFeedbackGrid grid(type, columns, numbers.data());
    Buffer<uint8_t> codes(w.size());
    Buffer<float> scratch(feedback_scratch_size(rows, columns, grid));
    ASSERT_EQ(quantize_with_feedback(Buffer<float>(w), columns, grid, factored.feedback, factored.weights, scratch, codes),
              Status::kOk);
    const size_t bytes = blocks_bytes(type, columns);
    Buffer<std::byte> made(rows * bytes), plain(rows * bytes);
    for (size_t row = 0; row < rows; row++) grid.write(row, codes.data() + row * columns, made.data() + row * bytes);
    ASSERT_EQ(quantize_blocks(w, type, plain, importance), Status::kOk);
    const auto error_of_blocks = [&](Buffer<std::byte>& blocks) {
      Buffer<float> q(w.size());
      EXPECT_EQ(dequantize_blocks(blocks, type, q), Status::kOk);
      return output_error(w, q.values(), h, columns);
    };
    EXPECT_LT(error_of_blocks(made), 0.7 * error_of_blocks(plain)) << "type " << static_cast<int>(type);
  }
}

TEST(WeightedScale, IsNeverWorseThanTheWholeRange) {
  Random random(31);
  for (int round = 0; round < 3000; round++) {
    const size_t n = random.below(90);
    std::vector<float> x = random.uniform_values(n, -1, 1), weights = random.uniform_values(n, 0, 1);
    if (random.coin() && n > 3) x[n / 2] *= 30;
    if (random.coin()) std::fill(weights.begin(), weights.begin() + static_cast<long>(n / 3), 0.0f);
    WeightedGrid grid = grid_of(static_cast<int>(2 + random.below(7)), random.coin(), 0).codes;
    grid.negative = !grid.asymmetric && random.coin();
    const WeightedScale whole = whole_range_scale(x.data(), n, grid);
    const WeightedScale found = search_weighted_scale(x.data(), weights.data(), n, grid);
    ASSERT_TRUE(std::isfinite(found.scale) && found.scale != 0 && (grid.negative || found.scale > 0));
    ASSERT_TRUE(found.zero_point == std::nearbyint(found.zero_point));
    ASSERT_LE(weighted_error(x.data(), weights.data(), n, grid, found), weighted_error(x.data(), weights.data(), n, grid, whole));
  }
}

TEST(WeightedScale, RestoresValuesOfAGrid) {
  const std::vector<float> x = {-8, -3, 0, 2, 7, 1, 1, -5}, weights(8, 1);
  for (const float scale : {0.25f, 3.0f, 1e-20f}) {
    std::vector<float> values = x;
    for (float& value : values) value *= scale;
    const WeightedScale found = search_weighted_scale(values.data(), weights.data(), 8, grid_of(4, false, 0).codes);
    EXPECT_EQ(weighted_error(values.data(), weights.data(), 8, grid_of(4, false, 0).codes, found), 0) << found.scale;
  }
  for (const float value : {0.0f, -0.0f}) {
    const std::vector<float> zeros(5, value);
    EXPECT_EQ(search_weighted_scale(zeros.data(), weights.data(), 5, grid_of(4, true, 0).codes).scale, 1);
  }
}

}  // namespace
}  // namespace scalepoint::tests
