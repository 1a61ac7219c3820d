// Functions that the types with grids share, besides the search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ggml/k_quants_search_loops.h"
#include "lanes/lanes.h"

namespace scalepoint::loops {

/// Eight numbers of four bits as bytes, the lowest first.
inline uint64_t spread(uint64_t word) {
  word = (word | word << 16) & 0x0000FFFF0000FFFFu;
  word = (word | word << 8) & 0x00FF00FF00FF00FFu;
  return (word | word << 4) & 0x0F0F0F0F0F0F0F0Fu;
}

/// Loads the points with these indexes for the 256 elements of a super-block.
inline void load_points(const uint32_t* points, const uint16_t* index, size_t each, uint8_t* to) {
  SCALEPOINT_NO_UNROLL
  for (size_t k = 0; k < 32; k++) {
    const uint64_t eight = spread(each == 4 ? points[index[2 * k]] | points[index[2 * k + 1]] << 16 : points[index[k]]);
    std::memcpy(to + 8 * k, &eight, 8);
  }
}

/// Quantizes scales, which are not negative, to odd multiples of a step; the largest becomes `top` of them. scale = two steps * (1/2 +
/// code), with codes of at most (top - 1) / 2. Returns the largest scale.
inline float quantize_scales(const float* scales, size_t count, int32_t top, uint8_t* codes) {
  float most = 0;
  SCALEPOINT_NO_UNROLL
  for (size_t b = 0; b < count; b++) most = scales[b] > most ? scales[b] : most;
  const float inverse = 1 / (most / static_cast<float>(top));
  SCALEPOINT_NO_UNROLL
  for (size_t b = 0; b < count && most > 0; b++) {
    codes[b] = static_cast<uint8_t>(clamp(nearest_int(0.5f * (inverse * scales[b] - 1)), 0, (top - 1) / 2));
  }
  return most;
}

}  // namespace scalepoint::loops
