// Long runs. A sample, together with all values that are far out (those decide about clipping), finds the best few candidates.
// All values then decide between them and, unless there are very many, follow the local minima nearby.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "quantile.h"
#include "range_mse.h"
#include "round.h"

namespace scalepoint {
namespace {

constexpr size_t kSample = 8192, kTail = 16384;
static_assert(kSample + kTail == kLongRunRoom);

/// Far values that the sample of a long run should leave to the tail.
constexpr size_t kWantedTail = 2048;

/// Evaluations of values, in all, for the last local minimum of the error: 512 of them for a run of 8192 values. This bounds the
/// time of a run of any length.
constexpr size_t kEvaluations = 1 << 22;

/// In runs of up to this length each value shows in the error: the local minima lie far apart and are narrow.
constexpr size_t kFewValues = 1536;

/// How closely the error is followed around the candidate of the sample. On 400 to 30,000 values of six distributions at 4 and 8
/// bits, half of `tries` costs up to 0.3 % of error in a single run, and double gains at most 0.07 %.
struct Effort {
  size_t tries;  ///< scales and zero points, at most
  double reach;  ///< relative distance of the scales on either side. Half of 0.05 costs up to 0.9 %; more gains nothing
  int fewest;    ///< scales, at least; beyond, one or two for each level by which the far values move
  int per_level;
  size_t minima;  ///< local minima that are looked into more closely
};
constexpr Effort kEffortForFew = {1000, 0.3, 120, 2, 12};
constexpr Effort kEffortForThousands = {300, 0.12, 16, 1, 6};
constexpr Effort kEffortForMany = {300, 0.05, 16, 1, 6};
constexpr size_t kThousands = 4096;
/// Times that the distance of the tried scales is divided by 3.
constexpr int kRounds = 4;
constexpr size_t kMostMinima = 12;

/// A long run, and a smaller one that stands for it: a sample, and the values that are far out.
struct Sampled {
  const LongRun& run;
  const float* sample;
  size_t sampled;
  double sample_weight;
  const float* tail;
  size_t tailed;
  double tail_weight;

  struct Fit {
    double error, slope, weight;
  };

  [[nodiscard]] Fit fit(const Candidate& c, const SearchSpace& space) const {
    double sums[3] = {};
    kernels::fit_run(run.x, run.n, run.factor, static_cast<float>(c.scale), static_cast<float>(space.qmin - c.zero),
                     static_cast<float>(space.qmax - c.zero), sums);
    return {sums[0], sums[1], sums[2]};
  }
  [[nodiscard]] static double error(const float* values, size_t count, float times, const Candidate& c,
                                    const SearchSpace& space) {
    return kernels::error_of_run(values, count, times, static_cast<float>(c.scale), static_cast<float>(space.qmin - c.zero),
                                 static_cast<float>(space.qmax - c.zero));
  }
  [[nodiscard]] double on_all(const Candidate& c, const SearchSpace& space) const {
    return error(run.x, run.n, run.factor, c, space);
  }
  [[nodiscard]] double on_sample(const Candidate& c, const SearchSpace& space) const {
    return sample_weight * error(sample, sampled, 1, c, space) + tail_weight * error(tail, tailed, 1, c, space);
  }
};

/// Draws kSample values. Even steps would meet the same columns of a matrix again and again, so each step is jittered.
void draw_sample(const LongRun& run, float* sample) {
  const double step = static_cast<double>(run.n) / kSample;
  uint32_t state = 1;
  for (size_t i = 0; i < kSample; i++) {
    state = state * 1664525u + 1013904223u;
    const double at = (static_cast<double>(i) + (state >> 8) * 0x1p-24) * step;
    sample[i] = run.x[std::min(static_cast<size_t>(at), run.n - 1)];
  }
}

/// Fills `room` with the sample and the tail, both times the factor.
Sampled take_sample(const LongRun& run, float* room) {
  Sampled s = {run, room, run.n, 1, room + kSample, 0, 1};
  if (run.n <= kSample) {
    for (size_t i = 0; i < run.n; i++) room[i] = run.x[i] * run.factor;
    return s;
  }
  draw_sample(run, room);
  // The tail takes all values beyond the few farthest of the sample.
  float* const sorted = room + kSample;
  std::memcpy(sorted, room, kSample * sizeof(float));
  const size_t few = std::clamp<size_t>(kWantedTail * kSample / run.n, 1, kSample / 16);
  const float low = select(sorted, kSample, few), high = select(sorted, kSample, kSample - 1 - few);
  const size_t far = kernels::take_outside(run.x, run.n, low, high, room + kSample, kTail);
  s.tailed = std::min(far, kTail);
  s.tail_weight = s.tailed > 0 ? static_cast<double>(far) / static_cast<double>(s.tailed) : 1;
  for (size_t i = 0; i < s.tailed; i++) room[kSample + i] *= run.factor;
  s.sampled = 0;
  for (size_t i = 0; i < kSample; i++) {
    if (room[i] >= low && room[i] <= high) room[s.sampled++] = room[i] * run.factor;
  }
  s.sample_weight = static_cast<double>(run.n - far) / static_cast<double>(s.sampled);
  return s;
}

/// The search on the sample: first over a grid of scales and shares of clipping, then step by step from the best.
class SampleSearch {
 public:
  SampleSearch(const Sampled& sampled, const SearchSpace& space, const Candidate& plain)
      : run_(sampled), space_(space), plain_(plain), best_(plain), least_(sampled.on_sample(plain, space)) {}

