// Loops over ranges: smallest, largest and farthest value. Callers check arguments. Pointers need the alignment
// of their elements.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint::loops {

struct Range {
  float min;
  float max;
  uint32_t largest;  ///< the bits of the largest |x|: at least kInfinityBits if x holds NaN or an infinity
};

/// The range of x. n > 0. min and max are undefined unless all of x is finite.
Range range(const float* x, size_t n);

/// The range of the finite values of x; [infinity, -infinity] without finite values. `largest` is not set. n > 0.
Range finite_range(const float* x, size_t n);

/// Widens each range [min[i], max[i]] to hold x[i], unless x[i] is NaN or, if finite_only, infinite. Returns the bits of the
/// largest |x|.
uint32_t range_each(const float* x, size_t n, bool finite_only, float* min, float* max);

/// Widens the range [min[i], max[i]] of each column of a matrix, which includes 0, to hold the whole column. Returns the bits of the
/// largest |x|: at least kInfinityBits if x holds NaN or an infinity; the ranges are then undefined. columns >= 4.
uint32_t range_columns(const float* x, size_t rows, size_t columns, float* min, float* max);

/// The bits of the largest |x|: at least kInfinityBits if x holds NaN or an infinity.
uint32_t largest_magnitude(const float* x, size_t n);

/// to[i * to_step] = factor * from[i * from_step].
void copy_steps(const float* from, size_t from_step, size_t n, float factor, float* to, size_t to_step);

/// True if all values are finite and not 0. May also return false for such values.
[[nodiscard]] bool all_finite_nonzero(const float* x, size_t n);

}  // namespace scalepoint::loops
