// Chooses between the codes of a matrix with feedback and those without it, by the errors of outputs.
#pragma once

#include <cstddef>
#include <span>

#include "codecs/arena.h"
#include "codecs/codec.h"

namespace scalepoint::codecs {

/// Chooses codes for the rows of a matrix, in two steps for each candidate. A row whose output gets no better on the data of the factor keeps
/// the codes that it has, at first those without feedback. If the outputs of all rows together then get no better on held-back data, every
/// row keeps them.
class OutputJudge {
 public:
  /// Takes memory from the arena.
  OutputJudge(std::span<const float> w, size_t columns, const Moments& moments, Arena& arena) noexcept;

  /// Measures the values of the codes without feedback, one for each weight.
  void judge_plain(const float* y) noexcept;

  /// Measures the values of a candidate, codes with feedback, behind judge_plain, and chooses. May be called again for further ones.
  void judge_fed(const float* y) noexcept;

  /// True if a row takes its codes of the last candidate. False for all rows before judge_fed.
  [[nodiscard]] bool is_fed(size_t row) const noexcept { return candidates_ > 0 && taken_[row] == candidates_; }

  /// Fills in the sums about outputs. Returns false if those on held-back data are not finite.
  [[nodiscard]] bool put(ErrorSums& sums) const noexcept;

 private:
  void measure(const float* y, const float* moments, double* errors) const noexcept;

  std::span<const float> w_;
  size_t rows_, columns_;
  const Moments& moments_;
  std::span<float> scratch_;
  double *now_, *after_;            ///< of each row, on the data of the factor: of the codes that it has, and of a candidate
  double *held_now_, *held_after_;  ///< on held-back data
  uint8_t* taken_;                  ///< the candidate of each row; 0: codes without feedback
  uint8_t candidates_ = 0;
  double output_x_ = 0, before_ = 0, held_before_ = 0;
};

}  // namespace scalepoint::codecs
