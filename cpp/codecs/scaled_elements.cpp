#include "codecs/scaled_elements.h"

#include <algorithm>

#include "arrays/minifloat_loops.h"
#include "codecs/scales.h"
#include "lanes/round.h"

namespace scalepoint::codecs {

Status decode(const Stored& stored, const ScaledElements& elements, Arena& arena, const float*& x) noexcept {
  const uint64_t rows = stored.rows, columns = stored.columns, size = rows * columns;
  if (size == 0) return Status::kBadLayout;
  const bool is_known =
      elements.scale == ElementType::kF32 || elements.scale == ElementType::kF16 || elements.scale == ElementType::kBF16;
  if (!is_known || elements.type < ScaledType::kF8_E4M3 || elements.type > ScaledType::kI8) return Status::kBadDType;
  const bool is_whole = elements.block_rows == 0 && elements.block_columns == 0;
  if (elements.has_zero_point && (elements.type != ScaledType::kI8 || !is_whole)) return Status::kBadDType;
  const uint64_t block_rows = elements.block_rows == 0 ? rows : elements.block_rows;
  const uint64_t block_columns = elements.block_columns == 0 ? columns : elements.block_columns;
  const uint64_t down = (rows + block_rows - 1) / block_rows, across = (columns + block_columns - 1) / block_columns;
  const size_t scale_bytes = elements.scale == ElementType::kF32 ? 4 : 2;
  if (stored.data.size != size || stored.scale.size != down * across * scale_bytes ||
      (elements.has_zero_point && stored.zero_point.size != 1)) {
    return Status::kSizeMismatch;
  }
  auto* const out = arena.take<float>(size);
  auto* const scales = arena.take<float>(down * across);
  if (arena.status() != Status::kOk) return arena.status();

  // Read the scales.
  const auto count = static_cast<size_t>(down * across);
  load_scales(stored.scale.data, count, elements.scale, scales);
  for (size_t i = 0; i < count; i++) {
    if (!(scales[i] >= 0) || !is_finite(scales[i])) return Status::kBadScale;
  }
  // Read the elements, then multiply the parts of rows that share a scale.
  const auto* const from = uint8s(stored.data.data);
  if (elements.type == ScaledType::kI8) {
    const int32_t zero_point = elements.has_zero_point ? static_cast<int8_t>(*stored.zero_point.data) : 0;
    for (uint64_t i = 0; i < size; i++) out[i] = static_cast<float>(static_cast<int8_t>(from[i]) - zero_point);
  } else {
    const Minifloat format = elements.type == ScaledType::kF8_E4M3 ? Minifloat::kFloat8E4M3FN : Minifloat::kFloat8E5M2;
    loops::minifloat_to_float32(from, static_cast<size_t>(size), format, out);
  }
  for (uint64_t row = 0; row < rows; row++) {
    const float* const of_row = scales + row / block_rows * across;
    for (uint64_t column = 0; column < columns; column += block_columns) {
      const auto n = static_cast<size_t>(std::min(block_columns, columns - column));
      loops::multiply_by_scale(out + row * columns + column, n, of_row + column / block_columns, true);
    }
  }
  x = out;
  return Status::kOk;
}

}  // namespace scalepoint::codecs
