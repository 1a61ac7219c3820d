// Facts of ggml's types: everything that depends on the type alone. The door exports them.
#pragma once

#include <cstdint>

namespace scalepoint {

/// Block types with loops here, with ggml's numbers (ggml_type of github.com/ggml-org/ggml d99724f, include/ggml.h).
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

/// Types without loops here: plain numbers, and blocks that are only listed and copied. With ggml's numbers.
enum class ListedType : int32_t {
  kF32 = 0,
  kF16 = 1,
  kQ8_1 = 9,
  kQ8_K = 15,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kBF16 = 30,
  kNVFP4 = 40,
};

/// Elements and bytes of one block. A plain number is a block of one element.
struct BlockSize {
  uint32_t elements;
  uint32_t bytes;
};

/// Use of the importance of columns in quantizing.
enum class Importance : int32_t {
  kIgnored = 0,  ///< no scale depends on errors
  kTaken = 1,    ///< weights the squared errors
  kNeeded = 2,   ///< the same, and quantizing without it is an error, as in ggml
};

/// Form of the stored scale of a block.
enum class ScaleForm : int32_t {
  kFloat16 = 0,
  kPowerOfTwo = 1,  ///< one byte, the exponent of float32; 255 is NaN
  kScattered = 2,   ///< a float16, four bits of it in the top of each of four 16-bit words; the lowest bits come first
};

/// Position of the stored scale in a block.
struct BlockScale {
  ScaleForm form = ScaleForm::kFloat16;
  uint32_t at = 0;       ///< its first byte in the block
  bool minimum = false;  ///< true if a minimum follows it, in the same form
};

/// Facts of a block type. Fields that a row omits have the value of most types.
struct BlockFacts {
  BlockType type;
  BlockSize size;
  Importance importance = Importance::kTaken;
  bool searched = false;  ///< true if BlockSearch::kBest is available
  bool feedback = false;  ///< true if rounding can pass its errors on: see calibration/block_grids.h
  BlockScale scale = {};
  uint32_t layer_bits = 0;  ///< bits of the codes in layers; 0 if layers have no kernel for the type
};

/// Every block type, in the order of ggml's numbers. Source: github.com/ggml-org/ggml d99724f, src/ggml-common.h and ggml_quantize_chunk.
inline constexpr BlockFacts kBlockTypes[] = {
    {.type = BlockType::kQ4_0, .size = {32, 18}, .searched = true, .feedback = true, .layer_bits = 4},
    {.type = BlockType::kQ4_1, .size = {32, 20}, .searched = true, .feedback = true, .scale = {.minimum = true}},
    {.type = BlockType::kQ5_0, .size = {32, 22}, .searched = true, .feedback = true},
    {.type = BlockType::kQ5_1, .size = {32, 24}, .searched = true, .feedback = true, .scale = {.minimum = true}},
    {.type = BlockType::kQ8_0,
     .size = {32, 34},
     .importance = Importance::kIgnored,
     .searched = true,
     .feedback = true,
     .layer_bits = 8},
    {.type = BlockType::kQ2_K, .size = {256, 84}, .searched = true, .feedback = true, .scale = {.at = 80, .minimum = true}},
    {.type = BlockType::kQ3_K, .size = {256, 110}, .searched = true, .feedback = true, .scale = {.at = 108}},
    {.type = BlockType::kQ4_K, .size = {256, 144}, .searched = true, .feedback = true, .scale = {.minimum = true}},
    {.type = BlockType::kQ5_K, .size = {256, 176}, .searched = true, .feedback = true, .scale = {.minimum = true}},
    {.type = BlockType::kQ6_K, .size = {256, 210}, .searched = true, .feedback = true, .scale = {.at = 208}},
    {.type = BlockType::kIQ2_XXS, .size = {256, 66}, .importance = Importance::kNeeded},
    {.type = BlockType::kIQ2_XS, .size = {256, 74}, .importance = Importance::kNeeded},
    {.type = BlockType::kIQ3_XXS, .size = {256, 98}},
    {.type = BlockType::kIQ1_S, .size = {256, 50}, .importance = Importance::kNeeded},
    {.type = BlockType::kIQ4_NL, .size = {32, 18}, .searched = true, .feedback = true},
    {.type = BlockType::kIQ3_S, .size = {256, 110}},
    {.type = BlockType::kIQ2_S, .size = {256, 82}},
    {.type = BlockType::kIQ4_XS, .size = {256, 136}, .searched = true, .feedback = true},
    {.type = BlockType::kIQ1_M, .size = {256, 56}, .scale = {.form = ScaleForm::kScattered, .at = 48}},
    {.type = BlockType::kTQ1_0, .size = {256, 54}, .importance = Importance::kIgnored, .scale = {.at = 52}},
    {.type = BlockType::kTQ2_0, .size = {256, 66}, .importance = Importance::kIgnored, .scale = {.at = 64}},
    {.type = BlockType::kMXFP4,
     .size = {32, 17},
     .importance = Importance::kIgnored,
     .searched = true,
     .feedback = true,
     .scale = {.form = ScaleForm::kPowerOfTwo}},
    {.type = BlockType::kQ1_0, .size = {128, 18}, .importance = Importance::kIgnored},
    {.type = BlockType::kQ2_0, .size = {64, 18}, .importance = Importance::kIgnored},
};

/// Size of a listed type.
struct ListedFacts {
  ListedType type;
  BlockSize size;
};

/// Every listed type, in the order of ggml's numbers.
inline constexpr ListedFacts kListedTypes[] = {
    {ListedType::kF32, {1, 4}}, {ListedType::kF16, {1, 2}},  {ListedType::kQ8_1, {32, 36}},  {ListedType::kQ8_K, {256, 292}},
    {ListedType::kI8, {1, 1}},  {ListedType::kI16, {1, 2}},  {ListedType::kI32, {1, 4}},     {ListedType::kI64, {1, 8}},
    {ListedType::kF64, {1, 8}}, {ListedType::kBF16, {1, 2}}, {ListedType::kNVFP4, {64, 36}},
};

/// Facts of a block type; null for other numbers.
[[nodiscard]] constexpr const BlockFacts* block_facts(BlockType type) noexcept {
  for (const BlockFacts& facts : kBlockTypes) {
    if (facts.type == type) return &facts;
  }
  return nullptr;
}

/// The size of the blocks of a type; zeros for other numbers.
[[nodiscard]] constexpr BlockSize block_size(BlockType type) noexcept {
  const BlockFacts* const facts = block_facts(type);
  return facts == nullptr ? BlockSize{0, 0} : facts->size;
}

/// The size of a listed type; zeros for other numbers.
[[nodiscard]] constexpr BlockSize listed_size(ListedType type) noexcept {
  for (const ListedFacts& facts : kListedTypes) {
    if (facts.type == type) return facts.size;
  }
  return {0, 0};
}

}  // namespace scalepoint
