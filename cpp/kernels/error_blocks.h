// The error sums over any source of restored values: an array, codes, or codes that are made on the way.
//
// A source has three functions:
//   at     one value
//   eight  the values of eight elements
//   make   the values of eight elements, which may first have to be made from the x at hand
#pragma once

#include <cstddef>
#include <cstdint>

#include "../error_sums.h"
#include "lanes.h"
#include "metrics.h"

namespace scalepoint::kernels {

/// An array.
struct FloatValues {
  const float* y;

  FloatValues from(size_t i) const { return {y + i}; }
  float at(size_t i) const { return y[i]; }
  void eight(size_t i, lanes::F32x4& low, lanes::F32x4& high) const {
    low = lanes::load(y + i);
    high = lanes::load(y + i + 4);
  }
  void make(size_t i, lanes::F32x4, lanes::F32x4, lanes::F32x4& low, lanes::F32x4& high) const { eight(i, low, high); }
};

/// Codes that share a scale and a zero point. The values are those of dequantize_uniform.
template <class Code>
struct CodeValues {
  const Code* codes;
  float scale;
  int32_t zero_point;

  CodeValues from(size_t i) const { return {codes + i, scale, zero_point}; }
  float at(size_t i) const { return scale * static_cast<float>(codes[i] - zero_point); }
  void eight(size_t i, lanes::F32x4& low, lanes::F32x4& high) const {
    using namespace lanes;
    I32x4 c[2];
    load_eight_codes(codes + i, c);
    low = mul(splat(scale), to_float(opaque(sub(c[0], splat(zero_point)))));
    high = mul(splat(scale), to_float(opaque(sub(c[1], splat(zero_point)))));
  }
  void make(size_t i, lanes::F32x4, lanes::F32x4, lanes::F32x4& low, lanes::F32x4& high) const { eight(i, low, high); }
};

/// Whether a float32 sum of at most kErrorBlock squares lost nothing to overflow or underflow. Its terms are then at most 2^120.
/// Those below 2^-126, which float32 rounds coarsely, are off by at most 2^-150 each, together by less than 2^-60 of the sum.
inline bool is_safe(float sum) { return sum >= 0x1p-80f && sum <= 0x1p120f; }

/// Whether all of x is 0.
bool all_zero(const float* x, size_t n);

/// Adds the pairs (x[i], y[i]) of a block to sums, in double.
void accumulate_in_double(const float* x, const float* y, size_t n, ErrorSums& sums);

/// Lane i of the result is the sum of the lanes of the i-th vector, in a fixed order.
inline lanes::F32x4 sum_of_each(lanes::F32x4 a, lanes::F32x4 b, lanes::F32x4 c, lanes::F32x4 d) {
  transpose(a, b, c, d);
  return add(add(a, b), add(c, d));
}

/// The elements from `first` to n, fewer than eight, filled up with zeros.
template <class Values>
struct Rest {
  float x[8] = {}, y[8] = {};

  Rest(const float* from, const Values& values, size_t first, size_t n) {
    for (size_t j = 0; first + j < n; j++) {
      x[j] = from[first + j];
      y[j] = values.at(first + j);
    }
  }
};

/// sum x y of a block.
template <class Values>
[[gnu::noinline]] float sum_products(const float* x, const Values& y, size_t n) {
  using namespace lanes;
  F32x4 product = splat(0.0f);
  size_t i = 0;
  SCALEPOINT_NO_UNROLL
  for (; i + 8 <= n; i += 8) {
    F32x4 low, high;
    y.eight(i, low, high);
    product = add(product, add(mul(load(x + i), low), mul(load(x + i + 4), high)));
  }
  if (i < n) {
    const Rest<Values> rest(x, y, i, n);
    product = add(product, add(mul(load(rest.x), load(rest.y)), mul(load(rest.x + 4), load(rest.y + 4))));
  }
  float total[4];
  store(total, sum_of_each(product, product, product, product));
  return total[0];
}

/// The sums of a block in float32, four lanes each.
struct BlockSums {
  lanes::F32x4 squared_error = lanes::splat(0.0f), absolute_error = squared_error, squared_x = squared_error,
               squared_y = squared_error;
  lanes::I32x4 largest = lanes::splat(0);  ///< the bits of the largest error

  /// Adds the pairs (a, b) and (c, d). The two are added before they meet a sum, so that half as many additions wait for one
  /// another.
  void take(lanes::F32x4 a, lanes::F32x4 b, lanes::F32x4 c, lanes::F32x4 d) {
    using namespace lanes;
    const F32x4 e = sub(a, b), f = sub(c, d);
    const I32x4 magnitude_e = magnitude_bits(e), magnitude_f = magnitude_bits(f);
    squared_error = add(squared_error, add(mul(e, e), mul(f, f)));
    absolute_error = add(absolute_error, add(from_bits(magnitude_e), from_bits(magnitude_f)));
    squared_x = add(squared_x, add(mul(a, a), mul(c, c)));
    squared_y = add(squared_y, add(mul(b, b), mul(d, d)));
    largest = max_unsigned(largest, max_unsigned(magnitude_e, magnitude_f));
  }
};

template <class Values>
void accumulate_error_of(const float* all_x, Values all_y, size_t all, ErrorSums& sums) {
  using namespace lanes;
  for (size_t start = 0; start < all; start += kErrorBlock) {
    const size_t n = all - start < kErrorBlock ? all - start : kErrorBlock;
    const float* x = all_x + start;
    const Values y = all_y.from(start);
    BlockSums block;
    size_t i = 0;
    SCALEPOINT_NO_UNROLL
    for (; i + 8 <= n; i += 8) {
      const F32x4 a = load(x + i), b = load(x + i + 4);
      F32x4 low, high;
      y.make(i, a, b, low, high);
      block.take(a, low, b, high);
    }
    if (i < n) {
      const Rest<Values> rest(x, y, i, n);
      block.take(load(rest.x), load(rest.y), load(rest.x + 4), load(rest.y + 4));
    }
    float total[4];
    store(total, sum_of_each(block.squared_error, block.squared_x, block.squared_y, block.absolute_error));
    const double squared_error = total[0], squared_x = total[1], squared_y = total[2];
    const uint32_t largest = largest_lane(block.largest);
    const bool is_safe_error = is_safe(total[0]) || largest == 0;
    if (!is_safe_error || !is_safe(total[1]) || !is_safe(total[2])) {
      // A sum of zeros is safe, too.
      float restored[kErrorBlock];
      for (size_t k = 0; k < n; k++) restored[k] = y.at(k);
      if (!is_safe_error || !(is_safe(total[1]) || all_zero(x, n)) || !(is_safe(total[2]) || all_zero(restored, n))) {
        accumulate_in_double(x, restored, n, sums);
        continue;
      }
    }
    sums.squared_error += squared_error;
    sums.squared_x += squared_x;
    sums.squared_y += squared_y;
    sums.absolute_error += total[3];
    // 2 x y = x^2 + y^2 - e^2 saves a sum. Little cancels where 16 e^2 <= x^2, which is where y restores x with more than 12 dB.
    sums.product += 16 * squared_error <= squared_x ? (squared_x + squared_y - squared_error) / 2 : sum_products(x, y, n);
    const double max_absolute_error = bit_cast<float>(largest);
    if (max_absolute_error > sums.max_absolute_error) sums.max_absolute_error = max_absolute_error;
  }
}

}  // namespace scalepoint::kernels
