// Loops over the blocks of unsigned codes of MatMulNBits, and over the columns that contain them.
// The loops work on blocks of several columns together. A panel holds rows of kPanel columns one after the other, so that a vector holds
// four columns. Only finished codes are transposed, which are smaller than floats.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint::loops {

/// Columns of a panel: a cache line.
inline constexpr size_t kPanel = 16;

/// Parameters that make and restore codes of blocks: a number for each column.
struct BlockCodes {
  const float* scale;
  const float* reciprocal;
  const float* zero_point;
  float levels;  ///< the largest code
};

/// codes[i] = x[i] * reciprocal[i] + zero_point[i], saturated to [0, levels], rounded half away from zero. If y is not null,
/// y[i] = (codes[i] - zero_point[i]) * scale[i]. x is finite.
void make_block_codes(const float* x, size_t n, const BlockCodes& blocks, uint8_t* codes, float* y);

/// Parameters of n blocks with the ranges [min[i], max[i]]. All arrays hold a multiple of 4.
/// symmetric   scale = v / -2^(bits - 1), v being the value of largest magnitude, or the smaller one of two. So scales may be negative.
///             The zero point is 2^(bits - 1).
/// asymmetric  the range is widened to hold 0; scale = (max - min) / (2^bits - 1), zero point = round_half_away(-min / scale),
///             saturated.
/// All in float32. If `half`, scales are rounded to float16. The reciprocal is that of the scale as it is stored; 0 for a scale of 0. A
/// scale without a finite reciprocal is 0.
void choose_blocks(const float* min, const float* max, size_t n, int32_t bits, bool symmetric, bool half, float* scale,
                   float* reciprocal, float* zero_point);

/// The smallest and the largest value of each column of a panel. -0 counts as 0. Returns the bits of the largest |x|: at least
/// kInfinityBits if there is NaN or an infinity; the ranges are then undefined.
uint32_t panel_range(const float* panel, size_t rows, float* min, float* max);

/// The codes of a panel whose columns are blocks of `size` elements, of which there are `rows`; the others are 0. A word of 32 bits has
/// neighbors of a column, lowest bits first. Word w of column i goes to words[w * kPanel + i]. y is a panel, or null.
void make_panel_codes(const float* panel, size_t rows, size_t size, const BlockCodes& blocks, int32_t bits, int32_t* words,
                      float* y);

/// Copies `count` words of `some` columns of a panel to their columns, which are `stride` bytes apart.
void put_words(const int32_t* words, size_t count, size_t some, uint8_t* to, size_t stride);

/// Copies `some` columns of a matrix that is `width` wide into panels, one after the other. Missing columns of the last panel are 0.
void take_panels(const float* x, size_t rows, size_t width, size_t some, float* panels);

/// columns[i * stride + row] = x[row * width + i] for `some` columns of a matrix that is `width` wide.
void gather_columns(const float* x, size_t rows, size_t width, size_t some, float* columns, size_t stride);

/// Floats from one gathered column to the next: not a power of two, because the columns would then share the same lines of the cache.
constexpr size_t column_stride(size_t rows) { return (rows + 15) / 16 * 16 + 16; }

}  // namespace scalepoint::loops
