#include "ranges/range_weighted.h"

#include <algorithm>
#include <cmath>

#include "ranges/range_weighted_loops.h"

namespace scalepoint {
namespace {

/// Scales that are tried, as shares of that of the whole range.
constexpr float kNarrowest = 0.4f, kWidest = 1.1f;
constexpr int kSymmetricSteps = 36, kAsymmetricSteps = 15;
/// Zero points around the nearest one that are tried on each side.
constexpr int kZeroPoints = 1;
/// Ranges that a line tries, and rounds of least squares for each.
constexpr int kLineSteps = 9, kLineRounds = 2;
/// Rounds of least squares. Codes change little after the first ones.
constexpr int kRounds = 4;

/// Tries scales, and keeps the best.
class Search {
 public:
  Search(const float* x, const float* weights, size_t n, const WeightedGrid& grid)
      : x_(x), weights_(weights), n_(n), grid_(grid) {}

  /// @param search false: takes the whole range
  WeightedScale run(bool search) {
    float low = 0, high = 0;
    for (size_t i = 0; i < n_; i++) {
      low = std::min(low, x_[i]);
      high = std::max(high, x_[i]);
    }
    best_.zero_point = grid_.asymmetric ? std::clamp(0.0f, grid_.qmin, grid_.qmax) : grid_.zero_point;
    if (low == 0 && high == 0) return best_;
    grid_.asymmetric ? try_ranges(low, high, search) : try_scales(low, high, search);
    if (search && std::isfinite(least_)) refine();
    return best_;
  }

 private:
  [[nodiscard]] float stored(float scale) const { return grid_.store == nullptr ? scale : grid_.store(scale); }

  /// Measures a scale. Keeps it if it is the best so far.
  loops::WeightedSums measure(float wanted, float zero_point) {
    const float scale = stored(wanted), inverse = 1 / scale;
    loops::WeightedSums sums;
    sums.error = INFINITY;
    if (!std::isfinite(scale) || scale == 0 || !std::isfinite(inverse)) return sums;
    sums = loops::sum_weighted_codes(x_, weights_, n_, scale, inverse, grid_.qmin - zero_point, grid_.qmax - zero_point,
                                     grid_.levels);
    if (sums.error < least_) {
      least_ = sums.error;
      best_ = {scale, zero_point};
      sums_ = sums;
    }
    return sums;
  }

  void try_scales(float low, float high, bool search) {
    const float zero = grid_.zero_point, below = zero - grid_.qmin, above = grid_.qmax - zero;
    // The scale that reaches the largest magnitude on its own side, and the one that reaches it on either side.
    const float positive = std::max(below > 0 ? -low / below : 0.0f, above > 0 ? high / above : 0.0f);
    const float negative = std::max(above > 0 ? -low / above : 0.0f, below > 0 ? high / below : 0.0f);
    measure(positive, zero);
    if (grid_.negative) measure(-negative, zero);
    for (int i = 0; search && i <= kSymmetricSteps; i++) {
      const float share = kNarrowest + (kWidest - kNarrowest) * static_cast<float>(i) / kSymmetricSteps;
      measure(share * positive, zero);
      if (grid_.negative) measure(-share * negative, zero);
    }
  }

  void try_ranges(float low, float high, bool search) {
    const float levels = grid_.qmax - grid_.qmin, whole = high / levels - low / levels;
    measure(whole, zero_point_for(low / whole));
    for (int i = 0; search && i <= kAsymmetricSteps; i++) {
      const float share = kNarrowest + (kWidest - kNarrowest) * static_cast<float>(i) / kAsymmetricSteps, scale = share * whole;
      // Cut the same share on both sides, and try the neighbors.
      const float middle = zero_point_for(low * share / scale);
      const float spare = (1 - share) * levels;
      for (int k = -kZeroPoints; k <= kZeroPoints; k++) {
        const float step = std::max(1.0f, std::fabs(spare) / 3);
        measure(scale, std::clamp(middle + std::nearbyint(static_cast<float>(k) * step), grid_.qmin, grid_.qmax));
      }
    }
  }

  [[nodiscard]] float zero_point_for(float steps) const {
    return std::clamp(std::nearbyint(grid_.qmin - steps), grid_.qmin, grid_.qmax);
  }

