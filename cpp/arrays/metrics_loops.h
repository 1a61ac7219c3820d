// The loops of the error measures. Callers check arguments. Any n is fine, 0 too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arrays/dtype.h"
#include "arrays/error_sums.h"

namespace scalepoint::loops {

/// Elements that are summed in float32 before the sums are added to doubles.
inline constexpr size_t kErrorBlock = 512;

/// Adds the pairs (x[i], y[i]) to sums. Blocks count from x.
void accumulate_error(const float* x, const float* y, size_t n, ErrorSums& sums);

/// A scale and a zero point for each run of an array. It is one run of any size, or some of a size that is a multiple of 8 and that
/// kErrorBlock is a multiple of.
struct Runs {
  size_t size;  ///< of a run, in elements
  const float* scale;
  const int32_t* zero_point;
};

/// The same with y = the dequantized codes, bit for bit what dequantize_uniform and accumulate_error give.
void accumulate_code_error(const float* x, const void* codes, DType dtype, size_t n, const Runs& runs, ErrorSums& sums);

/// Adds the pairs (x[i], y[i]) to the weighted sums, where column j of the rows of `columns` elements counts weights[j], which is finite
/// and not negative. `first` is where x begins in its rows, in elements. Blocks end with rows.
/// Error:   relative to the exact sums at most 71 * 2^-24, if all pairs are finite: see accumulate_error, with a rounding more in a term.
void accumulate_weighted_error(const float* x, const float* y, size_t n, const float* weights, size_t columns, uint64_t first,
                               ErrorSums& sums);

/// Adds the pair (x[i], y[i]) to sums[i], in double.
void accumulate_error_each(const float* x, const float* y, size_t n, ErrorSums* sums);

}  // namespace scalepoint::loops
