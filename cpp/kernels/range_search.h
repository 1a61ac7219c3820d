// The loops of the search for ranges: how far levels are from values. No checks: the callers have made them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint::kernels {

/// Four runs side by side, element by element, and where to search for their scales and zero points.
struct FourRuns {
  const float* x;  ///< 4 n values
  size_t n;
  float min[4], max[4];  ///< the range that min-max covers
  float qmin, qmax;      ///< of the codes
  float from[4], to[4];  ///< scales
  float lowest_zero, highest_zero;
  int steps;       ///< scales that are tried, evenly spaced
  int most_zeros;  ///< zero points at each, at most: from all clipping at the high end to all of it at the low end
};

/// The scale and zero point with the least squared error among all that are tried, the scale improved to the best for its codes.
/// error: what has to be undercut. Where nothing does, scale and zero are left alone.
void search_four(const FourRuns& runs, float* error, float* scale, float* zero);

/// The squared errors with given scales and zero points.
void errors_of_four(const FourRuns& runs, const float* scale, const float* zero, float* error);

/// Sums over a run times a power of two: { e^2, e q, q^2 }, where q = clamp(round_half_even(x * (1 / scale)), low, high) and
/// e = x - scale q. Each block of 512 values is summed in float32; the blocks are added in double, in order.
void fit_run(const float* x, size_t n, float factor, float scale, float low, float high, double* sums);

/// The first of these sums alone.
double error_of_run(const float* x, size_t n, float factor, float scale, float low, float high);

/// Adds to the counts: |x| goes into bin |x| * per_unit, or into the last.
void count_magnitudes(const float* x, size_t n, double per_unit, uint32_t* counts, size_t bins);

/// Copies the values outside of [low, high] to `to`, as many as fit, and counts all of them.
size_t take_outside(const float* x, size_t n, float low, float high, float* to, size_t room);

}  // namespace scalepoint::kernels
