// Rounds vectors to uneven levels.
#pragma once

#include "lanes/lanes.h"
#include "ranges/levels.h"

namespace scalepoint::loops {

/// The values of the levels of x, which was divided by the scale. Sets `code` to their places.
SCALEPOINT_SHARED lanes::F32x4 nearest_levels(const Levels& levels, lanes::F32x4 x, lanes::F32x4& code) {
  using namespace lanes;
  F32x4 value = splat(levels.values[0]);
  code = splat(0.0f);
  SCALEPOINT_NO_UNROLL
  for (size_t k = 1; k < levels.count; k++) {
    const I32x4 above = greater(x, splat(levels.middles[k - 1]));
    value = select(above, splat(levels.values[k]), value);
    code = select(above, splat(static_cast<float>(k)), code);
  }
  return value;
}

}  // namespace scalepoint::loops