  Candidate best() {
    try_grid();
    walk();
    return best_;
  }

  /// The better of the zero points beside the best. The sample may err by some percent: one that is 2 % worse there may be the
  /// better one.
  [[nodiscard]] Candidate second() const {
    Candidate second = best_;
    double least = least_ * 1.02;
    for (const double zero : {best_.zero - 1, best_.zero + 1}) {
      if (space_.symmetric || zero != space_.clamped(zero)) continue;
      const double error = run_.on_sample({best_.scale, zero}, space_);
      if (error < least) {
        second = {best_.scale, zero};
        least = error;
      }
    }
    return second;
  }

 private:
  bool attempt(const Candidate& c) {
    if (!(c.scale > 0) || c.scale > plain_.scale * kWidest || c.zero != space_.clamped(c.zero)) return false;
    const double error = run_.on_sample(c, space_);
    if (!(error < least_)) return false;
    best_ = c;
    least_ = error;
    return true;
  }

  /// From the scale of min-max down to that at which the levels cover no more than the root mean square of the values that are
  /// not far out: clipping most of the values gains nothing. The walk that follows forgives a coarse grid: ratios from 0.6 to
  /// 0.94 give the same errors to 0.01 %. Up to kSample values, where the sample is the run itself, a finer grid is cheap.
  void try_grid() {
    double squares = 0;
    for (size_t i = 0; i < run_.sampled; i++) squares += static_cast<double>(run_.sample[i]) * run_.sample[i];
    const double usual = std::sqrt(squares / static_cast<double>(std::max<size_t>(run_.sampled, 1)));
    const double narrow = std::max(usual / space_.levels(), plain_.scale * 0x1p-20);
    const bool fine = run_.run.n <= kSample;
    const double ratio = fine ? 0.88 : 0.77;
    const int shares = space_.symmetric ? 1 : fine ? 9 : 5;
    double scale = plain_.scale;
    for (int i = 0; i < 8 || scale > narrow; i++) {
      scale *= ratio;
      for (int j = 0; j < shares; j++) {
        attempt({scale, space_.zero_for(run_.run.min, run_.run.max, scale, shares == 1 ? 0 : j / (shares - 1.0))});
      }
    }
  }

  /// Steps in scale and zero point, halved where none helps, from about the grid's (0.1) down to a few tenths of a percent, where
  /// the sample tells no more. Neither 0.2 nor 0.05, nor an end at 0.001 or 0.01, changes an error by more than 0.01 %.
  void walk() {
    const double spare = space_.levels() - (run_.run.max - run_.run.min) / best_.scale;
    double step = 0.1, zero_step = space_.symmetric ? 0 : std::max(1.0, std::round(std::fabs(spare) / 8));
    while (step > 0.003) {
      bool moved = attempt({best_.scale * (1 + step), best_.zero}) || attempt({best_.scale * (1 - step), best_.zero});
      for (int move = 0; move < 6 && zero_step > 0 && !moved; move++) {
        // The zero point alone, or with the scale, so that one end of the range moves and the other stays.
        moved = attempt({best_.scale * (1 + (move / 2 - 1) * step), best_.zero + (move % 2 == 0 ? zero_step : -zero_step)});
      }
      if (moved) continue;
      step /= 2;
      zero_step = zero_step > 1 ? std::round(zero_step / 2) : zero_step;
    }
  }

  const Sampled& run_;
  const SearchSpace& space_;
  const Candidate plain_;
  Candidate best_;
  double least_;
};

/// A better scale at the same zero point, on all values: the minimum of a parabola through three scales, then the two next to it.
Candidate polish(const Sampled& run, const SearchSpace& space, Candidate c, double error, double most) {
  const auto measure = [&](double scale) { return run.on_all({scale, c.zero}, space); };
  const auto attempt = [&](double scale) {
    if (scale > most) return;
    const double found = measure(scale);
    if (found < error) {
      error = found;
      c.scale = scale;
    }
  };
  // Wide enough to see the trend behind the ripple of the sample, and near enough for a parabola.
  constexpr double kWide = 0.025, kNear = 0.004;
  const double middle = c.scale, at = error, below = measure(middle * (1 - kWide)), above = measure(middle * (1 + kWide));
  const double bend = below + above - 2 * at;
  if (bend > 0) attempt(middle * (1 + std::clamp((below - above) / (2 * bend), -2.0, 2.0) * kWide));
  const double best = c.scale;
  attempt(best * (1 - kNear));
  attempt(best * (1 + kNear));
  return c;
}

/// The search through the local minima next to a candidate, on all values. The fewer values there are, the deeper are these
/// minima.
class MinimaSearch {
 public:
  MinimaSearch(const Sampled& sampled, const SearchSpace& space, const Candidate& start, double most)
      : run_(sampled), space_(space), start_(start), most_(most) {
    const size_t n = sampled.run.n;
    effort_ = n <= kFewValues ? kEffortForFew : n <= kThousands ? kEffortForThousands : kEffortForMany;
    tries_ = static_cast<int>(std::min(kEvaluations / n, effort_.tries));
    std::fill(std::begin(minima_), std::end(minima_), Minimum{{0, 0}, {0, 0}, HUGE_VAL});
  }

