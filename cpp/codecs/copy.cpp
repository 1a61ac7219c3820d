#include "codecs/copy.h"

#include "arrays/metrics_loops.h"
#include "codecs/elements.h"

namespace scalepoint::codecs {

Status encode(const Tile& tile, const Copy&, Arena& arena, Encoded& result) noexcept {
  if (const Status status = check(tile); status != Status::kOk) return status;
  Floats floats(tile, kStepSize, arena);
  result = {};
  if (arena.status() != Status::kOk) return arena.status();
  const uint64_t size = tile.measure ? tile.size() : 0;
  for (uint64_t at = 0; at < size; at += kStepSize) {
    const auto n = static_cast<size_t>(std::min(kStepSize, size - at));
    const float* const x = floats.read(at, n);
    loops::accumulate_error(x, x, n, result.sums);
  }
  return Status::kOk;
}

}  // namespace scalepoint::codecs
