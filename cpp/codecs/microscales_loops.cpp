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
void errors_of(const float* x, const float* weights, size_t n, size_t blocks, const float* scales, float largest, float* errors) {
  const F32x4 most = splat(largest);
  for (size_t block = 0; block < blocks; block++, x += n) {
    const F32x4 s = splat(scales[block]);
    F32x4 sum = splat(0.0f);
    for (size_t i = 0; i < n; i += 4) {
      const F32x4 v = abs(load(x + i));
      F32x4 rounded;
      (void)round_exponents<kFormat>(bits(div(v, s)), rounded);
      const F32x4 e = sub(v, mul(pmin(rounded, most), s));
      const F32x4 squared = mul(e, e);
      sum = add(sum, weights == nullptr ? squared : mul(squared, load(weights + block * n + i)));
    }
    errors[block] = sum_of(sum);
  }
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

void microscale_errors(const float* x, const float* weights, size_t n, size_t blocks, Minifloat format, const float* scales,
                       float* errors) {
  format == Minifloat::kFloat4E2M1 ? errors_of<kFloat4E2M1>(x, weights, n, blocks, scales, 6, errors)
                                   : errors_of<kFloat8E4M3FN>(x, weights, n, blocks, scales, 448, errors);
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