  Candidate best() {
    if (tries_ < 10) return start_;
    minima_[0] = {start_, start_, run_.on_all(start_, space_)};
    double step = spread();
    for (int round = 0; tries_ >= 50 && round < kRounds; round++) {
      step /= 3;
      look_closer(step);
    }
    // The best scale for some codes gives other codes, for which another scale is the best, and so on.
    for (int i = 0; i < kRounds && minima_[0].best.scale != minima_[0].tried.scale; i++) {
      attempt(minima_[0].best.scale, minima_[0].best.zero);
    }
    return minima_[0].best;
  }

 private:
  /// A candidate that was tried, the best for its codes, and the error of that.
  struct Minimum {
    Candidate tried;
    Candidate best;
    double error;
  };

  void attempt(double scale, double zero) {
    if (scale > most_ || zero != space_.clamped(zero)) return;
    const Sampled::Fit at = run_.fit({scale, zero}, space_);
    const double move = at.weight > 0 ? at.slope / at.weight : 0;
    Minimum found = {{scale, zero}, {scale + move, zero}, at.error - at.slope * move};
    for (Minimum& kept : minima_) {
      if (found.error < kept.error) std::swap(found, kept);
    }
  }

  /// Tries scales on either side of the start, each with a few zero points. Returns the distance of the scales.
  double spread() {
    const int reach_of_zeros = space_.symmetric ? 0 : tries_ < 50 ? 1 : 2;
    int zeros = 0;
    for (int z = -reach_of_zeros; z <= reach_of_zeros; z++) zeros += start_.zero + z == space_.clamped(start_.zero + z) ? 1 : 0;
    const double reach = effort_.reach;
    const int wanted = static_cast<int>(effort_.per_level * 2 * reach * space_.levels());
    const int scales = std::min(tries_ / zeros, std::max(effort_.fewest, wanted));
    const double step = scales > 1 ? 2 * reach * start_.scale / (scales - 1) : 0;
    for (int i = 0; i < scales; i++) {
      // The middle of what the levels cover stays about where it is.
      const double scale = start_.scale * (1 - reach) + i * step, middle = (space_.qmin + space_.qmax) / 2;
      const double zero =
          space_.symmetric ? start_.zero : round_half_even(middle - (middle - start_.zero) * (start_.scale / scale));
      for (int z = -reach_of_zeros; z <= reach_of_zeros; z++) attempt(scale, zero + z);
    }
    return step;
  }

  void look_closer(double step) {
    Minimum before[kMostMinima];
    std::copy(std::begin(minima_), std::end(minima_), before);
    for (size_t i = 0; i < effort_.minima && before[i].error != HUGE_VAL; i++) {
      const Minimum& minimum = before[i];
      if (minimum.best.scale != minimum.tried.scale) attempt(minimum.best.scale, minimum.tried.zero);
      attempt(minimum.tried.scale - step, minimum.tried.zero);
      attempt(minimum.tried.scale + step, minimum.tried.zero);
    }
  }

  const Sampled& run_;
  const SearchSpace& space_;
  const Candidate start_;
  const double most_;
  Effort effort_;
  int tries_;
  Minimum minima_[kMostMinima];
};

}  // namespace

void search_long(const LongRun& run, const SearchSpace& space, float* room, float* scale, int32_t* zero_point) {
  const Sampled sampled = take_sample(run, room);
  const Candidate plain = {static_cast<double>(*scale) * run.factor, static_cast<double>(*zero_point)};
  const double most = plain.scale * kWidest;
  SampleSearch on_sample(sampled, space, plain);
  Candidate best = on_sample.best();
  const Candidate second = on_sample.second();
  double error = sampled.on_all(best, space);
  if (second.zero != best.zero) {
    const double other = sampled.on_all(second, space);
    if (other < error) {
      best = second;
      error = other;
    }
  }
  best = MinimaSearch(sampled, space, polish(sampled, space, best, error, most), most).best();
  const float rounded = space.usable_scale(best.scale / run.factor, best.zero);
  if (rounded == 0) return;
  best.scale = static_cast<double>(rounded) * run.factor;
  if (sampled.on_all(best, space) < sampled.on_all(plain, space) * kGain) {
    *scale = rounded;
    *zero_point = static_cast<int32_t>(best.zero);
  }
}

}  // namespace scalepoint
