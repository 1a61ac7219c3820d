#include "codecs/output_judge.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "calibration/output_error.h"

namespace scalepoint::codecs {

OutputJudge::OutputJudge(std::span<const float> w, size_t columns, const Moments& moments, Arena& arena) noexcept
    : w_(w), rows_(columns == 0 ? 0 : w.size() / columns), columns_(columns), moments_(moments) {
  const size_t scratch = output_error_scratch_size(columns), held = moments.held_back == nullptr ? 0 : rows_;
  scratch_ = {arena.take<float>(scratch), scratch};
  before_ = arena.take<double>(rows_);
  after_ = arena.take<double>(rows_);
  held_before_ = arena.take<double>(held);
  held_after_ = arena.take<double>(held);
}

void OutputJudge::measure(const float* y, const float* moments, double* errors) const noexcept {
  output_errors(w_, y, columns_, {moments, columns_ * columns_}, scratch_, {errors, rows_});
}

void OutputJudge::judge_plain(const float* y) noexcept {
  // Memory of errors with feedback holds squares of outputs until judge_fed.
  const bool is_held = moments_.held_back != nullptr;
  double* const squares = is_held ? held_after_ : after_;
  measure(nullptr, is_held ? moments_.held_back : moments_.moments, squares);
  output_x_ = std::accumulate(squares, squares + rows_, 0.0);
  measure(y, moments_.moments, before_);
  if (is_held) measure(y, moments_.held_back, held_before_);
}

void OutputJudge::judge_fed(const float* y) noexcept {
  measure(y, moments_.moments, after_);
  is_fed_ = true;
  if (moments_.held_back == nullptr) return;
  measure(y, moments_.held_back, held_after_);
  // Add up in the order of put, so that the reported error is never larger than that before.
  double before = 0, after = 0;
  for (size_t row = 0; row < rows_; row++) {
    before += held_before_[row];
    after += after_[row] < before_[row] ? held_after_[row] : held_before_[row];
  }
  is_fed_ = after < before;
}

bool OutputJudge::put(ErrorSums& sums) const noexcept {
  sums.damping = moments_.damping;
  sums.outputs = static_cast<double>(rows_);
  sums.output_x = output_x_;
  sums.held_outputs = moments_.held_back == nullptr ? 0 : sums.outputs;
  sums.plain_outputs = sums.output_before = sums.output_error = sums.fitted_before = sums.fitted_error = 0;
  for (size_t row = 0; row < rows_; row++) {
    const bool takes = is_fed(row);
    const double before = before_[row], after = takes ? after_[row] : before;
    sums.plain_outputs += takes ? 0 : 1;
    sums.fitted_before += before;
    sums.fitted_error += after;
    sums.output_before += moments_.held_back == nullptr ? before : held_before_[row];
    sums.output_error += moments_.held_back == nullptr ? after : takes ? held_after_[row] : held_before_[row];
  }
  return std::isfinite(sums.output_x) && std::isfinite(sums.output_before) && std::isfinite(sums.output_error);
}

}  // namespace scalepoint::codecs
