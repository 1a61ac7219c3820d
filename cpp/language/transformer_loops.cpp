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

}  // namespace scalepoint::loops
