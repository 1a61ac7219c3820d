// The smallest and the largest of floats, found from their bits as integers.
#pragma once

#include <cstdint>

#include "lanes/lanes.h"

namespace scalepoint::loops {

/// A range in each of four lanes. Takes two integer operations per vector; floats and their signs would take four.
///   up    the largest bits as signed integers: those of the largest float without a sign bit, or negative if all floats have a sign bit
///   down  the largest bits as unsigned integers: those of the float with a sign bit that is farthest from 0, if any
struct Extremes {
  lanes::I32x4 up = lanes::splat(kNoneUp);
  lanes::I32x4 down = lanes::splat(0);

  static constexpr int32_t kNoneUp = INT32_MIN;

  void take(lanes::F32x4 v) {
    up = max_signed(up, bits(v));
    down = max_unsigned(down, bits(v));
  }
  void take(const Extremes& other) {
    up = max_signed(up, other.up);
    down = max_unsigned(down, other.down);
  }
};

}  // namespace scalepoint::loops
