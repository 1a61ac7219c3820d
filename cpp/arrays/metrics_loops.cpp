#include "arrays/metrics_loops.h"

#include <algorithm>
#include <cstring>

#include "arrays/dispatch_loops.h"
#include "arrays/error_sums_loops.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

/// Adds a pair to sums, in double.
void add_pair(float x, float y, ErrorSums& sums) {
  if (!is_finite(x) || !is_finite(y)) {
    sums.non_finite++;
    return;
  }
  const double a = x, b = y, e = a - b, magnitude = e < 0 ? -e : e;
  sums.squared_error += e * e;
  sums.absolute_error += magnitude;
  sums.squared_x += a * a;
  sums.squared_y += b * b;
  sums.product += a * b;
  if (magnitude > sums.max_absolute_error) sums.max_absolute_error = magnitude;
}

/// True if a float32 sum of at most kErrorBlock squares is free of overflow and underflow. Its terms are then at most 2^120.
/// Those below 2^-126, which float32 rounds coarsely, are off by at most 2^-150 each, together by less than 2^-60 of the sum.
bool is_safe(float sum) { return sum >= 0x1p-80f && sum <= 0x1p120f; }

bool all_zero(const float* x, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (x[i] != 0) return false;
  }
  return true;
}

/// Adds the pairs (x[i], y[i]) of a block to sums, in double.
void accumulate_in_double(const float* x, const float* y, size_t n, ErrorSums& sums) {
  ErrorSums block;
  for (size_t i = 0; i < n; i++) add_pair(x[i], y[i], block);
  sums.squared_error += block.squared_error;
  sums.absolute_error += block.absolute_error;
  sums.squared_x += block.squared_x;
  sums.squared_y += block.squared_y;
  sums.product += block.product;
  sums.non_finite += block.non_finite;
  if (block.max_absolute_error > sums.max_absolute_error) sums.max_absolute_error = block.max_absolute_error;
}

/// Lane i of the result is the sum of the lanes of the i-th vector, in a fixed order.
F32x4 sum_of_each(F32x4 a, F32x4 b, F32x4 c, F32x4 d) {
  transpose(a, b, c, d);
  return add(add(a, b), add(c, d));
}

bool is_safe_error(const BlockTotals& total) { return is_safe(total.squared_error) || total.largest == 0; }

/// 2 x y = x^2 + y^2 - e^2 saves a sum. Cancellation is small if 16 e^2 <= x^2, that is, if y restores x with more than 12 dB.
bool shows_product(const BlockTotals& total) { return 16 * static_cast<double>(total.squared_error) <= total.squared_x; }
double product_of(const BlockTotals& total) {
  return (static_cast<double>(total.squared_x) + total.squared_y - total.squared_error) / 2;
}

void add_totals(const BlockTotals& total, double product, ErrorSums& sums) {
  sums.squared_error += total.squared_error;
  sums.squared_x += total.squared_x;
  sums.squared_y += total.squared_y;
  sums.absolute_error += total.absolute_error;
  sums.product += product;
  const double max_absolute_error = bit_cast<float>(total.largest);
  if (max_absolute_error > sums.max_absolute_error) sums.max_absolute_error = max_absolute_error;
}

/// The elements from `first` to n, fewer than eight, filled up with zeros.
struct Eight {
  float v[8] = {};

  Eight(const float* from, size_t n) { std::memcpy(v, from, n * sizeof(float)); }
};

/// sum x y of a block.
float sum_products(const float* x, const float* y, size_t n) {
  F32x4 product = splat(0.0f);
  const auto take = [&](const float* a, const float* b) {
    product = add(product, add(mul(load(a), load(b)), mul(load(a + 4), load(b + 4))));
  };
  size_t i = 0;
  SCALEPOINT_NO_UNROLL
  for (; i + 8 <= n; i += 8) take(x + i, y + i);
  if (i < n) take(Eight(x + i, n - i).v, Eight(y + i, n - i).v);
  float total[4];
  store(total, sum_of_each(product, product, product, product));
  return total[0];
}

