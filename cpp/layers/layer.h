// Quantized layers: a matrix of weights as codes, multiplied with rows of floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/dtype.h"
#include "arrays/status.h"
#include "ggml/ggml_blocks.h"

namespace scalepoint {

/// Type of the activations. int8: quantizes each row of x first, symmetric (absmax / 127) or asymmetric (with 0 in the range), as
/// quantize_linear does with the range of the row.
enum class ActivationType : int32_t { kFloat32 = 0, kInt8Symmetric = 1, kInt8Asymmetric = 2 };

/// The form of a matrix of weights [rows, columns] = [outputs, inputs].
struct LayerSpec {
  uint32_t rows = 0;
  uint32_t columns = 0;
  uint32_t group_size = 0;                                ///< columns that share a scale; `columns` for one scale in each row
  uint32_t bits = 8;                                      ///< 4 for codes of up to 4 bits, 8 for those of up to 8, 32 for floats
  bool zero_points = false;                               ///< true if each scale has a zero point; else all share one
  ActivationType activations = ActivationType::kFloat32;  ///< float32 if bits is 32
};

/// Size of such a layer in bytes. 0 for an invalid spec: a size is 0, or the bits or activations are not among those above.
[[nodiscard]] uint64_t layer_bytes(const LayerSpec& spec) noexcept;

/// Lays out a layer whose bias is 0. Weights are undefined until their rows are filled. The address of `layer` is a multiple of 8. zero_point is that of all codes,
/// unless spec.zero_points.
/// Status:  kBadLayout, kSizeMismatch unless layer.size() == layer_bytes(spec), kBadZeroPoint.
[[nodiscard]] Status make_layer(const LayerSpec& spec, int32_t zero_point, std::span<std::byte> layer) noexcept;

/// Fills rows from `row` on with codes, and their scales and zero points.
/// Shape:   codes: whole rows; scale and zero_point: one for each row and group, in that order.
/// Status:  kBadDType if the layer's bits are not those of the type, kSizeMismatch.
/// Speed:   rows that fill tiles of eight take a fraction of the time of others.
[[nodiscard]] Status set_layer_codes(std::span<std::byte> layer, uint32_t row, std::span<const std::byte> codes, DType dtype,
                                     std::span<const float> scale, std::span<const int32_t> zero_point) noexcept;

/// The same with blocks of Q8_0 or Q4_0. The layer has groups of 32, zero point 0, and 8 or 4 bits.
/// Status:  kBadDType, kSizeMismatch.
[[nodiscard]] Status set_layer_blocks(std::span<std::byte> layer, uint32_t row, std::span<const std::byte> blocks,
                                      BlockType type) noexcept;

/// The same with floats, in a layer of 32 bits.
/// Status:  kBadDType, kSizeMismatch.
[[nodiscard]] Status set_layer_floats(std::span<std::byte> layer, uint32_t row, std::span<const float> weights) noexcept;

/// The codes of int8 of whole rows, from `row` on, as set_layer_codes took them.
/// Status:  kBadDType unless the layer has 8 bits, kSizeMismatch.
[[nodiscard]] Status get_layer_codes(std::span<const std::byte> layer, uint32_t row, std::span<std::byte> codes) noexcept;

/// Sets the bias of every row of the layer. kSizeMismatch unless the bias has one value per row.
[[nodiscard]] Status set_layer_bias(std::span<std::byte> layer, std::span<const float> bias) noexcept;

/// Size of the workspace of layer_forward in bytes.
[[nodiscard]] uint64_t layer_workspace_bytes(const LayerSpec& spec, uint32_t batch) noexcept;

/// y[b, o] = sum_i x[b, i] w[o, i] + bias[o], with w = scale * (code - zero_point). A row of x gives the same bits in any batch.
/// Shape:   x: [batch, columns]; y: [batch, rows]; workspace: layer_workspace_bytes, its address a multiple of 8.
/// Error:   int8     The sum of a group is exact in integers. In double it is scaled, added to those of other groups, multiplied
///                   by the scale of the row of x, and added to the bias. That is rounded to float32 once.
///          float32  x becomes integers of 30 bits, block by block. A block is at most 128 columns of one group, which share a
///                   power of two: each x is off by at most half a unit of 2^(e - 29), where 2^(e - 1) <= max |x|. The sums of a
///                   block are exact, and those of blocks are in double. So
///                     |error| <= 2^-24 |y| + 2^-29 sum over blocks of (sum |w| * max |x| in the block).
///                   If half of the values of a block other than 0 lose more than 2^-22 |x|, their remainders are added as another block.
///                   Each x then has at least 60 bits below the largest.
/// Special: NaN and infinities in a row of x have the same effect as in float32. Overflow of y gives infinity.
/// Status:  kSizeMismatch.
[[nodiscard]] Status layer_forward(std::span<const std::byte> layer, std::span<const float> x, uint32_t batch, std::span<float> y,
                                   std::span<std::byte> workspace) noexcept;

}  // namespace scalepoint
