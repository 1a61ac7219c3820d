#include "codecs/copy.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "arrays/metrics_loops.h"
#include "codecs/elements.h"

namespace scalepoint::codecs {

Status encode(const Tile& tile, const Copy&, Arena& arena, Encoded& result) noexcept {
  if (const Status status = check(tile); status != Status::kOk) return status;
  Floats floats(tile, kStepSize, arena);
  const bool is_wide = static_cast<ElementType>(tile.type) == ElementType::kF64;
  float* const bounded = is_wide ? arena.take<float>(kStepSize) : nullptr;
  result = {};
  if (arena.status() != Status::kOk) return arena.status();
  const uint64_t size = tile.measure ? tile.size() : 0;
  for (uint64_t at = 0; at < size; at += kStepSize) {
    const auto n = static_cast<size_t>(std::min(kStepSize, size - at));
    const float* x = floats.read(at, n);
    if (is_wide) {
      // Numbers beyond float32 are no infinities.
      const double* const stored = reinterpret_cast<const double*>(tile.source.data) + at;
      for (size_t i = 0; i < n; i++) bounded[i] = std::isfinite(stored[i]) ? std::min(std::max(x[i], -FLT_MAX), FLT_MAX) : x[i];
      x = bounded;
    }
    loops::accumulate_error(x, x, n, result.sums);
  }
  return Status::kOk;
}

}  // namespace scalepoint::codecs