/// sum w e^2 and sum w x^2 of a block within a row.
void add_weighted_block(const float* x, const float* y, const float* weights, size_t n, ErrorSums& sums) {
  F32x4 error = splat(0.0f), squares = error;
  const auto take = [&](const float* a, const float* b, const float* weight) {
    for (size_t i = 0; i < 8; i += 4) {
      const F32x4 v = load(a + i), w = load(weight + i), e = sub(v, load(b + i));
      error = add(error, mul(w, mul(e, e)));
      squares = add(squares, mul(w, mul(v, v)));
    }
  };
  size_t i = 0;
  SCALEPOINT_NO_UNROLL
  for (; i + 8 <= n; i += 8) take(x + i, y + i, weights + i);
  if (i < n) take(Eight(x + i, n - i).v, Eight(y + i, n - i).v, Eight(weights + i, n - i).v);
  float total[4];
  store(total, sum_of_each(error, squares, error, squares));
  if (is_safe(total[0]) && is_safe(total[1])) {
    sums.weighted_error += total[0];
    sums.weighted_x += total[1];
    return;
  }
  double exact_error = 0, exact_squares = 0;
  for (i = 0; i < n; i++) {
    const double v = x[i], e = v - y[i];
    if (!is_finite(x[i]) || !is_finite(y[i])) continue;
    exact_error += weights[i] * (e * e);
    exact_squares += weights[i] * (v * v);
  }
  sums.weighted_error += exact_error;
  sums.weighted_x += exact_squares;
}

template <class Code>
void accumulate_code_error_as(const float* x, const void* codes, DType dtype, size_t n, const Runs& runs, ErrorSums& sums) {
  accumulate_error_of(x, CodeRuns<Code>{static_cast<const Code*>(codes), dtype, runs}, n, sums);
}

constexpr PerCodeType<void (*)(const float*, const void*, DType, size_t, const Runs&, ErrorSums&)> kAccumulateCodeError =
    SCALEPOINT_PER_CODE_TYPE(accumulate_code_error_as);

}  // namespace

void take_rest(const float* x, const float* y, size_t n, BlockSums& block) {
  const Eight a(x, n), b(y, n);
  block.take(load(a.v), load(b.v), load(a.v + 4), load(b.v + 4));
}

bool add_block(const BlockSums& block, BlockTotals& total, ErrorSums& sums) {
  float lanes[4];
  store(lanes, sum_of_each(block.squared_error, block.squared_x, block.squared_y, block.absolute_error));
  total = {lanes[0], lanes[1], lanes[2], lanes[3], largest_lane(block.largest)};
  if (!is_safe_error(total) || !is_safe(total.squared_x) || !is_safe(total.squared_y) || !shows_product(total)) return false;
  add_totals(total, product_of(total), sums);
  return true;
}

void add_block(const BlockTotals& total, const float* x, const float* y, size_t n, ErrorSums& sums) {
  // A sum of zeros is safe, too.
  const auto is_safe_or_zero = [n](float sum, const float* values) { return is_safe(sum) || all_zero(values, n); };
  if (!is_safe_error(total) || !is_safe_or_zero(total.squared_x, x) || !is_safe_or_zero(total.squared_y, y)) {
    accumulate_in_double(x, y, n, sums);
    return;
  }
  add_totals(total, shows_product(total) ? product_of(total) : sum_products(x, y, n), sums);
}

void accumulate_error(const float* x, const float* y, size_t n, ErrorSums& sums) {
  accumulate_error_of(x, FloatValues{y}, n, sums);
}

void accumulate_code_error(const float* x, const void* codes, DType dtype, size_t n, const Runs& runs, ErrorSums& sums) {
  kAccumulateCodeError[dtype](x, codes, dtype, n, runs, sums);
}

void accumulate_weighted_error(const float* x, const float* y, size_t n, const float* weights, size_t columns, uint64_t first,
                               ErrorSums& sums) {
  for (size_t at = 0, column = first % columns; at < n; column = 0) {
    const size_t end = at + std::min(n - at, columns - column);
    for (; at < end;) {
      const size_t count = std::min(kErrorBlock, end - at);
      add_weighted_block(x + at, y + at, weights + column, count, sums);
      at += count;
      column += count;
    }
  }
}

void accumulate_error_each(const float* x, const float* y, size_t n, ErrorSums* sums) {
  for (size_t i = 0; i < n; i++) add_pair(x[i], y[i], sums[i]);
}

}  // namespace scalepoint::loops
