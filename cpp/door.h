// Records of the door: arguments that stay the same over many calls, passed by address.
//
// The calls of bindings_arrays.cpp and bindings_models.cpp, this file, door_models.h and the headers that they include describe the
// whole door between C++ and TypeScript. scripts/make_door.mjs has the compiler read them when building, and writes the TypeScript
// side, web/src/core/door.ts, from
//   enums      each `enum class` of int32_t, with its numbers
//   constants  each `inline constexpr` number, and tables of structs
//   records    the structs that calls take by reference, and the structs that these consist of
//   calls      each function of the bindings, with the names of its parameters and its comment
// Namespaces loops and lanes are left out. A build fails if a declaration does not fit, and if the compiler places a field elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "scalepoint.h"
#include "search/rotation.h"
#include "search/search.h"

/// Marks a call that becomes a plain wasm export, with an underscore before its name: those made once for each tile of an array. Embind
/// adds about 0.25 us to a call, and 2 to 6 us if its code is not in the caches; 1024 floats take 1.1 us in total (Node 20).
#ifdef SCALEPOINT_DESCRIBE_DOOR
#define SCALEPOINT_PLAIN_EXPORT [[clang::annotate("plain export")]]
#else
#define SCALEPOINT_PLAIN_EXPORT
#endif

namespace scalepoint::door {

/// The memory of n packed codes. B: std::byte or const std::byte.
template <class B>
std::span<B> packed_span(B* packed, size_t n, int32_t bits) {
  return {packed, static_cast<size_t>(packed_bytes(n, bits))};
}

/// An array with scales and zero points: their layout and addresses, and the spec of the codes.
struct LinearJob {
  Layout layout;
  QuantizationSpec spec;
  float* scale;
  int32_t* zero_point;
  uint32_t parameters;  ///< number of scales, and of zero points

  [[nodiscard]] std::span<float> scales() const { return {scale, parameters}; }
  [[nodiscard]] std::span<int32_t> zero_points() const { return {zero_point, parameters}; }
  [[nodiscard]] std::span<std::byte> codes(std::byte* at, size_t n) const { return {at, n * spec.dtype.storage_bytes()}; }
  [[nodiscard]] std::span<const std::byte> codes(const std::byte* at, size_t n) const {
    return {at, n * spec.dtype.storage_bytes()};
  }
};

/// An array with a codebook and a scale for every block, called absmax.
struct CodebookJob {
  uint64_t block_size;  ///< elements of a block
  float* absmax;        ///< of the array's first block, then of all others
  float* codebook;
  uint32_t values;  ///< number of values in the codebook
  Decision decision;

  [[nodiscard]] std::span<float> book() const { return {codebook, values}; }
  /// The blocks of a piece from element `start` on.
  [[nodiscard]] Blocks blocks(uint64_t start) const { return {block_size, start % block_size}; }
  [[nodiscard]] std::span<float> scales(size_t n, uint64_t start) const {
    return {absmax + start / block_size, static_cast<size_t>(blocks(start).count(n))};
  }
};

/// A layer whose weights lie in memory.
struct PackedLayer {
  LayerSpec spec;
  std::byte* weights;
  uint32_t bytes;  ///< of the weights: layer_bytes(spec)

  [[nodiscard]] std::span<std::byte> memory() const { return {weights, bytes}; }
};

}  // namespace scalepoint::door
