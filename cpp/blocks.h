// ggml's block formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "status.h"

namespace scalepoint {

/// ggml's block types, with its numbers (ggml_type of github.com/ggml-org/ggml, include/ggml.h).
enum class BlockType : int32_t {
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kMXFP4 = 39,
};

/// Elements and bytes of one block; zeros if there is no such type.
struct BlockSize {
  uint32_t elements;
  uint32_t bytes;
};
[[nodiscard]] BlockSize block_size(BlockType type) noexcept;

/// Floats to blocks, byte for byte as ggml_quantize_chunk makes them without an importance matrix.
/// Shape:   x.size() is a multiple of the block's elements, blocks.size() the bytes of as many blocks.
/// Status:  kBadDType, kSizeMismatch; kNonFinite if x holds NaN or an infinity; kOverflow if a block would restore infinities, as
///          its scale or minimum is beyond float16. What blocks holds after an error means nothing.
[[nodiscard]] Status quantize_blocks(std::span<const float> x, BlockType type, std::span<std::byte> blocks) noexcept;

/// The floats that blocks stand for, bit for bit as ggml's dequantize_row_* gives them. Any bytes are blocks: scales that are NaN
/// or infinite give such floats.
/// Status:  kBadDType, kSizeMismatch.
[[nodiscard]] Status dequantize_blocks(std::span<const std::byte> blocks, BlockType type, std::span<float> x) noexcept;

}  // namespace scalepoint
