// Codes of a matrix by data about its inputs: scales with the least weighted errors, and rounding that passes errors on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codecs/codec.h"
#include "codecs/elements.h"

namespace scalepoint::codecs {

/// A matrix whose rows are multiplied with inputs, the form of its codes, and the data about the inputs.
struct InputMatrix {
  size_t rows = 0;
  size_t columns = 0;     ///< inputs
  size_t group_size = 0;  ///< neighbors in a row that share a scale; the last group of a row may be shorter. 0: whole rows
  int32_t bits = 4;
  bool symmetric = true;
  /// True if symmetric scales may be negative.
  bool negative = false;
  /// True if zero points are floats of the scales' type. Only without `symmetric`, for groups of at most 256.
  bool float_zero_points = false;
  ElementType scale = ElementType::kF32;  ///< kF32, kF16 or kBF16, the latter without float zero points
  const float* importance = nullptr;      ///< weights of the squared errors, one for each column
  const Moments* moments = nullptr;       ///< null: rounding passes no errors on
  /// Scales, positive and finite, and zero points of all sets, which are kept as they are. Null: they are searched for.
  const float* given_scales = nullptr;
  const float* given_zero_points = nullptr;

  [[nodiscard]] size_t size() const { return rows * columns; }
  [[nodiscard]] size_t group() const { return group_size == 0 ? columns : group_size; }
  [[nodiscard]] size_t groups() const { return (columns + group() - 1) / group(); }
  /// Scales, and zero points.
  [[nodiscard]] size_t sets() const { return rows * groups(); }
};

/// Codes without a sign, and their parameters, row by row: restored = scale * (code - zero point).
struct InputCodes {
  uint8_t* codes = nullptr;
  float* scales = nullptr;
  float* zero_points = nullptr;
};

/// Makes the codes of a matrix, in the arena.
///   w     rows * columns, finite, and so are the scales of their whole ranges
///   sums  if not null: their errors; with moments also the errors of outputs
/// Scales and zero points have the least weighted error among those that search_weighted_scale tries and that of search_qparams, as they are
/// stored. With moments, OutputJudge chooses the rows that take codes with errors passed on, and refined ones.
/// Status:  kBadLayout for float zero points of longer groups; kNonFinite if errors of outputs are not finite; those of Arena.
[[nodiscard]] Status make_input_codes(std::span<const float> w, const InputMatrix& matrix, Arena& arena, InputCodes& result,
                                      ErrorSums* sums) noexcept;

/// Adds the errors of outputs that rows y make in place of rows w, which no errors were passed on in: output_x, output_before, output_error.
/// @param moments columns * columns, symmetric
[[nodiscard]] Status sum_output_errors(std::span<const float> w, const float* y, size_t columns, const float* moments,
                                       Arena& arena, ErrorSums& sums) noexcept;

/// The rows of a tile that are multiplied with inputs: those of the tile, or its columns if `turned`. Takes memory for columns from the
/// arena.
[[nodiscard]] Status take_input_rows(const Tile& tile, bool turned, Arena& arena, const float*& w) noexcept;

}  // namespace scalepoint::codecs
