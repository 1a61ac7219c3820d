// Types and functions that all codecs share. A codec stores a tensor of floats in the form of a file: as one part, or as several, such as
// codes with scales. It works on tiles. A tile is a rectangle of a tensor that fits into memory, and its result depends on nothing else.
//
// A codec is one pair of files, X.h and X.cpp:
//   struct X                                                          choices of a user for a tensor
//   Status encode(const Tile&, const X&, Arena&, Encoded&)            floats to the bytes of the parts
//   Status decode(const Stored&, const X&, Arena&, const float*& x)   the bytes of parts to floats, for forms that can be read
// Each of these functions first takes all memory that it needs from the arena, also that of its results, and returns kOutOfMemory if there
// is too little. Then the function goes through the tile in steps that stay in the cache.
// Steps begin at multiples of loops::kErrorBlock elements, so that the error sums are the same for every size of step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "arrays/error_sums.h"
#include "arrays/status.h"
#include "codecs/arena.h"

namespace scalepoint::codecs {

/// Elements of a step, unless whole rows or runs need more: 64 KiB as floats, which stay in the nearest caches together with their codes. A
/// multiple of the 512 elements over which error sums are blocked, so that sums do not depend on the size of steps. Loops over arrays, in
/// TypeScript, copy this many floats at a time. With cold caches, quantizing 2^20 floats is then 12 % faster than with 2^17 at a time, and
/// dequantizing 18 %; with warm caches, both take the same time.
inline constexpr uint64_t kStepSize = 1 << 14;

/// Elements of a step of whole lines: rows, or runs that share a scale.
[[nodiscard]] constexpr uint64_t step_over(uint64_t line, uint64_t size) {
  const uint64_t twos = line & (~line + 1);  // the largest power of two that divides it
  const uint64_t unit = twos < loops::kErrorBlock ? line * (loops::kErrorBlock / twos) : line;
  return std::min(size, unit * std::max<uint64_t>(1, kStepSize / unit));
}

/// The parts of a stored tensor. Not every codec has all of them.
enum class Role : int32_t {
  kData = 0,
  kScale = 1,
  kZeroPoint = 2,
  kGlobalScale = 3,
  kGroup = 4,       ///< the index of the group of each column; only read
  kOuterScale = 5,  ///< scales of scales; only read
  kTable = 6,       ///< the values of the codes of scales; only read
};

struct Bytes {
  const std::byte* data = nullptr;
  size_t size = 0;
};

inline uint8_t* uint8s(std::byte* bytes) { return reinterpret_cast<uint8_t*>(bytes); }
inline const uint8_t* uint8s(const std::byte* bytes) { return reinterpret_cast<const uint8_t*>(bytes); }

/// The smallest and the largest of some values.
struct ValueRange {
  float min = 0;
  float max = 0;
};

/// A rectangle of a tensor in the form of the source: rows * columns elements, row by row without gaps.
struct Tile {
  uint32_t rows = 0;
  uint32_t columns = 0;
  int32_t type = 0;           ///< an ElementType or a BlockType, see elements.h
  uint32_t wanted = 1;        ///< the parts to make, a bit for each: 1 << Role
  bool measure = false;       ///< true: adds up the errors of the data
  float add = 0;              ///< addend of each element that is read
  bool negative_exp = false;  ///< true: -exp(x) in place of each element x, before the factors and the addend
  /// Above 0: in place of each element x, round_half_even(x * (1 / ternary)) within [-1, 1], divided by 1 / ternary, before all else.
  /// Rounded to float16 where the elements are.
  float ternary = 0;
  float factor = 1;                       ///< factor of each element that is read, before the addend
  const float* row_factors = nullptr;     ///< a factor of each row, by which the product with `factor` is multiplied; null: 1
  const float* column_factors = nullptr;  ///< a factor of each column, by which the result is multiplied; null: 1
  Bytes source;                           ///< at an address that suits the elements
  const ValueRange* ranges = nullptr;     ///< one a row, where rows are longer than the tile
  /// Weights of the squared errors of each column, or of each row if the rows are the inputs of a product: finite and not negative. Null:
  /// equal weights.
  const float* importance = nullptr;

  [[nodiscard]] uint64_t size() const { return uint64_t{rows} * columns; }
  [[nodiscard]] bool changes_elements() const {
    return add != 0 || negative_exp || ternary > 0 || factor != 1 || row_factors != nullptr || column_factors != nullptr;
  }
  [[nodiscard]] bool wants(Role role) const { return (wanted >> static_cast<int32_t>(role) & 1) != 0; }
};

enum class ProblemKind : int32_t {
  kNone = 0,
  kNonFinite = 1,      ///< NaN or an infinity, for which the codec has no code
  kBeyondFloat32 = 2,  ///< a finite float64 that float32 does not reach
  kOverflow = 3,       ///< a finite value that the type of its code or of its scale does not reach
};

/// An element that cannot be stored.
struct Problem {
  ProblemKind kind = ProblemKind::kNone;
  uint64_t index = 0;  ///< in the tile, counted row by row
  double value = 0;
};

/// The result of encoding a tile. If there is a problem, everything else is undefined.
struct Encoded {
  Bytes data;  ///< the parts: in the arena; empty unless wanted
  Bytes scale;
  Bytes zero_point;
  Bytes global_scale;  ///< the scale of a whole tensor, besides those of its parts
  ErrorSums sums;      ///< if the tile was measured
  Problem problem;
};

/// Adds the errors of n elements of a tile, from `first` on, whose restored values are y.
void measure(const Tile& tile, uint64_t first, const float* x, const float* y, size_t n, ErrorSums& sums);

/// Takes memory for a part of `bytes` bytes if the tile asks for it; null otherwise.
[[nodiscard]] std::byte* take_part(const Tile& tile, Role role, uint64_t bytes, Arena& arena, Bytes& part);

/// The second moments of the inputs of a matrix, and their factor: see factor_moments.
struct Moments {
  const float* moments;             ///< columns * columns, symmetric
  const float* feedback;            ///< columns * columns
  const float* weights;             ///< one for each column
  double damping = 0;               ///< that was used
  const uint32_t* order = nullptr;  ///< that feedback and weights are in: see falling_order. Null: columns as they are
  /// The same as `moments`, of data that took no part in them. Null: errors are those on the data of `moments`.
  const float* held_back = nullptr;
};

/// A rectangle of a tensor in the form of a codec.
struct Stored {
  uint32_t rows = 0;
  uint32_t columns = 0;
  Bytes data;
  Bytes scale;
  Bytes zero_point;
  Bytes global_scale = {};
  Bytes group = {};
  Bytes outer_scale = {};
  Bytes table = {};
};

}  // namespace scalepoint::codecs
