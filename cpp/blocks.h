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
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kIQ1_M = 29,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kQ1_0 = 41,
  kQ2_0 = 42,
};

/// Elements and bytes of one block.
struct BlockSize {
  uint32_t elements;
  uint32_t bytes;
};

/// The size of the blocks of one type.
struct BlockTypeSize {
  BlockType type;
  BlockSize size;
};

/// Every block type, in the order of ggml's numbers.
inline constexpr BlockTypeSize kBlockTypes[] = {
    {BlockType::kQ4_0, {32, 18}},     {BlockType::kQ4_1, {32, 20}},     {BlockType::kQ5_0, {32, 22}},
    {BlockType::kQ5_1, {32, 24}},     {BlockType::kQ8_0, {32, 34}},     {BlockType::kQ2_K, {256, 84}},
    {BlockType::kQ3_K, {256, 110}},   {BlockType::kQ4_K, {256, 144}},   {BlockType::kQ5_K, {256, 176}},
    {BlockType::kQ6_K, {256, 210}},   {BlockType::kIQ2_XXS, {256, 66}}, {BlockType::kIQ2_XS, {256, 74}},
    {BlockType::kIQ3_XXS, {256, 98}}, {BlockType::kIQ1_S, {256, 50}},   {BlockType::kIQ4_NL, {32, 18}},
    {BlockType::kIQ3_S, {256, 110}},  {BlockType::kIQ2_S, {256, 82}},   {BlockType::kIQ4_XS, {256, 136}},
    {BlockType::kIQ1_M, {256, 56}},   {BlockType::kTQ1_0, {256, 54}},   {BlockType::kTQ2_0, {256, 66}},
    {BlockType::kMXFP4, {32, 17}},    {BlockType::kQ1_0, {128, 18}},    {BlockType::kQ2_0, {64, 18}},
};

/// The size of the blocks of a type; zeros if there is no such type.
[[nodiscard]] constexpr BlockSize block_size(BlockType type) noexcept {
  for (const auto& [candidate, size] : kBlockTypes) {
    if (candidate == type) return size;
  }
  return {0, 0};
}

/// Bytes of the blocks that hold n elements; 0 if there is no such type.
[[nodiscard]] constexpr size_t blocks_bytes(BlockType type, size_t n) noexcept {
  const auto [elements, bytes] = block_size(type);
  return elements == 0 ? 0 : n / elements * bytes;
}

/// Types that ggml makes with the importance of columns alone.
[[nodiscard]] constexpr bool needs_importance(BlockType type) noexcept {
  return type == BlockType::kIQ2_XXS || type == BlockType::kIQ2_XS || type == BlockType::kIQ1_S;
}

/// How the scales of blocks are chosen.
enum class BlockSearch : int32_t {
  kUsual = 0,  ///< as ggml does it
  kBest = 1,   ///< with lower errors in the same form, in more time
};

/// Floats to blocks, byte for byte as ggml_quantize_chunk makes them.
/// Shape:   x.size() is a multiple of the elements of a block; blocks.size() is the bytes of as many blocks. `importance`, if it is not
///          empty, has the length of a row; x is whole rows then, and a row whole blocks.
/// Weights: importance[j] is what the squared errors of column j count: finite and not negative. Types that choose no scales by
///          their errors take no notice: Q8_0, MXFP4, TQ1_0, TQ2_0, Q1_0 and Q2_0. needs_importance names those that do not go without.
/// Search:  with kBest, the sum of the squared errors of a block, each times the importance of its column, is at most that of the usual
///          block. Both sets of lanes give the same bytes.
/// Status:  kBadDType, also if there is no better search, or for types that need importance and get none; kSizeMismatch; kNonFinite if x
///          holds NaN or an infinity; kOverflow if a scale or minimum is beyond float16, so that its block would be restored as
///          infinities, or if products of elements and importance are beyond float32, where ggml ends the process. blocks mean nothing
///          unless kOk.
[[nodiscard]] Status quantize_blocks(std::span<const float> x, BlockType type, std::span<std::byte> blocks,
                                     std::span<const float> importance = {}, BlockSearch search = BlockSearch::kUsual) noexcept;

/// The floats that blocks stand for, bit for bit as ggml's dequantize_row_* gives them. Any bytes are blocks: a scale that is NaN
/// or infinite gives such floats.
/// Status:  kBadDType, kSizeMismatch.
[[nodiscard]] Status dequantize_blocks(std::span<const std::byte> blocks, BlockType type, std::span<float> x) noexcept;

}  // namespace scalepoint
