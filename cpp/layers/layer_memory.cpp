#include "layers/layer_memory.h"

namespace scalepoint {

using loops::kColumnStep;
using loops::kTileRows;

LayerForm::LayerForm(const LayerSpec& spec) {
  tiles = round_up(spec.rows, kTileRows) / kTileRows;
  groups = round_up(spec.columns, spec.group_size) / spec.group_size;
  padded_group = round_up(spec.group_size, kColumnStep);
  const uint64_t last = spec.columns - (groups - 1) * spec.group_size;
  padded_columns = (groups - 1) * padded_group + round_up(last, kColumnStep);
  segment_size = spec.activations == ActivationType::kFloat32 ? loops::kFixedPointColumns : loops::kInt8Columns;
  const auto segments_of = [&](uint64_t columns) { return round_up(columns, segment_size) / segment_size; };
  segments = (groups - 1) * segments_of(spec.group_size) + segments_of(last);
}

Layer::Layer(const LayerSpec& spec, std::byte* base) : form(spec) {
  Parts parts(base);
  head = parts.take<LayerHead>(1);
  segments = parts.take<loops::Segment>(spec.bits == 32 ? 0 : form.segments);
  bias = parts.take<float>(form.tiles * kTileRows);
  scale = parts.take<float>(spec.bits == 32 ? 0 : form.tiles * form.groups * kTileRows);
  zero = parts.take<float>(spec.zero_points ? form.tiles * form.groups * kTileRows : 0);
  weights = parts.take<std::byte>(form.tiles * tile_bytes(spec, form));
  size = parts.used();
}

loops::LayerTile Layer::tile(uint64_t tile) const {
  const uint64_t at = tile * form.groups * kTileRows;
  return {.weights = tile_weights(tile),
          .scale = form.groups > 1 ? scale + at : nullptr,
          .zero = spec().zero_points ? zero + at : nullptr,
          .common_zero = head->common_zero};
}

bool valid(const LayerSpec& spec) {
  if (spec.rows == 0 || spec.columns == 0 || spec.group_size == 0 || spec.group_size > spec.columns) return false;
  const auto activations = static_cast<int32_t>(spec.activations);
  if (activations < 0 || activations > 2) return false;
  return spec.bits == 4 || spec.bits == 8 ||
         (spec.bits == 32 && activations == 0 && spec.group_size == spec.columns && !spec.zero_points);
}

Layer layer_at(std::span<const std::byte> memory) {
  auto* const base = const_cast<std::byte*>(memory.data());
  return {reinterpret_cast<const LayerHead*>(base)->spec, base};
}

void put_code(std::byte* weights, uint32_t bits, uint64_t column, uint64_t row, int32_t code) {
  if (bits == 8) {
    weights[column / 2 * 16 + row * 2 + column % 2] = static_cast<std::byte>(code);
  } else {
    std::byte& pair = weights[column / 4 * 16 + row * 2 + column % 2];
    const uint32_t shift = column / 2 % 2 * 4;
    pair = (pair & static_cast<std::byte>(0xF0u >> shift)) | static_cast<std::byte>(static_cast<uint32_t>(code) << shift);
  }
}

int32_t code_at(const std::byte* weights, uint32_t bits, uint64_t column, uint64_t row) {
  if (bits == 8) return static_cast<int8_t>(weights[column / 2 * 16 + row * 2 + column % 2]);
  return static_cast<int32_t>(weights[column / 4 * 16 + row * 2 + column % 2]) >> (column / 2 % 2 * 4) & 15;
}

}  // namespace scalepoint
