#include "arrays/min_max.h"

#include <limits>

#include "arrays/min_max_loops.h"
#include "arrays/stretches.h"

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
      loops::Range r = loops::range(p, s.size);
      seen = r.largest;
      if (seen >= kInfinityBits && finite_only) r = loops::finite_range(p, s.size);
      if (r.min < *low) *low = r.min;
      if (r.max > *high) *high = r.max;
    } else {
      seen = loops::range_each(p, s.size, finite_only, low, high);
    }
    largest = seen > largest ? seen : largest;
  });
  return largest >= kInfinityBits && !finite_only ? Status::kNonFinite : Status::kOk;
}

size_t first_non_finite(std::span<const float> x) noexcept {
  constexpr size_t kPiece = 512;
  size_t i = 0, left = x.size();
  for (; left >= kPiece && loops::largest_magnitude(&x[i], kPiece) < kInfinityBits; left -= kPiece) i += kPiece;
  while (i < x.size() && is_finite(x[i])) i++;
  return i;
}

}  // namespace scalepoint
