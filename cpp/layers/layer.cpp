// Makes and fills a layer: puts weights into the tiles that the loops walk. layer_forward.cpp multiplies.
#include "layers/layer.h"

#include <cstring>

#include "arrays/min_max_loops.h"
#include "lanes/float16.h"
#include "lanes/round.h"
#include "layers/layer_memory.h"

namespace scalepoint {
namespace {

using loops::kTileRows;

/// Addend of codes before they are stored, so that codes of 8 bits are signed and those of 4 bits are unsigned.
int32_t code_offset(DType dtype) {
  if (dtype.bits <= 4) return dtype.is_signed ? 8 : 0;
  return dtype.is_signed ? 0 : -128;
}

/// The segments of a layer: each group in pieces of at most segment_size columns.
void make_segments(const Layer& layer) {
  const LayerSpec& spec = layer.spec();
  const uint64_t segment_size = layer.form.segment_size;
  uint64_t n = 0;
  for (uint64_t group = 0; group < layer.form.groups; group++) {
    const uint64_t column = group * spec.group_size, left = spec.columns - column;
    const uint64_t columns = left < spec.group_size ? left : spec.group_size;
    for (uint64_t at = 0; at < columns; at += segment_size) {
      const uint64_t count = columns - at < segment_size ? columns - at : segment_size;
      layer.segments[n++] = {.start = static_cast<uint32_t>(group * layer.form.padded_group + at),
                             .length = static_cast<uint32_t>(round_up(count, loops::kColumnStep)),
                             .group = static_cast<uint32_t>(group),
                             .column = static_cast<uint32_t>(column + at),
                             .count = static_cast<uint32_t>(count)};
    }
  }
}

}  // namespace

uint64_t layer_bytes(const LayerSpec& spec) noexcept { return valid(spec) ? Layer(spec, nullptr).size : 0; }

Status make_layer(const LayerSpec& spec, int32_t zero_point, std::span<std::byte> memory) noexcept {
  if (!valid(spec)) return Status::kBadLayout;
  if (memory.size() != layer_bytes(spec)) return Status::kSizeMismatch;
  if (zero_point < -kMaxZeroPoint || zero_point > kMaxZeroPoint) return Status::kBadZeroPoint;
  std::memset(memory.data(), 0, memory.size());
  const Layer layer(spec, memory.data());
  *layer.head = {.spec = spec, .zero_point = zero_point, .common_zero = 0};
  if (spec.bits != 32) make_segments(layer);
  return Status::kOk;
}

Status set_layer_codes(std::span<std::byte> memory, uint32_t row, std::span<const std::byte> codes, DType dtype,
                       std::span<const float> scale, std::span<const int32_t> zero_point) noexcept {
  const Layer layer = layer_at(memory);
  const LayerSpec& spec = layer.spec();
  if (!dtype.valid() || spec.bits != (dtype.bits <= 4 ? 4u : 8u) || dtype.bits > 8) return Status::kBadDType;
  const uint64_t rows = codes.size() / spec.columns;
  if (codes.size() % spec.columns != 0 || !layer.holds(row, rows)) return Status::kSizeMismatch;
  if (scale.size() != rows * layer.form.groups || zero_point.size() != scale.size()) return Status::kSizeMismatch;
  const int32_t offset = code_offset(dtype);
  layer.head->common_zero = layer.head->zero_point + offset;
  for (uint64_t r = 0; r < rows; r++) {
    std::byte* const weights = layer.tile_weights((row + r) / kTileRows);
    const std::byte* const from = codes.data() + r * spec.columns;
    for (uint64_t group = 0, column = 0; group < layer.form.groups; group++) {
      const uint64_t at = layer.parameter_place(row + r, group), parameter = r * layer.form.groups + group;
      layer.scale[at] = scale[parameter];
      if (spec.zero_points) layer.zero[at] = static_cast<float>(zero_point[parameter] + offset);
      const uint64_t left = spec.columns - column, count = left < spec.group_size ? left : spec.group_size;
      const uint64_t place = group * layer.form.padded_group;
      for (uint64_t i = 0; i < count; i++, column++) {
        const int32_t code = dtype.is_signed ? static_cast<int8_t>(from[column]) : static_cast<uint8_t>(from[column]);
        put_code(weights, spec.bits, place + i, (row + r) % kTileRows, code + offset);
      }
    }
  }
  return Status::kOk;
}

Status get_layer_codes(std::span<const std::byte> memory, uint32_t row, std::span<std::byte> codes) noexcept {
  const Layer layer = layer_at(memory);
  const LayerSpec& spec = layer.spec();
  if (spec.bits != 8) return Status::kBadDType;
  const uint64_t rows = codes.size() / spec.columns;
  if (codes.size() % spec.columns != 0 || !layer.holds(row, rows)) return Status::kSizeMismatch;
  for (uint64_t r = 0; r < rows; r++) {
    const std::byte* const weights = layer.tile_weights((row + r) / kTileRows);
    for (uint64_t column = 0; column < spec.columns; column++) {
      const int32_t code = code_at(weights, spec.bits, layer.place(column), (row + r) % kTileRows);
      codes[r * spec.columns + column] = static_cast<std::byte>(code);
    }
  }
  return Status::kOk;
}

Status set_layer_blocks(std::span<std::byte> memory, uint32_t row, std::span<const std::byte> blocks, BlockType type) noexcept {
  const Layer layer = layer_at(memory);
  const LayerSpec& spec = layer.spec();
  const BlockFacts* const facts = block_facts(type);
  if (facts == nullptr || facts->layer_bits == 0 || spec.bits != facts->layer_bits || spec.group_size != facts->size.elements ||
      spec.columns % spec.group_size != 0 || spec.zero_points || layer.head->zero_point != 0) {
    return Status::kBadDType;
  }
  const bool is_q8 = type == BlockType::kQ8_0;
  const size_t block = facts->size.bytes, row_bytes = layer.form.groups * block, rows = blocks.size() / row_bytes;
  if (blocks.size() % row_bytes != 0 || !layer.holds(row, rows)) return Status::kSizeMismatch;
  layer.head->common_zero = is_q8 ? 0 : 8;
  const std::byte* from = blocks.data();
  for (uint64_t r = row; r < row + rows; r++) {
    std::byte* const weights = layer.tile_weights(r / kTileRows);
    for (uint64_t group = 0; group < layer.form.groups; group++, from += block) {
      uint16_t half;
      std::memcpy(&half, from + facts->scale.at, sizeof(half));
      layer.scale[layer.parameter_place(r, group)] = float16_value(half);
      for (uint64_t i = 0; i < 32; i++) {
        const auto byte = static_cast<int32_t>(from[2 + (is_q8 ? i : i % 16)]);
        const int32_t code = is_q8 ? static_cast<int8_t>(byte) : i < 16 ? byte & 15 : byte >> 4;
        put_code(weights, spec.bits, group * 32 + i, r % kTileRows, code);
      }
    }
  }
  return Status::kOk;
}

Status set_layer_floats(std::span<std::byte> memory, uint32_t row, std::span<const float> weights) noexcept {
  const Layer layer = layer_at(memory);
  const LayerSpec& spec = layer.spec();
  if (spec.bits != 32) return Status::kBadDType;
  const uint64_t rows = weights.size() / spec.columns;
  if (weights.size() % spec.columns != 0 || !layer.holds(row, rows)) return Status::kSizeMismatch;
  for (uint64_t r = row; r < row + rows; r++) {
    auto* const to = reinterpret_cast<float*>(layer.tile_weights(r / kTileRows)) + r % kTileRows;
    const float* const from = weights.data() + (r - row) * spec.columns;
    loops::copy_steps(from, 1, spec.columns, 1, to, kTileRows);
  }
  return Status::kOk;
}

Status set_layer_bias(std::span<std::byte> memory, std::span<const float> bias) noexcept {
  const Layer layer = layer_at(memory);
  if (bias.size() != layer.spec().rows) return Status::kSizeMismatch;
  std::memcpy(layer.bias, bias.data(), bias.size() * sizeof(float));
  return Status::kOk;
}

}  // namespace scalepoint
