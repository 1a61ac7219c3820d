#include "ranges/range_mse_scale_search.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace scalepoint {
namespace {

using namespace lanes;

/// Four trials.
struct Nodes {
  F32x4 u, error;  ///< error: the mean, in units of a level
  F32x4 center;    ///< of the best window, about, in units of the root mean square
};

/// Four intervals between trials.
struct Intervals {
  F32x4 from, to, from_error, to_error;
  F32x4 center;  ///< of the window, about
};

/// Inside of an interval shorter than this share of u, errors differ by about their rounding errors.
constexpr float kShortest = 0x1p-20f;

/// Largest number of waiting intervals. Cutting begins when kDrain or a few more wait. Each cut takes up to four from the end and adds at
/// most four more than it takes. After at most 20 cuts in a row they are shorter than kShortest.
constexpr size_t kDrain = 128, kMostWaiting = kDrain + 4 + 4 * 20 + 8;

/// The distance of the first trials in u. Values that lie anywhere between levels have f of about 1/12. The chord then errs by up
/// to d^2 / 4 = 0.04, half of that, which is enough to be done with scales that are wider than the best by half. With 0.3 or 0.6
/// instead, the time changes by 5 % or less.
constexpr float kStep = 0.4f;

/// Distribution of four trials among one to four intervals.
struct Cut {
  uint8_t interval[4];
  float share[4];       ///< of the interval's length, before the trial
  int32_t is_first[4];  ///< in its interval
  uint32_t last;        ///< bits of the lanes that are the last in theirs
};
constexpr float kHalf = 0.5f, kThird = 1.0f / 3, kTwoThirds = 2.0f / 3;
constexpr Cut kCuts[4] = {{{0, 0, 0, 0}, {0.2f, 0.4f, 0.6f, 0.8f}, {1, 0, 0, 0}, 8},
                          {{0, 0, 1, 1}, {kThird, kTwoThirds, kThird, kTwoThirds}, {1, 0, 1, 0}, 10},
                          {{0, 0, 1, 2}, {kThird, kTwoThirds, kHalf, kHalf}, {1, 0, 1, 1}, 14},
                          {{0, 1, 2, 3}, {kHalf, kHalf, kHalf, kHalf}, {1, 1, 1, 1}, 15}};

/// A difference of two products of float32 sums is off by at most this share of the first one: the sums have relative errors of
/// some 2^-21, those of eight lanes of 64 values.
constexpr float kRounding = 0x1p-19f;

/// The distance of trials with the small values alone. Their f is taken for kShareOf12th / 12, less than its mean, so that chance
/// leaves few intervals undecided. Then kSmallStep of the distance at which the chord alone would leave them undecided is kept.
/// With 0.8 and 1, or 1.2 and 2 instead, the time changes by 8 % or less.
constexpr double kShareOf12th = 0.9, kSmallStep = 1.5;

/// Up to this number of levels, trials take less time than a grid: with SIMD 10 % less for 6 bits, but 33 % more for 8.
constexpr double kFewLevels = 63;

/// A grid has up to kGridSize steps, otherwise kGridDensity times the root of the number of values in a unit of u: about as long as
/// its steps take what it leaves undecided takes, too. It begins at kGridStart of where all values fit in, if small values are put
/// in front: below, these prove more in less time. With 0.7 and 2 times the density the time changes by 5 % or less.
constexpr size_t kGridSize = 512;
constexpr float kGridDensity = 1.4f, kGridStart = 0.8f;

/// Distances of the first four trials above the start: factors of the distance to 0, or of kFirstSteps steps if that is less. With 4 bits,
/// the last one usually clips too much. A row of even steps would need a second row to get there.
constexpr float kFirstTrials[4] = {0, 0.14f, 0.33f, 0.8f}, kFirstSteps = 7.5f;

/// Steps of a row: just less than four, so that rounding leaves no rest.
constexpr float kStepsOfRow = 3.9999f;

/// Largest step above `start` in the search for the end of a grid.
constexpr double kLargestStepUp = 0.17;

/// Largest amount by which rounding of double sums may lower an error, as a share of the sum of squares.
constexpr double kRoundingOfGrid = 0x1p-46;

/// Bound of levels that clips no value.
constexpr float kFarAway = HUGE_VALF;

F32x4 steps(double from, double step) {
  static constexpr float kCount[4] = {0, 1, 2, 3};
  return add(splat(static_cast<float>(from)), mul(splat(static_cast<float>(step)), load(kCount)));
}

/// All ones where error / u^2 may be below the limit.
[[gnu::noinline]] I32x4 promising(const Intervals& i, float limit) {
  const F32x4 a = i.from, b = i.to, fa = i.from_error, fb = i.to_error, most = splat(limit);
  const F32x4 d = sub(b, a), d2 = mul(d, d), rise = sub(fb, fa);
  const F32x4 fa_d = mul(fa, d), fb_d = mul(fb, d), rise_a = mul(rise, a), rise_b = mul(rise, b);
  // Both times d^2.
  const F32x4 least = sub(mul(d2, sub(mul(splat(0.5f), add(fa, fb)), mul(splat(0.25f), d2))), mul(splat(0.25f), mul(rise, rise)));
  const F32x4 squares = mul(d, add(mul(mul(a, b), d), sub(fa_d, rise_a)));
  // The least error lies after `from` and before `to`; otherwise it is at one of the ends.
  const I32x4 behind = greater(add(mul(a, d2), add(fa_d, fa_d)), rise_a);
  const I32x4 before = greater(add(mul(b, d2), rise_b), add(fb_d, fb_d));
  const I32x4 inside = bit_and(bit_and(behind, before), greater(mul(most, squares), least));
  const I32x4 at_ends = bit_or(greater(mul(most, mul(a, a)), fa), greater(mul(most, mul(b, b)), fb));
  return bit_and(bit_or(inside, at_ends), greater(d, mul(splat(kShortest), b)));
}

class ScaleSearch {
 public:
  ScaleSearch(const ScaleSpan& span, const Windows& windows)
      : span_(span),
        windows_(windows),
        t_per_u_(1 / span.root_mean),
        per_value_(static_cast<float>(1 / span.count)),
        middle_(static_cast<float>((span.min + span.max) / 2 / span.root_mean)),
        min_(splat(static_cast<float>(span.min / span.root_mean))),
        max_(splat(static_cast<float>(span.max / span.root_mean))),
        levels_(splat(static_cast<float>(windows.levels))),
        half_(splat(static_cast<float>(windows.levels / 2))),
        lowest_(splat(static_cast<float>(windows.lowest))),
        highest_(splat(static_cast<float>(windows.highest))),
        step_(std::max(kStep, static_cast<float>((span.start - span.first) * span.root_mean * 2 / span.most_trials))),
        trials_left_(span.most_trials) {}

