// Weights of a layer, and data about its inputs.
#pragma once

#include <cmath>

#include "calibration/factor.h"
#include "codecs_helpers.h"

namespace scalepoint::tests {

/// Weights of some outputs, row by row, and what is known about their inputs.
struct Case {
  size_t outputs, inputs;
  std::vector<float> w, importance, h, held_out, feedback, factor_weights;
  codecs::Moments moments = {};

  Case(size_t outputs_of_case, size_t inputs_of_case, uint32_t seed) : outputs(outputs_of_case), inputs(inputs_of_case) {
    Random random(seed);
    w = random.uniform_values(outputs * inputs, -1, 1);
    for (float& value : w) value *= random.uniform(0.1f, 1);
    // Inputs are sums of a few hidden values and noise, some of them large.
    const size_t samples = 2 * inputs + 8, hidden = inputs / 4 + 1;
    const std::vector<float> mix = random.uniform_values(hidden * inputs, -1, 1);
    const auto moments_of_inputs = [&] {
      std::vector<double> sums(inputs * inputs);
      for (size_t sample = 0; sample < samples; sample++) {
        const std::vector<float> z = random.uniform_values(hidden, -1, 1);
        std::vector<double> x(inputs);
        for (size_t i = 0; i < inputs; i++) {
          x[i] = random.uniform(-0.3f, 0.3f);
          for (size_t k = 0; k < hidden; k++) x[i] += z[k] * mix[k * inputs + i];
          x[i] *= i % 5 == 0 ? 4 : 1;
        }
        for (size_t i = 0; i < inputs; i++) {
          for (size_t j = 0; j < inputs; j++) sums[i * inputs + j] += x[i] * x[j] / static_cast<double>(samples);
        }
      }
      return sums;
    };
    std::vector<double> sums = moments_of_inputs();
    h.assign(sums.begin(), sums.end());
    for (size_t i = 0; i < inputs; i++) importance.push_back(h[i * inputs + i]);
    feedback.resize(inputs * inputs);
    factor_weights.resize(inputs);
    std::vector<double> scratch(factor_scratch_size(inputs));
    EXPECT_EQ(factor_moments(sums, inputs, 0.01, scratch, feedback, factor_weights, moments.damping), Status::kOk);
    moments.moments = h.data();
    moments.feedback = feedback.data();
    moments.weights = factor_weights.data();
    sums = moments_of_inputs();
    held_out.assign(sums.begin(), sums.end());
  }

  /// The weights as a tile has them.
  [[nodiscard]] std::vector<float> as_tile(bool turned) const {
    std::vector<float> x(w.size());
    for (size_t i = 0; i < w.size(); i++) x[turned ? i % inputs * outputs + i / inputs : i] = w[i];
    return x;
  }

  [[nodiscard]] std::vector<float> from_tile(const std::vector<float>& x, bool turned) const {
    std::vector<float> rows(w.size());
    for (size_t i = 0; i < w.size(); i++) rows[i] = x[turned ? i % inputs * outputs + i / inputs : i];
    return rows;
  }

  [[nodiscard]] double weighted_error(const std::vector<float>& y) const {
    double sum = 0;
    for (size_t i = 0; i < w.size(); i++) sum += importance[i % inputs] * std::pow(static_cast<double>(w[i]) - y[i], 2);
    return sum;
  }

  /// (w - y) H (w - y)' of one output. @param m H of other inputs, if not null
  [[nodiscard]] double output_error(const std::vector<float>& y, size_t output, const std::vector<float>* m = nullptr) const {
    const std::vector<float>& squares = m == nullptr ? h : *m;
    double sum = 0;
    for (size_t i = 0; i < inputs; i++) {
      const double a = static_cast<double>(w[output * inputs + i]) - y[output * inputs + i];
      for (size_t j = 0; j < inputs; j++) {
        sum += a * (static_cast<double>(w[output * inputs + j]) - y[output * inputs + j]) * squares[i * inputs + j];
      }
    }
    return sum;
  }

  [[nodiscard]] double output_error(const std::vector<float>& y, const std::vector<float>* m = nullptr) const {
    double sum = 0;
    for (size_t output = 0; output < outputs; output++) sum += output_error(y, output, m);
    return sum;
  }
};

}  // namespace scalepoint::tests
