#include "codecs/comfy_loops.h"

#include <cstring>

#include "lanes/lanes.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

/// x rounded to a multiple of a float4e2m1: of a half below 2, of one below 4, and of two up to 6.
inline F32x4 nearest_float4(F32x4 x) {
  const F32x4 magnitude = pmin(splat(6.0f), abs(x));
  const F32x4 halves = mul(nearest(add(magnitude, magnitude)), splat(0.5f));
  const F32x4 twos = nearest(mul(magnitude, splat(0.5f)));
  const F32x4 large = select(greater(splat(4.0f), magnitude), nearest(magnitude), add(twos, twos));
  const F32x4 rounded = select(greater(splat(2.0f), magnitude), halves, large);
  return from_bits(bit_or(bits(rounded), bit_and(bits(x), splat(static_cast<int32_t>(0x80000000u)))));
}

/// The squared errors of a group, in four sums.
inline F32x4 group_error(const float* x, float scale) {
  const F32x4 s = splat(scale);
  F32x4 sum = splat(0.0f);
  for (size_t i = 0; i < 16; i += 4) {
    const F32x4 value = load(x + i);
    const F32x4 difference = sub(value, mul(nearest_float4(div(value, s)), s));
    sum = add(sum, mul(difference, difference));
  }
  return sum;
}

/// The same of four groups.
inline void four_errors(const float* x, const float* scale, float* error) {
  F32x4 a = group_error(x, scale[0]), b = group_error(x + 16, scale[1]), c = group_error(x + 32, scale[2]),
        d = group_error(x + 48, scale[3]);
  transpose(a, b, c, d);
  store(error, add(add(a, b), add(c, d)));
}

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

void float4_group_errors(const float* x, size_t groups, const float* scale, float* error) {
  size_t g = 0;
  for (; g + 4 <= groups; g += 4) four_errors(x + 16 * g, scale + g, error + g);
  if (g == groups) return;
  float few[64] = {}, scales[4] = {1, 1, 1, 1}, errors[4];
  std::memcpy(few, x + 16 * g, (groups - g) * 16 * sizeof(float));
  std::memcpy(scales, scale + g, (groups - g) * sizeof(float));
  four_errors(few, scales, errors);
  std::memcpy(error + g, errors, (groups - g) * sizeof(float));
}

}  // namespace scalepoint::loops
