// NVFP4 as GGUF files hold it: blocks of ggml, and a scale of the whole matrix in a tensor of its own.
// Sources: github.com/ggml-org/ggml d99724f, src/ggml-quants.c (quantize_row_nvfp4_ref, dequantize_row_nvfp4) and src/ggml-common.h;
// github.com/ggml-org/llama.cpp at 00bd27a, conversion/base.py, for the scale.
#pragma once

#include "codecs/codec.h"
#include "codecs/microscaled.h"

namespace scalepoint::codecs {

/// Elements and bytes of a block: four scales of 16 elements each, then two codes a byte.
inline constexpr uint32_t kNvfp4Elements = 64, kNvfp4Bytes = 36;

struct Nvfp4Blocks {
  bool search = false;  ///< true: takes the neighbor of a block's scale with the smallest error
};

/// Blocks of neighbors.
///
/// Scales:  of the matrix amax / 2688 (global_scale_of); of 16 neighbors E4M3 of amax / 6 / scale of the matrix, half to even and saturated,
///          or the one that the search of make_microscales finds, with the importance of columns as weights.
/// Codes:   the nearest value of E2M1, of two equally near ones the smaller magnitude, as ggml chooses it. -0 is never made. All 0 where
///          the scale is 0.
/// Parts:   data          36 bytes for each 64 elements: 4 scales; then for each of them 8 bytes, byte j with element j in the low bits and
///                        element j + 8 in the high ones
///          global scale  one float32, of the magnitude of tile.ranges, a single range
/// Special: NaN and infinities are problems.
/// Status:  those of check and Arena; kBadLayout if the tile is empty, does not hold whole blocks, or if the range is missing.
[[nodiscard]] Status encode(const Tile& tile, const Nvfp4Blocks& blocks, Arena& arena, Encoded& result) noexcept;

/// The same for whole rows that pass their errors on: see encode_fed_rows.
[[nodiscard]] Status encode_with_feedback(const Tile& tile, const Nvfp4Blocks& blocks, const Moments& moments, Arena& arena,
                                          Encoded& result) noexcept;

/// Takes over the codes and scales of NVFP4 in the order of compressed-tensors or ModelOpt. Only codes of -0 change, to 0.
/// Parts: those of encode. The scale of the matrix is that of the source, or its reciprocal in float32 if the source divides by it.
/// Status: kBadDType unless the source is NVFP4 with a scale of the matrix; kBadLayout, kSizeMismatch; kBadScale if a scale is NaN or
///         negative, or that of the matrix not a positive finite number, nor its reciprocal.
[[nodiscard]] Status recode(const Stored& stored, const Microscaled& codes, bool measure, Arena& arena, Encoded& result) noexcept;

/// Restores floats: code * (scale of the block * scale of the matrix). ggml reads a scale of 127 as 0.
/// Status: kBadLayout, kSizeMismatch; kBadScale if the scale of the matrix is not a positive finite number.
[[nodiscard]] Status decode(const Stored& stored, const Nvfp4Blocks& blocks, Arena& arena, const float*& x) noexcept;

}  // namespace scalepoint::codecs
