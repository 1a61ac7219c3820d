// The loops of feedback.cpp. Four rows are walked together.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ranges/levels.h"

namespace scalepoint::loops {

inline constexpr size_t kFeedbackRows = 4;
/// Most columns of a span.
inline constexpr size_t kSpan = 128;

/// to[j * 4 + r] += sum over i < n of errors[r * stride + i] * feedback[j * columns + i], for j < span and r < 4. Sums of up to 256 columns
/// are added up before they are added to the rest.
void pass_errors_on(const float* errors, size_t stride, const float* feedback, size_t columns, size_t n, size_t span, float* to);

/// Parameters of the grids of four rows, see RowGrid.
struct RowGrids {
  float scale[kFeedbackRows], inverse[kFeedbackRows], low[kFeedbackRows], high[kFeedbackRows], offset[kFeedbackRows];
};

/// Rounds the span's columns one after the other.
///   x           column after column, four rows each: the weights and all passed-on errors. Changed.
///   within      within[i * span + j] = the feedback from the span's column i to its column j, for i < j
///   levels      of all rows; null: codes have even distances
///   w           the original weights, laid out as x
///   errors      of the first column of the span: w - restored
///   codes       of the first column: code - low of its row, or the place of its level
void round_span(float* x, const float* within, size_t span, const RowGrids& grids, const Levels* levels, const float* w,
                float* errors, uint8_t* codes, size_t stride, size_t rows);

}  // namespace scalepoint::loops
