#include "codecs/elements.h"

#include <cassert>
#include <cmath>
#include <cstring>

#include "arrays/min_max.h"
#include "arrays/minifloat_loops.h"
#include "ggml/ggml_blocks.h"

namespace scalepoint::codecs {
namespace {

double double_at(const Tile& tile, uint64_t i) { return reinterpret_cast<const double*>(tile.source.data)[i]; }

}  // namespace

BlockSize element_size(int32_t type) noexcept {
  switch (static_cast<ElementType>(type)) {
    case ElementType::kF32:
    case ElementType::kF16:
    case ElementType::kBF16:
    case ElementType::kF64:
      return listed_size(static_cast<ListedType>(type));
    case ElementType::kF8_E4M3:
    case ElementType::kF8_E5M2:
      return {1, 1};
  }
  return block_size(static_cast<BlockType>(type));
}

Status check(const Tile& tile) noexcept {
  const auto [elements, bytes] = element_size(tile.type);
  if (elements == 0) return Status::kBadDType;
  const uint64_t n = tile.size();
  // Count in blocks, so that products do not overflow.
  const bool fits = n % elements == 0 && tile.source.size % bytes == 0 && n / elements == tile.source.size / bytes;
  return fits ? Status::kOk : Status::kSizeMismatch;
}

Floats::Floats(const Tile& tile, uint64_t most, Arena& arena) : tile_(tile), most_(std::min(most, tile.size())) {
  if (static_cast<ElementType>(tile.type) != ElementType::kF32 || tile.changes_elements()) room_ = arena.take<float>(most_);
}

const float* Floats::read(uint64_t first, size_t n) {
  const auto [elements, bytes] = element_size(tile_.type);
  assert(n <= most_ && first % elements == 0);
  const std::byte* from = tile_.source.data + first / elements * bytes;
  switch (static_cast<ElementType>(tile_.type)) {
    case ElementType::kF32:
      if (room_ == nullptr) return reinterpret_cast<const float*>(from);
      std::memcpy(room_, from, n * sizeof(float));
      break;
    case ElementType::kF16:
      loops::float16_to_float32(reinterpret_cast<const uint16_t*>(from), n, room_);
      break;
    case ElementType::kBF16:
      loops::bfloat16_to_float32(reinterpret_cast<const uint16_t*>(from), n, room_);
      break;
    case ElementType::kF64:
      for (size_t i = 0; i < n; i++) room_[i] = static_cast<float>(double_at(tile_, first + i));
      break;
    case ElementType::kF8_E4M3:
      loops::minifloat_to_float32(reinterpret_cast<const uint8_t*>(from), n, Minifloat::kFloat8E4M3FN, room_);
      break;
    case ElementType::kF8_E5M2:
      loops::minifloat_to_float32(reinterpret_cast<const uint8_t*>(from), n, Minifloat::kFloat8E5M2, room_);
      break;
    default:
      // Ignore the status, because the type and the sizes were checked.
      static_cast<void>(dequantize_blocks({from, n / elements * bytes}, static_cast<BlockType>(tile_.type), {room_, n}));
  }
  if (tile_.ternary > 0) {
    const float inverse = 1 / tile_.ternary;
    float size = 1 / inverse;
    if (static_cast<ElementType>(tile_.type) == ElementType::kF16) {
      uint16_t bits;
      loops::round_to_float16(&size, 1, &bits, &size);
    }
    for (size_t i = 0; i < n; i++) room_[i] = clamp(round_half_even(room_[i] * inverse), -1.0f, 1.0f) * size;
  }
  if (tile_.negative_exp) {
    // Rounded once: float64 has bits to spare.
    for (size_t i = 0; i < n; i++) room_[i] = -static_cast<float>(std::exp(static_cast<double>(room_[i])));
  }
  if (tile_.factor != 1) {
    for (size_t i = 0; i < n; i++) room_[i] *= tile_.factor;
  }
  if (tile_.row_factors != nullptr) {
    for (size_t i = 0; i < n;) {
      const uint64_t row = (first + i) / tile_.columns;
      const auto end = static_cast<size_t>(std::min<uint64_t>(n, (row + 1) * tile_.columns - first));
      for (; i < end; i++) room_[i] *= tile_.row_factors[row];
    }
  }
  if (tile_.column_factors != nullptr) {
    for (size_t i = 0; i < n; i++) room_[i] *= tile_.column_factors[(first + i) % tile_.columns];
  }
  if (tile_.add != 0) {
    for (size_t i = 0; i < n; i++) room_[i] += tile_.add;
  }
  return room_;
}

Problem Floats::first_problem(uint64_t first) {
  for (const uint64_t end = tile_.size(); first < end; first += most_) {
    const auto n = static_cast<size_t>(std::min(most_, end - first));
    const float* const x = read(first, n);
    const size_t i = first_non_finite({x, n});
    if (i < n) return problem_at(first + i, x[i]);
  }
  return {};
}

Problem Floats::problem_at(uint64_t index, float value) const {
  const double stored = static_cast<ElementType>(tile_.type) == ElementType::kF64 ? double_at(tile_, index) : value;
  // The difference is NaN for NaN and for infinities.
  const bool finite = stored - stored == 0;
  return {finite ? ProblemKind::kBeyondFloat32 : ProblemKind::kNonFinite, index, stored};
}

Status decode(const Tile& tile, Arena& arena, const float*& x) noexcept {
  if (const Status status = check(tile); status != Status::kOk) return status;
  Floats floats(tile, tile.size(), arena);
  if (arena.status() != Status::kOk) return arena.status();
  x = floats.read(0, static_cast<size_t>(tile.size()));
  return Status::kOk;
}

Status observe(const Tile& tile, Arena& arena, ValueRange& range, Problem& problem) noexcept {
  if (const Status status = check(tile); status != Status::kOk) return status;
  const uint64_t size = tile.size();
  if (size == 0) return Status::kBadLayout;
  Floats floats(tile, kStepSize, arena);
  if (arena.status() != Status::kOk) return arena.status();
  problem = {};
  clear_range({&range.min, 1}, {&range.max, 1});
  for (uint64_t at = 0; at < size; at += kStepSize) {
    const auto n = static_cast<size_t>(std::min(kStepSize, size - at));
    const Status status =
        scalepoint::observe({floats.read(at, n), n}, Layout{}, 0, NonFinite::kError, {&range.min, 1}, {&range.max, 1});
    if (status == Status::kNonFinite) problem = floats.first_problem(at);
    if (status != Status::kOk) return status == Status::kNonFinite ? Status::kOk : status;
  }
  return Status::kOk;
}

Status sum_magnitudes(const Tile& tile, Arena& arena, ValueRange& sum, Problem& problem) noexcept {
  if (const Status status = check(tile); status != Status::kOk) return status;
  const uint64_t size = tile.size();
  Floats floats(tile, kStepSize, arena);
  if (arena.status() != Status::kOk) return arena.status();
  problem = {};
  double total = 0;
  for (uint64_t at = 0; at < size; at += kStepSize) {
    const auto n = static_cast<size_t>(std::min(kStepSize, size - at));
    const float* const x = floats.read(at, n);
    for (size_t i = 0; i < n; i++) total += std::fabs(static_cast<double>(x[i]));
  }
  if (total - total != 0) problem = floats.first_problem(0);
  sum.min = static_cast<float>(total);
  sum.max = static_cast<float>(total - static_cast<double>(sum.min));
  return Status::kOk;
}

}  // namespace scalepoint::codecs
