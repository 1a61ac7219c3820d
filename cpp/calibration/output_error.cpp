#include "calibration/output_error.h"

#include <algorithm>

#include "calibration/feedback_loops.h"

namespace scalepoint {

using loops::kFeedbackRows;
using loops::kSpan;

size_t output_error_scratch_size(size_t columns) noexcept { return kFeedbackRows * (columns + kSpan); }

void output_errors(std::span<const float> x, const float* y, size_t columns, std::span<const float> moments,
                   std::span<float> scratch, std::span<double> errors) noexcept {
  float* const difference = scratch.data();
  float* const product = difference + kFeedbackRows * columns;
  for (size_t row = 0; row < errors.size(); row += kFeedbackRows) {
    const size_t rows = std::min(kFeedbackRows, errors.size() - row), first = row * columns;
    for (size_t i = 0; i < rows * columns; i++) difference[i] = y == nullptr ? x[first + i] : x[first + i] - y[first + i];
    std::fill(difference + rows * columns, product, 0.0f);
    double sums[kFeedbackRows] = {};
    for (size_t at = 0; at < columns; at += kSpan) {
      const size_t span = std::min(kSpan, columns - at);
      // Pairs with columns before the span count twice, because H is symmetric.
      const float* const rows_of_span = moments.data() + at * columns;
      std::fill_n(product, span * kFeedbackRows, 0.0f);
      loops::pass_errors_on(difference, columns, rows_of_span, columns, at, span, product);
      for (size_t i = 0; i < span * kFeedbackRows; i++) product[i] *= 2;
      loops::pass_errors_on(difference + at, columns, rows_of_span + at, columns, span, span, product);
      for (size_t j = 0; j < span; j++) {
        for (size_t r = 0; r < kFeedbackRows; r++) {
          sums[r] += static_cast<double>(product[j * kFeedbackRows + r]) * difference[r * columns + at + j];
        }
      }
    }
    // Rounding may leave less than zero.
    for (size_t r = 0; r < rows; r++) errors[row + r] = std::max(sums[r], 0.0);
  }
}

}  // namespace scalepoint
