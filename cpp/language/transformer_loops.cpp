#include "language/transformer_loops.h"

#include "lanes/lanes.h"

namespace scalepoint::loops {

using namespace lanes;

float dot(const float* a, const float* b, size_t n) {
  F32x4 first = splat(0.0f), second = first;
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    first = add(first, mul(load(a + i), load(b + i)));
    second = add(second, mul(load(a + i + 4), load(b + i + 4)));
  }
  float lane[4];
  store(lane, add(first, second));
  float sum = (lane[0] + lane[1]) + (lane[2] + lane[3]);
  for (; i < n; i++) sum += a[i] * b[i];
  return sum;
}

void add_scaled(float* y, const float* x, float factor, size_t n) {
  const F32x4 factors = splat(factor);
  size_t i = 0;
  for (; i + 4 <= n; i += 4) store(y + i, add(load(y + i), mul(factors, load(x + i))));
  for (; i < n; i++) y[i] += factor * x[i];
}

void dot_rows(const float* a, const float* rows, size_t stride, size_t n, float* sums) {
  F32x4 first[kRows], second[kRows];
  for (size_t r = 0; r < kRows; r++) first[r] = second[r] = splat(0.0f);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const F32x4 left = load(a + i), right = load(a + i + 4);
    for (size_t r = 0; r < kRows; r++) {
      const float* const row = rows + r * stride + i;
      first[r] = add(first[r], mul(left, load(row)));
      second[r] = add(second[r], mul(right, load(row + 4)));
    }
  }
  for (size_t r = 0; r < kRows; r++) {
    float lane[4];
    store(lane, add(first[r], second[r]));
    float sum = (lane[0] + lane[1]) + (lane[2] + lane[3]);
    for (size_t j = i; j < n; j++) sum += a[j] * rows[r * stride + j];
    sums[r] = sum;
  }
}

void add_scaled_rows(float* y, const float* rows, size_t stride, const float* factors, size_t n) {
  F32x4 factor[kRows];
  for (size_t r = 0; r < kRows; r++) factor[r] = splat(factors[r]);
  size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    F32x4 sum = load(y + i);
    for (size_t r = 0; r < kRows; r++) sum = add(sum, mul(factor[r], load(rows + r * stride + i)));
    store(y + i, sum);
  }
  for (; i < n; i++) {
    for (size_t r = 0; r < kRows; r++) y[i] += factors[r] * rows[r * stride + i];
  }
}

}  // namespace scalepoint::loops
