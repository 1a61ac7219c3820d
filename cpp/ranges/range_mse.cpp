#include "ranges/range_mse.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "arrays/qparams.h"
#include "lanes/round.h"
#include "ranges/range_mse_scale_search.h"
#include "ranges/range_mse_stand_ins.h"
#include "ranges/range_search_loops.h"

namespace scalepoint {
namespace {

/// The largest magnitude of a zero point that choose_qparams gives.
constexpr double kFarthestZero = kMaxZeroPoint - 65536.0;

Windows windows_of(const QuantizationSpec& spec) {
  const double qmin = spec.dtype.qmin(), levels = spec.dtype.qmax() - qmin;
  if (spec.scheme == Scheme::kSymmetric) return {levels, qmin - spec.dtype.middle(), qmin - spec.dtype.middle()};
  if (spec.include_zero) return {levels, -levels, 0};
  return {levels, qmin - kFarthestZero, qmin + kFarthestZero};
}

/// True if the windows may lie anywhere, even without 0.
bool are_free(const Windows& windows) { return windows.lowest < -windows.levels; }

/// The least t = 1 / scale to try. If a window still holds twice each level of the values at t, 2 t is at least as good as t: it has the
/// same levels and others between them.
double least_t(double min, double max, const Windows& windows) {
  if (!windows.fixed()) return std::floor(windows.levels / 2) / (max - min);
  double least = HUGE_VAL;
  if (max > 0) least = std::min(least, (std::floor((windows.lowest + windows.levels) / 2) + 0.5) / max);
  if (min < 0) least = std::min(least, (std::floor(-windows.lowest / 2) + 0.5) / -min);
  return least;
}

/// Trials for types of up to 8 bits. Few runs of any length take 400, except of values far from 0 in windows that need not hold
/// it: there scales that differ by 1 / |zero point| have errors of their own. Of two or three values many scales restore nearly
/// all, so that telling the best takes thousands, but each is quick.
int most_trials(size_t n) { return 2048 + static_cast<int>(32768 / n); }

/// A proof for 16 bits would take hundreds of times as many. Instead tries some scales from that of min-max to one that is wider by 1/8.
constexpr int kTrialsOf16Bits = 64;
constexpr double kWidestOf16Bits = 1.125;

/// The power of two that values are searched with: not 1 where t or u could leave the range of normal floats.
float search_factor(double largest) { return largest > 0x1p60 || largest < 0x1p-60 ? unit_factor(largest) : 1.0f; }

/// The span to search, for values times the factor.
ScaleSpan span_of(const QuantizationSpec& spec, const Windows& windows, double min, double max, double scale, double factor) {
  const double largest = std::max(std::fabs(min), std::fabs(max)) * factor;
  ScaleSpan span = {};
  span.min = (are_free(windows) ? min : std::min(min, 0.0)) * factor;
  span.max = (are_free(windows) ? max : std::max(max, 0.0)) * factor;
  // No scale is below kMinScale, and no zero point too far away.
  span.last = 1 / (kMinScale * factor);
  if (are_free(windows)) span.last = std::min(span.last, kFarthestZero / largest);
  span.start = std::min(1 / (scale * factor), span.last);
  span.first = least_t(span.min, span.max, windows);
  if (span.first >= span.start) {
    // If min-max's scale was raised, the values need less than half of the levels. Any scale with a level other than 0 may be the best.
    span.first = 0.5 / largest;
  } else {
    // Beyond the last t, 2 t cannot replace t.
    span.first = std::min(span.first, span.last / 2);
  }
  if (spec.dtype.bits > 8) span.first = std::max(span.first, span.start / kWidestOf16Bits);
  // No level is beyond the largest float.
  const double farthest = windows.fixed() ? std::max(-windows.lowest, windows.lowest + windows.levels) : windows.levels;
  span.first = std::min(std::max(span.first, farthest / (FLT_MAX * static_cast<double>(factor)) * (1 + 0x1p-20)), span.start);
  return span;
}

/// Small values are put in front if the search would take more than this number of steps with all values.
constexpr double kManySteps = 8;
/// Bound of small values in root mean squares. Between 0.9 and 1.3 the time hardly differs.
constexpr double kSmall = 1.2;

/// Values, each as often as it counts, and the sum of their squares.
struct Squares {
  double count, sum;
};

Squares squares_of(const loops::Run& run, float factor) {
  if (!run.weighted) {
    return {static_cast<double>(run.n), loops::error_of_run(run.x, run.n, factor, 1, 0, 0)};
  }
  Squares squares = {};
  for (size_t i = 0; i < run.n; i++) {
    const double value = static_cast<double>(run.x[2 * i]) * factor, weight = run.x[2 * i + 1];
    squares.count += weight;
    squares.sum += value * value * weight;
  }
  return squares;
}

/// The squared error of values times the factor, with levels from `low` on.
double error_of(const loops::Run& run, float factor, double scale, double low, double levels) {
  const auto bottom = static_cast<float>(low), top = static_cast<float>(low + levels);
  if (!run.weighted) return loops::error_of_run(run.x, run.n, factor, static_cast<float>(scale), bottom, top);
  const loops::Trials trials = {lanes::splat(1.0f), lanes::splat(bottom), lanes::splat(top)};
  loops::TrialSums sums;
  loops::try_levels(run, factor / scale, trials, loops::Sums::kFit, sums);
  float error[4];
  store(error, sums.error);
  return error[0] * scale * scale;
}

/// Sets the number of small values at the front.
void set_small(ScaleSpan& span, size_t n) {
  const Squares small = squares_of({span.run.x, n, span.run.weighted}, 1);
  if (small.sum > 0) span.small = {n, small.count, small.sum / (span.root_mean * span.root_mean * span.count)};
}

/// Puts pairs with magnitudes below the limit to the front. Returns their number.
size_t small_pairs_first(float* pairs, size_t n, double limit) {
  size_t small = 0;
  for (size_t i = 0; i < n; i++) {
    if (std::fabs(pairs[2 * i]) < limit) std::swap_ranges(pairs + 2 * i, pairs + 2 * i + 2, pairs + 2 * small++);
  }
  return small;
}

/// Bins of stand-ins by the bits of a type. A level is 2^-bits of the range that the windows cover, which is two standard deviations
/// or more wherever there is much to gain. It then holds 32 bins or more around the mean, and some eight far out; of fewer than 8
/// bits 64 and 16.
int bin_bits(int bits) { return std::min(bits + 5, kMostBinBits); }

/// Prepares a run for the search: multiplies by the factor, puts small values first, and replaces many values by stand-ins.
void prepare_run(ScaleSpan& span, float min, float max, float factor, int bin_bits, std::byte* room) {
  const loops::Run run = span.run;
  const double small = kSmall * span.root_mean;
  auto* const to = reinterpret_cast<float*>(room);
  if (!run.weighted && run.n <= kLongestDirectRun) {
    if (factor == 1 && (span.start - span.first) * span.root_mean <= kManySteps) return;
    span.run.x = to;
    return set_small(span, loops::small_ones_first(run.x, run.n, factor, static_cast<float>(small), to));
  }
  if (!run.weighted) {
    span.run = stand_in({run.x, run.n}, min, max, span.root_mean / factor, factor, bin_bits, room);
  } else if (factor != 1) {
    for (size_t i = 0; i < run.n; i++) to[2 * i] = run.x[2 * i] * factor;
  }
  set_small(span, small_pairs_first(to, span.run.n, small));
}

/// If the squared error is below this share of the sum of squares, values are restored exactly, up to the rounding of scale and product.
constexpr double kExact = 0x1p-46;

/// Below this share of the mean square, the rounding of sums to float32 affects the scale.
constexpr double kTinyError = 0x1p-26;

}  // namespace

size_t mse_room(size_t n) { return n > kLongestDirectRun ? kStandInBytes : (n + n % 2) * sizeof(float); }

float unit_factor(double largest) {
  int e = 0;
  std::frexp(largest, &e);
  return static_cast<float>(std::ldexp(1.0, std::clamp(-e, -126, 126)));
}

double mse_error(const loops::Run& run, float min, float max, const QuantizationSpec& spec, float scale, int32_t zero_point) {
  const float unit = unit_factor(std::max(-min, max));
  return error_of(run, unit, scale * unit, spec.dtype.qmin() - zero_point, spec.dtype.qmax() - spec.dtype.qmin());
}

double search_mse(loops::Run run, float min, float max, const QuantizationSpec& spec, std::byte* room, float& scale,
                  int32_t& zero_point) {
  const double largest = std::max(std::fabs(static_cast<double>(min)), std::fabs(static_cast<double>(max)));
  if (largest == 0) return 0;
  const float unit = unit_factor(largest), factor = search_factor(largest);
  const Squares squares = squares_of(run, unit);
  const double root_mean = std::sqrt(squares.sum / squares.count) / unit;
  const Windows windows = windows_of(spec);
  const double plain = mse_error(run, min, max, spec, scale, zero_point);
  if (plain <= squares.sum * kExact) return plain;

  ScaleSpan span = span_of(spec, windows, min, max, scale, factor);
  span.run = run;
  span.count = squares.count;
  span.root_mean = root_mean * factor;
  span.most_trials = spec.dtype.bits > 8 ? kTrialsOf16Bits : most_trials(run.n);
  prepare_run(span, min, max, factor, bin_bits(spec.dtype.bits), room);
  FoundScale found = search_scale(span, windows);
  if (found.scale == 0) return plain;
  found.scale /= factor;
  if (found.error < kTinyError && !run.weighted) {
    found.scale = loops::fit_scale(run.x, run.n, found.scale, found.low, found.low + windows.levels);
  }
  const auto better = static_cast<float>(found.scale);
  const auto farthest = static_cast<float>(std::max(-found.low, found.low + windows.levels));
  if (!(better >= kMinScale && better * farthest <= FLT_MAX)) return plain;
  double error = 0;
  const auto restores_better = [&] {
    // The error of the search is that of the scale except for rounding (see search_qparams): 2^-22 of the root mean square, which is
    // 2^-9 of the root of an error above kTinyError, and so less than 2^-7 of the error.
    const bool is_exact = !span.run.weighted && found.error >= kTinyError;
    if (is_exact && found.error * squares.sum < plain * (1 - 0x1p-6)) return true;
    error = run.weighted ? error_of(span.run, unit / factor, better * unit, found.low, windows.levels)
                         : error_of(run, unit, better * unit, found.low, windows.levels);
    return error < plain * kGain;
  };
  if (!restores_better()) return plain;
  scale = better;
  zero_point = static_cast<int32_t>(spec.dtype.qmin() - found.low);
  return error;
}

}  // namespace scalepoint
