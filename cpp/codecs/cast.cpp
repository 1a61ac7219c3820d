#include "cast.h"

#include <algorithm>
#include <cstring>

#include "../kernels/kernels.h"
#include "../kernels/minifloat.h"
#include "../round.h"

namespace scalepoint::codecs {
namespace {

/// Writes x in the type. Returns what that stands for: x itself for float32, else in `room`.
const float* write(std::span<const float> x, ElementType to, std::byte* out, float* room) {
  auto* const bits = reinterpret_cast<uint16_t*>(out);
  if (to == ElementType::kF32) {
    if (!x.empty()) std::memcpy(out, x.data(), x.size_bytes());
    return x.data();
  }
  if (to == ElementType::kF16) {
    kernels::float32_to_float16(x.data(), x.size(), bits);
    kernels::float16_to_float32(bits, x.size(), room);
  } else {
    kernels::float32_to_bfloat16(x.data(), x.size(), bits);
    kernels::bfloat16_to_float32(bits, x.size(), room);
  }
  return room;
}

/// The first finite element that is finite no longer; y is what became of x, the elements from `first` on.
Problem find_lost(const Floats& floats, uint64_t first, std::span<const float> x, const float* y) {
  for (size_t i = 0; i < x.size(); i++) {
    if (is_finite(y[i])) continue;
    if (is_finite(x[i])) return {ProblemKind::kOverflow, first + i, x[i]};
    const Problem problem = floats.problem_at(first + i, x[i]);
    if (problem.kind == ProblemKind::kBeyondFloat32) return problem;
  }
  return {};
}

}  // namespace

Status encode(const Tile& tile, const Cast& cast, Arena& arena, Encoded& result) noexcept {
  if (const Status status = check(tile); status != Status::kOk) return status;
  const ElementType to = cast.to;
  if (to != ElementType::kF32 && to != ElementType::kF16 && to != ElementType::kBF16) return Status::kBadDType;
  const uint64_t n = tile.size(), bytes = element_size(static_cast<int32_t>(to)).bytes;
  Floats floats(tile, kStepSize, arena);
  const auto room = arena.take<float>(to == ElementType::kF32 ? 0 : std::min(kStepSize, n));
  const auto data = arena.take<std::byte>(n * bytes);
  result = {};
  result.part(Role::kData) = data;
  if (arena.only_counts()) return Status::kOk;
  if (arena.status() != Status::kOk) return arena.status();

  for (uint64_t at = 0; at < n; at += kStepSize) {
    const std::span<const float> x = floats.read(at, static_cast<size_t>(std::min(kStepSize, n - at)));
    const float* const y = write(x, to, data.data() + at * bytes, room.data());
    // The sums count what is not finite, so they are always needed.
    const double before = result.sums.non_finite;
    kernels::accumulate_error(x.data(), y, x.size(), result.sums);
    if (result.sums.non_finite == before) continue;
    result.problem = find_lost(floats, at, x, y);
    if (result.problem.kind != ProblemKind::kNone) return Status::kOk;
  }
  return Status::kOk;
}

}  // namespace scalepoint::codecs