  FoundScale search() {
    const auto start = static_cast<float>(span_.start * span_.root_mean);
    const auto least = static_cast<float>(span_.first * span_.root_mean);
    if (is_proven() && windows_.levels > kFewLevels && span_.run.n > loops::kFewValues) {
      const float end = find_end(start), first = span_.small.size > 0 ? std::max(least, kGridStart * start) : least;
      walk_down(first, search_grid(first, end), least);
      drain();
      return found_;
    }
    walk_down(start, walk_up(start, static_cast<float>(span_.last * span_.root_mean)), least);
    drain();
    return found_;
  }

 private:
  /// True if there is one window, and few enough levels to rule out intervals. With 16 bits the search only makes trials.
  [[nodiscard]] bool is_proven() const { return windows_.fixed() && windows_.levels < 256; }

  /// A u from which on clipping alone errs more than the best.
  float find_end(float start) {
    const auto last = static_cast<float>(span_.last * span_.root_mean);
    // Clipping one of the values alone by three steps leaves 0.3 of a level on average.
    const double farthest = std::max(-windows_.lowest, windows_.lowest + windows_.levels);
    float step = start * static_cast<float>(std::min(kLargestStepUp, std::sqrt(0.3 * span_.count) / (3 * farthest)));
    for (float u = start; trials_left_ > 0; step *= 2) {
      float us[4], errors[4];
      const Nodes nodes = attempt(pmin(steps(u, step), splat(last)), splat(middle_));
      store(us, nodes.u);
      store(errors, nodes.error);
      SCALEPOINT_NO_UNROLL
      for (size_t i = 0; i < 4; i++) {
        if (us[i] >= last || clips_too_much(us[i], errors[i])) return us[i];
      }
      u = us[3] + step;
    }
    return start;
  }

