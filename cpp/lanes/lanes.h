// Four lanes: SIMD vectors in builds with SIMD, plain arrays in others. Files of loops include this header and have the same code for both.
#pragma once

#include "lanes/round.h"

/// Before a loop: keeps the compiler from unrolling it. V8 issues all loads of a loop body before its arithmetic, so an unrolled
/// loop runs out of registers.
#ifdef __clang__
#define SCALEPOINT_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define SCALEPOINT_NO_UNROLL
#endif

// SCALEPOINT_SIMD_LANES is defined in builds in which a vector is one SIMD register; kSimd is the same as a constant. SCALEPOINT_PER_VECTOR
// precedes a loop over the few vectors of a step, which is unrolled only with SIMD. SCALEPOINT_SHARED replaces `inline` before functions
// that several loops call. They are inlined only with SIMD, because the build without SIMD is kept small.
#if defined(__wasm_simd128__) || defined(SCALEPOINT_SIMDE)
#include "lanes/lanes_simd128.h"
#define SCALEPOINT_SIMD_LANES
#define SCALEPOINT_PER_VECTOR
#define SCALEPOINT_SHARED inline
#else
#include "lanes/lanes_scalar.h"
#define SCALEPOINT_PER_VECTOR SCALEPOINT_NO_UNROLL
#define SCALEPOINT_SHARED [[gnu::noinline]] inline
#endif

namespace scalepoint::lanes {

/// The bits of |x|.
inline I32x4 magnitude_bits(F32x4 x) { return bit_and(bits(x), splat(static_cast<int32_t>(kAbsMask))); }

/// Twice the bits of |x|. As unsigned integers they order like |x|. A shift needs no constant in a register, a mask does.
inline I32x4 twice_magnitude_bits(F32x4 x) { return shift_left_one(bits(x)); }

/// The largest of four unsigned lanes.
inline uint32_t largest_lane(I32x4 a) {
  int32_t lane[4];
  store(lane, a);
  uint32_t largest = 0;
  for (const int32_t v : lane) largest = static_cast<uint32_t>(v) > largest ? static_cast<uint32_t>(v) : largest;
  return largest;
}

}  // namespace scalepoint::lanes
