// Codes whose levels have uneven distances.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace scalepoint {

/// A code stands for scale * value. The place of a level among the values is the number of middles that are less than x / scale: halves go to
/// the lower of two levels.
struct Levels {
  size_t count = 0;
  float values[16] = {};   ///< rising
  float middles[15] = {};  ///< of neighboring values
};

/// Levels of at most 16 rising values.
[[nodiscard]] Levels levels_of(std::span<const float> values) noexcept;

/// Twice the values of E2M1, as ggml has them, without -0.
extern const Levels kE2M1Levels;

/// The code of a place among them: a sign, and the index of the magnitude.
constexpr uint8_t e2m1_code(uint8_t place) { return static_cast<uint8_t>(place < 7 ? 15 - place : place - 7); }

/// The levels of IQ4_NL and IQ4_XS.
extern const Levels kIQ4Levels;

}  // namespace scalepoint
