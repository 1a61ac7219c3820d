#include "block_codes.h"

#include "lanes.h"

namespace scalepoint::kernels {

using namespace lanes;

namespace {

/// 2^23: a whole number below it, added to it, lies in the lowest bits of the sum.
constexpr float kWhole = 8388608.0f;
/// The largest float below 1/2. Added to a positive number before the fraction is cut off, it rounds halves up, and nothing below them.
constexpr float kHalf = 0x1.fffffep-2f;

/// Rounded codes of four values, as floats.
F32x4 four_codes(F32x4 x, const BlockCodes& block) {
  const F32x4 code = add(mul(x, splat(block.reciprocal)), splat(block.zero_point));
  const F32x4 saturated = pmin(pmax(code, splat(0.0f)), splat(block.levels));
  return trunc(add(saturated, splat(kHalf)));
}

float one_code(float x, const BlockCodes& block) {
  float code = x * block.reciprocal + block.zero_point;
  code = code > 0 ? code : 0.0f;
  code = code < block.levels ? code : block.levels;
  return static_cast<float>(static_cast<int32_t>(code + kHalf));
}

}  // namespace

void make_block_codes(const float* x, size_t n, const BlockCodes& block, uint8_t* codes, float* y) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    I32x4 whole[4];
    SCALEPOINT_PER_VECTOR
    for (size_t j = 0; j < 4; j++) {
      const F32x4 code = four_codes(load(x + i + 4 * j), block);
      if (y != nullptr) store(y + i + 4 * j, mul(sub(code, splat(block.zero_point)), splat(block.scale)));
      whole[j] = sub(bits(add(code, splat(kWhole))), bits(splat(kWhole)));
    }
    store_codes(codes + i, whole[0], whole[1], whole[2], whole[3], 0, 255);
  }
  for (; i < n; i++) {
    const float code = one_code(x[i], block);
    codes[i] = static_cast<uint8_t>(code);
    if (y != nullptr) y[i] = (code - block.zero_point) * block.scale;
  }
}

void gather_columns(const float* x, size_t rows, size_t width, size_t some, float* columns, size_t stride) {
  size_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    const float* const from = x + row * width;
    size_t i = 0;
    for (; i + 4 <= some; i += 4) {
      F32x4 a = load(from + i), b = load(from + width + i), c = load(from + 2 * width + i), d = load(from + 3 * width + i);
      transpose(a, b, c, d);
      float* const to = columns + i * stride + row;
      store(to, a);
      store(to + stride, b);
      store(to + 2 * stride, c);
      store(to + 3 * stride, d);
    }
    for (; i < some; i++) {
      for (size_t j = 0; j < 4; j++) columns[i * stride + row + j] = from[j * width + i];
    }
  }
  for (; row < rows; row++) {
    for (size_t i = 0; i < some; i++) columns[i * stride + row] = x[row * width + i];
  }
}

}  // namespace scalepoint::kernels
