#include "ggml.h"

#include <algorithm>
#include <cmath>

#include "../kernels/kernels.h"
#include "elements.h"

namespace scalepoint::codecs {
namespace {

/// Where the first block of x that cannot be stored has its farthest element. `out` is used as room for a block.
size_t find_overflow(std::span<const float> x, BlockType type, std::span<std::byte> out) {
  const auto [elements, bytes] = block_size(type);
  size_t at = 0;
  while (at + elements < x.size() && quantize_blocks(x.subspan(at, elements), type, out.first(bytes)) == Status::kOk) {
    at += elements;
  }
  size_t worst = at;
  for (size_t i = at; i < at + elements; i++) {
    if (std::fabs(x[i]) > std::fabs(x[worst])) worst = i;
  }
  return worst;
}

}  // namespace

Status encode(const Tile& tile, const Ggml& ggml, Arena& arena, Encoded& result) noexcept {
  if (const Status status = check(tile); status != Status::kOk) return status;
  const auto [elements, bytes] = block_size(ggml.to);
  if (elements == 0) return Status::kBadDType;
  const uint64_t n = tile.size();
  if (n % elements != 0) return Status::kBadLayout;
  Floats floats(tile, kStepSize, arena);
  const auto restored = arena.take<float>(tile.measure ? std::min(kStepSize, n) : 0);
  const auto data = arena.take<std::byte>(n / elements * bytes);
  result = {};
  result.part(Role::kData) = data;
  if (arena.only_counts()) return Status::kOk;
  if (arena.status() != Status::kOk) return arena.status();

  for (uint64_t at = 0; at < n; at += kStepSize) {
    const auto count = static_cast<size_t>(std::min(kStepSize, n - at));
    const std::span<const float> x = floats.read(at, count);
    const auto out = data.subspan(static_cast<size_t>(at / elements * bytes), count / elements * bytes);
    Status status = quantize_blocks(x, ggml.to, out);
    if (status == Status::kOverflow) {
      const size_t worst = find_overflow(x, ggml.to, out);
      result.problem = {ProblemKind::kOverflow, at + worst, x[worst]};
    }
    if (status == Status::kOverflow || status == Status::kNonFinite) {
      const Problem first = floats.first_problem(at);
      if (first.kind != ProblemKind::kNone) result.problem = first;
      return Status::kOk;
    }
    if (status == Status::kOk && tile.measure) {
      status = dequantize_blocks(out, ggml.to, restored.first(count));
      kernels::accumulate_error(x.data(), restored.data(), count, result.sums);
    }
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

}  // namespace scalepoint::codecs
