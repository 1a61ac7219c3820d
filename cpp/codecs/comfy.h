// Weights as ComfyUI stores them in its own safetensors: codes, and scales that multiply them.
// Sources: github.com/Comfy-Org/ComfyUI 0271a469, comfy/quant_ops.py and comfy/ops.py; github.com/Comfy-Org/comfy-kitchen 7d86acf6,
// backends/eager/quantization.py, float_utils.py and tensor/*.py.
#pragma once

#include "codecs/codec.h"

namespace scalepoint::codecs {

/// The kinds of codes.
enum class ComfyKind : int32_t {
  kFloat8 = 0,      ///< float8e4m3fn, one scale for the tensor: float8_e4m3fn
  kFloat8E5M2 = 1,  ///< the same of float8e5m2, which is only read: float8_e5m2
  kInt8 = 2,        ///< int8, one scale for each row: int8_tensorwise
  kMxFloat8 = 3,    ///< float8e4m3fn, a power of two for each 32 neighbors in a row: mxfp8
  kNvFloat4 = 4,    ///< float4e2m1, a float8e4m3fn scale for each 16 neighbors, and one scale for the tensor: nvfp4
};

struct Comfy {
  ComfyKind kind = ComfyKind::kFloat8;
  /// True: kInt8 and kNvFloat4 search for the scales of rows and of groups with the least squared error.
  bool search = false;
  /// kInt8, for decode: true if one scale stands for all rows.
  bool one_scale = false;
  /// kInt8, for decode: columns that were rotated together before they became codes, a power of 4 that divides the columns and is at most
  /// 65536; 0 without rotation. Tiles begin and end with such columns.
  uint32_t rotation = 0;
};

/// Codes with their scales. All arithmetic is in float32, and every rounding is half to even.
///
/// Ranges:  tile.ranges is null, or has one range, of the whole tensor, for kinds with a scale for the tensor. Then the scale of the
///          tensor is that of the range, and the source is read for codes and for scales of groups only.
/// Scales:  of the tensor absmax / 448 for floats of 8 bits, absmax / 2688 for kNvFloat4; of a row absmax / 127. Of a group
///          for kMxFloat8 the smallest power of two by which absmax comes down to 448, at least 2^-126; for kNvFloat4
///          absmax / 6 / scale of the tensor, rounded to float8e4m3fn, at most 448.
///          Zeros alone have a scale of 1, and in a group one of 0. A scale that would round to 0 is the smallest positive number, and one
///          that restores an infinity is the next smaller number.
/// Codes:   x / scale, rounded to the type of the codes and saturated. For kNvFloat4, scale is the product of both scales; codes of a
///          group whose scale is 0 are 0.
/// Search:  kInt8: search_qparams and take_better. kNvFloat4: that of make_microscales.
/// Parts:   data          codes row by row, a byte each. kNvFloat4: two to a byte, the first one in the high bits.
///          scale         kFloat8: the scale of the tensor, a float32. kInt8: a float32 for each row.
///                        kMxFloat8, kNvFloat4: a byte for each group, in the order of group_scale_index.
///          global scale  kNvFloat4: the scale of the tensor, a float32.
/// Special: NaN and infinities are problems.
/// Status:  those of check, Arena and search_qparams; kBadDType for kFloat8E5M2, rotations and unknown kinds; kBadLayout if the tile is empty, if
///          a row does not hold whole groups, or if there is a range but no scale for the tensor.
[[nodiscard]] Status encode(const Tile& tile, const Comfy& codes, Arena& arena, Encoded& result) noexcept;

/// Restores floats: code * scale; for kNvFloat4, code * (scale of the group * scale of the tensor). A group of kMxFloat8 with byte 0 is 0.
/// Rotated columns are the product with the Kronecker power of the matrix of unrotate (comfy_loops.h), divided by the square root of their
/// number: sums of codes, which are exact, times scale / root, so that an element is rounded once.
/// Status:  kBadDType, kBadLayout, also for a wrong rotation, kSizeMismatch; kBadScale if a scale of a group is NaN or negative, or another one is not finite and
///          positive.
[[nodiscard]] Status decode(const Stored& stored, const Comfy& codes, Arena& arena, const float*& x) noexcept;

/// Bytes of the scales of groups: those of rows and of groups in a row, padded to multiples of 128 and of 4.
[[nodiscard]] constexpr uint64_t group_scale_bytes(uint64_t rows, uint64_t groups) {
  return (rows + 127) / 128 * ((groups + 3) / 4) * 512;
}

/// Index of the scale of a group: tiles of 128 rows by 4 groups, row by row; in a tile first by row % 32, then by row / 32, then by group.
/// cuBLAS expects scales of blocks in this order.
[[nodiscard]] constexpr uint64_t group_scale_index(uint64_t row, uint64_t group, uint64_t groups) {
  const uint64_t tile = row / 128 * ((groups + 3) / 4) + group / 4;
  return tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + group % 4;
}

}  // namespace scalepoint::codecs
