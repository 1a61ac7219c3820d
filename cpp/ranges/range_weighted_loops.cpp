#include "ranges/range_weighted_loops.h"

#include <algorithm>

#include "lanes/lanes.h"
#include "ranges/levels_loops.h"

namespace scalepoint::loops {

using namespace lanes;

namespace {

constexpr size_t kBlock = 256;

double sum_of(F32x4 a) {
  float lane[4];
  store(lane, a);
  return (static_cast<double>(lane[0]) + lane[1]) + (static_cast<double>(lane[2]) + lane[3]);
}

}  // namespace

WeightedSums sum_weighted_codes(const float* x, const float* weights, size_t n, float scale, float inverse, float low, float high,
                                const Levels* levels) {
  WeightedSums sums;
  const F32x4 scales = splat(scale), inverses = splat(inverse), lows = splat(low), highs = splat(high);
  for (size_t at = 0; at < n; at += kBlock) {
    const size_t end = std::min(n, at + kBlock);
    F32x4 error = splat(0.0f), product = error, square = error, codes = error;
    const auto add_four = [&](F32x4 value, F32x4 weight) {
      F32x4 code = mul(value, inverses), place;
      code = levels == nullptr ? pmin(pmax(nearest(code), lows), highs) : nearest_levels(*levels, code, place);
      const F32x4 difference = sub(value, mul(scales, code)), weighted = mul(weight, code);
      error = add(error, mul(weight, mul(difference, difference)));
      product = add(product, mul(weighted, value));
      square = add(square, mul(weighted, code));
      codes = add(codes, weighted);
    };
    size_t i = at;
    for (; i + 4 <= end; i += 4) add_four(load(x + i), weights == nullptr ? splat(1.0f) : load(weights + i));
    if (i < end) {
      float value[4] = {}, weight[4] = {};
      for (size_t k = 0; i + k < end; k++) {
        value[k] = x[i + k];
        weight[k] = weights == nullptr ? 1 : weights[i + k];
      }
      add_four(load(value), load(weight));
    }
    sums.error += sum_of(error);
    sums.product += sum_of(product);
    sums.square += sum_of(square);
    sums.code += sum_of(codes);
  }
  return sums;
}

}  // namespace scalepoint::loops
