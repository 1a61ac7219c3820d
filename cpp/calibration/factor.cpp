#include "calibration/factor.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "calibration/factor_loops.h"

namespace scalepoint {
namespace {

using loops::kFactorBlock;
using loops::kFactorPanel;

/// Factors the lower triangle of a matrix, from the last row to the first one.
class Factorization {
 public:
  Factorization(double* h, size_t columns, double* scratch)
      : h_(h), columns_(columns), diagonal_(scratch), panels_(scratch + columns) {}

  /// Mirrors the lower triangle to the upper one, from which `begin` restores it. False if the diagonal is not usable.
  bool keep() {
    for (size_t j = 0; j < columns_; j++) {
      diagonal_[j] = row(j)[j];
      mean_ += diagonal_[j] / static_cast<double>(columns_);
      if (!(diagonal_[j] >= 0) || !std::isfinite(diagonal_[j])) return false;
      for (size_t i = 0; i < j; i++) row(i)[j] = row(j)[i];
    }
    return std::isfinite(mean_);
  }

  /// True if H + damping * mean I is positive definite. Row j then holds D[j] and, before it, U[i, j].
  bool factor(double damping) {
    for (size_t j = 0; j < columns_; j++) {
      row(j)[j] = diagonal_[j] == 0 ? 1 : diagonal_[j] + damping * mean_;
      for (size_t i = 0; i < j; i++) row(j)[i] = diagonal_[j] == 0 || diagonal_[i] == 0 ? 0 : row(i)[j];
    }
    for (size_t end = columns_; end > 0;) {
      const size_t begin = end > kFactorBlock ? (end - 1) / kFactorBlock * kFactorBlock : 0;
      if (!factor_block(begin, end)) return false;
      if (begin > 0) update_above(begin, end);
      end = begin;
    }
    return true;
  }

  [[nodiscard]] double* row(size_t j) const { return h_ + j * columns_; }

 private:
  /// Factors rows of a block, over all of their columns.
  bool factor_block(size_t begin, size_t end) const {
    for (size_t j = end; j-- > begin;) {
      double* const pivot_row = row(j);
      const double pivot = pivot_row[j];
      if (!(pivot > 0) || !std::isfinite(pivot)) return false;
      for (size_t k = begin; k < j; k++) loops::subtract_row(row(k), pivot_row, pivot_row[k] / pivot, k + 1);
      for (size_t i = 0; i < j; i++) pivot_row[i] /= pivot;
    }
    return true;
  }

  /// Subtracts what the rows of a block contribute to the rows above. `begin` is a multiple of kFactorBlock.
  void update_above(size_t begin, size_t end) const {
    const size_t rows = end - begin, panel_size = rows * kFactorPanel;
    double left[kFactorBlock * kFactorPanel];
    // Copy the block's rows to panels of four columns.
    for (size_t j = 0; j < rows; j++) {
      const double* const from = row(begin + j);
      for (size_t i = 0; i < begin; i++) panels_[i / kFactorPanel * panel_size + j * kFactorPanel + i % kFactorPanel] = from[i];
    }
    for (size_t k = 0; k < begin; k += kFactorPanel) {
      // Multiply the panel of rows k by the diagonal.
      const double* const panel = panels_ + k / kFactorPanel * panel_size;
      for (size_t j = 0; j < rows; j++) {
        const double pivot = row(begin + j)[begin + j];
        for (size_t r = 0; r < kFactorPanel; r++) left[j * kFactorPanel + r] = panel[j * kFactorPanel + r] * pivot;
      }
      // Keep the entries above the diagonal, which hold the original.
      double above[kFactorPanel][kFactorPanel];
      for (size_t r = 0; r < kFactorPanel; r++) std::copy_n(row(k + r) + k, kFactorPanel, above[r]);
      for (size_t i = 0; i <= k; i += kFactorPanel) {
        loops::subtract_products(left, panels_ + i / kFactorPanel * panel_size, rows, row(k) + i, columns_);
      }
      for (size_t r = 0; r < kFactorPanel; r++) std::copy(above[r] + r + 1, above[r] + kFactorPanel, row(k + r) + k + r + 1);
    }
  }

  double* h_;
  size_t columns_;
  double* diagonal_;  ///< of H
  double* panels_;
  double mean_ = 0;
};

}  // namespace

size_t factor_scratch_size(size_t columns) noexcept { return columns + columns * kFactorBlock; }

Status factor_moments(std::span<double> moments, size_t columns, double damping, std::span<double> scratch,
                      std::span<float> feedback, std::span<float> weights, double& used) noexcept {
  if (columns == 0) return Status::kBadLayout;
  if (moments.size() != columns * columns || feedback.size() != moments.size() || weights.size() != columns ||
      scratch.size() < factor_scratch_size(columns)) {
    return Status::kSizeMismatch;
  }
  if (!(damping >= 0) || damping > kMostDamping) return Status::kBadRange;
  Factorization factorization(moments.data(), columns, scratch.data());
  if (!factorization.keep()) return Status::kNonFinite;
  constexpr double kFirstRetry = 1e-4;
  for (used = damping; !factorization.factor(used);) {
    if (used >= kMostDamping) return Status::kNonFinite;
    used = std::min(kMostDamping, std::max(kFirstRetry, 10 * used));
  }
  for (size_t j = 0; j < columns; j++) {
    const double* const row = factorization.row(j);
    float* const to = feedback.data() + j * columns;
    for (size_t i = 0; i < j; i++) to[i] = static_cast<float>(row[i]);
    std::fill(to + j, to + columns, 0.0f);
    weights[j] = static_cast<float>(row[j]);
  }
  return Status::kOk;
}

void falling_order(std::span<const float> diagonal, FeedbackGroups groups, std::span<double> sums,
                   std::span<uint32_t> order) noexcept {
  const size_t columns = diagonal.size();
  const size_t group = groups.group == 0 ? columns : std::min<size_t>(groups.group, columns);
  const size_t outer = std::min(std::max<size_t>(groups.outer, group), columns);
  double *const group_sums = sums.data(), *const outer_sums = group_sums + columns;
  std::fill_n(group_sums, 2 * columns, 0.0);
  for (size_t i = 0; i < columns; i++) {
    group_sums[i / group] += diagonal[i];
    outer_sums[i / outer] += diagonal[i];
  }
  // Shorter groups come last.
  if (columns % group != 0) group_sums[columns / group] = -1;
  if (columns % outer != 0) outer_sums[columns / outer] = -1;
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (a / outer != b / outer) {
      const double x = outer_sums[a / outer], y = outer_sums[b / outer];
      return x != y ? x > y : a < b;
    }
    if (a / group != b / group) {
      const double x = group_sums[a / group], y = group_sums[b / group];
      return x != y ? x > y : a < b;
    }
    return diagonal[a] != diagonal[b] ? diagonal[a] > diagonal[b] : a < b;
  });
}

}  // namespace scalepoint
