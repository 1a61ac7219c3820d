#include "codecs/bitsandbytes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "arrays/minifloat_loops.h"

namespace scalepoint::codecs {
namespace {

/// The factor of int8 codes, 1 / 127, as bitsandbytes writes it.
constexpr float kInt8Factor = 7.874015718698502e-3f;
/// Values of the codes of scales.
constexpr size_t kTableSize = 256;

/// Rounds floats to a type of 16 bits.
void round_to(ElementType type, float* x, size_t n, uint16_t* bits) {
  if (type == ElementType::kF16) {
    loops::float32_to_float16(x, n, bits);
    loops::float16_to_float32(bits, n, x);
  } else if (type == ElementType::kBF16) {
    loops::float32_to_bfloat16(x, n, bits);
    loops::bfloat16_to_float32(bits, n, x);
  }
}

Status decode_rows(const Stored& stored, Arena& arena, const float*& x) {
  const size_t rows = stored.rows, columns = stored.columns;
  if (stored.data.size != rows * columns || stored.scale.size != rows * sizeof(float)) return Status::kSizeMismatch;
  auto* const out = arena.take<float>(uint64_t{rows} * columns);
  if (arena.status() != Status::kOk) return arena.status();
  x = out;
  for (size_t row = 0; row < rows; row++) {
    float scale = 0;
    std::memcpy(&scale, stored.scale.data + row * sizeof(float), sizeof(float));
    if (!std::isfinite(scale)) return Status::kBadScale;
    const std::byte* const codes = stored.data.data + row * columns;
    for (size_t i = 0; i < columns; i++) {
      out[row * columns + i] = static_cast<float>(static_cast<int8_t>(codes[i])) * scale * kInt8Factor;
    }
  }
  return Status::kOk;
}

/// The scales of all blocks.
Status read_scales(const Stored& stored, const BitsAndBytes& codes, size_t blocks, float* scale) {
  if (codes.outer_size == 0) {
    std::memcpy(scale, stored.scale.data, blocks * sizeof(float));
  } else {
    float table[kTableSize];
    std::memcpy(table, stored.table.data, sizeof(table));
    for (size_t i = 0; i < blocks; i++) {
      float outer = 0;
      std::memcpy(&outer, stored.outer_scale.data + i / codes.outer_size * sizeof(float), sizeof(float));
      scale[i] = table[std::to_integer<size_t>(stored.scale.data[i])] * outer + codes.offset;
    }
  }
  const bool are_finite = std::all_of(scale, scale + blocks, [](float value) { return std::isfinite(value); });
  return are_finite ? Status::kOk : Status::kBadScale;
}

}  // namespace

Status decode(const Stored& stored, const BitsAndBytes& codes, Arena& arena, const float*& x) noexcept {
  const uint64_t size = uint64_t{stored.rows} * stored.columns;
  if (size == 0) return Status::kBadLayout;
  if (codes.int8) return decode_rows(stored, arena, x);
  if (codes.to != ElementType::kF32 && codes.to != ElementType::kF16 && codes.to != ElementType::kBF16) return Status::kBadDType;
  const uint64_t block = codes.block_size;
  if (block == 0 || block % 2 != 0) return Status::kBadLayout;
  const uint64_t blocks = (size + block - 1) / block;
  const bool is_nested = codes.outer_size != 0;
  const uint64_t outer = is_nested ? (blocks + codes.outer_size - 1) / codes.outer_size : 0;
  if (stored.data.size != (size + 1) / 2 || stored.scale.size != blocks * (is_nested ? 1 : sizeof(float)) ||
      stored.outer_scale.size != outer * sizeof(float) || (is_nested && stored.table.size != kTableSize * sizeof(float))) {
    return Status::kSizeMismatch;
  }
  auto* const out = arena.take<float>(size);
  auto* const scale = arena.take<float>(blocks);
  auto* const bits = arena.take<uint16_t>(codes.to == ElementType::kF32 ? 0 : block);
  if (arena.status() != Status::kOk) return arena.status();
  x = out;
  if (const Status status = read_scales(stored, codes, static_cast<size_t>(blocks), scale); status != Status::kOk) return status;
  const std::span<const float> book = published_codebook(codes.book);
  for (uint64_t i = 0; i < blocks; i++) {
    const uint64_t first = i * block, last = std::min(size, first + block);
    for (uint64_t j = first; j < last; j++) {
      const auto pair = std::to_integer<uint32_t>(stored.data.data[j / 2]);
      out[j] = book[j % 2 == 0 ? pair >> 4 : pair & 15] * scale[i];
    }
    round_to(codes.to, out + first, static_cast<size_t>(last - first), bits);
  }
  return Status::kOk;
}

}  // namespace scalepoint::codecs
