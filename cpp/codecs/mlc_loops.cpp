#include "codecs/mlc_loops.h"

#include "lanes/lanes.h"

namespace scalepoint::loops {

using namespace lanes;

namespace {

/// 2^23. If an integer below it is added, the lowest bits of the sum are that integer.
constexpr float kWholeBits = 8388608.0f;

}  // namespace

void add_seven(float* x, size_t n) {
  const F32x4 seven = splat(7.0f);
  for (size_t i = 0; i < n; i += 4) store(x + i, add(load(x + i), seven));
}

void round_to_codes(const float* x, size_t n, int32_t top, uint8_t* codes) {
  const F32x4 zero = splat(0.0f), most = splat(static_cast<float>(top)), whole = splat(kWholeBits);
  for (size_t i = 0; i < n; i += 16) {
    I32x4 made[4];
    SCALEPOINT_PER_VECTOR
    for (size_t j = 0; j < 4; j++) {
      // The first operand stays where the comparison is false, so that NaN gives 0.
      const F32x4 code = pmin(pmax(zero, nearest(load(x + i + 4 * j))), most);
      made[j] = sub(bits(add(code, whole)), bits(whole));
    }
    store_codes(codes + i, made[0], made[1], made[2], made[3], 0, top);
  }
}

void restore_around_seven(const uint8_t* codes, size_t n, float scale, float* y) {
  const F32x4 scales = splat(scale), middle = splat(kWholeBits + 7.0f);
  for (size_t i = 0; i < n; i += 16) {
    I32x4 made[4];
    load_codes(codes + i, made);
    SCALEPOINT_PER_VECTOR
    for (size_t j = 0; j < 4; j++) {
      // The compiler would convert lane by lane.
      const F32x4 code = sub(from_bits(add(made[j], bits(splat(kWholeBits)))), middle);
      store(y + i + 4 * j, mul(code, scales));
    }
  }
}

}  // namespace scalepoint::loops
