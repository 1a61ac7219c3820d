#include "codecs/nvfp4_blocks_loops.h"

#include "lanes/lanes.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

/// The middles between the magnitudes of E2M1: 0, 0.5, 1, 1.5, 2, 3, 4 and 6. A code is the number of middles that a magnitude exceeds.
constexpr float kMiddles[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};

constexpr float kValues[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};

/// The codes of four floats.
I32x4 codes_of(F32x4 x, F32x4 scale) {
  const F32x4 magnitude = div(abs(x), scale);
  I32x4 code = splat(0);
  // A comparison that holds is -1.
  for (const float middle : kMiddles) code = sub(code, greater(magnitude, splat(middle)));
  const I32x4 negative = bit_and(greater(splat(0.0f), x), greater(code, splat(0)));
  return bit_or(code, bit_and(negative, splat(8)));
}

}  // namespace

void nvfp4_codes(const float* x, float scale, uint8_t* bytes) {
  const F32x4 s = splat(scale);
  for (int i = 0; i < 8; i += 4) {
    const I32x4 both = bit_or(codes_of(load(x + i), s), shift_left<4>(codes_of(load(x + i + 8), s)));
    int32_t lane[4];
    store(lane, both);
    for (int j = 0; j < 4; j++) bytes[i + j] = static_cast<uint8_t>(lane[j]);
  }
}

void restore_nvfp4(const uint8_t* bytes, float scale, float* x) {
  for (int j = 0; j < 8; j++) {
    x[j] = kValues[bytes[j] & 15] * scale;
    x[j + 8] = kValues[bytes[j] >> 4] * scale;
  }
}

}  // namespace scalepoint::loops
