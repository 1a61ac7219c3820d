// The loops of quantized layers. layer.cpp and layer_forward.cpp check arguments.
//
// Weights lie in tiles of eight rows. A vector of 16-bit weights holds two columns of four rows. Its dot product with a pair of
// activations is four outputs, so no sum crosses lanes.
//   8 bits   two columns after two columns, 16 bytes each: r0c0 r0c1 r1c0 r1c1 ... r7c0 r7c1
//   4 bits   four columns after four columns, 16 bytes: the same, with c0 and c1 in the lower halves and c2 and c3 in the upper
//            ones
//   16 bits  as 8 bits, twice as wide: made from the others for a while, where many rows of x pass
//   floats   column after column: r0 ... r7
// Activations are rows of 16-bit integers. One or more rows are walked together: column pair after column pair, and within it the
// pair of every row.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint::loops {

inline constexpr size_t kTileRows = 8;
/// Columns are padded to a multiple of this, with zeros.
inline constexpr size_t kColumnStep = 8;

/// Columns of one group whose products are summed in integers.
struct Segment {
  uint32_t start;   ///< in padded columns, a multiple of kColumnStep
  uint32_t length;  ///< in padded columns, a multiple of kColumnStep
  uint32_t group;
  uint32_t column;  ///< the first of these columns, without padding
  uint32_t count;   ///< the number of these columns, without padding
};

/// Eight rows of weights.
struct LayerTile {
  const std::byte* weights;
  const float* scale;  ///< eight for each group; null if rows have one scale each, which the caller multiplies with
  const float* zero;   ///< eight for each group; null if all share common_zero
  double common_zero;
};

/// Activations in integers, segment by segment: x = factor * integer.
struct Activations {
  const Segment* segments;
  uint64_t count;
  const int16_t* values;
  const double* factor;  ///< for each segment and row; not read for int8, where rows have one factor each
  const double* sum;     ///< of the integers, for each segment and row
};

/// total[row][r] += sum over segments of factor * scale[r] * sum over columns of x * (w[r] - zero[r]). The inner sum is exact in
/// 32 bits, in which that of a segment has to fit. The outer sum is in double, in order.
/// float32: a row of x is two rows of integers, integer = 2^15 high + low.
/// bits: 4 or 8 for weights as they are stored, and one row of x. 16 for wide weights, and four rows of int8 or two of float32.
void accumulate_int8(int bits, const LayerTile& tile, const Activations& x, double* total);
void accumulate_float32(int bits, const LayerTile& tile, const Activations& x, double* total);

/// Tiles that one row of x passes at once. Their weights are as many streams from memory, which processors fetch ahead of their use better
/// than a single one.
inline constexpr size_t kTilesTogether = 4;

/// accumulate_int8 for kTilesTogether adjacent tiles of 8 bits and one row of x. total: eight sums for each tile.
void accumulate_int8_tiles(const LayerTile* tiles, const Activations& x, double* total);

/// Rows [first, first + count) of a tile, and columns of one group.
struct TilePart {
  uint8_t* tile;  ///< the weights of the first column
  size_t first;
  size_t count;
  size_t columns;
};

/// Puts codes into a tile, as code + offset in each byte, or in half of one. `stride` is the distance of rows in bytes. The padding of
/// the columns is undefined afterwards. bits: 4 or 8.
void fill_tile(int bits, const uint8_t* codes, size_t stride, uint8_t offset, const TilePart& part);

/// The reverse of fill_tile, for 8 bits and without an offset.
void read_tile(const TilePart& part, uint8_t* codes, size_t stride);

/// Weights of some columns of a tile in 16 bits, minus `less`. columns is a multiple of kColumnStep.
void widen_tile(int bits, const std::byte* weights, size_t columns, int16_t less, int16_t* to);

/// Columns that are widened at a time. They take 16 KiB, which stay in the first-level cache while all rows of x pass.
inline constexpr size_t kWideColumns = 1024;

/// The most columns of a segment for float32: 128 * 2^8 * 2^14 is within 32 bits, and few values share an exponent.
inline constexpr size_t kFixedPointColumns = 128;
/// The most columns of a segment for int8: 1024 * 255 * 255 is within 32 bits.
inline constexpr size_t kInt8Columns = kWideColumns;

/// A segment as fixed point.
struct FixedPoint {
  double factor;  ///< a power of two
  double sum;     ///< of the integers
  bool finite;
  bool more;  ///< true if the remainder needs another round
};

/// Floats as integers of 30 bits: x[i] = factor * (2^15 high[i] + low[i]) + remainder. The magnitude of the remainder is at most
/// 2^-29 of the largest |x|. It replaces x[i]. `to` gets a pair of high and the pair of low two integers behind it, every `step`
/// integers. n is a multiple of kColumnStep, at most kFixedPointColumns.
FixedPoint to_fixed_point(float* x, size_t n, size_t step, int16_t* to);

/// total[row][r] += sum over columns of x w, in float32: within blocks of kFloatBlock columns, and then over blocks, in order.
/// rows is 1 or 4. x lies column after column, and within a column row after row.
void accumulate_plain(size_t rows, const float* weights, size_t columns, const float* x, float* total);
inline constexpr size_t kFloatBlock = 256;

}  // namespace scalepoint::loops
