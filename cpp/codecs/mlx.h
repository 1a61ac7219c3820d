// Codes with a scale and a bias for each group, as MLX quantizes and mlx-lm stores them.
// Source: github.com/ml-explore/mlx 846d1762, mlx/backend/cpu/quantized.cpp; ml-explore/mlx-lm d78bf58e, mlx_lm/utils.py.
#pragma once

#include "codecs/codec.h"
#include "codecs/elements.h"

namespace scalepoint::codecs {

struct Mlx {
  int32_t bits = 4;                        ///< 2, 3, 4, 5, 6 or 8
  uint32_t group_size = 64;                ///< neighbors in a row: 32, 64 or 128, a divisor of the columns
  ElementType scale = ElementType::kBF16;  ///< type of scales and biases: kF32, kF16 or kBF16
  /// True: searches for the scale and the bias with the least squared error, as they are stored.
  bool search = false;
  /// With `search`, true: begins from many more ranges, and ends with the neighbors of both numbers.
  bool best = false;
};

/// A code q stands for q * scale + bias.
///
/// Rule:    that of MLX's CPU build, in float32, after the elements were rounded to the type of the scales, as mlx-lm casts a model:
///            scale = max((max - min) / (2^bits - 1), 1e-7), negative unless |min| > |max|; edge = that of min and max with the larger
///            magnitude, max of two; q0 = round_half_even(edge / scale). If q0 is not 0, scale = edge / q0 and bias = edge, else bias = 0.
///            q = round_half_even((x - bias) / scale), saturated.
///          Scales and biases are rounded when they are stored. Codes are made with those before rounding.
/// Search:  starts from several shares of the range, fits scale and bias to the codes by least squares, and tries neighbors of the fitted
///          scale as it is stored. With `best` the shares are those of both ends, and neighbors of the best bias are tried, too, so that
///          no error is larger than without it. Elements are not rounded. Takes the rule's parameters, with codes for them as they are stored, if no others
///          have a smaller error. The importance of columns weighs the errors.
/// Parts:   data        codes of a row, lowest bits first, without gaps
///          scale, zero point (the biases)  one for each group, row by row
/// Special: NaN and infinities are problems. A group whose scale or bias is beyond its type is kOverflow, at its element of largest
///          magnitude.
/// Status:  those of check and Arena; kBadDType; kBadLayout if the tile is empty or groups do not divide its rows.
[[nodiscard]] Status encode(const Tile& tile, const Mlx& codes, Arena& arena, Encoded& result) noexcept;

/// The same for whole rows that pass their errors on: see encode_fed_rows. Groups are searched for.
[[nodiscard]] Status encode_with_feedback(const Tile& tile, const Mlx& codes, const Moments& moments, Arena& arena,
                                          Encoded& result) noexcept;

/// Restores floats: q * scale + bias in float32, with the product rounded first.
/// Status:  kBadDType, kBadLayout, kSizeMismatch; kBadScale if a scale or a bias is not finite.
[[nodiscard]] Status decode(const Stored& stored, const Mlx& codes, Arena& arena, const float*& x) noexcept;

}  // namespace scalepoint::codecs
