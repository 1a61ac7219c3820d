#include "calibration/feedback.h"

#include <algorithm>
#include <cmath>

#include "calibration/feedback_loops.h"

namespace scalepoint {
namespace {

using loops::kFeedbackRows;
using loops::kSpan;

/// Least gain of another scale, as a share of the squares of what a group adds to outputs.
constexpr float kLeastGain = 0x1p-22f;

/// Sizes that follow from a matrix and its grid.
struct Form {
  size_t columns, group, outer, groups;

  Form(size_t columns_of_matrix, const FeedbackGrid& grid)
      : columns(columns_of_matrix),
        group(grid.group_size() == 0 ? columns : std::min(grid.group_size(), columns)),
        outer(std::min(std::max(grid.outer_size(), group), columns)),
        groups(group == 0 ? 0 : (columns + group - 1) / group) {}
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
    steps_ = within_ + kSpan * kSpan;
    moved_ = steps_ + kSpan;
    line_ = moved_ + kSpan;
    grids_ = reinterpret_cast<RowGrid*>(line_ + form.outer);
  }

  [[nodiscard]] static size_t scratch_size(size_t rows, const Form& form) {
    return padded(rows) * (form.columns + form.outer) + 2 * kFeedbackRows * kSpan + kSpan * (kSpan + 2) + form.outer +
           rows * form.groups * (sizeof(RowGrid) / sizeof(float));
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

  /// See refine_codes. @param added to the diagonal of H
  void refine(const float* moments, float added) {
    const size_t n = form_.columns;
    // The errors of all codes, in the order of columns.
    order_ = nullptr;
    std::fill(errors_, errors_ + padded(rows_) * n, 0.0f);
    for (size_t i = 0; i < rows_ * n; i++) {
      const RowGrid& grid = grid_at(i / n, i % n / form_.group);
      errors_[i] = w_[i] - (grid.scale * step_of(grid, codes_[i]) - grid.offset);
    }
    for (int pass = 0; pass < kRefinements; pass++) {
      for (size_t first = 0; first < n;) {
        const size_t group = first / form_.group, end = std::min(n, (group + 1) * form_.group),
                     span = std::min(kSpan, end - first);
        const float* const h = moments + first * n;
        // An error of column i moves the minimum along column j by that of i times L[i, j] / L[j, j].
        for (size_t i = 0; i < span; i++) {
          for (size_t j = 0; j < span; j++) {
            const float own = h[j * n + first + j] + added;
            within_[i * span + j] = i == j ? own : own > 0 ? h[j * n + first + i] / own : 0;
          }
        }
        for (size_t row = 0; row < rows_; row += kFeedbackRows) {
          // The products of errors and L.
          const float* const errors = errors_ + row * n;
          gather(row, first, span, original_);
          for (size_t i = 0; i < span * kFeedbackRows; i++) {
            x_[i] = added * errors[i % kFeedbackRows * n + first + i / kFeedbackRows];
          }
          loops::pass_errors_on(errors, n, h, n, n, span, x_);
          if (span == end - group * form_.group) fit_scales(row, first, span, group);
          // Prepare for round_span: the minimum along each column, without the part that it adds itself.
          for (size_t j = 0, at = 0; j < span; j++) {
            const float own = within_[j * span + j], share = own > 0 ? 1 / own : 0;
            for (size_t r = 0; r < kFeedbackRows; r++, at++) {
              float sum = x_[at] * share - errors[r * n + first + j];
              for (size_t i = 0; i < j; i++) sum -= errors[r * n + first + i] * within_[i * span + j];
              x_[at] = original_[at] + sum;
            }
          }
          round(row, first, span, group);
        }
        first += span;
      }
    }
  }

 private:
  /// restored = scale * step - offset.
  [[nodiscard]] float step_of(const RowGrid& grid, uint8_t code) const {
    return grid_.levels() != nullptr ? grid_.levels()->values[code] : static_cast<float>(code) + grid.low;
  }

  /// Fits the scales of a group of four rows, and changes their errors and x_ with them.
  void fit_scales(size_t row, size_t first, size_t span, size_t group) {
    for (size_t r = 0; r < kFeedbackRows && row + r < rows_; r++) {
      RowGrid& grid = grid_at(row + r, group);
      if (grid_.levels() != nullptr ? grid.scale == 0 : grid.low == grid.high) continue;
      const size_t at = (row + r) * form_.columns + first;
      for (size_t i = 0; i < span; i++) steps_[i] = step_of(grid, codes_[at + i]);
      // With a scale that is larger by d, the error changes by d (d * square - 2 * slope).
      float slope = 0, square = 0;
      for (size_t j = 0; j < span; j++) {
        float sum = steps_[j];
        for (size_t i = 0; i < span; i++) sum += i == j ? 0 : steps_[i] * within_[i * span + j];
        moved_[j] = sum * within_[j * span + j];
        slope += steps_[j] * x_[j * kFeedbackRows + r];
        square += steps_[j] * moved_[j];
      }
      const float scale = grid_.rescale(row + r, group, square > 0 ? grid.scale + slope / square : grid.scale);
      const float more = scale - grid.scale, inverse = 1 / scale, gain = more * (2 * slope - more * square);
      // Gains below the rounding errors of the sums change nothing.
      if (!std::isfinite(scale) || !std::isfinite(inverse) || !(gain > kLeastGain * grid.scale * grid.scale * square)) {
        (void)grid_.rescale(row + r, group, grid.scale);
        continue;
      }
      grid.scale = scale;
      grid.inverse = inverse;
      for (size_t i = 0; i < span; i++) {
        errors_[at + i] = w_[at + i] - (scale * steps_[i] - grid.offset);
        x_[i * kFeedbackRows + r] -= more * moved_[i];
      }
    }
  }

  [[nodiscard]] RowGrid& grid_at(size_t row, size_t group) const {
    return grids_[std::min(row, rows_ - 1) * form_.groups + group];
  }

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
        RowGrid& chosen = grid_at(row + r, column(first) / form_.group) = {};
        if (!take_line(x, r, size)) return false;
        if (!grid_.choose(row + r, column(first) / form_.group, line_, weights_ + first, size, chosen)) return false;
        chosen.inverse = chosen.scale == 0 && grid_.levels() != nullptr ? 0 : 1 / chosen.scale;
        if (!std::isfinite(chosen.scale) || !std::isfinite(chosen.inverse)) return false;
      }
    }
    // Round.
    gather(row, first, span, original_);
    round(row, first, span, column(first) / form_.group);
    return true;
  }

  /// Rounds x_, which `span` columns of four rows have become, whose weights are original_.
  void round(size_t row, size_t first, size_t span, size_t group) {
    loops::RowGrids grids = {};
    for (size_t r = 0; r < kFeedbackRows; r++) {
      const RowGrid& grid = grid_at(row + r, group);
      grids.scale[r] = grid.scale;
      grids.inverse[r] = grid.inverse;
      grids.low[r] = grid.low;
      grids.high[r] = grid.high;
      grids.offset[r] = grid.offset;
    }
    loops::round_span(x_, within_, span, grids, grid_.levels(), original_, errors_ + row * form_.columns + first,
                      codes_ + row * form_.columns + first, form_.columns, std::min(kFeedbackRows, rows_ - row));
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
  float *errors_, *outer_, *x_, *original_, *within_, *steps_, *moved_, *line_;
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

float LinearFeedbackGrid::rescale(size_t row, size_t group, float scale) {
  return scales_[row * groups_ + group] = codes_.store == nullptr ? scale : codes_.store(scale);
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

Status refine_codes(std::span<const float> w, size_t columns, FeedbackGrid& grid, std::span<const float> moments, double damping,
                    std::span<float> scratch, std::span<uint8_t> codes) noexcept {
  if (columns == 0) return Status::kBadLayout;
  const Form form(columns, grid);
  const size_t rows = w.size() / columns;
  if (w.size() % columns != 0 || moments.size() != columns * columns || codes.size() != w.size() ||
      scratch.size() < feedback_scratch_size(rows, columns, grid)) {
    return Status::kSizeMismatch;
  }
  if (rows == 0) return Status::kOk;
  double trace = 0;
  for (size_t i = 0; i < columns; i++) trace += moments[i * (columns + 1)];
  const auto added = static_cast<float>(damping * trace / static_cast<double>(columns));
  Quantizer(w, form, grid, nullptr, nullptr, nullptr, scratch.data(), codes.data()).refine(moments.data(), added);
  return Status::kOk;
}

}  // namespace scalepoint
