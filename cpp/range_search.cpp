// Ranges that are searched for: least squared error, percentile, entropy.
//
// Least squared error. For a zero point z the levels are scale * [qmin - z, qmax - z], and the error as a function of the scale is a
// smooth curve with a ripple: every value that moves to another level bends it. Candidates are spread over the scales and zero points
// between the whole range and so much clipping that the farthest value alone would err more than all do without; each is improved to
// the best scale for the codes that it gives (least squares), so that few candidates stand for all of the ripple between them.
//   short runs   four at a time, one a lane
//   long ones    on a sample and on all values that are far out, which decide about clipping; then the few best on all values
//                (unless there are very many, the hollows of the error nearby are then followed to their bottoms)
#include "kernels/range_search.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "kernels/kernels.h"
#include "scalepoint.h"
#include "stretches.h"

namespace scalepoint {
namespace {

/// Runs of up to this length are searched four at a time.
constexpr size_t kShort = 128;
constexpr size_t kSample = 8192;
constexpr size_t kTail = 16384;
/// Values that a long run is measured on in all for the last bit of error.
constexpr size_t kRipple = 1 << 22;
/// Of so few values each shows in the error: its hollows lie far apart and are narrow.
constexpr size_t kFew = 1536;
/// Scales that are tried for the ups and downs of the error, at least; beyond, one or two for each level that the far values move by.
constexpr int kFewest = 16, kFewestOfFew = 120;
/// Of these so many are looked into more closely, so many times.
constexpr size_t kHollows = 6, kHollowsOfFew = 12;
constexpr int kRounds = 4;
/// Far values that a sample of a long run should leave to the tail.
constexpr size_t kWantedTail = 2048;
/// Candidates of a short run: scales, or scales and zero points at each.
constexpr int kScales = 32, kScalesOfZeros = 12, kZeros = 5;
constexpr size_t kBins = 2048;
/// Scales up to this many times that of min-max: of few values one or the other happens to fall near the levels of a wider one. In
/// groups of 32 that lowers the squared error of 8 bits by another sixth.
constexpr float kWider = 1.12f;
/// An improvement has to be larger than what the rounding of the sums can make up.
constexpr double kGain = 1 - 1e-5;

/// A scale and a zero point; the zero point is a whole number.
struct Candidate {
  double scale;
  double zero;
};

/// What the search may choose from.
struct Space {
  double qmin, qmax;
  double lowest_zero, highest_zero;
  bool symmetric;

  explicit Space(const QuantizationSpec& spec) : qmin(spec.dtype.qmin()), qmax(spec.dtype.qmax()) {
    symmetric = spec.scheme == Scheme::kSymmetric;
    if (symmetric)
      lowest_zero = highest_zero = spec.dtype.middle();
    else if (spec.include_zero)
      lowest_zero = qmin, highest_zero = qmax;
    else
      lowest_zero = -(kMaxZeroPoint - 65536.0), highest_zero = kMaxZeroPoint - 65536.0;
  }

  [[nodiscard]] double levels() const { return qmax - qmin; }
  [[nodiscard]] double clamped(double zero) const { return std::clamp(zero, lowest_zero, highest_zero); }

  /// The largest scale at which [min, max] just is not clipped, at that zero point.
  [[nodiscard]] double whole(double min, double max, double zero) const {
    const double low = qmin - zero, high = qmax - zero;
    return std::max(high > 0 ? max / high : 0, low < 0 ? min / low : 0);
  }

