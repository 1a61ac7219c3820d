// A search for blocks with a small sum of weighted squared errors. ggml's own searches try fewer candidates, and their weights
// depend on the magnitudes of elements as well. The blocks have ggml's form, so that every reader takes them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ggml/ggml_types.h"
#include "ggml/packings_loops.h"

namespace scalepoint::loops {

/// Elements of the longest block.
inline constexpr size_t kLongestBlock = 256;

/// The values of levels: evenly spaced ones, or those of IQ4_NL or of float4e2m1.
enum class Values : uint8_t { kEven, kIQ4, kE2M1 };

/// A field of a block, from a byte of the block on.
struct Field {
  Packing packing;
  uint8_t to = 0;
};

/// Values that the blocks of a type can hold: x = scale * scales[j] * level - minimum * minimums[j], where j is the sub-block of an
/// element.
struct BestRule {
  BlockType type;
  uint8_t size, count;  ///< elements of a sub-block, and sub-blocks
  Values values = Values::kEven;
  bool affine = false;              ///< true if there are minimums
  int16_t bottom, top;              ///< of levels
  uint8_t zero = 0;                 ///< the code of level 0, if levels are even
  Field levels[2] = {};             ///< a field without a packing is unused
  int16_t lowest = 0, highest = 0;  ///< of the factors of the scale; both 0 without factors
  int16_t most = 0;                 ///< the largest factor of the minimum
  uint8_t scale_zero = 0;           ///< the code of a factor of 0
  Field scales[2] = {};  ///< of the codes of all factors of the scale, and then of the minimum; empty if packed as in Q4_K
};

/// The rule of a type, which is `searched`.
[[nodiscard]] const BestRule& best_rule(BlockType type);

/// A block as the numbers that are stored.
struct BlockParts {
  uint16_t scale = 0, minimum = 0;     ///< float16, or the exponent of a power of two
  uint8_t factors[32] = {};            ///< codes of the factors of the scale, then of the minimum
  uint8_t levels[kLongestBlock] = {};  ///< codes of the elements
};

/// Writes a block.
void pack_block(const BestRule& rule, const BlockParts& parts, uint8_t* out);

/// Searches for a block. All of x is finite. `given` holds the weights of the squared errors: finite and above 0; null if all are equal.
/// Magnitudes whose squares overflow or underflow float32 give poor blocks: improve_blocks keeps ggml's blocks if they are better.
void find_best(const BestRule& rule, const float* x, const float* given, BlockParts& parts);

/// The same, and writes the block.
void quantize_best(const BestRule& rule, const float* x, const float* given, std::byte* out);

}  // namespace scalepoint::loops
