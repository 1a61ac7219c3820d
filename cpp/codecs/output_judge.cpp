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
  now_ = arena.take<double>(rows_);
  after_ = arena.take<double>(rows_);
  held_now_ = arena.take<double>(held);
  held_after_ = arena.take<double>(held);
  taken_ = arena.take<uint8_t>(rows_);
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
  measure(y, moments_.moments, now_);
  before_ = std::accumulate(now_, now_ + rows_, 0.0);
  std::fill_n(taken_, rows_, uint8_t{0});
  if (!is_held) return;
  measure(y, moments_.held_back, held_now_);
  held_before_ = std::accumulate(held_now_, held_now_ + rows_, 0.0);
}

void OutputJudge::judge_fed(const float* y) noexcept {
  candidates_++;
  measure(y, moments_.moments, after_);
  const bool is_held = moments_.held_back != nullptr;
  if (is_held) {
    measure(y, moments_.held_back, held_after_);
    // Add up in the order of put, so that the reported error is never larger than that before.
    double before = 0, after = 0;
    for (size_t row = 0; row < rows_; row++) {
      before += held_now_[row];
      after += after_[row] < now_[row] ? held_after_[row] : held_now_[row];
    }
    if (!(after < before)) return;
  }
  for (size_t row = 0; row < rows_; row++) {
    if (!(after_[row] < now_[row])) continue;
    now_[row] = after_[row];
    if (is_held) held_now_[row] = held_after_[row];
    taken_[row] = candidates_;
  }
}

bool OutputJudge::put(ErrorSums& sums) const noexcept {
  const bool is_held = moments_.held_back != nullptr;
  sums.damping = moments_.damping;
  sums.outputs = static_cast<double>(rows_);
  sums.output_x = output_x_;
  sums.held_outputs = is_held ? sums.outputs : 0;
  sums.plain_outputs = static_cast<double>(std::count(taken_, taken_ + rows_, uint8_t{0}));
  sums.fitted_before = before_;
  sums.fitted_error = std::accumulate(now_, now_ + rows_, 0.0);
  sums.output_before = is_held ? held_before_ : before_;
  sums.output_error = is_held ? std::accumulate(held_now_, held_now_ + rows_, 0.0) : sums.fitted_error;
  return std::isfinite(sums.output_x) && std::isfinite(sums.output_before) && std::isfinite(sums.output_error);
}

}  // namespace scalepoint::codecs
