#include "metrics.h"

#include "dispatch.h"
#include "error_blocks.h"

namespace scalepoint::kernels {
namespace {

/// Adds a pair to sums, in double.
void add_pair(float x, float y, ErrorSums& sums) {
  if (!is_finite(x) || !is_finite(y)) {
    sums.non_finite++;
    return;
  }
  const double a = x, b = y, e = a - b, magnitude = e < 0 ? -e : e;
  sums.squared_error += e * e;
  sums.absolute_error += magnitude;
  sums.squared_x += a * a;
  sums.squared_y += b * b;
  sums.product += a * b;
  if (magnitude > sums.max_absolute_error) sums.max_absolute_error = magnitude;
}

template <class Code>
void accumulate_code_error_as(const float* x, const void* codes, size_t n, float scale, int32_t zero_point, ErrorSums& sums) {
  accumulate_error_of(x, CodeValues<Code>{static_cast<const Code*>(codes), scale, zero_point}, n, sums);
}

constexpr PerCodeType<void (*)(const float*, const void*, size_t, float, int32_t, ErrorSums&)> kAccumulateCodeError =
    SCALEPOINT_PER_CODE_TYPE(accumulate_code_error_as);

}  // namespace

bool all_zero(const float* x, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (x[i] != 0) return false;
  }
  return true;
}

void accumulate_in_double(const float* x, const float* y, size_t n, ErrorSums& sums) {
  ErrorSums block;
  for (size_t i = 0; i < n; i++) add_pair(x[i], y[i], block);
  sums.squared_error += block.squared_error;
  sums.absolute_error += block.absolute_error;
  sums.squared_x += block.squared_x;
  sums.squared_y += block.squared_y;
  sums.product += block.product;
  sums.non_finite += block.non_finite;
  if (block.max_absolute_error > sums.max_absolute_error) sums.max_absolute_error = block.max_absolute_error;
}

void accumulate_error(const float* x, const float* y, size_t n, ErrorSums& sums) {
  accumulate_error_of(x, FloatValues{y}, n, sums);
}

void accumulate_code_error(const float* x, const void* codes, DType dtype, size_t n, float scale, int32_t zero_point,
                           ErrorSums& sums) {
  kAccumulateCodeError[dtype](x, codes, n, scale, zero_point, sums);
}

void accumulate_error_each(const float* x, const float* y, size_t n, ErrorSums* sums) {
  for (size_t i = 0; i < n; i++) add_pair(x[i], y[i], sums[i]);
}

}  // namespace scalepoint::kernels