  /// Returns the error at its first u.
  float search_grid(float first, float end) {
    if (!(first < end)) return 0;
    const float density = kGridDensity * std::sqrt(static_cast<float>(span_.run.n));
    const auto size = static_cast<size_t>(std::clamp((end - first) * density, 8.0f, static_cast<float>(kGridSize)));
    const float step = (end - first) / static_cast<float>(size);
    take_grid({first * t_per_u_, step * t_per_u_, size});
    const F32x4 slack = splat(0.25f * step * step);
    for (size_t i = 0; i < size; i += 4) {
      const float at = first + static_cast<float>(i) * step;
      const F32x4 from = steps(at, step), to = add(from, splat(step)), a = load(errors_ + i), b = load(errors_ + i + 1);
      // Check a faster bound first: no chord lies lower than its lower end.
      if (!any(greater(mul(splat(bound_), mul(to, to)), sub(pmin(a, b), slack)))) continue;
      keep({from, to, a, b, splat(middle_)}, size - i < 4 ? (1u << (size - i)) - 1 : 15);
      if (waiting_count_ >= kDrain) drain();
    }
    return errors_[0];
  }

  /// Fills in the errors of a grid, and takes the best fit to its levels.
  void take_grid(const loops::LevelGrid& grid) {
    const double energy = loops::sum_steps(span_.run, grid, windows_.lowest, windows_.lowest + windows_.levels, level_sums_);
    loops::LevelSums sums = {0, 0}, best = {0, 1};
    for (size_t i = 0; i <= grid.size; i++) {
      const double t = grid.first + static_cast<double>(i) * grid.step;
      sums.products += level_sums_[i].products;
      sums.squares += level_sums_[i].squares;
      errors_[i] = static_cast<float>((t * (t * energy - 2 * sums.products) + sums.squares) * per_value_);
      if (sums.products * sums.products * best.squares > best.products * best.products * sums.squares) best = sums;
    }
    for (size_t i = 1; i < 4; i++) errors_[grid.size + i] = HUGE_VALF;
    const double scale = best.products / best.squares, left = std::max(energy - scale * best.products, energy * kRoundingOfGrid);
    const auto error = static_cast<float>(left * per_value_ * (t_per_u_ * t_per_u_));
    if (!(error < best_)) return;
    best_ = error;
    bound_ = best_ * static_cast<float>(1 - kSearchTolerance);
    found_ = {scale, windows_.lowest, best_};
  }

  /// Tries four u. center: of the windows, about.
  Nodes attempt(F32x4 u, F32x4 center) {
    loops::Trials trials = {u, lowest_, add(lowest_, levels_)};
    loops::TrialSums sums;
    F32x4 place = trials.low;
    if (!windows_.fixed() && place_windows(trials, sub(mul(center, u), half_))) {
      place = move_windows(trials, sums);
    } else {
      loops::try_levels(span_.run, t_per_u_, trials, loops::Sums::kFit, sums);
    }
    trials_left_ -= 4;
    const F32x4 error = mul(sums.error, splat(per_value_)), slope = mul(sums.slope, splat(per_value_));
    take_fits(trials, error, slope);
    return {u, error, windows_.fixed() ? center : div(add(place, half_), u)};
  }

  /// Lower bounds of the errors of four u below the start, where hardly any value is clipped: the errors without clipping.
  Nodes attempt_below(F32x4 u) {
    const loops::Trials trials = {u, splat(-kFarAway), splat(kFarAway)};
    loops::TrialSums sums;
    loops::try_levels(span_.run, t_per_u_, trials, loops::Sums::kError, sums);
    trials_left_ -= 4;
    return {u, mul(sums.error, splat(per_value_)), u};
  }

