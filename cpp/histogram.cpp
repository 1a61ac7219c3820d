#include "histogram.h"

#include "round.h"

namespace scalepoint {

Status histogram(std::span<const float> x, float min, float max, std::span<uint32_t> counts, double* below,
                 double* above) noexcept {
  if (counts.empty()) return Status::kSizeMismatch;
  if (!is_finite(min) || !is_finite(max) || min > max) return Status::kBadRange;
  const double low = min, width = static_cast<double>(max) - low;
  // Finite: the narrowest range of two float32 numbers is 2^-149 wide.
  const double bins_per_unit = width > 0 ? static_cast<double>(counts.size()) / width : 0;
  uint64_t under = 0, over = 0;
  const size_t last = counts.size() - 1;
  for (const float v : x) {
    if (v < min) {
      under++;
    } else if (v > max) {
      over++;
    } else if (v == v) {
      const auto bin = static_cast<size_t>((v - low) * bins_per_unit);
      counts[bin < last ? bin : last]++;
    }
  }
  *below += static_cast<double>(under);
  *above += static_cast<double>(over);
  return Status::kOk;
}

}  // namespace scalepoint
