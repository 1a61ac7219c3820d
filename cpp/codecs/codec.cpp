#include "codecs/codec.h"

#include "arrays/metrics_loops.h"

namespace scalepoint::codecs {

void measure(const Tile& tile, uint64_t first, const float* x, const float* y, size_t n, ErrorSums& sums) {
  loops::accumulate_error(x, y, n, sums);
  if (tile.importance != nullptr) loops::accumulate_weighted_error(x, y, n, tile.importance, tile.columns, first, sums);
}

std::byte* take_part(const Tile& tile, Role role, uint64_t bytes, Arena& arena, Bytes& part) {
  if (!tile.wants(role)) return nullptr;
  auto* const at = arena.take<std::byte>(bytes);
  part = {at, static_cast<size_t>(bytes)};
  return at;
}

}  // namespace scalepoint::codecs
