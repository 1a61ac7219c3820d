// Records of the door that only calls about model files take, and templates for these calls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codecs/cast.h"
#include "codecs/compressed_tensors.h"
#include "codecs/copy.h"
#include "codecs/dequantize_linear.h"
#include "codecs/elements.h"
#include "codecs/ggml.h"
#include "codecs/matmul_bnb4.h"
#include "codecs/matmul_nbits.h"
#include "door.h"

namespace scalepoint::door {

/// The result of encoding a tile, and the memory that it needs.
struct EncodedTile {
  codecs::Encoded encoded;
  uint64_t memory;  ///< bytes
};

/// The floats of a tile.
struct DecodedTile {
  const float* x;
  uint64_t memory;  ///< bytes
};

/// The range of a tile, or a problem.
struct ObservedTile {
  codecs::ValueRange range;
  codecs::Problem problem;
  uint64_t memory;  ///< bytes
};

/// The facts about sets of elements that are larger than a tile, or a problem.
struct ObservedSets {
  const codecs::ValueRange* ranges;
  uint32_t count;
  codecs::Problem problem;
  uint64_t memory;  ///< bytes
};

/// Calls f with an arena over the memory of a call. Without memory, the arena only counts.
template <class F>
Status in_arena(std::byte* memory, size_t bytes, uint64_t& taken, F f) {
  codecs::Arena arena(memory, bytes);
  const Status status = f(arena);
  taken = arena.size();
  return status;
}

/// The floats of a stored tile of any codec.
template <class C>
Status decode_tile(const codecs::Stored& stored, const C& codec, std::byte* memory, size_t bytes, DecodedTile& result) {
  return in_arena(memory, bytes, result.memory, [&](codecs::Arena& arena) { return decode(stored, codec, arena, result.x); });
}

/// Encodes a tile with any codec.
template <class C>
Status encode_tile(const codecs::Tile& tile, const C& codec, std::byte* memory, size_t bytes, EncodedTile& result) {
  return in_arena(memory, bytes, result.memory, [&](codecs::Arena& arena) { return encode(tile, codec, arena, result.encoded); });
}

}  // namespace scalepoint::door
