// Small floats in blocks that share a scale of eight bits: NVFP4, MXFP4 and MXFP8. Layouts of files place and pack what is made here.
// Sources: github.com/vllm-project/compressed-tensors ac8e2ba8, src/compressed_tensors/quantization/utils (calculate_qparams,
// generate_mx_scales); OCP Microscaling Formats 1.0; github.com/Comfy-Org/comfy-kitchen 7d86acf6 and github.com/ml-explore/mlx 0e18bb05
// for the other rules.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arrays/dtype.h"
#include "calibration/feedback.h"

namespace scalepoint::codecs {

/// The type of a block's scale.
enum class MicroscaleType : int32_t {
  kPowerOfTwo = 0,  ///< E8M0: byte e is 2^(e - 127); 255 is NaN
  kFloat8 = 1,      ///< E4M3 without a sign: 2^-9 to 448; 127 is NaN
  /// E8M0, where byte 0 is 0 and made for blocks of zeros alone, as ComfyUI has it
  kPowerOfTwoOrZero = 2,
};

/// The scale of a block by its largest magnitude, for scales that are powers of two. With L the largest value of the elements, and 2^M
/// the largest power of two in it (M = 2 of E2M1, 8 of E4M3):
enum class MicroscaleRule : int32_t {
  /// 2^(floor(log2(amax)) - M), twice that where the fraction of amax is 1.75 or more (compressed-tensors). Up to 1 / 8 saturates.
  kNearFloor = 0,
  /// 2^(floor(log2(amax)) - M) (OCP, ggml). Values up to 2^(M + 1) saturate.
  kFloor = 1,
  /// 2^ceil(log2(amax / L)) (ComfyUI, MLX with CUDA). Nothing saturates.
  kCeiling = 2,
  /// 2^round(log2(amax / L)), the nearest exponent (MLX with Metal).
  kNearest = 3,
};

/// The scale of a whole tensor by which those of its blocks are multiplied or divided.
struct GlobalScale {
  float value = 1;
  bool divides = false;  ///< true: the scale of a block is byte / value. False: byte * value
};

/// A form of microscaled floats.
struct Microscales {
  Minifloat element = Minifloat::kFloat4E2M1;  ///< kFloat4E2M1 or kFloat8E4M3FN
  MicroscaleType scale = MicroscaleType::kFloat8;
  MicroscaleRule rule = MicroscaleRule::kNearFloor;
  uint32_t block = 16;      ///< elements of a block: 16 or 32
  uint32_t zero_scale = 0;  ///< the byte of a scale that would be 0, as in a block of zeros
  bool search = false;      ///< true: takes the neighbor of the rule's scale with the smallest error
};

/// True for a form that can be made.
[[nodiscard]] bool is_valid(const Microscales& form) noexcept;

/// 448 * 6 / amax as a divisor, or amax / (448 * 6) as a multiplier: the global scale by which the largest block scale of 4-bit elements is
/// 448. 1 where that is not a positive finite float32. A divisor is computed as (1 / amax) * 2688.
[[nodiscard]] GlobalScale global_scale_of(float amax, bool divides) noexcept;

/// The value of a block's scale. 0 or NaN where the byte or the product is.
[[nodiscard]] float microscale_value(MicroscaleType type, uint8_t byte, const GlobalScale& global) noexcept;

/// The byte of a block's scale, as make_microscales chooses it: by the rule, or by the search. x: form.block finite values; weights: as
/// many, or null.
[[nodiscard]] uint8_t choose_microscale(const Microscales& form, const GlobalScale& global, const float* x,
                                        const float* weights) noexcept;

/// Makes scales and codes of whole blocks, one byte each, and the values that they stand for.
///
/// Scale:   kFloat8: E4M3 of amax / L, multiplied by a dividing or divided by a multiplying global scale; half to even, saturated.
///          kPowerOfTwo: by the rule, within the bytes 0 to 254; kPowerOfTwoOrZero: 1 to 254.
/// Search:  compares the scale of the rule with its neighbors: E4M3 from 4 bytes below to 6 above (a factor of 1.5 to 1.75, where the
///          largest magnitude becomes 4 in place of 6); powers of two one below and one above. The smallest sum of weighted squared errors
///          wins, and the rule's scale of equal ones: the error is never larger than by the rule.
/// Codes:   x / scale in float32, rounded half to even and saturated. The sign stays with a value that becomes 0. All 0 where the value
///          of the scale is 0.
/// @param x finite, blocks * form.block of them. weights: as many, or null. restored: as many, or null.
void make_microscales(const Microscales& form, const GlobalScale& global, const float* x, const float* weights, size_t blocks,
                      uint8_t* scales, uint8_t* codes, float* restored) noexcept;

/// Restores floats: code * scale in float32, with the scale rounded to float32 before. NaN where a scale or a code is.
void restore_microscales(const Microscales& form, const GlobalScale& global, const uint8_t* scales, const uint8_t* codes,
                         size_t blocks, float* x) noexcept;

/// Blocks of 4-bit elements for rounding with feedback: scales are those of the search.
class MicroscaleGrid final : public FeedbackGrid {
 public:
  /// @param bytes results: those of scales, row by row; `blocks` a row
  MicroscaleGrid(const Microscales& form, const GlobalScale& global, size_t blocks, uint8_t* bytes)
      : FeedbackGrid(form.block, 0, &kE2M1Levels), form_(form), global_(global), blocks_(blocks), bytes_(bytes) {
    form_.search = true;
  }

  bool choose(size_t row, size_t group, const float* x, const float* weights, size_t n, RowGrid& grid) override;

 private:
  Microscales form_;
  GlobalScale global_;
  size_t blocks_;
  uint8_t* bytes_;
};

}  // namespace scalepoint::codecs
