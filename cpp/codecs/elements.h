// The elements of a file as floats.
#pragma once

#include "codecs/codec.h"
#include "ggml/ggml_types.h"

namespace scalepoint::codecs {

/// Float types of single elements, with ggml's numbers where it has them. The numbers of BlockType stand for its blocks.
enum class ElementType : int32_t {
  kF32 = static_cast<int32_t>(ListedType::kF32),
  kF16 = static_cast<int32_t>(ListedType::kF16),
  kF64 = static_cast<int32_t>(ListedType::kF64),
  kBF16 = static_cast<int32_t>(ListedType::kBF16),
  kF8_E4M3 = 1000,
  kF8_E5M2 = 1001,
};

/// Size of one element, or of a block of them, of an ElementType or a BlockType. Zeros for other numbers.
[[nodiscard]] BlockSize element_size(int32_t type) noexcept;

/// kBadDType for other types; kSizeMismatch unless the source has as many bytes as the tile has elements.
[[nodiscard]] Status check(const Tile& tile) noexcept;

/// Converts the elements of a tile to floats, one piece at a time. Exact, except for float64, which is rounded half to even. Factors
/// of the tile and its addend follow in float32, each rounded.
class Floats {
 public:
  /// For pieces of at most `most` elements.
  Floats(const Tile& tile, uint64_t most, Arena& arena);

  /// The elements [first, first + n), valid until the next call. Pieces begin at whole blocks.
  [[nodiscard]] const float* read(uint64_t first, size_t n);

  /// The problem of the first element, from `first` on, that is not a finite number in float32.
  [[nodiscard]] Problem first_problem(uint64_t first);

  /// The problem of element `index`, whose float is `value`: kNonFinite if the stored element is NaN or infinite, else kBeyondFloat32.
  [[nodiscard]] Problem problem_at(uint64_t index, float value) const;

 private:
  const Tile& tile_;
  uint64_t most_;
  float* room_ = nullptr;
};

/// All elements of a tile as floats: in place if they are float32, else in the arena.
/// Status: those of check and Arena.
[[nodiscard]] Status decode(const Tile& tile, Arena& arena, const float*& x) noexcept;

/// The smallest and the largest value of a tile.
/// Special: NaN, infinities and elements beyond float32 are problems. -0 counts as 0.
/// Status:  those of check and Arena; kBadLayout if the tile is empty.
[[nodiscard]] Status observe(const Tile& tile, Arena& arena, ValueRange& range, Problem& problem) noexcept;

/// The sum of the magnitudes of a tile, added up in float64: in `min` the nearest float32, in `max` what it lacks.
/// Special: NaN, infinities and elements beyond float32 are problems.
/// Status:  those of check and Arena.
[[nodiscard]] Status sum_magnitudes(const Tile& tile, Arena& arena, ValueRange& sum, Problem& problem) noexcept;

}  // namespace scalepoint::codecs
