// Matrices of microscaled floats as rows of codes, with scales in the order of the blocks: NVFP4, MXFP4 and MXFP8 as compressed-tensors
// and ModelOpt store them.
// Sources: github.com/vllm-project/compressed-tensors ac8e2ba8, src/compressed_tensors/compressors;
// github.com/NVIDIA/TensorRT-Model-Optimizer at 0d7d92d, modelopt/torch/quantization/qtensor/nvfp4_tensor.py.
#pragma once

#include "codecs/codec.h"
#include "codecs/elements.h"
#include "codecs/microscales.h"

namespace scalepoint::codecs {

/// Use of a global scale.
enum class GlobalScaleForm : int32_t {
  kNone = 0,
  kDivides = 1,     ///< a float32 by which scales are divided (compressed-tensors)
  kMultiplies = 2,  ///< a float32 by which scales are multiplied (ModelOpt)
};

struct Microscaled {
  Microscales form;
  GlobalScaleForm global = GlobalScaleForm::kNone;
};

/// Codes of whole blocks in rows.
///
/// Parts:   data          4 bits: two codes a byte, the first in the low bits; 8 bits: one
///          scale         a byte for each block, row by row
///          global scale  one float32, with a form of it: global_scale_of the magnitude of tile.ranges, a single range
/// Scales and codes are those of make_microscales, with the importance of columns as weights.
/// Special: NaN and infinities are problems, and with error sums also values that are restored as infinities.
/// Status:  those of check and Arena; kBadDType for an invalid form; kBadLayout if the tile is empty, if a row does not hold whole blocks, or
///          if a range is missing.
[[nodiscard]] Status encode(const Tile& tile, const Microscaled& codes, Arena& arena, Encoded& result) noexcept;

/// The same for whole rows that pass their errors on: see encode_fed_rows. Status: also kBadDType for elements of 8 bits.
[[nodiscard]] Status encode_with_feedback(const Tile& tile, const Microscaled& codes, const Moments& moments, Arena& arena,
                                          Encoded& result) noexcept;

/// Restores floats. Status: kBadDType, kBadLayout, kSizeMismatch, kBadScale if a scale is NaN or negative, or the global scale not a positive
/// finite number.
[[nodiscard]] Status decode(const Stored& stored, const Microscaled& codes, Arena& arena, const float*& x) noexcept;

}  // namespace scalepoint::codecs
