#include "ranges/range_entropy.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace scalepoint {

void EntropySearch::prepare() {
  logs_[0] = 0;
  for (uint32_t i = 1; i < kLogs; i++) logs_[i] = std::log(i);
}

double EntropySearch::log_of(double whole) const { return whole < kLogs ? logs_[static_cast<uint32_t>(whole)] : std::log(whole); }

void EntropySearch::sum_up() {
  held_[0] = occupied_[0] = information_[0] = 0;
  for (size_t i = 0; i < kBins; i++) {
    const double c = counts_[i];
    held_[i + 1] = held_[i] + c;
    occupied_[i + 1] = occupied_[i] + (c > 0 ? 1 : 0);
    information_[i + 1] = information_[i] + c * log_of(c);
  }
}

/// sum p log(p / q). p are the first `bins`; the last of them is not empty and includes all bins beyond. q merges them to
/// `levels` levels and shares what a level holds among those of its bins that are not empty.
double EntropySearch::divergence(size_t bins, size_t levels) const {
  const double inside = held_[bins], all = held_[kBins], beyond = all - inside, last = counts_[bins - 1];
  double sum = information_[bins] - last * log_of(last) + (last + beyond) * log_of(last + beyond);
  for (size_t level = 0, from = 0; level < levels; level++) {
    const size_t to = (level + 1) * bins / levels;
    const double in_level = held_[to] - held_[from];
    const double shared = in_level + (level == levels - 1 ? beyond : 0);
    sum -= shared * (log_of(in_level) - log_of(occupied_[to] - occupied_[from]));
    from = to;
  }
  return sum / all - std::log(all / inside);
}

double EntropySearch::threshold(const loops::Run& run, double largest, size_t levels) {
  if (!run.weighted && run.n < kFewestValues) return largest;
  std::fill(std::begin(counts_), std::end(counts_), 0);
  const double per_unit = kBins / largest;
  loops::count_magnitudes(run, per_unit, counts_, kBins);
  sum_up();
  if (held_[kBins] < kFewestValues) return largest;
  double least = HUGE_VAL;
  size_t best = kBins;
  for (size_t bins = kBins; bins >= std::min(levels, kBins) && held_[bins] >= kLeastKept * held_[kBins]; bins--) {
    // If the last bin is empty, values beyond it would have no share in any level: the divergence is infinite.
    if (counts_[bins - 1] == 0) continue;
    const double found = divergence(bins, std::min(levels, bins));
    // Take the widest of equal thresholds. Divergences are about 1, and their logarithms may be off in the last bits.
    if (found < least - 1e-12) {
      least = found;
      best = bins;
    }
  }
  return static_cast<double>(best) / per_unit;
}

}  // namespace scalepoint
