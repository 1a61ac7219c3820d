// Finds the scale, and the window of levels, that restore a run with the least squared error: by branch and bound, which proves that no
// better one exists. Internal to range_mse.cpp.
//
// The levels are the multiples of the scale from low to high; a zero point only decides about the window of multiples. With
// t = 1 / scale, the error of a run in units of a level is
//
//   F(t) = sum of min (x t - k)^2 = t^2 sum x^2 - G(t),   G(t) = max of (2 t sum x k - sum k^2),
//
// where the minimum is over the level of each value, and the maximum over all assignments of levels in all windows at once. So G
// is the largest of many straight lines: it is convex. Between two t it lies below the chord, and the squared error F(t) / t^2
// lies above that of the chord, which has a closed form. An interval whose bound is not below the best known error is ruled out; others are
// cut. If no value changes its level inside of an interval, G is the chord itself, so that the search ends.
// With 7 and 8 bits the best scale is one of many similar ones. Visiting all t at which a value changes its level then takes less time than
// trials with all values, because it gives the errors at all t of a grid at once.
//
// Each t that is tried also gives a candidate: for the levels k that it assigns, the best scale is sum x k / sum k^2 (least
// squares).
// The units are u = t sqrt(mean x^2) and f = F / values. The chord between (a, fa) and (b, fb), d = b - a, then has the least error
//
//   least     (fa + fb) / 2 - d^2 / 4 - (fb - fa)^2 / (4 d^2)
//   ------- = -----------------------------------------------      of the mean square of the run,
//   squares               a b + (fa b - fb a) / d
//
// at a point inside of the interval, or else at its ends, which have been tried.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ranges/range_search_loops.h"

namespace scalepoint {

/// The windows of levels that may be chosen: the integers from low to low + levels, for all low from lowest to highest.
struct Windows {
  double levels;
  double lowest, highest;
  [[nodiscard]] bool fixed() const { return lowest == highest; }
};

/// A scale and the lowest level. scale is 0 if the search found no better one.
struct FoundScale {
  double scale = 0;
  double low = 0;
  double error = 0;  ///< in mean squares of the run
};

/// Input of the search: the values, and the span of scales.
struct ScaleSpan {
  loops::Run run;
  double count;         ///< values, each as often as it counts
  double min, max;      ///< the range of the values, widened to 0 if the windows have to hold 0
  double root_mean;     ///< of the squares, above 0
  double first, start;  ///< t: the least, and where to begin, from which the search goes both ways
  double last;          ///< t: the largest. The search ends before it where clipping alone errs more than the best does
  int most_trials;      ///< limit of trials, after which the search ends without a proof

  /// The values at the front of the run that are small, how many they are, and their share of the sum of squares. The error of small values
  /// is less than that of all values, but changes slowly with the scale: far from the best scale it rules out more in less time. size is 0
  /// if unused.
  struct Small {
    size_t size;
    double count, squares;
  } small;
};

/// The search gives up on intervals that could only lower the error by this share of it. The remaining 3e-4 of the promised 1e-3 are for
/// the rounding of sums. With 1e-5 instead, it takes 10 % more trials.
inline constexpr double kSearchTolerance = 7e-4;

FoundScale search_scale(const ScaleSpan& span, const Windows& windows);

}  // namespace scalepoint