  /// The best scale for the levels that a t assigns: sum x k / sum k^2, with k = x t - r.
  void take_fits(const loops::Trials& trials, F32x4 errors, F32x4 slopes) {
    const F32x4 square = mul(trials.u, trials.u), level_square = add(sub(square, add(slopes, slopes)), errors);
    const F32x4 product = mul(square, errors), squares = mul(square, level_square);
    // At most the error of t itself, and at least the possible rounding error.
    const F32x4 fitted = add(pmax(splat(0.0f), sub(product, mul(slopes, slopes))), mul(splat(kRounding), product));
    const F32x4 least = pmin(fitted, mul(errors, level_square));
    const I32x4 better = bit_and(greater(level_square, splat(0.0f)), greater(mul(splat(best_), squares), least));
    uint32_t lanes = top_bits(better);
    if (lanes == 0) return;
    float least_of[4], square_of[4], us[4], slope_of[4], level_square_of[4], lows[4];
    store(least_of, least);
    store(square_of, squares);
    store(us, trials.u);
    store(slope_of, slopes);
    store(level_square_of, level_square);
    store(lows, trials.low);
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; lanes != 0; i++, lanes >>= 1) {
      if ((lanes & 1) == 0 || !(least_of[i] < best_ * square_of[i])) continue;
      best_ = least_of[i] / square_of[i];
      const double u = us[i];
      found_ = {(static_cast<float>(us[i] * us[i]) - static_cast<double>(slope_of[i])) / (level_square_of[i] * (u * t_per_u_)),
                lows[i], best_};
    }
    bound_ = best_ * static_cast<float>(1 - kSearchTolerance);
  }

  /// Fills in the windows. Returns true if one of them has to clip values, so that the best has to be searched for.
  bool place_windows(loops::Trials& trials, F32x4 guess) const {
    const F32x4 first = nearest(mul(min_, trials.u)), last = nearest(mul(max_, trials.u));
    const F32x4 spare = sub(levels_, sub(last, first));
    const I32x4 clips = greater(splat(0.0f), spare);
    // If all levels fit, share the spare ones between both ends.
    const F32x4 shared = sub(first, floor(mul(spare, splat(0.5f))));
    const F32x4 low = select(clips, pmin(pmax(nearest(guess), first), sub(last, levels_)), shared);
    trials.low = pmin(pmax(low, lowest_), highest_);
    trials.high = add(trials.low, levels_);
    return any(clips);
  }

  /// Moves each window to where the error is least. As a function of the lowest level it is convex, so that steps downhill lead
  /// there. Returns that place as a fraction, by how much the error would grow on either side.
  F32x4 move_windows(loops::Trials& trials, loops::TrialSums& sums) const {
    const F32x4 zero = splat(0.0f);
    I32x4 went_up = splat(0), went_down = splat(0);
    while (true) {
      loops::try_levels(span_.run, t_per_u_, trials, loops::Sums::kWindows, sums);
      // Never step back, because rounding may make both directions look better.
      const I32x4 up = bit_and_not(bit_and(greater(zero, sums.up), greater(highest_, trials.low)), went_down);
      const I32x4 down = bit_and_not(bit_and(greater(zero, sums.down), greater(trials.low, lowest_)), bit_or(went_up, up));
      if (!any(bit_or(up, down))) {
        const F32x4 share = pmin(pmax(zero, div(sums.up, add(sums.up, sums.down))), splat(1.0f));
        return add(trials.low, sub(splat(0.5f), share));
      }
      trials.low = add(trials.low, sub(select(up, splat(1.0f), zero), select(down, splat(1.0f), zero)));
      trials.high = add(trials.low, levels_);
      went_up = bit_or(went_up, up);
      went_down = bit_or(went_down, down);
    }
  }

  /// Adds the intervals that may hold a better scale to the waiting ones. lanes: bits of the intervals to check.
  void keep(const Intervals& intervals, uint32_t lanes = 15) {
    const uint32_t kept = top_bits(promising(intervals, bound_)) & lanes;
    if (kept == 0) return;
    F32x4 a = intervals.from, b = intervals.to, c = intervals.from_error, d = intervals.to_error;
    transpose(a, b, c, d);
    const float* const centers = centers_ + waiting_count_;
    store(centers_ + waiting_count_, intervals.center);
    // An interval that is not kept is overwritten by the next one.
    const auto put = [&](F32x4 interval, size_t i) {
      store(waiting_[waiting_count_], interval);
      centers_[waiting_count_] = centers[i];
      waiting_count_ += kept >> i & 1;
    };
    put(a, 0);
    put(b, 1);
    put(c, 2);
    put(d, 3);
  }

  /// Trials in a row; the one before them is at 3.
  struct Row {
    float u[8], error[8], center[8];

