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

/// Calls f(part, at) for rows [row, row + rows): tile by tile, and within a tile group by group. `at` is the place of the part's first code
/// among the codes of these rows.
template <class F>
void for_each_part(const Layer& layer, uint64_t row, uint64_t rows, F f) {
  const LayerSpec& spec = layer.spec();
  for (uint64_t r = 0; r < rows;) {
    const uint64_t first = (row + r) % kTileRows, left = rows - r;
    const uint64_t count = left < kTileRows - first ? left : kTileRows - first;
    auto* const tile = reinterpret_cast<uint8_t*>(layer.tile_weights((row + r) / kTileRows));
    for (uint64_t group = 0; group < layer.form.groups; group++) {
      const uint64_t column = group * spec.group_size, rest = spec.columns - column;
      f(loops::TilePart{.tile = tile + group * layer.form.padded_group * spec.bits,
                        .first = static_cast<size_t>(first),
                        .count = static_cast<size_t>(count),
                        .columns = static_cast<size_t>(rest < spec.group_size ? rest : spec.group_size)},
        static_cast<size_t>(r * spec.columns + column));
    }
    r += count;
  }
}

}  // namespace

uint64_t layer_bytes(const LayerSpec& spec) noexcept { return valid(spec) ? Layer(spec, nullptr).size : 0; }

Status make_layer(const LayerSpec& spec, int32_t zero_point, std::span<std::byte> memory) noexcept {
  if (!valid(spec)) return Status::kBadLayout;
  if (memory.size() != layer_bytes(spec)) return Status::kSizeMismatch;
  if (zero_point < -kMaxZeroPoint || zero_point > kMaxZeroPoint) return Status::kBadZeroPoint;
  const Layer layer(spec, memory.data());
  // Floats are cleared for the sake of their padding, which is multiplied with 0.
  std::memset(memory.data(), 0, spec.bits == 32 ? memory.size() : static_cast<size_t>(layer.weights - memory.data()));
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
    for (uint64_t group = 0; group < layer.form.groups; group++) {
      const uint64_t at = layer.parameter_place(row + r, group), parameter = r * layer.form.groups + group;
      layer.scale[at] = scale[parameter];
      if (spec.zero_points) layer.zero[at] = static_cast<float>(zero_point[parameter] + offset);
    }
  }
  auto* const from = reinterpret_cast<const uint8_t*>(codes.data());
  for_each_part(layer, row, rows, [&](const loops::TilePart& part, size_t at) {
    loops::fill_tile(static_cast<int>(spec.bits), from + at, spec.columns, static_cast<uint8_t>(offset), part);
  });
  return Status::kOk;
}

Status get_layer_codes(std::span<const std::byte> memory, uint32_t row, std::span<std::byte> codes) noexcept {
  const Layer layer = layer_at(memory);
  const LayerSpec& spec = layer.spec();
  if (spec.bits != 8) return Status::kBadDType;
  const uint64_t rows = codes.size() / spec.columns;
  if (codes.size() % spec.columns != 0 || !layer.holds(row, rows)) return Status::kSizeMismatch;
  auto* const to = reinterpret_cast<uint8_t*>(codes.data());
  for_each_part(layer, row, rows, [&](const loops::TilePart& part, size_t at) { loops::read_tile(part, to + at, spec.columns); });
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
