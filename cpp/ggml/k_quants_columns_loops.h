// Sub-blocks side by side, for the searches of the K-quants. The sums of a sub-block run over its elements in order, so the lanes
// are sub-blocks: four of them form a group, a column of as many vectors as a sub-block has elements. Levels stay floats.
#pragma once

#include <cstddef>

#include "lanes/lanes.h"

namespace scalepoint::loops {

/// Four sub-blocks to a column: element i of sub-block k becomes lane k of vector i.
inline void to_column(const float* const (&rows)[4], size_t size, float* column) {
  using namespace lanes;
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < size; i += 4, column += 16) {
    F32x4 a = load(rows[0] + i), b = load(rows[1] + i), c = load(rows[2] + i), d = load(rows[3] + i);
    transpose(a, b, c, d);
    store(column, a);
    store(column + 4, b);
    store(column + 8, c);
    store(column + 12, d);
  }
}

/// A column of levels, as floats, to the bytes of four sub-blocks: level + zero, or 0 where the mask is not set.
inline void from_column(const float* column, size_t size, lanes::F32x4 mask, int32_t zero, uint8_t* levels) {
  using namespace lanes;
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < size; i++, column += 4) {
    int32_t four[4];
    store(four, bit_and(bits(add(load(column), splat(kMagic + static_cast<float>(zero)))), bits(mask)));
    for (size_t k = 0; k < 4; k++) levels[k * size + i] = static_cast<uint8_t>(four[k]);
  }
}

/// Groups whose chains of additions run side by side.
inline constexpr size_t kGroups = 4;

}  // namespace scalepoint::loops
