// Adapters of low rank, such as LoRA: a weight, to which the product of two narrow matrices is added. With DoRA, each row of
// the sum has a trained norm, its magnitude.
// Source: github.com/huggingface/peft 000b5847, src/peft/tuners/lora/layer.py, and 0a6cd5a4, dora.py there; Comfy-Org/ComfyUI 6f98b150, comfy/weight_adapter/lora.py.
#pragma once

#include "codecs/codec.h"
#include "codecs/elements.h"

namespace scalepoint::codecs {

/// The matrices of an adapter for a tile of a weight. They belong to the rows and columns of the tile alone.
struct LowRank {
  uint32_t rank = 1;
  /// Types: kF32, kF16, kBF16, kF64 or a float of 8 bits.
  ElementType up_type = ElementType::kF32;
  ElementType down_type = ElementType::kF32;
  ElementType middle_type = ElementType::kF32;
  Bytes up;    ///< rows * rank
  Bytes down;  ///< rank * columns; with a middle, inner * (columns / kernel)
  /// Middle of a convolution (LoCon): rank * inner * kernel. The second matrix of the product is then
  ///   second[a][i * kernel + p] = sum over b of middle[a][b][p] * down[b][i].
  Bytes middle;
  uint32_t inner = 0;   ///< 0: without a middle
  uint32_t kernel = 1;  ///< positions of the kernel of a convolution
  /// True: up is stored as rank * rows, and down as columns * rank.
  bool turned = false;
  double strength = 1;
  double alpha = 1;
  bool root = false;  ///< true: alpha is divided by the root of the rank
  /// DoRA: a magnitude (norm) for each row of the sum, which then has to be a whole row of the weight. Empty: rows keep their norms.
  Bytes magnitude;
  ElementType magnitude_type = ElementType::kF32;
};

/// y = x + factor * (up * down), where factor is strength * (alpha / rank) in double, rounded to float32.
///
/// With magnitudes, each row of y is then multiplied by magnitude / norm, in double and rounded to float32, where the norm is the root of the
/// sum of its squares in double.
///
/// Shape:   x and y hold rows * columns elements, row by row, and may be the same.
/// Sums:    float32 over the rank, in its order, with products rounded first. All lanes give the same bytes.
/// Status:  kBadLayout for an empty tile, a rank of 0, or a middle with other columns or with `turned`; kBadDType; kSizeMismatch;
///          kBadScale if the factor is not finite; kBadRange if that of a row is not, as for a row of zeros; that of Arena.
[[nodiscard]] Status add_low_rank(const float* x, uint32_t rows, uint32_t columns, const LowRank& pair, Arena& arena,
                                  float* y) noexcept;

}  // namespace scalepoint::codecs
