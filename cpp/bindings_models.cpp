// The door to JavaScript for model files: the codecs, which only the large module has. Each function here is a call of ModelsModule in
// web/src/core/door.ts. bindings_arrays.cpp describes the arguments. These calls are not plain exports, so that both modules share one glue
// file.
#include "door_models.h"

namespace scalepoint::door {
namespace {

// `memory` holds the results and all working memory, at a multiple of 16. Without it (null, 0) a call only reports the bytes that it needs.

Status encode_copy(const codecs::Tile& tile, std::byte* memory, size_t bytes, EncodedTile& result) {
  return encode_tile(tile, codecs::Copy{}, memory, bytes, result);
}

Status encode_cast(const codecs::Tile& tile, const codecs::Cast& cast, std::byte* memory, size_t bytes, EncodedTile& result) {
  return encode_tile(tile, cast, memory, bytes, result);
}

Status encode_ggml(const codecs::Tile& tile, const codecs::Ggml& ggml, std::byte* memory, size_t bytes, EncodedTile& result) {
  return encode_tile(tile, ggml, memory, bytes, result);
}

Status encode_compressed_tensors(const codecs::Tile& tile, const codecs::CompressedTensors& codes, std::byte* memory,
                                 size_t bytes, EncodedTile& result) {
  return encode_tile(tile, codes, memory, bytes, result);
}

/// Floats of codes.
Status decode_compressed_tensors(const codecs::Stored& stored, const codecs::CompressedTensors& codes, std::byte* memory,
                                 size_t bytes, DecodedTile& result) {
  return decode_tile(stored, codes, memory, bytes, result);
}

Status encode_dequantize_linear(const codecs::Tile& tile, const codecs::DequantizeLinear& codes, std::byte* memory, size_t bytes,
                                EncodedTile& result) {
  return encode_tile(tile, codes, memory, bytes, result);
}

/// Floats of codes.
Status decode_dequantize_linear(const codecs::Stored& stored, const codecs::DequantizeLinear& codes, std::byte* memory,
                                size_t bytes, DecodedTile& result) {
  return decode_tile(stored, codes, memory, bytes, result);
}

/// The facts about elements that share a scale across tiles, which encoding needs.
Status observe_dequantize_linear(const codecs::Tile& tile, const codecs::DequantizeLinear& codes, std::byte* memory, size_t bytes,
                                 ObservedSets& result) {
  return in_arena(memory, bytes, result.memory,
                  [&](codecs::Arena& arena) { return observe(tile, codes, arena, result.ranges, result.count, result.problem); });
}

Status encode_matmul_nbits(const codecs::Tile& tile, const codecs::MatMulNBits& codes, std::byte* memory, size_t bytes,
                           EncodedTile& result) {
  return encode_tile(tile, codes, memory, bytes, result);
}

/// Floats of codes.
Status decode_matmul_nbits(const codecs::Stored& stored, const codecs::MatMulNBits& codes, std::byte* memory, size_t bytes,
                           DecodedTile& result) {
  return decode_tile(stored, codes, memory, bytes, result);
}

Status encode_matmul_bnb4(const codecs::Tile& tile, const codecs::MatMulBnb4& codes, std::byte* memory, size_t bytes,
                          EncodedTile& result) {
  return encode_tile(tile, codes, memory, bytes, result);
}

/// Floats of codes.
Status decode_matmul_bnb4(const codecs::Stored& stored, const codecs::MatMulBnb4& codes, std::byte* memory, size_t bytes,
                          DecodedTile& result) {
  return decode_tile(stored, codes, memory, bytes, result);
}

/// Floats of elements.
Status decode_elements(const codecs::Tile& tile, std::byte* memory, size_t bytes, DecodedTile& result) {
  return in_arena(memory, bytes, result.memory, [&](codecs::Arena& arena) { return decode(tile, arena, result.x); });
}

Status observe_tile(const codecs::Tile& tile, std::byte* memory, size_t bytes, ObservedTile& result) {
  return in_arena(memory, bytes, result.memory,
                  [&](codecs::Arena& arena) { return observe(tile, arena, result.range, result.problem); });
}

}  // namespace
}  // namespace scalepoint::door

// Made by scripts/make_door.mjs: gives each of these functions to JavaScript.
#ifndef SCALEPOINT_DESCRIBE_DOOR
#include "door_exports_models.h"
#endif
