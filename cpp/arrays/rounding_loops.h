// The roundings of round.h for many values at a time: rounds x / scale into the low bits of a float.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arrays/dtype.h"
#include "lanes/lanes.h"

namespace scalepoint::loops {

/// Elements of one step of a loop. V8 issues the loads of a step before its arithmetic. Four vectors of loads and up to ten vectors that
/// live across steps fill the registers; larger steps spill.
inline constexpr size_t kStep = 16;

/// Parameters of the rounding, spread over lanes.
struct Params {
  lanes::F32x4 factor;  ///< the scale; its reciprocal for kReciprocal
  lanes::F32x4 shift;   ///< addend before rounding: the zero point for kFused, else not read
  lanes::I32x4 bias;    ///< code = bits of the rounded sum - bias

  template <Rounding kRounding>
  static Params make(lanes::F32x4 scale, lanes::I32x4 zero_point) {
    using namespace lanes;
    const F32x4 factor = kRounding == Rounding::kReciprocal ? div(splat(1.0f), scale) : scale;
    if (kRounding == Rounding::kFused) return {factor, to_float(zero_point), splat(kMagicBits)};
    return {factor, splat(0.0f), sub(splat(kMagicBits), zero_point)};
  }
};

/// The bits of magic + v, where v is x / scale, or the value in its place in the rounding. With magic = kMagic they are kMagicBits +
/// v rounded half to even, as long as |v| is at most 2^22.
template <Rounding kRounding>
inline lanes::I32x4 rounded_bits(lanes::F32x4 x, const Params& p, lanes::F32x4 magic = lanes::splat(kMagic)) {
  lanes::F32x4 v = kRounding == Rounding::kReciprocal ? mul(x, p.factor) : div(x, p.factor);
  if (kRounding == Rounding::kFused) v = add(v, p.shift);
  return bits(add(v, magic));
}

/// kStep codes. `farthest` collects the largest of the rounded bits as unsigned integers. The codes hold as long as it stays
/// below kInfinityBits:
///   - the bits of floats above 0 order like the floats, so the saturating narrowing of store_codes clamps at both ends, from
///     quotients of -1.5 * 2^23 up to +infinity;
///   - below that the sum with kMagic is negative, and its bits are, as unsigned integers, larger than kInfinityBits; those of
///     NaN and +infinity are at least kInfinityBits.
/// This costs one operation per vector. A separate clamp and a search for values that are not finite would cost two more, and would delay
/// the division, which bounds this loop.
template <Rounding kRounding, class Code>
inline void quantize_step(const float* x, Code* codes, const Params& p, DType dtype, lanes::I32x4& farthest) {
  lanes::I32x4 c[4];
  for (int j = 0; j < 4; j++) {
    const lanes::I32x4 rounded = rounded_bits<kRounding>(lanes::load(x + 4 * j), p);
    farthest = max_unsigned(farthest, rounded);
    c[j] = sub(rounded, p.bias);
  }
  store_codes(codes, c[0], c[1], c[2], c[3], dtype.qmin(), dtype.qmax());
}

}  // namespace scalepoint::loops
