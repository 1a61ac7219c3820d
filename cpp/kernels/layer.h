// The loops of quantized layers. No checks: cpp/layer.cpp has made them.
//
// Weights lie in tiles of eight rows, so that a vector of 16-bit weights holds four rows of two columns and its dot product with
// a pair of activations is four outputs: no sum ever crosses lanes.
//   8 bits   column pair after column pair, 16 bytes each:  r0c0 r0c1 r1c0 r1c1 ... r7c0 r7c1
//   4 bits   four columns after four columns, 16 bytes: the same with c0, c1 in the lower halves and c2, c3 in the upper ones
//   16 bits  as 8 bits, twice as wide; made for a while from the others where many rows of x pass
//   floats   column after column: r0 ... r7
// Activations are rows of 16-bit integers, one or more of which are walked together: pair after pair, in each the pair of every
// row.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint::kernels {

inline constexpr size_t kTileRows = 8;
/// Columns are padded to a multiple of this, with zeros.
inline constexpr size_t kColumnStep = 8;

/// Columns that are summed in integers before anything is scaled: all of one group.
struct Segment {
  uint32_t start;   ///< in padded columns, a multiple of kColumnStep
  uint32_t length;  ///< in padded columns, a multiple of kColumnStep
  uint32_t group;
  uint32_t column;  ///< the first of the columns of the layer ...
  uint32_t count;   ///< ... and their number
};

/// Eight rows of weights.
struct Tile {
  const std::byte* weights;
  const float* scale;  ///< eight a group; null: 1, for rows with one scale, which is left to the caller
  const float* zero;   ///< eight a group; null: common_zero is the zero point of all
  double common_zero;
};

/// Segments that activations are summed in, how often each counts, and the sum of its integers: x = factor * integer.
struct Activations {
  const Segment* segments;
  uint64_t count;
  const int16_t* values;
  const double* factor;  ///< a segment and row; not read for int8, whose factor is that of the row
  const double* sum;     ///< a segment and row
};

/// total[row][r] += sum over the segments of factor scale[r] sum over columns of x (w[r] - zero[r]). The innermost sum is exact:
/// in 32 bits, in which a segment's must fit; the outer one is in double, in order.
/// float32: each row of x is two rows of integers, integer = 2^15 high + low.
/// bits: 4 or 8, as the weights are stored, for one row of x; 16 for kRowsTogether of them, 4 for int8 and 2 for float32.
void accumulate_int8(int bits, const Tile& tile, const Activations& x, double* total);
void accumulate_float32(int bits, const Tile& tile, const Activations& x, double* total);

/// The weights of a tile, minus a number, in 16 bits: those of a number of columns, a multiple of kColumnStep.
void widen_tile(int bits, const std::byte* weights, size_t columns, int16_t less, int16_t* to);

/// Columns that are widened at a time: their 16 KiB stay in the first-level cache while all rows of x pass.
inline constexpr size_t kWideColumns = 1024;

/// Largest number of columns of a segment for float32: 128 * 2^7 * 2^14 fits 32 bits, and few enough share one exponent.
inline constexpr size_t kFixedPointColumns = 128;
/// ... and for int8: 1024 * 255 * 255 fits 32 bits.
inline constexpr size_t kInt8Columns = kWideColumns;

/// What became of a segment as fixed point.
struct FixedPoint {
  double factor;  ///< a power of two
  double sum;     ///< of the integers
  bool finite;
  bool more;  ///< worth a second round for what is left
};

/// Floats as integers of 30 bits: x[i] = factor * (2^15 high[i] + low[i]) up to a remainder of at most 2^-29 of the largest |x|,
/// which replaces x. The pairs go to `to` and every `step` integers: high, and low two further.
/// n: a multiple of kColumnStep, at most kFixedPointColumns.
FixedPoint to_fixed_point(float* x, size_t n, size_t step, int16_t* to);

/// total[row][r] += sum over columns of x w, in float32: blocks of kFloatBlock columns, in order. rows: 1 or 4; x: column after
/// column, in each the value of every row.
void accumulate_plain(size_t rows, const float* weights, size_t columns, const float* x, float* total);
inline constexpr size_t kFloatBlock = 256;

}  // namespace scalepoint::kernels
