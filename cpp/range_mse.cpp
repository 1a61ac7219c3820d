#include "range_mse.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "qparams.h"
#include "round.h"

namespace scalepoint {

SearchSpace::SearchSpace(const QuantizationSpec& spec)
    : qmin(spec.dtype.qmin()), qmax(spec.dtype.qmax()), symmetric(spec.scheme == Scheme::kSymmetric) {
  if (symmetric)
    lowest_zero = highest_zero = spec.dtype.middle();
  else if (spec.include_zero)
    lowest_zero = qmin, highest_zero = qmax;
  else
    lowest_zero = -(kMaxZeroPoint - 65536.0), highest_zero = kMaxZeroPoint - 65536.0;
}

double SearchSpace::clamped(double zero) const { return std::clamp(zero, lowest_zero, highest_zero); }

double SearchSpace::covering(double min, double max, double zero) const {
  const double low = qmin - zero, high = qmax - zero;
  return std::max(high > 0 ? max / high : 0, low < 0 ? min / low : 0);
}

double SearchSpace::zero_for(double min, double max, double scale, double share) const {
  const double all_low = clamped(qmin - min / scale), all_high = clamped(qmax - max / scale);
  return round_half_even(all_low + (all_high - all_low) * share);
}

float SearchSpace::usable_scale(double scale, double zero) const {
  const auto rounded = static_cast<float>(scale);
  const auto farthest = static_cast<float>(std::max(std::fabs(qmin - zero), std::fabs(qmax - zero)));
  return rounded >= kMinScale && rounded * farthest <= FLT_MAX ? rounded : 0.0f;
}

float unit_factor(double largest) {
  int e = 0;
  std::frexp(largest, &e);
  return static_cast<float>(std::ldexp(1.0, std::clamp(-e, -126, 126)));
}

void search_short(ShortRuns& four, const SearchSpace& space, float* scale, int32_t* zero_point) {
  kernels::FourRuns& runs = four.runs;
  float start[4], plain_zero[4], plain[4];
  for (int i = 0; i < 4; i++) {
    start[i] = four.scale[i] * four.factor[i];
    plain_zero[i] = static_cast<float>(four.zero[i]);
  }
  kernels::errors_of_four(runs, start, plain_zero, plain);
  float error[4], found[4], zero[4];
  for (int i = 0; i < 4; i++) {
    // The farthest value errs by what is clipped of it, so clipping more than the root of the whole error of min-max cannot pay.
    // One eighth of the scale of min-max is the narrowest: below it, the candidates that are tried would lie too far apart.
    const float most_clipped = std::sqrt(plain[i]);
    const double narrow = space.symmetric ? space.covering(std::min(runs.min[i] + most_clipped, 0.0f),
                                                           std::max(runs.max[i] - most_clipped, 0.0f), four.zero[i])
                                          : (runs.max[i] - runs.min[i] - 2 * most_clipped) / space.levels();
    runs.from[i] = std::max(static_cast<float>(narrow), start[i] / 8);
    runs.to[i] = start[i] * kWidest;
    error[i] = plain[i];
    found[i] = start[i];
    zero[i] = plain_zero[i];
  }
  kernels::search_four(runs, error, found, zero);
  // The improved scale is measured again, with the codes that it gives itself, beside min-max.
  float rounded[4];
  for (int i = 0; i < 4; i++) {
    rounded[i] = space.usable_scale(found[i] / four.factor[i], zero[i]);
    found[i] = rounded[i] > 0 ? rounded[i] * four.factor[i] : start[i];
  }
  kernels::errors_of_four(runs, found, zero, error);
  for (int i = 0; i < 4; i++) {
    const bool better = rounded[i] > 0 && error[i] < plain[i] * kGain;
    scale[i] = better ? rounded[i] : four.scale[i];
    zero_point[i] = better ? static_cast<int32_t>(zero[i]) : four.zero[i];
  }
}

}  // namespace scalepoint