  /// A zero point for a scale: 0 leaves all clipping to the high end, 1 to the low one, as far as zero points go.
  [[nodiscard]] double zero_for(double min, double max, double scale, double share) const {
    const double all_low = clamped(qmin - min / scale), all_high = clamped(qmax - max / scale);
    return round_half_even(all_low + (all_high - all_low) * share);
  }
};

/// A power of two that brings |x| up to `largest` to about 1, so that squares neither overflow nor vanish.
float unit_factor(double largest) {
  int e = 0;
  std::frexp(largest, &e);
  return static_cast<float>(std::ldexp(1.0, std::clamp(-e, -126, 126)));
}

/// A found scale as choose_qparams would round it; 0 if it is none.
float usable_scale(double scale, double zero, const Space& space) {
  const auto rounded = static_cast<float>(scale);
  const auto farthest = static_cast<float>(std::max(std::fabs(space.qmin - zero), std::fabs(space.qmax - zero)));
  return rounded >= kMinScale && rounded * farthest <= FLT_MAX ? rounded : 0.0f;
}

/// Moves what would be x[k] if x were sorted there, and nothing smaller behind it: selection by N. Wirth.
float select(float* x, size_t n, size_t k) {
  ptrdiff_t left = 0, right = static_cast<ptrdiff_t>(n) - 1;
  const auto wanted = static_cast<ptrdiff_t>(k);
  while (left < right) {
    const float pivot = x[wanted];
    ptrdiff_t i = left, j = right;
    do {
      while (x[i] < pivot) i++;
      while (pivot < x[j]) j--;
      if (i <= j) std::swap(x[i++], x[j--]);
    } while (i <= j);
    if (j < wanted) left = i;
    if (wanted < i) right = j;
  }
  return x[k];
}

/// The value at a share of the sorted values, between two of them by interpolation. Reorders x.
float quantile(std::span<float> x, double share) {
  const double at = share * static_cast<double>(x.size() - 1);
  const auto below = static_cast<size_t>(at);
  const float low = select(x.data(), x.size(), below);
  const double rest = at - static_cast<double>(below);
  if (rest == 0) return low;
  const float high = select(x.data() + below + 1, x.size() - below - 1, 0);
  return static_cast<float>(low + rest * (static_cast<double>(high) - low));
}

// ---------------------------------------------------------------------------------------------------- short runs, four at a time

/// Four runs times a factor each, and what min-max gives for them.
struct Four {
  kernels::FourRuns runs;
  float factor[4];
  float scale[4];
  int32_t zero[4];
};

void search_four(Four& four, const Space& space, float* scale, int32_t* zero_point) {
  kernels::FourRuns& runs = four.runs;
  float start[4], plain_zero[4], plain[4];
  for (int i = 0; i < 4; i++) {
    start[i] = four.scale[i] * four.factor[i];
    plain_zero[i] = static_cast<float>(four.zero[i]);
  }
  kernels::errors_of_four(runs, start, plain_zero, plain);
  float error[4], found[4], zero[4];
  for (int i = 0; i < 4; i++) {
    // A clipped end errs by what it is clipped, so that more than the root of the whole error cannot pay.
    const float spare = std::sqrt(plain[i]);
    const double narrow =
        space.symmetric ? space.whole(std::min(runs.min[i] + spare, 0.0f), std::max(runs.max[i] - spare, 0.0f), four.zero[i])
                        : (runs.max[i] - runs.min[i] - 2 * spare) / space.levels();
    runs.from[i] = std::max(static_cast<float>(narrow), start[i] / 8);
    runs.to[i] = start[i] * kWider;
    error[i] = plain[i];
    found[i] = start[i];
    zero[i] = plain_zero[i];
  }
  kernels::search_four(runs, error, found, zero);
  // The improved scale gives codes of its own, which are no worse for it; still it is measured, beside min-max.
  float rounded[4];
  for (int i = 0; i < 4; i++) {
    rounded[i] = usable_scale(found[i] / four.factor[i], zero[i], space);
    found[i] = rounded[i] > 0 ? rounded[i] * four.factor[i] : start[i];
  }
  kernels::errors_of_four(runs, found, zero, error);
  for (int i = 0; i < 4; i++) {
    const bool better = rounded[i] > 0 && error[i] < plain[i] * kGain;
    scale[i] = better ? rounded[i] : four.scale[i];
    zero_point[i] = better ? static_cast<int32_t>(zero[i]) : four.zero[i];
  }
}

// ------------------------------------------------------------------------------------------------------------------- long runs

/// A long run, and a smaller one that stands for it: a sample, and the values that are far out.
struct Long {
  const float* x;
  size_t n;
  float factor;
  double min, max;
  const float* sample;
  size_t sampled;
  double sample_weight;
  const float* tail;
  size_t tailed;
  double tail_weight;

