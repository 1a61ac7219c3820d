// A layer in memory: the addresses of its parts, and the positions of codes in tiles. A layer is one block of memory: a head, the segments
// of its columns, bias, scales, zero points and weights.
#pragma once

#include "layers/layer.h"
#include "layers/layer_loops.h"

namespace scalepoint {

constexpr uint64_t round_up(uint64_t n, uint64_t step) { return (n + step - 1) / step * step; }

/// The sizes that follow from a spec.
struct LayerForm {
  uint64_t tiles, groups, padded_group, padded_columns, segment_size, segments;

  explicit LayerForm(const LayerSpec& spec);
};

/// The start of a layer.
struct LayerHead {
  LayerSpec spec;
  int32_t zero_point;  ///< of all codes, unless spec.zero_points
  double common_zero;  ///< the same for the codes as they are stored (code_offset)
};

/// Allocates consecutive parts of a block of memory, each at a multiple of 16.
class Parts {
 public:
  explicit Parts(std::byte* base) : base_(reinterpret_cast<uintptr_t>(base)) {}
  template <class T>
  T* take(uint64_t n) {
    auto* const part = reinterpret_cast<T*>(base_ + used_);
    used_ += round_up(n * sizeof(T), 16);
    return part;
  }
  [[nodiscard]] uint64_t used() const { return used_; }

 private:
  uintptr_t base_;  ///< a number, because it is 0 where only `used` counts, and an offset to a null pointer is undefined behavior
  uint64_t used_ = 0;
};

/// The parts of a layer.
struct Layer {
  LayerForm form;
  uint64_t size;
  LayerHead* head;
  loops::Segment* segments;
  float* bias;
  float* scale;
  float* zero;
  std::byte* weights;

  Layer(const LayerSpec& spec, std::byte* base);

  [[nodiscard]] static uint64_t tile_bytes(const LayerSpec& spec, const LayerForm& form) {
    return form.padded_columns * spec.bits;
  }
  [[nodiscard]] const LayerSpec& spec() const { return head->spec; }
  [[nodiscard]] std::byte* tile_weights(uint64_t tile) const { return weights + tile * tile_bytes(spec(), form); }
  [[nodiscard]] loops::LayerTile tile(uint64_t tile) const;

  /// True if rows [row, row + count) are rows of the layer.
  [[nodiscard]] bool holds(uint32_t row, uint64_t count) const { return row <= spec().rows && count <= spec().rows - row; }

  /// The padded column of a column.
  [[nodiscard]] uint64_t place(uint64_t column) const {
    return column / spec().group_size * form.padded_group + column % spec().group_size;
  }

  /// The place of a row and group among the scales and zero points.
  [[nodiscard]] uint64_t parameter_place(uint64_t row, uint64_t group) const {
    return (row / loops::kTileRows * form.groups + group) * loops::kTileRows + row % loops::kTileRows;
  }
};

/// True for a valid spec.
[[nodiscard]] bool valid(const LayerSpec& spec);

/// The layer at that address: the caller's own memory, which make_layer has filled.
[[nodiscard]] Layer layer_at(std::span<const std::byte> memory);

/// Puts the code of a padded column and a row into the weights of its tile.
void put_code(std::byte* weights, uint32_t bits, uint64_t column, uint64_t row, int32_t code);

/// The code of a padded column and a row in the weights of its tile.
[[nodiscard]] int32_t code_at(const std::byte* weights, uint32_t bits, uint64_t column, uint64_t row);

}  // namespace scalepoint