    void put(const Nodes& nodes) {
      store(u + 4, nodes.u);
      store(error + 4, nodes.error);
      store(center + 4, nodes.center);
    }
    void go_on_from(size_t i) {
      u[3] = u[i];
      error[3] = error[i];
      center[3] = center[i];
    }
    [[nodiscard]] Intervals between(bool up) const {
      const size_t a = up ? 3 : 4, b = up ? 4 : 3;
      const F32x4 middle = mul(add(load(center + 3), load(center + 4)), splat(0.5f));
      return {load(u + a), load(u + b), load(error + a), load(error + b), middle};
    }
  };

  /// Keeps the intervals between the trials of a row, including the trial before it unless the row is the first, and continues from the
  /// last.
  [[gnu::noinline]] void keep_between(Row& row, bool up, bool first) {
    if (first) row.go_on_from(4);
    keep(row.between(up));
    if (waiting_count_ >= kDrain) drain();
    row.go_on_from(7);
  }

  /// From u up to where clipping alone is worse than the best, or to `end`. Returns the error at u.
  float walk_up(float u, float end) {
    Row row;
    float step = step_, first_error = 0;
    F32x4 ahead = add(splat(u), mul(splat(std::min(u, kFirstSteps * step_)), load(kFirstTrials)));
    for (bool begun = false, done = false; !done && trials_left_ > 0; begun = true) {
      row.put(attempt(pmin(ahead, splat(end)), splat(begun ? row.center[3] : middle_)));
      if (!begun) first_error = row.error[4];
      keep_between(row, true, !begun);
      u = row.u[7];
      done = u >= end;
      SCALEPOINT_NO_UNROLL
      for (size_t i = 4; i < 8; i++) done |= clips_too_much(row.u[i], row.error[i]);
      // Far out, where clipped values make most of the error, use larger steps.
      const float spare = row.error[7] - best_ * u * u;
      if (spare > step_ * step_) step = std::sqrt(spare);
      ahead = steps(u + step, step);
    }
    return first_error;
  }

  /// From u, which was tried, down to `end`.
  void walk_down(float u, float error, float end) {
    Row row;
    row.u[3] = u;
    row.error[3] = error;
    row.center[3] = middle_;
    while (u > end && trials_left_ > 0) {
      if (small_step(u) > 0) return walk_down_small(u, end);
      // Divide the way to the end into rows of even steps.
      const float step = (u - end) / (kStepsOfRow * std::ceil((u - end) / (4 * step_)));
      const F32x4 us = pmax(steps(u - step, -step), splat(end));
      row.put(is_proven() ? attempt_below(us) : attempt(us, splat(middle_)));
      keep_between(row, false, false);
      u = row.u[7];
    }
  }

  /// The distance of trials at u with the small values alone; 0 if all values are faster.
  [[nodiscard]] float small_step(float u) const {
    const auto& small = span_.small;
    if (small.size == 0) return 0;
    const double spare = small.count * per_value_ / 12 * kShareOf12th - best_ * u * u;
    if (!(spare > 0)) return 0;
    const double step = std::min<double>(kSmallStep * std::sqrt(spare / small.squares), u);
    return step * static_cast<double>(span_.run.n) > step_ * static_cast<double>(small.size) ? static_cast<float>(step) : 0;
  }

  /// The same with the small values alone, whose error is no larger than that of all. Intervals that they leave undecided are
  /// tried with all values.
  void walk_down_small(float u, float first) {
    const loops::Run run = {span_.run.x, span_.small.size, span_.run.weighted};
    const auto squares = static_cast<float>(span_.small.squares);
    const F32x4 root = splat(std::sqrt(squares)), per_value = splat(per_value_);
    Row row;      // in units of the small values
    float at[8];  // the same u in units of all values
    for (bool begun = false; u > first && trials_left_ > 0; begun = true) {
      const float small = small_step(u), step = small > 0 ? small : step_;
      const F32x4 us = pmax(steps(begun ? u - step : u, -step), splat(first));
      const loops::Trials trials = {us, splat(-kFarAway), splat(kFarAway)};
      loops::TrialSums sums;
      loops::try_levels(run, t_per_u_, trials, loops::Sums::kError, sums);
      trials_left_ -= 4;
      row.put({mul(us, root), mul(sums.error, per_value), us});
      store(at + 4, us);
      at[3] = u;
      if (!begun) row.go_on_from(4);
      const uint32_t doubtful = top_bits(promising(row.between(false), bound_ / squares));
      SCALEPOINT_NO_UNROLL
      for (size_t i = 0; i < 4; i++) {
        if ((doubtful >> i & 1) != 0) look_closely(at[i + 3], at[i + 4]);
      }
      row.go_on_from(7);
      u = at[7];
    }
  }

