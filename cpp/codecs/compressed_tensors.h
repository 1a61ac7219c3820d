// Codes with scales in the layout of compressed-tensors, which vLLM and transformers load.
// Source: github.com/vllm-project/compressed-tensors 04a58ff, src/compressed_tensors: compressors, and quantization/utils/helpers.py.
#pragma once

#include "codecs/codec.h"
#include "codecs/elements.h"
#include "ranges/range_search.h"

namespace scalepoint::codecs {

struct CompressedTensors {
  /// float8e4m3fn: 8 bits, symmetric, one scale per row, not packed, no search. Else integers.
  bool float8 = false;
  int32_t bits = 8;  ///< 4 or 8; 2 and 3 for codes of a byte each, which other layouts pack; packed codes of 2 to 8 are read
  bool symmetric = true;
  /// Elements of a row that share a scale, a divisor of the columns; 0 for whole rows.
  uint32_t group_size = 0;
  /// Codes in int32 words, or one code per byte. See encode.
  bool packed = false;
  /// For packed codes that are read. False: codes follow each other without gaps, also across words. True: a word holds 32 / bits whole
  /// codes, and its highest bits are unused. Both are the same where bits divide 32.
  bool whole_words = false;
  /// For packed codes that are read: a part has the index of the group of each column.
  bool grouped = false;
  ElementType scale = ElementType::kF32;  ///< kF32, kF16 or kBF16
  /// True: searches for ranges. Otherwise they reach from the smallest to the largest value.
  bool search = false;
  RangeMethod method = RangeMethod::kMse;
  double percentile = 100;  ///< of RangeMethod::kPercentile
};

/// Codes with a scale for each run. A run is a row or a group.
///
/// Range:   from the smallest to the largest value of the run, widened to hold 0. If rows are cut, tile.ranges has their ranges. Then
///          encode does not search, and reads the source for data only.
/// Scale:   symmetric 2 absmax / (qmax - qmin), asymmetric (max - min) / (qmax - qmin), in float32; then rounded to the type that
///          it is stored in. Codes and zero points are made with the rounded scale. For float8 qmax = -qmin = 448.
///          A run of zeros has that type's epsilon for a scale. Any other scale that would round to 0 is the smallest positive
///          number instead.
/// Zero:    round_half_even(qmin - min / scale), within [qmin, qmax].
/// Codes:   round_half_even(x / scale + zero point), saturated; float8: x / scale rounded to float8, saturated.
/// Search:  scales and zero points of search_qparams. kMse takes them only if they restore the run with a smaller error than those of the
///          whole range. It compares the scales as they are stored, and tries both neighbors of a searched scale of 16 bits, too.
///
/// Inputs:  with the importance of columns, for integers of whole rows: scales and zero points of make_input_codes, as they are stored, with
///          codes for them. A run of zeros has any scale.
///
/// Parts:   data        plain: one byte a code. packed: words of 32 / bits codes, lowest bits first, as code - qmin. A row that
///                      does not fill its last word ends with zeros.
///          scale       one for each run, row by row.
///          zero point  plain: one byte a run. packed: as the codes, but down the rows: word [r, g] holds those of group g of the
///                      rows from r * 32 / bits on. Bits that no row fills are 0.
/// Special: NaN and infinities are problems. An element whose code would stand for an infinity is kOverflow. So is the element of
///          largest magnitude in a run whose scale is beyond its type. NaN and infinities have priority, wherever they are.
/// Status:  those of check, Arena and search_qparams; kBadDType for unsupported codes or scales, and for codes that are only read; kBadLayout if the tile is empty, if a row
///          does not hold whole groups, or if there are ranges of rows but groups are smaller.
[[nodiscard]] Status encode(const Tile& tile, const CompressedTensors& codes, Arena& arena, Encoded& result) noexcept;

/// The same with importance and moments: whole rows that pass their errors on. OutputJudge chooses the rows that take these codes.
/// A measured tile has the errors of outputs before and after.
[[nodiscard]] Status encode_with_feedback(const Tile& tile, const CompressedTensors& codes, const Moments& moments, Arena& arena,
                                          Encoded& result) noexcept;

/// Restores floats: scale * (code - zero point). Does not read the zero point if symmetric. Rows of a tile start where a word of zero points
/// does. With `grouped`, tiles hold whole rows.
/// Status:  kBadDType, kBadLayout, kSizeMismatch, kBadScale if a scale is not finite and positive; kBadRange if the index of a group is too
///          large.
[[nodiscard]] Status decode(const Stored& stored, const CompressedTensors& codes, Arena& arena, const float*& x) noexcept;

}  // namespace scalepoint::codecs
