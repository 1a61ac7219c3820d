// Loops of the search for ranges. Callers check arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lanes/lanes.h"

namespace scalepoint::loops {

/// Four candidates, one per lane. With t = 1 / scale = u * t_per_u, value x lies at v = x t between the levels, which are the whole
/// numbers from low to high. Below, k = clamp(round_half_even(v), low, high) is the level of x.
struct Trials {
  lanes::F32x4 u, low, high;
};

/// Sums over a run for each candidate. Each block of 512 values is summed in float32; the blocks are added in double, in order. Sums of up
/// to kFewValues values are all in double, because the rounding of v could exceed their error.
inline constexpr size_t kFewValues = 16;
struct TrialSums {
  lanes::F32x4 error;  ///< (v - k)^2
  lanes::F32x4 slope;  ///< (v - k) v
  /// Half of the growth of the error if all levels moved up or down by one: negative if that is better.
  lanes::F32x4 up, down;
};

/// A run of values; if `weighted`, of pairs of a value and its count.
struct Run {
  const float* x;
  size_t n;  ///< values, or pairs
  bool weighted;
};

/// The sums that are needed.
enum class Sums {
  kError,    ///< the error alone, where low and high do not matter: all whole numbers are levels
  kFit,      ///< error and slope
  kWindows,  ///< all
};
void try_levels(const Run& run, double t_per_u, const Trials& trials, Sums which, TrialSums& sums);

/// t = first + i * step for i from 0 to size.
struct LevelGrid {
  double first, step;
  size_t size;
};

/// The sums of magnitudes and their levels that `sum_steps` makes. Those of all values to the left of i are the levels at grid[i].
struct LevelSums {
  double products;  ///< |x| |k|
  double squares;   ///< k^2
};

/// The levels k of all values at the start of a grid, and the changes of their sums from each t to the next. The levels go
/// from low to high, 0 among them. sums: grid.size + 1. Returns the sum of x^2.
double sum_steps(const Run& run, const LevelGrid& grid, double low, double high, LevelSums* sums);

/// The sum of (v - scale k)^2, with v = factor x and k = clamp(round_half_even(v * (1 / scale)), low, high), all in float32 and
/// summed in such blocks. With low = high = 0 that is the sum of squares.
double error_of_run(const float* x, size_t n, float factor, float scale, float low, float high);

/// The scale with the least squared error for the levels k that this one assigns: sum x k / sum k^2. Not finite if all k are 0.
double fit_scale(const float* x, size_t n, double scale, double low, double high);

/// Copies the values times the factor to `to`, those below the limit in magnitude first. Returns their number.
size_t small_ones_first(const float* x, size_t n, float factor, float limit, float* to);

/// Sums over values that are near each other.
struct Bin {
  uint64_t count;
  uint64_t rest;  ///< sum of the distances above the lower end, in units of the last bit of y
};

/// Adds x to its bins: those of values from `middle` on by the upper bits of the float y = |x - middle| * per_unit + 1, with y = 1
/// in the first; behind `half` bins those of values below `middle`. rest_bits: bits of the fraction of y that the bins ignore.
void add_to_bins(const float* x, size_t n, float middle, float per_unit, int rest_bits, Bin* bins, size_t half);

/// Adds to the counts: |x| goes into bin |x| * per_unit, or into the last.
void count_magnitudes(const Run& run, double per_unit, double* counts, size_t bins);

}  // namespace scalepoint::loops
