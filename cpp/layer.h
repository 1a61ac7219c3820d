// Quantized layers: a matrix of weights as codes, multiplied with rows of floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "blocks.h"
#include "dtype.h"
#include "status.h"

namespace scalepoint {

/// What a layer computes with. An int8 row of x is quantized on the fly: symmetric (absmax / 127) or asymmetric (with 0 in the
/// range), as quantize_linear does with its own range.
enum class ActivationType : int32_t { kFloat32 = 0, kInt8Symmetric = 1, kInt8Asymmetric = 2 };

/// The form of a matrix of weights [rows, columns] = [outputs, inputs].
struct LayerSpec {
  uint32_t rows = 0;
  uint32_t columns = 0;
  uint32_t group_size = 0;                                ///< columns that share a scale; `columns` for one scale a row
  uint32_t bits = 8;                                      ///< 4 for codes of up to 4 bits, 8 for those of up to 8, 32 for floats
  bool zero_points = false;                               ///< one a scale; else all have the same
  ActivationType activations = ActivationType::kFloat32;  ///< float32 if bits is 32
};

/// Bytes that such a layer takes; 0 if there is none: a size is 0, or the bits or activations are not among those above.
[[nodiscard]] uint64_t layer_bytes(const LayerSpec& spec) noexcept;

/// Lays out a layer in `layer`, whose address is a multiple of 8, with weights and bias 0. zero_point is that of all codes unless
/// spec.zero_points.
/// Status:  kBadLayout, kSizeMismatch unless layer.size() == layer_bytes(spec), kBadZeroPoint.
[[nodiscard]] Status make_layer(const LayerSpec& spec, int32_t zero_point, std::span<std::byte> layer) noexcept;

/// Fills rows from `row` on with codes, and their scales and zero points.
/// Shape:   codes: whole rows; scale and zero_point: one a row and group, in that order.
/// Status:  kBadDType if the layer's bits are not those of the type, kSizeMismatch.
[[nodiscard]] Status set_layer_codes(std::span<std::byte> layer, uint32_t row, std::span<const std::byte> codes, DType dtype,
                                     std::span<const float> scale, std::span<const int32_t> zero_point) noexcept;

/// The same with blocks of Q8_0 (a layer of 8 bits and zero point 0) or Q4_0 (4 bits, zero point 0), in groups of 32.
/// Status:  kBadDType, kSizeMismatch.
[[nodiscard]] Status set_layer_blocks(std::span<std::byte> layer, uint32_t row, std::span<const std::byte> blocks,
                                      BlockType type) noexcept;

/// The same with floats, in a layer of 32 bits.
[[nodiscard]] Status set_layer_floats(std::span<std::byte> layer, uint32_t row, std::span<const float> weights) noexcept;

/// One bias a row of the layer.
[[nodiscard]] Status set_layer_bias(std::span<std::byte> layer, std::span<const float> bias) noexcept;

/// Bytes that layer_forward needs beside x and y.
[[nodiscard]] uint64_t layer_workspace_bytes(const LayerSpec& spec, uint32_t batch) noexcept;

/// y[b, o] = sum_i x[b, i] w[o, i] + bias[o], with w = scale * (code - zero_point).
/// Shape:   x: [batch, columns]; y: [batch, rows]; workspace: layer_workspace_bytes, its address a multiple of 8.
/// Error:   int8: a group's sum is exact in integers. It is scaled and added to those of other groups in double, times the row's
///            scale, plus the bias, and rounded to float32 once.
///          float32: x becomes integers of 30 bits, block by block: at most 128 columns of one group share a power of two. So
///            |error| <= 2^-24 |y| + 2^-29 sum over blocks of (sum |w| * max |x| in the block): each x is off by at most half a
///            unit of 2^(e - 29), where 2^(e - 1) <= max |x|, the sums of a block are exact, those of blocks are in double (2^-53
///            an addition), and y is rounded to float32 once. Where the largest |x| of a block dwarfs the rest, so that for half
///            of the rest that is more than 2^-22 |x|, about what a float32 sum loses, what was cut off is added as a block of its
///            own: then each x has at least 60 bits below the largest.
///          A row of x gives the same bits in any batch.
/// Special: NaN and infinities in a row of x give what they would give in float32. Overflow of y gives infinity.
/// Status:  kSizeMismatch.
[[nodiscard]] Status layer_forward(std::span<const std::byte> layer, std::span<const float> x, uint32_t batch, std::span<float> y,
                                   std::span<std::byte> workspace) noexcept;

/// The sums of one row of x for rows [row, row + scores.size()) of a layer of codes, in double: no bias, and for int8 activations
/// not times their scale.
/// Status:  kBadDType if the layer's bits are 32, kSizeMismatch, kNonFinite.
[[nodiscard]] Status layer_scores(std::span<const std::byte> layer, std::span<const float> x, uint32_t row,
                                  std::span<double> scores, std::span<std::byte> workspace) noexcept;

}  // namespace scalepoint
