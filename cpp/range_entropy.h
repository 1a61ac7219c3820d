// The threshold of least entropy loss, as TensorRT's calibrator finds it. Internal to range_search.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace scalepoint {

/// Bins of the histogram of |x|, and the memory of the search.
class EntropySearch {
 public:
  static constexpr size_t kBins = 2048;

  /// Once, before the first search.
  void prepare();

  /// The magnitude up to which values are kept: of all ends of the histogram the one that diverges least. `largest` is the
  /// largest |x|.
  double threshold(std::span<const float> x, double largest, size_t levels);

 private:
  static constexpr uint32_t kLogs = 4096;

  [[nodiscard]] double log_of(double whole) const;
  void sum_up();
  [[nodiscard]] double divergence(size_t bins, size_t levels) const;

  /// Sums over the bins before i: their counts, how many are not empty, and count * log(count).
  double held_[kBins + 1], occupied_[kBins + 1], information_[kBins + 1];
  double logs_[kLogs];  ///< of whole numbers; 0 for 0
  uint32_t counts_[kBins];
};

}  // namespace scalepoint
