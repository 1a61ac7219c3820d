#include "calibration/feedback.h"

#include <algorithm>
#include <cmath>

#include "calibration/feedback_loops.h"

namespace scalepoint {
namespace {

using loops::kFeedbackRows;
using loops::kSpan;

/// Sizes that follow from a matrix and its grid.
struct Form {
  size_t columns, group, outer;

  Form(size_t columns_of_matrix, const FeedbackGrid& grid)
      : columns(columns_of_matrix),
        group(grid.group_size() == 0 ? columns : std::min(grid.group_size(), columns)),
        outer(std::min(std::max(grid.outer_size(), group), columns)) {}
};

/// Goes through a matrix from left to right: over columns that share scales, over spans of them, and over four rows at a time.
class Quantizer {
 public:
  Quantizer(std::span<const float> w, const Form& form, FeedbackGrid& grid, const float* feedback, const float* weights,
            const uint32_t* order, float* scratch, uint8_t* codes)
      : w_(w.data()),
        rows_(w.size() / form.columns),
        form_(form),
        grid_(grid),
        feedback_(feedback),
        weights_(weights),
        order_(order),
        codes_(codes) {
    errors_ = scratch;
    outer_ = errors_ + padded(rows_) * form.columns;
    x_ = outer_ + padded(rows_) * form.outer;
    original_ = x_ + kFeedbackRows * kSpan;
    within_ = original_ + kFeedbackRows * kSpan;
    line_ = within_ + kSpan * kSpan;
    grids_ = reinterpret_cast<RowGrid*>(line_ + form.outer);
  }

  [[nodiscard]] static size_t scratch_size(size_t rows, const Form& form) {
    return padded(rows) * (form.columns + form.outer) + 2 * kFeedbackRows * kSpan + kSpan * kSpan + form.outer +
           rows * (sizeof(RowGrid) / sizeof(float));
  }

  Status run() {
    std::fill(errors_, errors_ + padded(rows_) * form_.columns, 0.0f);
    for (size_t begin = 0; begin < form_.columns; begin += form_.outer) {
      const size_t n = std::min(form_.outer, form_.columns - begin);
      // Pass the errors of all columns before on, and choose the shared scales.
      for (size_t row = 0; row < rows_; row += kFeedbackRows) {
        if (!begin_outer(row, begin, n)) return Status::kOverflow;
      }
      for (size_t at = 0; at < n;) {
        // Take whole groups up to the size of a span, or a span of a group.
        const size_t in_group = form_.group - at % form_.group, span = std::min({kSpan, in_group, n - at});
        gather_within(begin + at, span);
        for (size_t row = 0; row < rows_; row += kFeedbackRows) {
          if (!quantize_span(row, begin, at, span, n)) return Status::kOverflow;
        }
        at += span;
      }
    }
    if (order_ != nullptr) restore_order();
    return Status::kOk;
  }

 private:
  /// The column that is rounded as number i.
  [[nodiscard]] size_t column(size_t i) const { return order_ == nullptr ? i : order_[i]; }

  [[nodiscard]] static size_t padded(size_t rows) { return (rows + kFeedbackRows - 1) / kFeedbackRows * kFeedbackRows; }

  /// The columns that share scales, of four rows: column after column, four rows each.
  [[nodiscard]] float* outer(size_t row) const { return outer_ + row * form_.outer; }

  bool begin_outer(size_t row, size_t begin, size_t n) {
    float* const to = outer(row);
    gather(row, begin, n, to);
    loops::pass_errors_on(errors_ + row * form_.columns, form_.columns, feedback_ + begin * form_.columns, form_.columns, begin,
                          n, to);
    if (grid_.outer_size() == 0) return true;
    for (size_t r = 0; r < kFeedbackRows && row + r < rows_; r++) {
      if (!take_line(to, r, n) || !grid_.begin(row + r, column(begin) / form_.outer, line_, weights_ + begin, n)) return false;
    }
    return true;
  }

  /// Copies the original weights of n columns of four rows, laid out as outer().
  void gather(size_t row, size_t first, size_t n, float* to) const {
    for (size_t j = 0; j < n; j++) {
      const float* const from = w_ + column(first + j);
      for (size_t r = 0; r < kFeedbackRows; r++) *to++ = row + r < rows_ ? from[(row + r) * form_.columns] : 0;
    }
  }

  /// Copies n values of row r to line_. False if one is not finite.
  bool take_line(const float* x, size_t r, size_t n) {
    bool finite = true;
    for (size_t j = 0; j < n; j++) {
      line_[j] = x[j * kFeedbackRows + r];
      finite = finite && std::isfinite(line_[j]);
    }
    return finite;
  }

