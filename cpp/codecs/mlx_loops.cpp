#include "codecs/mlx_loops.h"

#include "lanes/lanes.h"

namespace scalepoint::loops {

using namespace lanes;

namespace {

/// 2^23. If an integer below it is added, the lowest bits of the sum are that integer.
constexpr float kWhole = 8388608.0f;

F32x4 codes_of(F32x4 x, F32x4 scale, F32x4 bias, F32x4 levels) {
  return pmin(pmax(nearest(div(sub(x, bias), scale)), splat(0.0f)), levels);
}

float total(F32x4 a) {
  float lanes[4];
  store(lanes, a);
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

}  // namespace

void make_biased_codes(const float* x, size_t n, float scale, float bias, int32_t levels, uint8_t* codes) {
  const F32x4 scales = splat(scale), biases = splat(bias), top = splat(static_cast<float>(levels));
  for (size_t i = 0; i < n; i += 16) {
    I32x4 made[4];
    SCALEPOINT_PER_VECTOR
    for (size_t j = 0; j < 4; j++) {
      const F32x4 code = codes_of(load(x + i + 4 * j), scales, biases, top);
      made[j] = sub(bits(add(code, splat(kWhole))), bits(splat(kWhole)));
    }
    store_codes(codes + i, made[0], made[1], made[2], made[3], 0, levels);
  }
}

void restore_biased_codes(const uint8_t* codes, size_t n, float scale, float bias, float* y) {
  const F32x4 scales = splat(scale), biases = splat(bias);
  for (size_t i = 0; i < n; i += 16) {
    I32x4 made[4];
    load_codes(codes + i, made);
    SCALEPOINT_PER_VECTOR
    for (size_t j = 0; j < 4; j++) {
      // The compiler would convert lane by lane.
      const F32x4 code = sub(from_bits(add(made[j], bits(splat(kWhole)))), splat(kWhole));
      store(y + i + 4 * j, add(mul(code, scales), biases));
    }
  }
}

BiasedSums sum_biased_codes(const float* x, const float* weights, size_t n, float scale, float bias, float levels) {
  const F32x4 scales = splat(scale), biases = splat(bias), top = splat(levels);
  F32x4 error = splat(0.0f), weight = error, sum_x = error, sum_code = error, x_code = error, code_code = error;
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < n; i += 4) {
    const F32x4 value = load(x + i), w = load(weights + i), code = codes_of(value, scales, biases, top);
    const F32x4 off = sub(value, add(mul(code, scales), biases));
    const F32x4 weighted = mul(w, code), weighted_x = mul(w, value);
    error = add(error, mul(w, mul(off, off)));
    weight = add(weight, w);
    sum_x = add(sum_x, weighted_x);
    sum_code = add(sum_code, weighted);
    x_code = add(x_code, mul(weighted_x, code));
    code_code = add(code_code, mul(weighted, code));
  }
  return {total(error), total(weight), total(sum_x), total(sum_code), total(x_code), total(code_code)};
}

}  // namespace scalepoint::loops
