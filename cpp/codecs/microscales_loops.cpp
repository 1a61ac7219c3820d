#include "codecs/microscales_loops.h"

#include "arrays/minifloat_rounding_loops.h"
#include "lanes/lanes.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

/// The sum of four lanes, in a fixed order.
float sum_of(F32x4 a) {
  float lane[4];
  store(lane, a);
  return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

template <Format kFormat>
float error_of(const float* x, const float* weights, size_t n, float scale, float largest) {
  const F32x4 s = splat(scale), most = splat(largest);
  F32x4 sum = splat(0.0f);
  for (size_t i = 0; i < n; i += 4) {
    const F32x4 v = abs(load(x + i));
    F32x4 rounded;
    (void)round_exponents<kFormat>(bits(div(v, s)), rounded);
    const F32x4 e = sub(v, mul(pmin(rounded, most), s));
    const F32x4 squared = mul(e, e);
    sum = add(sum, weights == nullptr ? squared : mul(squared, load(weights + i)));
  }
  return sum_of(sum);
}

}  // namespace

float block_magnitude(const float* x, size_t n) {
  F32x4 most = splat(0.0f);
  for (size_t i = 0; i < n; i += 4) most = pmax(most, abs(load(x + i)));
  float lane[4];
  store(lane, most);
  const float a = lane[0] > lane[1] ? lane[0] : lane[1], b = lane[2] > lane[3] ? lane[2] : lane[3];
  return a > b ? a : b;
}

float microscale_error(const float* x, const float* weights, size_t n, Minifloat format, float scale) {
  return format == Minifloat::kFloat4E2M1 ? error_of<kFloat4E2M1>(x, weights, n, scale, 6)
                                          : error_of<kFloat8E4M3FN>(x, weights, n, scale, 448);
}

void pack_nibbles(const uint8_t* codes, size_t n, bool high_first, uint8_t* bytes) {
  const size_t first = high_first ? 1 : 0;
  for (size_t i = 0; i < n; i += 2) bytes[i / 2] = static_cast<uint8_t>(codes[i + first] | codes[i + 1 - first] << 4);
}

void unpack_nibbles(const uint8_t* bytes, size_t n, bool high_first, uint8_t* codes) {
  const size_t first = high_first ? 1 : 0;
  for (size_t i = 0; i < n; i += 2) {
    codes[i + first] = bytes[i / 2] & 15;
    codes[i + 1 - first] = static_cast<uint8_t>(bytes[i / 2] >> 4);
  }
}

}  // namespace scalepoint::loops
