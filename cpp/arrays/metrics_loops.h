// Loops of the error measures. Callers check arguments. n may be any number, including 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arrays/dtype.h"
#include "arrays/error_sums.h"

namespace scalepoint::loops {

/// Adds the pairs (x[i], y[i]) to sums. Blocks begin at x.
void accumulate_error(const float* x, const float* y, size_t n, ErrorSums& sums);

/// A scale and a zero point for each run of an array. Either one run of any size, or runs of a size that is a multiple of 8 and a divisor
/// of kErrorBlock.
struct Runs {
  size_t size;  ///< of a run, in elements
  const float* scale;
  const int32_t* zero_point;
};

/// The same with y = the dequantized codes: bit for bit the result of dequantize_uniform and accumulate_error.
void accumulate_code_error(const float* x, const void* codes, DType dtype, size_t n, const Runs& runs, ErrorSums& sums);

/// Adds the pairs (x[i], y[i]) to the weighted sums, where column j of the rows of `columns` elements has the weight weights[j], which is
/// finite and not negative. x begins with column `first`. Blocks end with rows.
/// Error:   relative to the exact sums at most 71 * 2^-24, if all pairs are finite: see accumulate_error, with a rounding more in a term.
void accumulate_weighted_error(const float* x, const float* y, size_t n, const float* weights, size_t columns, uint64_t first,
                               ErrorSums& sums);

/// Adds the pair (x[i], y[i]) to sums[i], in double.
void accumulate_error_each(const float* x, const float* y, size_t n, ErrorSums* sums);

}  // namespace scalepoint::loops
