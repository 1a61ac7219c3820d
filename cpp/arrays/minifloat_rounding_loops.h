// Rounding four floats at a time to a float format of at most 16 bits.
#pragma once

#include <cstdint>

#include "lanes/lanes.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

/// A float format: a sign, then an exponent with the bias 2^(exponent_bits - 1) - 1, then a fraction.
struct Format {
  int exponent_bits;
  int fraction_bits;
  int32_t largest;  ///< the code of the largest finite value
  int32_t nan;      ///< code of NaN, without the sign; `largest` if the format has no NaN

  [[nodiscard]] constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  /// The difference of the biases of float32 and this format, as float32 bits.
  [[nodiscard]] constexpr int32_t rebias() const { return (127 - bias()) << 23; }
  [[nodiscard]] constexpr bool has_nan() const { return nan != largest; }
};

constexpr Format kFloat16 = {5, 10, 0x7BFF, 0x7E00}, kBfloat16 = {8, 7, 0x7F7F, 0x7FC0}, kFloat8E4M3FN = {4, 3, 0x7E, 0x7F},
                 kFloat8E5M2 = {5, 2, 0x7B, 0x7F}, kFloat4E2M1 = {2, 1, 0x7, 0x7};

/// The codes of four magnitudes, rounded half to even, where the format has its own exponents. A magnitude beyond the largest value gives
/// any code larger than that of infinity; with kFinite no magnitude is beyond it. `rounded` receives the values of the codes.
template <Format kFormat, bool kFinite = false>
inline I32x4 round_exponents(I32x4 magnitude, F32x4& rounded) {
  constexpr int kDropped = 23 - kFormat.fraction_bits, kSmallest = 128 - kFormat.bias();
  // 2^(23 - fraction bits) times the power of two in x: floats from there on are as far apart as the codes near x, so that adding
  // rounds. Subnormals have the distance of the smallest normal exponent. Twice the largest power of two is far enough.
  const I32x4 near = kFinite ? magnitude : min_unsigned(magnitude, splat((127 + kFormat.bias() + 2) << 23));
  const I32x4 power = max_signed(bit_and(near, splat(0x7F800000)), splat(kSmallest << 23));
  const I32x4 apart = add(power, splat(kDropped << 23));
  const F32x4 sum = add(from_bits(near), from_bits(apart));
  rounded = sub(sum, from_bits(apart));
  const I32x4 units = sub(bits(sum), apart);
  // A normal number has 2^(fraction bits) units and more. Its code counts them from the exponent 1 on.
  return add(units, sub(shift_right<kDropped>(power), splat(kSmallest << kFormat.fraction_bits)));
}

}  // namespace
}  // namespace scalepoint::loops
