#include "codecs/codec.h"

namespace scalepoint::codecs {

std::byte* Arena::take_bytes(uint64_t bytes) {
  const uint64_t begin = (used_ + 15) / 16 * 16;
  used_ = begin + bytes;
  return used_ > room_ ? nullptr : base_ + begin;
}

Status Arena::status() const {
  return used_ > room_ || reinterpret_cast<uintptr_t>(base_) % 16 != 0 ? Status::kSizeMismatch : Status::kOk;
}

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
