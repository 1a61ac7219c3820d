// The grids of ggml's types with one code for several elements: IQ3_XXS, IQ3_S, IQ2_XXS, IQ2_XS, IQ2_S, IQ1_S and
// IQ1_M. Source: github.com/ggml-org/ggml d99724f, src/ggml-common.h and src/ggml-quants.c.
//
// A grid is a list of points, in each of them a level for each of four or eight elements. Levels are 0 to 7 in points of four, and 0
// to 2 in points of eight. The code of a point is the number whose digits are its levels, the first one lowest. A search rounds elements to
// levels. If these are not a point of the grid, it chooses among the nearest points, their neighbors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint::loops {

enum class GridName : uint8_t { kIQ3_XXS, kIQ3_S, kIQ2_XXS, kIQ2_XS, kIQ2_S, kIQ1 };

/// The points of a grid: for element i of a point, 2 * level + 1 in the bits from 4 i on. The first call makes those of all grids.
const uint32_t* grid_points(GridName name);

/// Points, and tables for a search.
struct Grid {
  const uint32_t* points;
  size_t count;
  /// By code: the index of its point; for a code without a point, -1 - the place of its neighbors.
  const int32_t* places;
  /// At a place: the number of neighbors, then their indexes. Nearer ones come first, then those of lower index.
  const uint16_t* neighbors;
};

/// A grid with all neighbors. The first call makes them, which takes some milliseconds. They stay in memory: at most 1.6 MB for all grids
/// together.
Grid grid_of(GridName name);

}  // namespace scalepoint::loops
