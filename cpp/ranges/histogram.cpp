#include "ranges/histogram.h"

#include "lanes/round.h"
#include "ranges/histogram_loops.h"

namespace scalepoint {

Status histogram(std::span<const float> x, float min, float max, std::span<uint32_t> counts, double* below,
                 double* above) noexcept {
  if (counts.empty()) return Status::kSizeMismatch;
  if (!is_finite(min) || !is_finite(max) || min > max) return Status::kBadRange;
  const double width = static_cast<double>(max) - min;
  // The quotient is finite: two different float32 numbers are at least 2^-149 apart.
  const double per_unit = width > 0 ? static_cast<double>(counts.size()) / width : 0;
  const loops::Outside outside =
      loops::count_into_bins(x.data(), x.size(), {min, max, min, per_unit, counts.size()}, counts.data());
  *below += static_cast<double>(outside.below);
  *above += static_cast<double>(outside.above);
  return Status::kOk;
}

}  // namespace scalepoint
