// Non-uniform codes. x is cut into blocks, and each block is divided by its absmax. Each quotient is replaced by the index of a
// near value in a codebook that all blocks share. absmax is the largest magnitude of the block, or another scale (absmax.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/error_sums.h"
#include "arrays/status.h"

namespace scalepoint {

inline constexpr size_t kMaxCodebookSize = 256;

/// Blocks of `size` elements. A piece of an array begins `offset` elements into its first block, 0 <= offset < size. The first and the last
/// block may lie only partly in the piece.
struct Blocks {
  uint64_t size;
  uint64_t offset = 0;

  [[nodiscard]] bool valid() const { return size > 0 && offset < size; }
  /// Number of blocks with elements in a piece of n elements.
  [[nodiscard]] uint64_t count(uint64_t n) const { return n == 0 ? 0 : (offset + n - 1) / size + 1; }
};

/// The 4-bit codebooks of bitsandbytes. Source: github.com/bitsandbytes-foundation/bitsandbytes 95f9af3, csrc/kernels.cu.
enum class PublishedCodebook : int32_t { kNf4 = 0, kFp4 = 1 };

/// The 16 values of a published codebook by code: nf4 in ascending order, fp4 with the sign in the upper bit of the code.
[[nodiscard]] std::span<const float> published_codebook(PublishedCodebook codebook) noexcept;

/// Quotients at which the code changes: halfway between neighboring values, or at the rounded bounds of bitsandbytes' decision trees. kNf4
/// and kFp4 are for the published codebooks.
enum class Decision : int32_t { kNearest = 0, kNf4 = 1, kFp4 = 2 };

/// codes[i] = the code of the value nearest to v = x[i] * (1 / absmax[b]), computed in float32. codebook[code] * absmax[b]
/// restores x[i]. The values of a codebook may be in any order.
/// Special: halfway between two values, v gets the code of the smaller. Of equal values, v up to them gets the code of the first,
///          and v above them that of the last. A block whose absmax is 0 gets the code of 0. If 1 / absmax is not finite, x and
///          absmax are multiplied by 2^64 first.
/// Shape:   codes.size() == x.size(); absmax.size() == blocks.count(x.size()); 2 to kMaxCodebookSize values.
/// Status:  kBadLayout, kSizeMismatch, kBadRange if a value is not finite, kBadScale if an absmax is not finite,
///          kNonFinite if x holds NaN or an infinity.
[[nodiscard]] Status quantize_codebook(std::span<const float> x, Blocks blocks, std::span<const float> absmax,
                                       std::span<const float> codebook, Decision decision, std::span<uint8_t> codes) noexcept;

/// x[i] = codebook[codes[i]] * absmax[b], one float32 multiplication.
/// Shape as quantize_codebook.
/// Status:  kBadLayout, kSizeMismatch, kBadScale; kBadRange if a code has no value in the codebook.
[[nodiscard]] Status dequantize_codebook(std::span<const uint8_t> codes, Blocks blocks, std::span<const float> absmax,
                                         std::span<const float> codebook, std::span<float> x) noexcept;

/// accumulate_error (metrics.h) with y = the dequantized codes. Status as dequantize_codebook.
[[nodiscard]] Status accumulate_codebook_error(std::span<const float> x, std::span<const uint8_t> codes, Blocks blocks,
                                               std::span<const float> absmax, std::span<const float> codebook,
                                               ErrorSums& sums) noexcept;

}  // namespace scalepoint
