// Four lanes over WebAssembly SIMD. The same names as lanes_scalar.h, the same results. Under SCALEPOINT_SIMDE the intrinsics
// come from SIMDe, so that native tests and sanitizers run this very code.
#pragma once

#ifdef SCALEPOINT_SIMDE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/wasm/simd128.h>
#else
#include <wasm_simd128.h>
#endif

#include <cstddef>
#include <cstdint>

namespace scalepoint::lanes {

struct F32x4 {
  v128_t v;
};
struct I32x4 {
  v128_t v;
};
struct F64x2 {
  v128_t v;
};

// LLVM 14 turns convert(extend(v)) into four scalar conversions, five times slower. It cannot see through an empty asm.
inline I32x4 opaque(I32x4 a) {
#ifndef SCALEPOINT_SIMDE
  __asm__("" : "+r"(a.v));
#endif
  return a;
}

inline F32x4 load(const float* p) { return {wasm_v128_load(p)}; }
inline I32x4 load(const int32_t* p) { return {wasm_v128_load(p)}; }
inline void store(float* p, F32x4 a) { wasm_v128_store(p, a.v); }
inline void store(int32_t* p, I32x4 a) { wasm_v128_store(p, a.v); }
inline F32x4 splat(float x) { return {wasm_f32x4_splat(x)}; }
inline I32x4 splat(int32_t x) { return {wasm_i32x4_splat(x)}; }
inline F64x2 splat(double x) { return {wasm_f64x2_splat(x)}; }

inline I32x4 bits(F32x4 a) { return {a.v}; }
inline F32x4 from_bits(I32x4 a) { return {a.v}; }

inline F32x4 add(F32x4 a, F32x4 b) { return {wasm_f32x4_add(a.v, b.v)}; }
inline F32x4 sub(F32x4 a, F32x4 b) { return {wasm_f32x4_sub(a.v, b.v)}; }
inline F32x4 mul(F32x4 a, F32x4 b) { return {wasm_f32x4_mul(a.v, b.v)}; }
inline F32x4 div(F32x4 a, F32x4 b) { return {wasm_f32x4_div(a.v, b.v)}; }
/// b < a ? b : a, lane by lane: keeps a where b is NaN.
inline F32x4 pmin(F32x4 a, F32x4 b) { return {wasm_f32x4_pmin(a.v, b.v)}; }
/// a < b ? b : a, lane by lane: keeps a where b is NaN.
inline F32x4 pmax(F32x4 a, F32x4 b) { return {wasm_f32x4_pmax(a.v, b.v)}; }
/// All ones where a == b; NaN equals nothing.
inline I32x4 equal(F32x4 a, F32x4 b) { return {wasm_f32x4_eq(a.v, b.v)}; }

inline I32x4 add(I32x4 a, I32x4 b) { return {wasm_i32x4_add(a.v, b.v)}; }
inline I32x4 sub(I32x4 a, I32x4 b) { return {wasm_i32x4_sub(a.v, b.v)}; }
inline I32x4 shift_left_one(I32x4 a) { return {wasm_i32x4_shl(a.v, 1)}; }
/// Without the sign: a zero comes in from above.
inline I32x4 shift_right_one(I32x4 a) { return {wasm_u32x4_shr(a.v, 1)}; }
inline I32x4 bit_and(I32x4 a, I32x4 b) { return {wasm_v128_and(a.v, b.v)}; }
inline I32x4 max_signed(I32x4 a, I32x4 b) { return {wasm_i32x4_max(a.v, b.v)}; }
inline I32x4 min_signed(I32x4 a, I32x4 b) { return {wasm_i32x4_min(a.v, b.v)}; }
inline I32x4 min_unsigned(I32x4 a, I32x4 b) { return {wasm_u32x4_min(a.v, b.v)}; }
inline I32x4 max_unsigned(I32x4 a, I32x4 b) { return {wasm_u32x4_max(a.v, b.v)}; }
inline I32x4 select(I32x4 mask, I32x4 a, I32x4 b) { return {wasm_v128_bitselect(a.v, b.v, mask.v)}; }
inline F32x4 select(I32x4 mask, F32x4 a, F32x4 b) { return {wasm_v128_bitselect(a.v, b.v, mask.v)}; }
inline F32x4 to_float(I32x4 a) { return {wasm_f32x4_convert_i32x4(a.v)}; }

inline F64x2 sub(F64x2 a, F64x2 b) { return {wasm_f64x2_sub(a.v, b.v)}; }
inline F64x2 div(F64x2 a, F64x2 b) { return {wasm_f64x2_div(a.v, b.v)}; }
inline F64x2 pmax(F64x2 a, F64x2 b) { return {wasm_f64x2_pmax(a.v, b.v)}; }
inline F64x2 nearest(F64x2 a) { return {wasm_f64x2_nearest(a.v)}; }
inline F64x2 widen_low(F32x4 a) { return {wasm_f64x2_promote_low_f32x4(a.v)}; }
inline F64x2 widen_high(F32x4 a) { return {wasm_f64x2_promote_low_f32x4(wasm_i32x4_shuffle(a.v, a.v, 2, 3, 2, 3))}; }
inline F32x4 narrow(F64x2 low, F64x2 high) {
  return {wasm_i32x4_shuffle(wasm_f32x4_demote_f64x2_zero(low.v), wasm_f32x4_demote_f64x2_zero(high.v), 0, 1, 4, 5)};
}
inline I32x4 narrow_to_int(F64x2 low, F64x2 high) {
  return {wasm_i32x4_shuffle(wasm_i32x4_trunc_sat_f64x2_zero(low.v), wasm_i32x4_trunc_sat_f64x2_zero(high.v), 0, 1, 4, 5)};
}

/// Rows become columns: after it, a holds lane 0 of a, b, c, d; and so on.
inline void transpose(F32x4& a, F32x4& b, F32x4& c, F32x4& d) {
  const v128_t ab_low = wasm_i32x4_shuffle(a.v, b.v, 0, 4, 1, 5), ab_high = wasm_i32x4_shuffle(a.v, b.v, 2, 6, 3, 7);
  const v128_t cd_low = wasm_i32x4_shuffle(c.v, d.v, 0, 4, 1, 5), cd_high = wasm_i32x4_shuffle(c.v, d.v, 2, 6, 3, 7);
  a.v = wasm_i32x4_shuffle(ab_low, cd_low, 0, 1, 4, 5);
  b.v = wasm_i32x4_shuffle(ab_low, cd_low, 2, 3, 6, 7);
  c.v = wasm_i32x4_shuffle(ab_high, cd_high, 0, 1, 4, 5);
  d.v = wasm_i32x4_shuffle(ab_high, cd_high, 2, 3, 6, 7);
}

/// Stores 16 codes, each saturated to its type and to [bottom, top].
inline void store_codes(int8_t* p, I32x4 a, I32x4 b, I32x4 c, I32x4 d, int32_t bottom, int32_t top) {
  const v128_t narrow = wasm_i8x16_narrow_i16x8(wasm_i16x8_narrow_i32x4(a.v, b.v), wasm_i16x8_narrow_i32x4(c.v, d.v));
  const v128_t low = wasm_i8x16_splat(static_cast<int8_t>(bottom)), high = wasm_i8x16_splat(static_cast<int8_t>(top));
  wasm_v128_store(p, wasm_i8x16_min(wasm_i8x16_max(narrow, low), high));
}
inline void store_codes(uint8_t* p, I32x4 a, I32x4 b, I32x4 c, I32x4 d, int32_t, int32_t top) {
  const v128_t narrow = wasm_u8x16_narrow_i16x8(wasm_i16x8_narrow_i32x4(a.v, b.v), wasm_i16x8_narrow_i32x4(c.v, d.v));
  wasm_v128_store(p, wasm_u8x16_min(narrow, wasm_i8x16_splat(static_cast<int8_t>(top))));
}
inline void store_codes(int16_t* p, I32x4 a, I32x4 b, I32x4 c, I32x4 d, int32_t, int32_t) {
  wasm_v128_store(p, wasm_i16x8_narrow_i32x4(a.v, b.v));
  wasm_v128_store(p + 8, wasm_i16x8_narrow_i32x4(c.v, d.v));
}
inline void store_codes(uint16_t* p, I32x4 a, I32x4 b, I32x4 c, I32x4 d, int32_t, int32_t) {
  wasm_v128_store(p, wasm_u16x8_narrow_i32x4(a.v, b.v));
  wasm_v128_store(p + 8, wasm_u16x8_narrow_i32x4(c.v, d.v));
}

/// Stores eight codes that are within their type.
inline void store_eight_codes(int8_t* p, I32x4 a, I32x4 b) {
  const v128_t wide = wasm_i16x8_narrow_i32x4(a.v, b.v);
  wasm_v128_store64_lane(p, wasm_i8x16_narrow_i16x8(wide, wide), 0);
}
inline void store_eight_codes(uint8_t* p, I32x4 a, I32x4 b) {
  const v128_t wide = wasm_i16x8_narrow_i32x4(a.v, b.v);
  wasm_v128_store64_lane(p, wasm_u8x16_narrow_i16x8(wide, wide), 0);
}

/// Loads 16 codes into out[0..3].
inline void load_codes(const int8_t* p, I32x4* out) {
  const v128_t v = wasm_v128_load(p), low = wasm_i16x8_extend_low_i8x16(v), high = wasm_i16x8_extend_high_i8x16(v);
  out[0].v = wasm_i32x4_extend_low_i16x8(low);
  out[1].v = wasm_i32x4_extend_high_i16x8(low);
  out[2].v = wasm_i32x4_extend_low_i16x8(high);
  out[3].v = wasm_i32x4_extend_high_i16x8(high);
}
inline void load_codes(const uint8_t* p, I32x4* out) {
  const v128_t v = wasm_v128_load(p), low = wasm_u16x8_extend_low_u8x16(v), high = wasm_u16x8_extend_high_u8x16(v);
  out[0].v = wasm_u32x4_extend_low_u16x8(low);
  out[1].v = wasm_u32x4_extend_high_u16x8(low);
  out[2].v = wasm_u32x4_extend_low_u16x8(high);
  out[3].v = wasm_u32x4_extend_high_u16x8(high);
}
inline void load_codes(const int16_t* p, I32x4* out) {
  const v128_t low = wasm_v128_load(p), high = wasm_v128_load(p + 8);
  out[0].v = wasm_i32x4_extend_low_i16x8(low);
  out[1].v = wasm_i32x4_extend_high_i16x8(low);
  out[2].v = wasm_i32x4_extend_low_i16x8(high);
  out[3].v = wasm_i32x4_extend_high_i16x8(high);
}
inline void load_codes(const uint16_t* p, I32x4* out) {
  const v128_t low = wasm_v128_load(p), high = wasm_v128_load(p + 8);
  out[0].v = wasm_u32x4_extend_low_u16x8(low);
  out[1].v = wasm_u32x4_extend_high_u16x8(low);
  out[2].v = wasm_u32x4_extend_low_u16x8(high);
  out[3].v = wasm_u32x4_extend_high_u16x8(high);
}

/// Loads eight codes into out[0..1].
inline void load_eight_codes(const int8_t* p, I32x4* out) {
  const v128_t v = wasm_i16x8_load8x8(p);
  out[0].v = wasm_i32x4_extend_low_i16x8(v);
  out[1].v = wasm_i32x4_extend_high_i16x8(v);
}
inline void load_eight_codes(const uint8_t* p, I32x4* out) {
  const v128_t v = wasm_u16x8_load8x8(p);
  out[0].v = wasm_u32x4_extend_low_u16x8(v);
  out[1].v = wasm_u32x4_extend_high_u16x8(v);
}
inline void load_eight_codes(const int16_t* p, I32x4* out) {
  const v128_t v = wasm_v128_load(p);
  out[0].v = wasm_i32x4_extend_low_i16x8(v);
  out[1].v = wasm_i32x4_extend_high_i16x8(v);
}
inline void load_eight_codes(const uint16_t* p, I32x4* out) {
  const v128_t v = wasm_v128_load(p);
  out[0].v = wasm_u32x4_extend_low_u16x8(v);
  out[1].v = wasm_u32x4_extend_high_u16x8(v);
}

}  // namespace scalepoint::lanes