  /// Rounds `span` columns of four rows, the first of which is `at` columns behind `begin`. False if they leave float32.
  bool quantize_span(size_t row, size_t begin, size_t at, size_t span, size_t n) {
    const size_t first = begin + at;
    // Pass the errors of the columns since `begin` on.
    std::copy_n(outer(row) + at * kFeedbackRows, span * kFeedbackRows, x_);
    loops::pass_errors_on(errors_ + row * form_.columns + begin, form_.columns, feedback_ + first * form_.columns + begin,
                          form_.columns, at, span, x_);
    // Choose the grids at the first columns of groups.
    if (at % form_.group == 0) {
      const size_t size = std::min(form_.group, n - at);
      const float* const x = size <= kSpan ? x_ : outer(row);
      for (size_t r = 0; r < kFeedbackRows && row + r < rows_; r++) {
        RowGrid& chosen = grids_[row + r] = {};
        if (!take_line(x, r, size)) return false;
        if (!grid_.choose(row + r, column(first) / form_.group, line_, weights_ + first, size, chosen)) return false;
        chosen.inverse = chosen.scale == 0 && grid_.levels() != nullptr ? 0 : 1 / chosen.scale;
        if (!std::isfinite(chosen.scale) || !std::isfinite(chosen.inverse)) return false;
      }
    }
    // Round.
    loops::RowGrids grids = {};
    for (size_t r = 0; r < kFeedbackRows; r++) {
      const RowGrid& grid = grids_[std::min(row + r, rows_ - 1)];
      grids.scale[r] = grid.scale;
      grids.inverse[r] = grid.inverse;
      grids.low[r] = grid.low;
      grids.high[r] = grid.high;
      grids.offset[r] = grid.offset;
    }
    gather(row, first, span, original_);
    loops::round_span(x_, within_, span, grids, grid_.levels(), original_, errors_ + row * form_.columns + first,
                      codes_ + row * form_.columns + first, form_.columns, std::min(kFeedbackRows, rows_ - row));
    return true;
  }

  /// Puts codes back in the order of columns.
  void restore_order() {
    auto* const line = reinterpret_cast<uint8_t*>(errors_);
    for (uint8_t* codes = codes_; codes < codes_ + rows_ * form_.columns; codes += form_.columns) {
      std::copy_n(codes, form_.columns, line);
      for (size_t i = 0; i < form_.columns; i++) codes[order_[i]] = line[i];
    }
  }

  /// within_ = the feedback of a span's columns to each other.
  void gather_within(size_t first, size_t n) {
    for (size_t i = 0; i < n; i++) {
      for (size_t j = 0; j < n; j++) within_[i * n + j] = feedback_[(first + j) * form_.columns + first + i];
    }
  }

  const float* w_;
  size_t rows_;
  const Form& form_;
  FeedbackGrid& grid_;
  const float* feedback_;
  const float* weights_;
  const uint32_t* order_;
  uint8_t* codes_;
  float *errors_, *outer_, *x_, *original_, *within_, *line_;
  RowGrid* grids_;
};

}  // namespace

bool LinearFeedbackGrid::choose(size_t row, size_t group, const float* x, const float* weights, size_t n, RowGrid& grid) {
  const WeightedScale chosen = search_ ? search_weighted_scale(x, weights, n, codes_) : whole_range_scale(x, n, codes_);
  grid.scale = chosen.scale;
  grid.low = codes_.qmin - chosen.zero_point;
  grid.high = codes_.qmax - chosen.zero_point;
  scales_[row * groups_ + group] = chosen.scale;
  zero_points_[row * groups_ + group] = chosen.zero_point;
  return true;
}

size_t feedback_scratch_size(size_t rows, size_t columns, const FeedbackGrid& grid) noexcept {
  return Quantizer::scratch_size(rows, Form(columns, grid));
}

Status quantize_with_feedback(std::span<const float> w, size_t columns, FeedbackGrid& grid, std::span<const float> feedback,
                              std::span<const float> weights, std::span<float> scratch, std::span<uint8_t> codes,
                              std::span<const uint32_t> order) noexcept {
  if (columns == 0) return Status::kBadLayout;
  const Form form(columns, grid);
  const size_t rows = w.size() / columns;
  if (w.size() % columns != 0 || feedback.size() != columns * columns || weights.size() != columns || codes.size() != w.size() ||
      (!order.empty() && order.size() != columns) || scratch.size() < feedback_scratch_size(rows, columns, grid)) {
    return Status::kSizeMismatch;
  }
  if (rows == 0) return Status::kOk;
  return Quantizer(w, form, grid, feedback.data(), weights.data(), order.empty() ? nullptr : order.data(), scratch.data(),
                   codes.data())
      .run();
}

}  // namespace scalepoint
