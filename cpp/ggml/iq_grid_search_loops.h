// The search of ggml's types with grids: for each sub-block the scale and the points of the grid that ggml finds. The results are
// ggml's, bit for bit: float32 throughout, candidates in ggml's order, sums in the order of the elements. Inputs are finite.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ggml/iq_grids.h"

namespace scalepoint::loops {

/// Parameters of a type. An element is about scale * q, with q = 2 * level + 1.
struct GridRule {
  GridName grid;
  size_t size;     ///< elements of a sub-block
  size_t each;     ///< elements of a point
  float smallest;  ///< below it, the largest element of a sub-block counts as 0
  int32_t steps;   ///< candidates -steps to steps
  float by;        ///< candidate k stretches the range over the largest q + k * by
  bool even;       ///< the last of eight signs is not stored, and makes the number of minuses even
  bool is_fitted;  ///< the range is that of a scale that is searched before, and every point is searched again in the end
  bool all_again;  ///< if any point is not that of the rounded levels, all are searched again in the end
  bool moves_up;   ///< after a sub-block of zeros, the stored points that follow begin in its place
};
inline constexpr size_t kLongestGridBlock = 32;

/// A sub-block.
struct GridBlock {
  float scale;        ///< 0 if it counts as zeros
  bool is_zero;       ///< true without a search; points and signs are then 0
  uint16_t point[8];  ///< indexes
  uint8_t signs[4];   ///< bits of eight elements each
};

/// Searches one sub-block. Returns false if the numbers are beyond float32, where ggml ends the process.
bool search_grid(const float* x, const float* weights, const GridRule& rule, GridBlock& block);

/// Of the points of eight in a list of neighbors, the index of the first with the least sum of w (x - scale value)^2; -1 if all sums are
/// beyond float32. `values` are those of the three levels.
int32_t nearest_point(const Grid& grid, const uint16_t* list, const float* x, const float* weights, float scale,
                      const float* values);

}  // namespace scalepoint::loops