  struct Measured {
    double error, slope, weight;
  };

  [[nodiscard]] Measured fit(const Candidate& c, const Space& space) const {
    double sums[3] = {};
    kernels::fit_run(x, n, factor, static_cast<float>(c.scale), static_cast<float>(space.qmin - c.zero),
                     static_cast<float>(space.qmax - c.zero), sums);
    return {sums[0], sums[1], sums[2]};
  }
  [[nodiscard]] static double error(const float* values, size_t count, float times, const Candidate& c, const Space& space) {
    return kernels::error_of_run(values, count, times, static_cast<float>(c.scale), static_cast<float>(space.qmin - c.zero),
                                 static_cast<float>(space.qmax - c.zero));
  }
  [[nodiscard]] double on_all(const Candidate& c, const Space& space) const { return error(x, n, factor, c, space); }
  [[nodiscard]] double on_sample(const Candidate& c, const Space& space) const {
    return sample_weight * error(sample, sampled, 1, c, space) + tail_weight * error(tail, tailed, 1, c, space);
  }
};

/// Fills `room` (kSample + kTail floats).
void take_sample(Long& run, float* room) {
  run.sample = room;
  run.tail = room + kSample;
  run.tailed = 0;
  run.sample_weight = run.tail_weight = 1;
  if (run.n <= kSample) {
    run.sampled = run.n;
    for (size_t i = 0; i < run.n; i++) room[i] = run.x[i] * run.factor;
    return;
  }
  // Even steps would meet the same columns of a matrix again and again: each step is jittered.
  const double step = static_cast<double>(run.n) / kSample;
  uint32_t state = 1;
  for (size_t i = 0; i < kSample; i++) {
    state = state * 1664525u + 1013904223u;
    const double at = (static_cast<double>(i) + (state >> 8) * 0x1p-24) * step;
    room[i] = run.x[std::min(static_cast<size_t>(at), run.n - 1)];
  }
  // Values beyond those that the sample has a few of are all taken.
  float* const sorted = room + kSample;
  std::memcpy(sorted, room, kSample * sizeof(float));
  const size_t few = std::clamp<size_t>(kWantedTail * kSample / run.n, 1, kSample / 16);
  const float low = select(sorted, kSample, few), high = select(sorted, kSample, kSample - 1 - few);
  const size_t far = kernels::take_outside(run.x, run.n, low, high, room + kSample, kTail);
  run.tailed = std::min(far, kTail);
  run.tail_weight = run.tailed > 0 ? static_cast<double>(far) / static_cast<double>(run.tailed) : 1;
  for (size_t i = 0; i < run.tailed; i++) room[kSample + i] *= run.factor;
  run.sampled = 0;
  for (size_t i = 0; i < kSample; i++) {
    if (room[i] >= low && room[i] <= high) room[run.sampled++] = room[i] * run.factor;
  }
  run.sample_weight = static_cast<double>(run.n - far) / static_cast<double>(run.sampled);
}

/// The best on the sample: of a grid over scales and shares of clipping, and from there step by step, with steps that shrink.
Candidate search_sample(const Long& run, const Space& space, const Candidate& plain, Candidate& second) {
  Candidate best = plain;
  double least = run.on_sample(plain, space);
  const auto attempt = [&](const Candidate& c) {
    if (!(c.scale > 0) || c.scale > plain.scale * kWider || c.zero != space.clamped(c.zero)) return false;
    const double error = run.on_sample(c, space);
    if (!(error < least)) return false;
    best = c;
    least = error;
    return true;
  };
  // Nothing is gained by clipping most of the values: the levels cover at least what is usual for those that are not far out.
  double squares = 0;
  for (size_t i = 0; i < run.sampled; i++) squares += static_cast<double>(run.sample[i]) * run.sample[i];
  const double usual = std::sqrt(squares / static_cast<double>(std::max<size_t>(run.sampled, 1)));
  const double narrow = std::max(usual / space.levels(), plain.scale * 0x1p-20);
  // Few values are quick to try, and have more hollows to fall into.
  const bool fine = run.n <= kSample;
  const double ratio = fine ? 0.88 : 0.77;
  const int shares = space.symmetric ? 1 : fine ? 9 : 5;
  double scale = plain.scale;
  for (int i = 0; i < 8 || scale > narrow; i++) {
    scale *= ratio;
    for (int j = 0; j < shares; j++) {
      attempt({scale, space.zero_for(run.min, run.max, scale, shares == 1 ? 0 : j / (shares - 1.0))});
    }
  }
  const double spare = space.levels() - (run.max - run.min) / best.scale;
  double step = 0.1, zero_step = space.symmetric ? 0 : std::max(1.0, std::round(std::fabs(spare) / 8));
  while (step > 0.003) {
    bool moved = attempt({best.scale * (1 + step), best.zero}) || attempt({best.scale * (1 - step), best.zero});
    for (int move = 0; move < 6 && zero_step > 0 && !moved; move++) {
      // Alone, and with the scale: one end moves, or the other.
      moved = attempt({best.scale * (1 + (move / 2 - 1) * step), best.zero + (move % 2 == 0 ? zero_step : -zero_step)});
    }
    if (moved) continue;
    step /= 2;
    zero_step = zero_step > 1 ? std::round(zero_step / 2) : zero_step;
  }
  // The better of the neighbouring zero points, unless all values could hardly prefer it.
  second = best;
  double second_least = least * 1.02;
  for (const double zero : {best.zero - 1, best.zero + 1}) {
    if (zero_step == 0 || zero != space.clamped(zero)) continue;
    const double error = run.on_sample({best.scale, zero}, space);
    if (error < second_least) {
      second = {best.scale, zero};
      second_least = error;
    }
  }
  return best;
}

/// A better scale at the same zero point, on all values: the bottom of a parabola through three, then next to it.
Candidate polish(const Long& run, const Space& space, Candidate c, double error, double most) {
  const auto measure = [&](double scale) { return run.on_all({scale, c.zero}, space); };
  const auto attempt = [&](double scale) {
    if (scale > most) return;
    const double found = measure(scale);
    if (found < error) {
      error = found;
      c.scale = scale;
    }
  };
  // A few steps of a sample's ripple: wide enough for a trend, near enough for a parabola.
  constexpr double kWide = 0.025, kNear = 0.004;
  const double middle = c.scale, at = error, below = measure(middle * (1 - kWide)), above = measure(middle * (1 + kWide));
  const double bend = below + above - 2 * at;
  if (bend > 0) attempt(middle * (1 + std::clamp((below - above) / (2 * bend), -2.0, 2.0) * kWide));
  const double best = c.scale;
  attempt(best * (1 - kNear));
  attempt(best * (1 + kNear));
  return c;
}

/// A candidate that was tried, the best for its codes, and what that leaves.
struct Hollow {
  Candidate tried;
  Candidate best;
  double error;
};

/// What chance leaves to gain near the best: the fewer values there are, the more the error goes up and down from scale to scale.
Candidate ripple(const Long& run, const Space& space, Candidate c, const Candidate& plain) {
  const bool few = run.n <= kFew;
  const int tries = static_cast<int>(std::min<size_t>(kRipple / run.n, few ? 1000 : 300));
  if (tries < 10) return c;
  const double reach = few ? 0.3 : run.n <= 4096 ? 0.12 : 0.05;
  const int reach_of_zeros = space.symmetric ? 0 : tries < 50 ? 1 : 2;
  int zeros = 0;
  for (int z = -reach_of_zeros; z <= reach_of_zeros; z++) zeros += c.zero + z == space.clamped(c.zero + z) ? 1 : 0;
  // The ups and downs of the error are as wide as what moves the far values by some part of a level.
  const int wanted = static_cast<int>((few ? 2 : 1) * 2 * reach * space.levels());
  const int scales = std::min(tries / zeros, std::max(few ? kFewestOfFew : kFewest, wanted));
  Hollow hollows[kHollowsOfFew];
  std::fill(std::begin(hollows), std::end(hollows), Hollow{{0, 0}, {0, 0}, HUGE_VAL});
  hollows[0] = {c, c, run.on_all(c, space)};
  const auto attempt = [&](double scale, double zero) {
    if (scale > plain.scale * kWider || zero != space.clamped(zero)) return;
    const Long::Measured at = run.fit({scale, zero}, space);
    const double move = at.weight > 0 ? at.slope / at.weight : 0;
    Hollow found = {{scale, zero}, {scale + move, zero}, at.error - at.slope * move};
    for (Hollow& kept : hollows) {
      if (found.error < kept.error) std::swap(found, kept);
    }
  };
  double step = scales > 1 ? 2 * reach * c.scale / (scales - 1) : 0;
  for (int i = 0; i < scales; i++) {
    // The middle of what the levels cover stays about where it is.
    const double scale = c.scale * (1 - reach) + i * step, middle = (space.qmin + space.qmax) / 2;
    const double zero = space.symmetric ? c.zero : round_half_even(middle - (middle - c.zero) * (c.scale / scale));
    for (int z = -reach_of_zeros; z <= reach_of_zeros; z++) attempt(scale, zero + z);
  }
  // Then on either side of the best, nearer and nearer.
  for (int round = 0; tries >= 50 && round < kRounds; round++) {
    step /= 3;
    Hollow before[kHollowsOfFew];
    std::copy(std::begin(hollows), std::end(hollows), before);
    for (const Hollow& hollow : std::span(before, few ? kHollowsOfFew : kHollows)) {
      if (hollow.error == HUGE_VAL) break;
      if (hollow.best.scale != hollow.tried.scale) attempt(hollow.best.scale, hollow.tried.zero);
      attempt(hollow.tried.scale - step, hollow.tried.zero);
      attempt(hollow.tried.scale + step, hollow.tried.zero);
    }
  }
  // And down to its bottom: the best scale for some codes gives other codes.
  for (int i = 0; i < kRounds && hollows[0].best.scale != hollows[0].tried.scale; i++) {
    attempt(hollows[0].best.scale, hollows[0].best.zero);
  }
  return hollows[0].best;
}

void search_long(Long& run, const Space& space, float* room, float* scale, int32_t* zero_point) {
  take_sample(run, room);
  const Candidate plain = {static_cast<double>(*scale) * run.factor, static_cast<double>(*zero_point)};
  Candidate second, best = search_sample(run, space, plain, second);
  double error = run.on_all(best, space);
  if (second.zero != best.zero) {
    const double other = run.on_all(second, space);
    if (other < error) {
      best = second;
      error = other;
    }
  }
  best = ripple(run, space, polish(run, space, best, error, plain.scale * kWider), plain);
  const float rounded = usable_scale(best.scale / run.factor, best.zero, space);
  if (rounded == 0) return;
  best.scale = static_cast<double>(rounded) * run.factor;
  if (run.on_all(best, space) < run.on_all(plain, space) * kGain) {
    *scale = rounded;
    *zero_point = static_cast<int32_t>(best.zero);
  }
}

// ------------------------------------------------------------------------------------------------------- percentile and entropy

/// Memory of the search by entropy. Sums over the bins before i: counts, bins that are not empty, and c log c.
struct Entropy {
  static constexpr uint32_t kLogs = 4096;
  double held[kBins + 1], occupied[kBins + 1], information[kBins + 1];
  double logs[kLogs];  ///< of whole numbers; 0 has 0
  uint32_t counts[kBins];

