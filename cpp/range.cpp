#include <limits>

#include "kernels/kernels.h"
#include "layout.h"
#include "scalepoint.h"

namespace scalepoint {

void clear_range(std::span<float> min, std::span<float> max) noexcept {
  for (float& v : min) v = std::numeric_limits<float>::infinity();
  for (float& v : max) v = -std::numeric_limits<float>::infinity();
}

Status observe(std::span<const float> x, const Layout& layout, uint64_t start, NonFinite non_finite, std::span<float> min,
               std::span<float> max) noexcept {
  if (!layout.valid()) return Status::kBadLayout;
  const uint64_t end = layout.parameter_end(start, x.size());
  if (min.size() < end || max.size() < end) return Status::kSizeMismatch;
  const bool finite_only = non_finite == NonFinite::kSaturate;
  uint32_t largest = 0;
  for_each_stretch(layout, start, x.size(), [&](const Stretch& s) {
    const float* p = x.data() + s.offset;
    float *low = min.data() + s.parameter, *high = max.data() + s.parameter;
    uint32_t seen;
    if (s.uniform) {
      kernels::Range r = kernels::range(p, s.size);
      seen = r.largest;
      if (seen >= kInfinityBits && finite_only) r = kernels::finite_range(p, s.size);
      if (r.min < *low) *low = r.min;
      if (r.max > *high) *high = r.max;
    } else {
      seen = kernels::range_each(p, s.size, finite_only, low, high);
    }
    largest = seen > largest ? seen : largest;
  });
  return largest >= kInfinityBits && !finite_only ? Status::kNonFinite : Status::kOk;
}

size_t first_non_finite(std::span<const float> x) noexcept {
  size_t i = 0;
  while (i < x.size() && is_finite(x[i])) i++;
  return i;
}

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
