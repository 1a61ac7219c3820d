#include "codecs/comfy_loops.h"

#include <cstring>

#include "lanes/lanes.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

/// The product of four vectors with the matrix of four rows: each row is the sum of all, less twice one of them.
inline void rotate(F32x4& a, F32x4& b, F32x4& c, F32x4& d) {
  const F32x4 sum = add(add(a, b), add(c, d));
  const F32x4 of_a = sub(sum, add(d, d)), of_b = sub(sum, add(c, c)), of_c = sub(sum, add(b, b)), of_d = sub(sum, add(a, a));
  a = of_a;
  b = of_b;
  c = of_c;
  d = of_d;
}

/// The same of each four neighbors among 16.
inline void rotate_neighbors(float* x) {
  F32x4 a = load(x), b = load(x + 4), c = load(x + 8), d = load(x + 12);
  transpose(a, b, c, d);
  rotate(a, b, c, d);
  transpose(a, b, c, d);
  store(x, a);
  store(x + 4, b);
  store(x + 8, c);
  store(x + 12, d);
}

}  // namespace

void unrotate(float* x, size_t n, size_t group) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) rotate_neighbors(x + i);
  if (i < n) {
    float few[16] = {};
    std::memcpy(few, x + i, (n - i) * sizeof(float));
    rotate_neighbors(few);
    std::memcpy(x + i, few, (n - i) * sizeof(float));
  }
  for (size_t step = 4; step < group; step *= 4) {
    for (size_t first = 0; first < n; first += 4 * step) {
      for (float* p = x + first; p < x + first + step; p += 4) {
        F32x4 a = load(p), b = load(p + step), c = load(p + 2 * step), d = load(p + 3 * step);
        rotate(a, b, c, d);
        store(p, a);
        store(p + step, b);
        store(p + 2 * step, c);
        store(p + 3 * step, d);
      }
    }
  }
}

}  // namespace scalepoint::loops
