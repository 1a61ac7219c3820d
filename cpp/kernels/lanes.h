// Four lanes, those of the build: SIMD, or plain arrays.
#pragma once

#if defined(__wasm_simd128__) || defined(SCALEPOINT_SIMDE)
#include "lanes_simd128.h"
#define SCALEPOINT_SIMD_LANES
#else
#include "lanes_scalar.h"
#endif

/// Before a loop: V8 issues the loads of a step before its arithmetic, so that an unrolled loop spills registers.
#ifdef __clang__
#define SCALEPOINT_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define SCALEPOINT_NO_UNROLL
#endif
