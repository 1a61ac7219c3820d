#include "calibration/feedback_loops.h"

#include <algorithm>

#include "lanes/lanes.h"
#include "ranges/levels_loops.h"

namespace scalepoint::loops {

using namespace lanes;

namespace {

constexpr size_t kBlock = 256;

/// sums[r] += the products of four rows of errors and one row of feedback, n columns.
template <size_t kColumns>
void add_products(const float* errors, size_t stride, const float* feedback, size_t columns, size_t n, float* to) {
  for (size_t at = 0; at < n; at += kBlock) {
    const size_t end = std::min(n, at + kBlock);
    F32x4 sums[kColumns][kFeedbackRows];
    for (auto& column : sums) {
      for (F32x4& sum : column) sum = splat(0.0f);
    }
    size_t i = at;
    SCALEPOINT_NO_UNROLL
    for (; i + 4 <= end; i += 4) {
      F32x4 error[kFeedbackRows];
      for (size_t r = 0; r < kFeedbackRows; r++) error[r] = load(errors + r * stride + i);
      for (size_t c = 0; c < kColumns; c++) {
        const F32x4 factor = load(feedback + c * columns + i);
        for (size_t r = 0; r < kFeedbackRows; r++) sums[c][r] = add(sums[c][r], mul(error[r], factor));
      }
    }
    for (size_t c = 0; c < kColumns; c++) {
      transpose(sums[c][0], sums[c][1], sums[c][2], sums[c][3]);
      F32x4 sum = add(add(sums[c][0], sums[c][1]), add(sums[c][2], sums[c][3]));
      for (size_t k = i; k < end; k++) {
        const float four[4] = {errors[k], errors[stride + k], errors[2 * stride + k], errors[3 * stride + k]};
        sum = add(sum, mul(load(four), splat(feedback[c * columns + k])));
      }
      store(to + c * kFeedbackRows, add(load(to + c * kFeedbackRows), sum));
    }
  }
}

}  // namespace

void pass_errors_on(const float* errors, size_t stride, const float* feedback, size_t columns, size_t n, size_t span, float* to) {
  size_t j = 0;
  for (; j + 2 <= span; j += 2) add_products<2>(errors, stride, feedback + j * columns, columns, n, to + j * kFeedbackRows);
  for (; j < span; j++) add_products<1>(errors, stride, feedback + j * columns, columns, n, to + j * kFeedbackRows);
}

void round_span(float* x, const float* within, size_t span, const RowGrids& grids, const Levels* levels, const float* w,
                float* errors, uint8_t* codes, size_t stride, size_t rows) {
  const F32x4 scale = load(grids.scale), inverse = load(grids.inverse), low = load(grids.low), high = load(grids.high);
  const F32x4 offset = load(grids.offset);
  for (size_t i = 0; i < span; i++, within += span) {
    const F32x4 quotient = mul(add(load(x + i * kFeedbackRows), offset), inverse);
    F32x4 place = splat(0.0f), code = place;
    if (levels != nullptr) {
      code = nearest_levels(*levels, quotient, place);
    } else {
      code = pmin(pmax(nearest(quotient), low), high);
      place = sub(code, low);
    }
    float made[kFeedbackRows], lost[kFeedbackRows];
    const F32x4 error = sub(load(w + i * kFeedbackRows), sub(mul(code, scale), offset));
    store(made, place);
    store(lost, error);
    for (size_t r = 0; r < rows; r++) {
      errors[r * stride + i] = lost[r];
      codes[r * stride + i] = static_cast<uint8_t>(made[r]);
    }
    for (size_t j = i + 1; j < span; j++) {
      float* const to = x + j * kFeedbackRows;
      store(to, add(load(to), mul(error, splat(within[j]))));
    }
  }
}

}  // namespace scalepoint::loops