  void prepare() {
    logs[0] = 0;
    for (uint32_t i = 1; i < kLogs; i++) logs[i] = std::log(i);
  }
  [[nodiscard]] double log_of(double whole) const { return whole < kLogs ? logs[static_cast<uint32_t>(whole)] : std::log(whole); }
  void sum_up() {
    held[0] = occupied[0] = information[0] = 0;
    for (size_t i = 0; i < kBins; i++) {
      const double c = counts[i];
      held[i + 1] = held[i] + c;
      occupied[i + 1] = occupied[i] + (c > 0 ? 1 : 0);
      information[i + 1] = information[i] + c * log_of(c);
    }
  }

  /// The divergence of the first `bins`, the last of which is not empty and gets all that is beyond, from themselves in so many
  /// levels: sum p log(p / q), where q shares what a level holds among those of its bins that are not empty.
  [[nodiscard]] double divergence(size_t bins, size_t levels) const {
    const double inside = held[bins], all = held[kBins], beyond = all - inside, last = counts[bins - 1];
    double sum = information[bins] - last * log_of(last) + (last + beyond) * log_of(last + beyond);
    for (size_t level = 0, from = 0; level < levels; level++) {
      const size_t to = (level + 1) * bins / levels;
      const double in_level = held[to] - held[from];
      const double shared = in_level + (level == levels - 1 ? beyond : 0);
      sum -= shared * (log_of(in_level) - log_of(occupied[to] - occupied[from]));
      from = to;
    }
    return sum / all - std::log(all / inside);
  }
};
static_assert(sizeof(Entropy) <= (kSample + kTail) * sizeof(float));

/// The size up to which values are kept, by TensorRT's calibrator: of all ends of a histogram of sizes the one that diverges least.
double entropy_threshold(std::span<const float> x, double largest, size_t levels, Entropy& entropy) {
  std::fill(std::begin(entropy.counts), std::end(entropy.counts), 0);
  const double per_unit = kBins / largest;
  kernels::count_sizes(x.data(), x.size(), per_unit, entropy.counts, kBins);
  entropy.sum_up();
  double least = HUGE_VAL;
  size_t best = kBins;
  for (size_t bins = kBins; bins >= std::min(levels, kBins); bins--) {
    // With an end in an empty bin, what is beyond would have no share in any level: the divergence is infinite.
    if (entropy.counts[bins - 1] == 0) continue;
    const double found = entropy.divergence(bins, std::min(levels, bins));
    // Of equals the widest: logarithms may differ in their last bits.
    if (found < least - 1e-12) {
      least = found;
      best = bins;
    }
  }
  return static_cast<double>(best) / per_unit;
}

// ----------------------------------------------------------------------------------------------------------------- all methods

/// Where the values of a parameter lie: `lines` lines of `length`, `line_step` apart, their elements `step` apart.
struct Place {
  size_t offset, lines, length, line_step, step;
  [[nodiscard]] size_t size() const { return lines * length; }
};

Place place_of(const Layout& layout, size_t size, size_t parameter) {
  const auto axis = static_cast<size_t>(layout.axis_size), inner = static_cast<size_t>(layout.inner_size);
  if (layout.granularity == Granularity::kPerTensor) return {0, 1, size, size, 1};
  if (layout.granularity == Granularity::kPerChannel) {
    return {parameter * inner, size / (axis * inner), inner, axis * inner, 1};
  }
  const auto group = static_cast<size_t>(layout.group_size), groups = static_cast<size_t>(layout.groups_per_axis());
  const size_t i = parameter % inner, g = parameter / inner % groups, o = parameter / inner / groups;
  return {(o * axis + g * group) * inner + i, 1, std::min(group, axis - g * group), 0, inner};
}

/// The largest number of values of a parameter.
size_t largest_place(const Layout& layout, size_t size) { return size == 0 ? 0 : place_of(layout, size, 0).size(); }

/// Copies the values of a parameter; what is not finite becomes the first value that is, or 0. Returns whether all were finite.
bool gather(const float* x, const Place& place, float* to) {
  for (size_t line = 0; line < place.lines; line++) {
    kernels::copy_steps(x + place.offset + line * place.line_step, place.step, place.length, 1, to + line * place.length, 1);
  }
  const size_t n = place.size();
  const size_t bad = first_non_finite({to, n});
  if (bad == n) return true;
  size_t good = 0;
  while (good < n && !is_finite(to[good])) good++;
  const float stand_in = good < n ? to[good] : 0.0f;
  for (size_t i = bad; i < n; i++) {
    if (!is_finite(to[i])) to[i] = stand_in;
  }
  return false;
}

}  // namespace

uint64_t search_scratch_bytes(uint64_t size, const Layout& layout) noexcept {
  if (!layout.valid()) return 0;
  const uint64_t run = largest_place(layout, static_cast<size_t>(size));
  return (run + 4 * kShort + kSample + kTail) * sizeof(float);
}

Status search_qparams(std::span<const float> x, const Layout& layout, const QuantizationSpec& spec, RangeMethod method,
                      double percentile, std::span<std::byte> scratch, std::span<float> scale,
                      std::span<int32_t> zero_point) noexcept {
  if (!spec.dtype.valid()) return Status::kBadDType;
  if (!layout.valid()) return Status::kBadLayout;
  const size_t parameters = scale.size();
  if (zero_point.size() != parameters || parameters < layout.parameter_end(0, x.size()) ||
      scratch.size() < search_scratch_bytes(x.size(), layout)) {
    return Status::kSizeMismatch;
  }
  if (method == RangeMethod::kPercentile && !(percentile > 50 && percentile <= 100)) return Status::kBadRange;
  auto* const four_x = reinterpret_cast<float*>(scratch.data());
  float* const room = four_x + 4 * kShort;
  float* const gathered = room + kSample + kTail;
  // Only one of the methods needs the room at a time.
  auto& entropy = *reinterpret_cast<Entropy*>(room);
  if (method == RangeMethod::kEntropy) entropy.prepare();
  const Space space(spec);
  bool finite = true;

  Four four = {};
  four.runs.x = four_x;
  four.runs.qmin = static_cast<float>(space.qmin);
  four.runs.qmax = static_cast<float>(space.qmax);
  four.runs.lowest_zero = static_cast<float>(space.lowest_zero);
  four.runs.highest_zero = static_cast<float>(space.highest_zero);
  four.runs.steps = space.symmetric ? kScales : kScalesOfZeros;
  four.runs.most_zeros = space.symmetric ? 1 : kZeros;
  size_t waiting = 0, waiting_for[4];
  const auto flush = [&] {
    if (waiting == 0) return;
    // Lanes without a run hold what was there before: whatever comes of it is not read.
    float found[4];
    int32_t zeros[4];
    search_four(four, space, found, zeros);
    for (size_t lane = 0; lane < waiting; lane++) {
      scale[waiting_for[lane]] = found[lane];
      zero_point[waiting_for[lane]] = zeros[lane];
    }
    waiting = 0;
  };

  for (size_t p = 0; p < parameters; p++) {
    const Place place = x.empty() ? Place{} : place_of(layout, x.size(), p);
    const size_t n = place.size();
    const bool is_short = method == RangeMethod::kMse && n <= kShort;
    if (is_short && waiting > 0 && four.runs.n != n) flush();
    const float* values = x.data() + place.offset;
    bool apart = place.step != 1 || place.lines > 1;
    kernels::Range range = {0, 0, 0};
    if (!apart && n > 0) {
      range = kernels::range(values, n);
      apart = range.largest >= kInfinityBits;
    }
    if (apart && n > 0) {
      if (!gather(x.data(), place, gathered)) finite = false;
      values = gathered;
      range = kernels::range(values, n);
    }
    float min = range.min, max = range.max;
    const double low = min, high = max, largest = std::max(std::fabs(low), std::fabs(high));
    if (method == RangeMethod::kPercentile && n > 0) {
      if (!apart) std::memcpy(gathered, values, n * sizeof(float));
      if (spec.scheme == Scheme::kSymmetric) {
        for (size_t i = 0; i < n; i++) gathered[i] = std::fabs(gathered[i]);
        max = quantile({gathered, n}, percentile / 100);
        min = -max;
      } else {
        max = quantile({gathered, n}, percentile / 100);
        min = quantile({gathered, n}, 1 - percentile / 100);
      }
    } else if (method == RangeMethod::kEntropy && largest > 0) {
      const double threshold = entropy_threshold({values, n}, largest, size_t{1} << (spec.dtype.bits - 1), entropy);
      min = static_cast<float>(std::max(low, -threshold));
      max = static_cast<float>(std::min(high, threshold));
    }
    const Status status = choose_qparams({&min, 1}, {&max, 1}, spec, scale.subspan(p, 1), zero_point.subspan(p, 1));
    if (status != Status::kOk) return status;
    // Nothing to search for in constants.
    if (method != RangeMethod::kMse || low == high || largest == 0) continue;

    const double bottom = spec.include_zero || space.symmetric ? std::min(low, 0.0) : low;
    const double top = spec.include_zero || space.symmetric ? std::max(high, 0.0) : high;
    const float factor = unit_factor(largest);
    if (is_short) {
      four.runs.n = n;
      four.runs.min[waiting] = static_cast<float>(bottom) * factor, four.runs.max[waiting] = static_cast<float>(top) * factor;
      four.factor[waiting] = factor, four.scale[waiting] = scale[p], four.zero[waiting] = zero_point[p];
      kernels::copy_steps(values, 1, n, factor, four_x + waiting, 4);
      waiting_for[waiting++] = p;
      if (waiting == 4) flush();
    } else {
      Long run = {};
      run.x = values, run.n = n, run.factor = factor, run.min = bottom * factor, run.max = top * factor;
      search_long(run, space, room, &scale[p], &zero_point[p]);
    }
  }
  flush();
  return finite || spec.non_finite == NonFinite::kSaturate ? Status::kOk : Status::kNonFinite;
}

Status take_better(std::span<const float> x, size_t run_size, DType dtype, std::span<float> scale, std::span<int32_t> zero_point,
                   std::span<const float> other_scale, std::span<const int32_t> other_zero_point) noexcept {
  if (!dtype.valid()) return Status::kBadDType;
  const size_t runs = scale.size();
  if (x.size() != runs * run_size || zero_point.size() != runs || other_scale.size() != runs || other_zero_point.size() != runs) {
    return Status::kSizeMismatch;
  }
  const auto is_scale = [](float s) { return is_finite(s) && s > 0; };
  for (size_t p = 0; p < runs; p++) {
    if (!is_scale(scale[p])) return Status::kBadScale;
    if (!is_scale(other_scale[p]) || run_size == 0) continue;
    const float* const values = x.data() + p * run_size;
    const kernels::Range range = kernels::range(values, run_size);
    const float factor = unit_factor(std::max(std::fabs(range.min), std::fabs(range.max)));
    const auto error = [&](float s, int32_t zero) {
      return kernels::error_of_run(values, run_size, factor, s * factor, static_cast<float>(dtype.qmin() - zero),
                                   static_cast<float>(dtype.qmax() - zero));
    };
    if (error(other_scale[p], other_zero_point[p]) < error(scale[p], zero_point[p]) * kGain) {
      scale[p] = other_scale[p];
      zero_point[p] = other_zero_point[p];
    }
  }
  return Status::kOk;
}

}  // namespace scalepoint
