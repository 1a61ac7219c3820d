// The search for the scale and zero point with the least squared error, for one run of values. Internal to range_search.cpp.
//
// For a zero point z the levels are scale * k with k in [qmin - z, qmax - z]. As a function of the scale the error follows a
// smooth curve with a ripple on it, because every value that moves to another level bends it. Candidates are spread over scales
// and zero points. Each is improved to the best scale for its codes (least squares), so that few candidates stand for the whole
// ripple between them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/range_search.h"
#include "spec.h"

namespace scalepoint {

/// Runs of up to this length are searched four at a time.
inline constexpr size_t kShortRun = 128;

/// Floats that search_long works in.
inline constexpr size_t kLongRunRoom = 8192 + 16384;

/// The largest scale that is tried, in scales of min-max. With few values a wider scale may happen to put levels next to them.
/// Measured on groups of 32 of six distributions, 4 and 8 bits: without it the error is 12 % higher, with 1.05 0.3 %, with 1.2
/// 1.4 %, as the candidates then lie farther apart.
inline constexpr float kWidest = 1.12f;

/// An error counts as smaller than another below this share of it. Sums of float32 are off by less: blocks of 512 additions in 8
/// lanes, each off by at most 2^-24 of the sum, make 64 * 2^-24 < 4e-6.
inline constexpr double kGain = 1 - 1e-5;

/// A scale and a zero point, which is a whole number.
struct Candidate {
  double scale;
  double zero;
};

/// What a search may choose from.
struct SearchSpace {
  double qmin, qmax;
  double lowest_zero, highest_zero;
  bool symmetric;

  explicit SearchSpace(const QuantizationSpec& spec);

  [[nodiscard]] double levels() const { return qmax - qmin; }
  [[nodiscard]] double clamped(double zero) const;
  /// The smallest scale that does not clip [min, max] with that zero point.
  [[nodiscard]] double covering(double min, double max, double zero) const;
  /// A zero point for a scale. With share 0 all that is clipped is at the high end, with share 1 at the low end, as far as zero
  /// points go.
  [[nodiscard]] double zero_for(double min, double max, double scale, double share) const;
  /// A scale as choose_qparams would round it; 0 if it is outside of what choose_qparams gives.
  [[nodiscard]] float usable_scale(double scale, double zero) const;
};

/// A power of two that brings |x| of at most `largest` to about 1, so that squares neither overflow nor vanish.
float unit_factor(double largest);

/// Four short runs, each times a factor, and what min-max gives for them.
struct ShortRuns {
  kernels::FourRuns runs;
  float factor[4];
  float scale[4];
  int32_t zero[4];
};

/// A scale and zero point for each of them: those of min-max, or better ones.
void search_short(ShortRuns& four, const SearchSpace& space, float* scale, int32_t* zero_point);

/// A run of more than kShortRun values, as they are; `min` and `max` are its range times the factor, with 0 in it if the space
/// needs that.
struct LongRun {
  const float* x;
  size_t n;
  float factor;
  double min, max;
};

/// Replaces the scale and zero point of min-max if it finds better ones. room: kLongRunRoom floats.
void search_long(const LongRun& run, const SearchSpace& space, float* room, float* scale, int32_t* zero_point);

}  // namespace scalepoint