  /// Improves the best scale by least squares for its codes, and its zero point by single steps.
  void refine() {
    for (int round = 0; round < kRounds; round++) {
      const double before = least_;
      if (sums_.square > 0) measure(static_cast<float>(sums_.product / sums_.square), best_.zero_point);
      if (grid_.asymmetric) {
        const WeightedScale at = best_;
        for (const float step : {-1.0f, 1.0f}) {
          const float zero_point = at.zero_point + step;
          if (zero_point < grid_.qmin || zero_point > grid_.qmax) continue;
          const loops::WeightedSums moved = measure(at.scale, zero_point);
          if (moved.square > 0) measure(static_cast<float>(moved.product / moved.square), zero_point);
        }
      }
      if (!(least_ < before)) break;
    }
  }

  const float* x_;
  const float* weights_;
  size_t n_;
  const WeightedGrid& grid_;
  double least_ = INFINITY;
  WeightedScale best_;
  loops::WeightedSums sums_;
};

}  // namespace

WeightedLine search_weighted_line(const float* x, const float* weights, size_t n, float levels, bool only_below,
                                  float (*store)(float)) noexcept {
  const auto stored = [&](float v) { return store == nullptr ? v : store(v); };
  float low = x[0], high = x[0];
  double weight_sum = 0, weighted_sum = 0;
  for (size_t i = 0; i < n; i++) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    const double weight = weights == nullptr ? 1 : weights[i];
    weight_sum += weight;
    weighted_sum += weight * x[i];
  }
  if (only_below) low = std::min(low, 0.0f);
  WeightedLine best = {0, stored(low)};
  if (!(high > low)) return best;
  double least = INFINITY;
  float moved[kMostLine];
  // Measures a line, and keeps it if it is the best so far.
  const auto measure = [&](float wanted_scale, float wanted_low) {
    const WeightedLine line = {stored(wanted_scale), stored(only_below ? std::min(wanted_low, 0.0f) : wanted_low)};
    const float inverse = 1 / line.scale;
    loops::WeightedSums sums;
    sums.error = INFINITY;
    if (!(line.scale > 0) || !std::isfinite(inverse) || !std::isfinite(line.scale) || !std::isfinite(line.low)) return sums;
    for (size_t i = 0; i < n; i++) moved[i] = x[i] - line.low;
    sums = loops::sum_weighted_codes(moved, weights, n, line.scale, inverse, 0, levels);
    if (sums.error < least) {
      least = sums.error;
      best = line;
    }
    // The sums of x in place of those of x - low.
    sums.product += line.low * sums.code;
    return sums;
  };
  // Tries ranges around the middle, and the least squares for the codes of each.
  const float middle = low + (high - low) / 2, whole = (high - low) / levels;
  measure(whole, low);
  for (int i = 0; i <= kLineSteps; i++) {
    const float share = kNarrowest + (kWidest - kNarrowest) * static_cast<float>(i) / kLineSteps;
    loops::WeightedSums sums = measure(share * whole, middle - share * (high - low) / 2);
    for (int round = 0; round < kLineRounds && std::isfinite(sums.error); round++) {
      const double spread = weight_sum * sums.square - sums.code * sums.code;
      if (!(spread > 0)) break;
      double slope = (weight_sum * sums.product - sums.code * weighted_sum) / spread;
      double base = (weighted_sum - slope * sums.code) / weight_sum;
      if (only_below && base > 0) {
        base = 0;
        slope = sums.product / sums.square;
      }
      const double before = sums.error;
      sums = measure(static_cast<float>(slope), static_cast<float>(base));
      if (!(sums.error < before)) break;
    }
  }
  return best;
}

WeightedScale search_weighted_scale(const float* x, const float* weights, size_t n, const WeightedGrid& grid) noexcept {
  return Search(x, weights, n, grid).run(true);
}

WeightedScale whole_range_scale(const float* x, size_t n, const WeightedGrid& grid) noexcept {
  return Search(x, nullptr, n, grid).run(false);
}

double weighted_error(const float* x, const float* weights, size_t n, const WeightedGrid& grid,
                      const WeightedScale& chosen) noexcept {
  return loops::sum_weighted_codes(x, weights, n, chosen.scale, 1 / chosen.scale, grid.qmin - chosen.zero_point,
                                   grid.qmax - chosen.zero_point)
      .error;
}

}  // namespace scalepoint
