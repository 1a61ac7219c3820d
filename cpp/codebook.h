// Non-uniform codes: indices into a codebook of floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "error_sums.h"
#include "status.h"

namespace scalepoint {

// Non-uniform codes: x is cut into blocks, each block divided by its largest size or another scale, called absmax all the same, and
// each quotient replaced by the index of a near value in a codebook that all blocks share.

inline constexpr size_t kMaxCodebookSize = 256;

/// Blocks of so many elements; a piece of an array begins `offset` elements into its first block (0 <= offset < size). Its blocks
/// are (offset + n + size - 1) / size; the first and the last may lie in it only in part.
struct Blocks {
  uint64_t size;
  uint64_t offset = 0;

  [[nodiscard]] bool valid() const { return size > 0 && offset < size; }
  /// Blocks that n elements touch.
  [[nodiscard]] uint64_t count(uint64_t n) const { return n == 0 ? 0 : (offset + n - 1) / size + 1; }
};

/// The 4-bit codebooks of bitsandbytes. Source: github.com/bitsandbytes-foundation/bitsandbytes, csrc/kernels.cu.
enum class PublishedCodebook : int32_t { kNf4 = 0, kFp4 = 1 };

/// The 16 values of a published codebook by code: nf4 in ascending order, fp4 with the sign in the upper bit of the code.
[[nodiscard]] std::span<const float> published_codebook(PublishedCodebook codebook) noexcept;

/// Between which quotients the codes change: halfway between neighbouring values, or where bitsandbytes' own decision trees do,
/// whose bounds are rounded.
enum class Decision : int32_t { kNearest = 0, kNf4 = 1, kFp4 = 2 };

/// codes[i] = the code of the value nearest to v = x[i] * (1 / absmax[b]) in float32; halfway between two, that of the smaller;
/// among equal values, that of the first for v up to them. codebook[code] * absmax[b] restores x.
/// Special: a block whose absmax is 0 gets the code of 0; one whose absmax has no finite reciprocal is multiplied by 2^64 before,
///          its absmax too. Values may be in any order. With Decision::kNf4 and kFp4 the codebook has to be the published one.
/// Shape:   codes.size() == x.size(); absmax.size() == blocks.count(x.size()); 2 to kMaxCodebookSize values.
/// Status:  kBadLayout, kSizeMismatch, kBadRange if a value is not finite, kBadScale if an absmax is not finite,
///          kNonFinite if x holds NaN or an infinity.
[[nodiscard]] Status quantize_codebook(std::span<const float> x, Blocks blocks, std::span<const float> absmax,
                                       std::span<const float> codebook, Decision decision, std::span<uint8_t> codes) noexcept;

/// x[i] = codebook[codes[i]] * absmax[b], one float32 multiplication.
/// Shape and status as quantize_codebook, but for kBadRange: a code without a value in the codebook.
[[nodiscard]] Status dequantize_codebook(std::span<const uint8_t> codes, Blocks blocks, std::span<const float> absmax,
                                         std::span<const float> codebook, std::span<float> x) noexcept;

/// accumulate_error with y = the dequantized codes. Status as dequantize_codebook.
[[nodiscard]] Status accumulate_codebook_error(std::span<const float> x, std::span<const uint8_t> codes, Blocks blocks,
                                               std::span<const float> absmax, std::span<const float> codebook,
                                               ErrorSums& sums) noexcept;

}  // namespace scalepoint
