#include "codecs/cast.h"

#include <cmath>
#include <cstring>

#include "arrays/min_max_loops.h"
#include "arrays/minifloat_loops.h"
#include "lanes/round.h"

namespace scalepoint::codecs {
namespace {

/// Writes n floats in the type. Returns the values that they then have: x itself for float32, else in `room`.
const float* write(const float* x, size_t n, ElementType to, std::byte* out, float* room) {
  auto* const bits = reinterpret_cast<uint16_t*>(out);
  switch (to) {
    case ElementType::kF16:
      loops::round_to_float16(x, n, bits, room);
      return room;
    case ElementType::kBF16:
      loops::float32_to_bfloat16(x, n, bits);
      loops::bfloat16_to_float32(bits, n, room);
      return room;
    default:
      std::memcpy(out, x, n * sizeof(float));
      return x;
  }
}

/// Replaces infinities from finite values by the largest finite value, and zeros from other values by the smallest one. Returns the number
/// of such infinities.
size_t saturate(const float* x, size_t n, ElementType to, std::byte* out, float* y) {
  auto* const bits = reinterpret_cast<uint16_t*>(out);
  size_t count = 0;
  for (size_t i = 0; i < n; i++) {
    // Skip blocks without either.
    const size_t some = std::min(n - i, loops::kErrorBlock);
    if (i % loops::kErrorBlock == 0 && loops::all_finite_nonzero(y + i, some)) {
      i += some - 1;
      continue;
    }
    const bool overflows = !is_finite(y[i]) && is_finite(x[i]);
    if (!overflows && (y[i] != 0 || x[i] == 0)) continue;
    // bits of infinity = bits of the largest value + 1, and bits of zero = bits of the smallest value - 1.
    overflows ? bits[i]-- : bits[i]++;
    count += overflows;
    to == ElementType::kF16 ? loops::float16_to_float32(bits + i, 1, y + i) : loops::bfloat16_to_float32(bits + i, 1, y + i);
  }
  return count;
}

/// A float64 as a float32 that rounds to 16 bits as the float64 does: truncated, with its last bit set if the rest was not 0. Then a
/// float64 between two numbers of 16 bits never becomes one of these numbers, or the middle between them.
float cut_to_odd(double value) {
  const auto rounded = static_cast<float>(value);
  if (rounded == value || value != value) return rounded;
  auto bits = bit_cast<uint32_t>(rounded);
  if (std::fabs(static_cast<double>(rounded)) > std::fabs(value)) bits--;
  return bit_cast<float>(bits | 1);
}

/// The first of n finite elements x, from `first` on, whose result in y is not finite.
Problem find_lost(const Floats& floats, uint64_t first, const float* x, const float* y, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (is_finite(y[i])) continue;
    const Problem problem = floats.problem_at(first + i, x[i]);
    if (problem.kind != ProblemKind::kNonFinite) return {ProblemKind::kOverflow, first + i, problem.value};
  }
  return {};
}

}  // namespace

Status encode(const Tile& tile, const Cast& cast, Arena& arena, Encoded& result) noexcept {
  if (const Status status = check(tile); status != Status::kOk) return status;
  const ElementType to = cast.to;
  if (to != ElementType::kF32 && to != ElementType::kF16 && to != ElementType::kBF16) return Status::kBadDType;
  const uint64_t size = tile.size(), bytes = to == ElementType::kF32 ? 4 : 2;
  Floats floats(tile, kStepSize, arena);
  auto* const room = arena.take<float>(to == ElementType::kF32 ? 0 : std::min(kStepSize, size));
  // An element that the tile changes is always a float32.
  const bool narrows_twice =
      static_cast<ElementType>(tile.type) == ElementType::kF64 && to != ElementType::kF32 && !tile.changes_elements();
  auto* const odd = arena.take<float>(narrows_twice ? std::min(kStepSize, size) : 0);
  auto* const data = arena.take<std::byte>(size * bytes);
  result = {};
  if (arena.status() != Status::kOk) return arena.status();
  result.data = {data, static_cast<size_t>(size * bytes)};

  ErrorSums sums;
  for (uint64_t at = 0; at < size; at += kStepSize) {
    const auto n = static_cast<size_t>(std::min(kStepSize, size - at));
    const float* const x = floats.read(at, n);
    if (narrows_twice) {
      const auto* const stored = reinterpret_cast<const double*>(tile.source.data) + at;
      for (size_t i = 0; i < n; i++) odd[i] = cut_to_odd(stored[i]);
    }
    const float* const y = write(narrows_twice ? odd : x, n, to, data + at * bytes, room);
    if (cast.saturate && y == room) {
      sums.saturated += static_cast<double>(saturate(narrows_twice ? odd : x, n, to, data + at * bytes, room));
    }
    // Always make the sums, because they count values that are not finite.
    const double before = sums.non_finite;
    measure(tile, at, x, y, n, sums);
    if (sums.non_finite == before) continue;
    result.problem = find_lost(floats, at, x, y, n);
    if (result.problem.kind != ProblemKind::kNone) return Status::kOk;
  }
  if (tile.measure) result.sums = sums;
  return Status::kOk;
}

}  // namespace scalepoint::codecs
