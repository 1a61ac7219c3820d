// The threshold of least entropy loss, as TensorRT's calibrator finds it. Internal to range_search.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ranges/range_search_loops.h"

namespace scalepoint {

/// Bins of the histogram of |x|, and the memory of the search.
class EntropySearch {
 public:
  static constexpr size_t kBins = 2048;

  /// With fewer values than bins, most bins hold at most one value, and a few bins have a low divergence with any number of levels: in
  /// samples of normal and uniform distributions of 64 to 1024 values, thresholds for 4 bits clip up to 99.9 % of them.
  static constexpr size_t kFewestValues = kBins;

  /// Called once, before the first search.
  void prepare();

  /// The magnitude up to which values are kept: the end of the histogram that diverges least, among those that keep at least
  /// kLeastKept of the values. `largest` is the largest |x|, and the result for fewer values than kFewestValues.
  double threshold(const loops::Run& run, double largest, size_t levels);

 private:
  /// Sensible thresholds clip at most 3 % of the values, with 2 bits and a Laplace distribution of 3000 values. But with 2 bits the
  /// divergence of a single bin is only log 2, so that thresholds that clip 99 % may seem better.
  static constexpr double kLeastKept = 0.9;

  static constexpr uint32_t kLogs = 4096;

  [[nodiscard]] double log_of(double whole) const;
  void sum_up();
  [[nodiscard]] double divergence(size_t bins, size_t levels) const;

  /// Sums over the bins before i: their counts, how many are not empty, and count * log(count).
  double held_[kBins + 1], occupied_[kBins + 1], information_[kBins + 1];
  double logs_[kLogs];  ///< of whole numbers; 0 for 0
  double counts_[kBins];
};

}  // namespace scalepoint
