// ggml's block formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/status.h"
#include "ggml/ggml_types.h"

namespace scalepoint {

/// Bytes of the blocks that hold n elements; 0 for other types.
[[nodiscard]] constexpr size_t blocks_bytes(BlockType type, size_t n) noexcept {
  const auto [elements, bytes] = block_size(type);
  return elements == 0 ? 0 : n / elements * bytes;
}

/// The search for the scales of blocks.
enum class BlockSearch : int32_t {
  kUsual = 0,  ///< as ggml does it
  kBest = 1,   ///< with lower errors in the same form, in more time
};

/// True if this build of the core restores blocks of a type, and makes them with that search. block_formats.h has the types of each build.
/// For other types, the functions below return kBadDType.
[[nodiscard]] bool has_blocks(BlockType type, BlockSearch search) noexcept;

/// Floats to blocks, byte for byte as ggml_quantize_chunk makes them.
/// Shape:   x.size() is a multiple of the elements of a block; blocks.size() is the bytes of as many blocks. `importance`, if it is not
///          empty, has the length of a row; x then holds whole rows, and a row whole blocks.
/// Weights: importance[j] is the weight of the squared errors of column j: finite and not negative. BlockFacts::importance lists the types
///          that ignore or need it.
/// Search:  with kBest, the sum of the squared errors of a block is at most that of the usual block, where each counts by the weight that
///          improve_blocks (best_search.h) gives its column. Both builds give the same bytes.
/// Status:  kBadDType, also for kBest unless the type is `searched`, or for types that need importance and get none; kSizeMismatch;
///          kNonFinite if x holds NaN or an infinity; kOverflow if a scale or minimum is beyond float16, so that its block would be
///          restored as infinities, or if products of elements and importance are beyond float32, where ggml ends the process. blocks are
///          undefined unless kOk.
[[nodiscard]] Status quantize_blocks(std::span<const float> x, BlockType type, std::span<std::byte> blocks,
                                     std::span<const float> importance = {}, BlockSearch search = BlockSearch::kUsual) noexcept;

/// Restores floats from blocks, bit for bit as ggml's dequantize_row_*. Any bytes are valid: a scale that is NaN or infinite gives such
/// floats.
/// Status:  kBadDType, kSizeMismatch.
[[nodiscard]] Status dequantize_blocks(std::span<const std::byte> blocks, BlockType type, std::span<float> x) noexcept;

}  // namespace scalepoint
