#include "copy.h"

#include <algorithm>

#include "../kernels/kernels.h"
#include "elements.h"

namespace scalepoint::codecs {

Status encode(const Tile& tile, const Copy&, Arena& arena, Encoded& result) noexcept {
  if (const Status status = check(tile); status != Status::kOk) return status;
  Floats floats(tile, kStepSize, arena);
  result = {};
  if (arena.only_counts()) return Status::kOk;
  if (arena.status() != Status::kOk) return arena.status();
  const uint64_t n = tile.measure ? tile.size() : 0;
  for (uint64_t at = 0; at < n; at += kStepSize) {
    const std::span<const float> x = floats.read(at, static_cast<size_t>(std::min(kStepSize, n - at)));
    kernels::accumulate_error(x.data(), x.data(), x.size(), result.sums);
  }
  return Status::kOk;
}

}  // namespace scalepoint::codecs
