// The block types of a module, each with its loops.
#pragma once

#include <cstddef>
#include <span>

#include "ggml/best_search.h"
#include "ggml/ggml_loops.h"
#include "ggml/ggml_types.h"

namespace scalepoint {

/// Elements over which the weights of elements take the mean square, and its factor.
enum class Mean { kNone, kRow, kBlock, kTwiceBlock };

/// The loops of a block type.
struct BlockFormat {
  BlockType type;
  bool (*quantize)(const float* x, size_t n, std::byte* out);
  void (*dequantize)(const std::byte* blocks, size_t n, float* x);
  // For types that choose scales by errors.
  void (*weighted)(const float* x, const float* weights, size_t n, std::byte* out) = nullptr;
  Mean mean = Mean::kNone;
  /// In place of `weighted`, for types with grids: checks the scales itself.
  bool (*grid)(const float* x, const float* weights, size_t n, std::byte* out) = nullptr;
};

// Types that layers multiply with. Both modules have them.
inline constexpr BlockFormat kQ4_0Format = {BlockType::kQ4_0, loops::quantize_q4_0, loops::dequantize_q4_0,
                                            loops::quantize_weighted_q4_0, Mean::kRow};
inline constexpr BlockFormat kQ8_0Format = {BlockType::kQ8_0, loops::quantize_q8_0, loops::dequantize_q8_0};

/// The types of a module, and its better search: null if it has no such search.
struct BlockFormats {
  std::span<const BlockFormat> types;
  decltype(&improve_blocks) improve = nullptr;
};

/// A module links one of the two files that define this function: block_formats_arrays.cpp or block_formats_models.cpp. Code that
/// makes and restores blocks refers to their loops through it alone, so that a module holds only what its types need.
[[nodiscard]] const BlockFormats& block_formats() noexcept;

}  // namespace scalepoint
