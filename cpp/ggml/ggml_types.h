// The numbers of block types, and their sizes.
#pragma once

#include <cstdint>

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

}  // namespace scalepoint
