// The choice between codes with feedback and those without it, against sums in double.
#include <cmath>
#include <limits>

#include "codecs/output_judge.h"
#include "codecs_helpers.h"

namespace scalepoint::tests {
namespace {

using codecs::Moments;
using codecs::OutputJudge;

/// Second moments of random inputs of which each fifth is larger.
std::vector<float> moments_of(Random& random, size_t columns, size_t samples) {
  std::vector<float> h(columns * columns);
  for (size_t sample = 0; sample < samples; sample++) {
    std::vector<float> x = random.uniform_values(columns, -1, 1);
    for (size_t i = 0; i < columns; i += 5) x[i] *= 4;
    for (size_t i = 0; i < columns; i++) {
      for (size_t j = 0; j < columns; j++) h[i * columns + j] += x[i] * x[j] / static_cast<float>(samples);
    }
  }
  return h;
}

/// (w - y) H (w - y)' of a row; without y, of w.
double error_of(const std::vector<float>& w, const std::vector<float>* y, size_t row, const std::vector<float>& h,
                size_t columns) {
  std::vector<double> difference(columns);
  for (size_t i = 0; i < columns; i++) {
    const size_t index = row * columns + i;
    difference[i] = static_cast<double>(w[index]) - (y == nullptr ? 0.0 : static_cast<double>((*y)[index]));
  }
  double sum = 0;
  for (size_t i = 0; i < columns; i++) {
    for (size_t j = 0; j < columns; j++) sum += difference[i] * difference[j] * h[i * columns + j];
  }
  return sum;
}

/// Values near w whose distance differs by row.
std::vector<float> near(Random& random, const std::vector<float>& w, size_t columns, float even, float odd) {
  std::vector<float> y = w;
  for (size_t i = 0; i < y.size(); i++) {
    const float most = i / columns % 2 == 0 ? even : odd;
    y[i] += random.uniform(-most, most);
  }
  return y;
}

TEST(OutputJudge, chooses_rows_and_then_all_of_them) {
  for (const size_t columns : {1, 7, 128, 129, 300}) {
    Random random(static_cast<uint32_t>(columns));
    const std::vector<float> h = moments_of(random, columns, 2 * columns), held = moments_of(random, columns, columns);
    for (const size_t rows : {1, 2, 5, 9}) {
      SCOPED_TRACE(testing::Message() << rows << "x" << columns);
      const std::vector<float> w = random.uniform_values(rows * columns, -1, 1);
      const std::vector<float> plain = near(random, w, columns, 0.1f, 0.1f);
      // Rows with even numbers get better, the others worse.
      const std::vector<float> fed = near(random, w, columns, 0.01f, 0.5f);
      for (const int held_back : {0, 1, 2}) {
        // In the last case there is one held-back input, for which the first row has no error without feedback.
        std::vector<float> other = held;
        if (held_back == 2) {
          if (columns < 2 || rows > 2) continue;
          std::vector<float> v(columns);
          v[0] = w[1] - plain[1];
          v[1] = plain[0] - w[0];
          for (size_t i = 0; i < columns; i++) {
            for (size_t j = 0; j < columns; j++) other[i * columns + j] = v[i] * v[j];
          }
        }
        Moments moments = {};
        moments.moments = h.data();
        moments.damping = 0.03;
        moments.held_back = held_back == 0 ? nullptr : other.data();
        Arena arena;
        OutputJudge judge(w, columns, moments, arena);
        ASSERT_EQ(arena.status(), Status::kOk);
        judge.judge_plain(plain.data());
        for (size_t row = 0; row < rows; row++) EXPECT_FALSE(judge.is_fed(row));
        judge.judge_fed(fed.data());
        std::vector<bool> chosen(rows);
        for (size_t row = 0; row < rows; row++) chosen[row] = judge.is_fed(row);
        // A further candidate that is better nowhere changes nothing.
        judge.judge_fed(plain.data());
        for (size_t row = 0; row < rows; row++) EXPECT_EQ(judge.is_fed(row), false);

        // Expect the choice of the sums in double.
        const std::vector<float>& judged = held_back == 0 ? h : other;
        std::vector<bool> better(rows);
        double gain = 0, x = 0, before = 0, after = 0, fitted_before = 0, fitted_after = 0, kept = 0;
        for (size_t row = 0; row < rows; row++) {
          better[row] = error_of(w, &fed, row, h, columns) < error_of(w, &plain, row, h, columns);
          if (better[row]) gain += error_of(w, &plain, row, judged, columns) - error_of(w, &fed, row, judged, columns);
        }
        const bool takes = held_back == 0 || gain > 0;
        if (columns > 1) EXPECT_EQ(takes, held_back != 2);
        for (size_t row = 0; row < rows; row++) {
          const bool is_fed = takes && better[row];
          EXPECT_EQ(chosen[row], is_fed) << row;
          const std::vector<float>& y = is_fed ? fed : plain;
          x += error_of(w, nullptr, row, judged, columns);
          before += error_of(w, &plain, row, judged, columns);
          after += error_of(w, &y, row, judged, columns);
          fitted_before += error_of(w, &plain, row, h, columns);
          fitted_after += error_of(w, &y, row, h, columns);
          kept += is_fed ? 0 : 1;
        }
        // Sums of up to 300 products in float32, which may cancel where errors are 0.
        const double room = 300 * std::ldexp(1, -23);
        ErrorSums sums;
        EXPECT_TRUE(judge.put(sums));
        EXPECT_NEAR(sums.output_x, x, x * room);
        EXPECT_NEAR(sums.output_before, before, x * room);
        EXPECT_NEAR(sums.output_error, after, x * room);
        EXPECT_NEAR(sums.fitted_before, fitted_before, fitted_before * room);
        EXPECT_NEAR(sums.fitted_error, fitted_after, fitted_after * room);
        EXPECT_LE(sums.output_error, sums.output_before);
        EXPECT_EQ(sums.damping, 0.03);
        EXPECT_EQ(sums.outputs, static_cast<double>(rows));
        EXPECT_EQ(sums.held_outputs, held_back == 0 ? 0 : static_cast<double>(rows));
        EXPECT_EQ(sums.plain_outputs, kept);
      }
    }
  }
}

TEST(OutputJudge, names_errors_beyond_float32) {
  const std::vector<float> w = {1, 2, 3, 4}, y = {1, 2, 3, 3}, h = {1, 0, 0, 1};
  for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 3e38f}) {
    const std::vector<float> held = {1, 0, 0, wrong};
    Moments moments = {};
    moments.moments = h.data();
    moments.held_back = held.data();
    Arena arena;
    OutputJudge judge(w, 2, moments, arena);
    judge.judge_plain(y.data());
    judge.judge_fed(w.data());
    ErrorSums sums;
    EXPECT_FALSE(judge.put(sums));
  }
}

}  // namespace
}  // namespace scalepoint::tests