  /// Tries both ends of an interval and two u between them.
  [[gnu::noinline]] void look_closely(float upper, float lower) {
    const F32x4 us = pmax(steps(upper, (lower - upper) / 3), splat(lower));
    Row row;
    row.put(attempt(us, splat(middle_)));
    keep_between(row, false, true);
  }

  /// True if no larger u can be better than the best. Values between levels err by at most 1/2, so a mean squared error above 1/4 comes
  /// from clipped values alone. Windows only shrink around 0, so clipping grows with u. Windows that need not hold 0 may lie up to half a
  /// level better at another u.
  [[nodiscard]] bool clips_too_much(float u, float error) const {
    float clipped = std::sqrt(std::max(0.0f, error - 0.25f));
    if (windows_.lowest < -windows_.levels) clipped = std::max(0.0f, clipped - 0.5f);
    return clipped > 0 && clipped * clipped >= best_ * u * u;
  }

  /// The waiting intervals in four places.
  [[nodiscard]] Intervals waiting_at(const size_t* places) const {
    float centers[4];
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < 4; i++) centers[i] = centers_[places[i]];
    const auto at = [&](size_t i) { return load(waiting_[places[i]]); };
    Intervals of = {at(0), at(1), at(2), at(3), load(centers)};
    transpose(of.from, of.to, of.from_error, of.to_error);
    return of;
  }

  /// Cuts intervals until all are ruled out.
  void drain() {
    while (waiting_count_ > 0 && trials_left_ > 0) {
      const size_t taken = std::min<size_t>(waiting_count_, 4), first = waiting_count_ -= taken;
      size_t places[4], count = 0;
      SCALEPOINT_NO_UNROLL
      for (size_t i = 0; i < 4; i++) places[i] = first + std::min(i, taken - 1);
      // Check again, because the bound may be lower now.
      const uint32_t left = top_bits(promising(waiting_at(places), bound_));
      SCALEPOINT_NO_UNROLL
      for (size_t i = 0; i < taken; i++) {
        places[count] = first + i;
        count += left >> i & 1;
      }
      if (count > 0) cut(places, kCuts[count - 1]);
    }
  }

  /// Tries four places in intervals that wait.
  void cut(const size_t* places, const Cut& cut) {
    size_t place_of[4];
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < 4; i++) place_of[i] = places[cut.interval[i]];
    const Intervals of = waiting_at(place_of);
    const Nodes nodes = attempt(add(of.from, mul(sub(of.to, of.from), load(cut.share))), of.center);
    // The trial before each trial: that of the lane before, if it is in the same interval.
    float u[5], error[5];
    store(u + 1, nodes.u);
    store(error + 1, nodes.error);
    u[0] = error[0] = 0;
    const I32x4 first = equal(load(cut.is_first), splat(1));
    keep({select(first, of.from, load(u)), nodes.u, select(first, of.from_error, load(error)), nodes.error, nodes.center});
    keep({nodes.u, of.to, nodes.error, of.to_error, nodes.center}, cut.last);
  }

  const ScaleSpan& span_;
  const Windows& windows_;
  const double t_per_u_;
  const float per_value_;
  const float middle_;     ///< of the range
  const F32x4 min_, max_;  ///< at u = 1
  const F32x4 levels_, half_, lowest_, highest_;
  const float step_;
  int trials_left_;
  float best_ = FLT_MAX;   ///< error of the best in mean squares of the run
  float bound_ = FLT_MAX;  ///< exclusive upper bound of better errors
  FoundScale found_;
  loops::LevelSums level_sums_[kGridSize + 1];
  float errors_[kGridSize + 4];         ///< at the t of a grid, and infinity behind
  float waiting_[kMostWaiting + 4][4];  ///< intervals: from, to, from_error, to_error
  float centers_[kMostWaiting + 4];
  size_t waiting_count_ = 0;
};

}  // namespace

FoundScale search_scale(const ScaleSpan& span, const Windows& windows) { return ScaleSearch(span, windows).search(); }

}  // namespace scalepoint
