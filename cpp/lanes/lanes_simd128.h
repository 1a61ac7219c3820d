// Four lanes over WebAssembly SIMD. Has the names and results of lanes_scalar.h. Under SCALEPOINT_SIMDE the intrinsics come from SIMDe, so
// that native tests and sanitizers run the same code.
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

/// True if a vector is one value of the machine.
inline constexpr bool kSimd = true;

struct F32x4 {
  v128_t v;
};
struct I32x4 {
  v128_t v;
};
struct F64x2 {
  v128_t v;
};
struct I16x8 {
  v128_t v;
};
struct U8x16 {
  v128_t v;
};

// LLVM 14 turns convert(extend(v)) into four scalar conversions, five times slower. It cannot see through an empty asm.
inline I32x4 opaque(I32x4 a) {
#ifndef SCALEPOINT_SIMDE
  __asm__("" : "+r"(a.v));
#endif
  return a;
}

/// Keeps LLVM from rebuilding a walking pointer as base + index for every access.
template <class T>
inline T* opaque(T* p) {
#ifndef SCALEPOINT_SIMDE
  __asm__("" : "+r"(p));
#endif
  return p;
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
inline F32x4 abs(F32x4 a) { return {wasm_f32x4_abs(a.v)}; }
inline F32x4 sqrt(F32x4 a) { return {wasm_f32x4_sqrt(a.v)}; }
/// Half to even.
inline F32x4 nearest(F32x4 a) { return {wasm_f32x4_nearest(a.v)}; }
/// Towards zero.
inline F32x4 trunc(F32x4 a) { return {wasm_f32x4_trunc(a.v)}; }
inline F32x4 floor(F32x4 a) { return {wasm_f32x4_floor(a.v)}; }
/// All ones where a > b; all zeros for NaN.
inline I32x4 greater(F32x4 a, F32x4 b) { return {wasm_f32x4_gt(a.v, b.v)}; }
/// All ones where a == b; NaN equals nothing.
inline I32x4 equal(F32x4 a, F32x4 b) { return {wasm_f32x4_eq(a.v, b.v)}; }

inline I32x4 add(I32x4 a, I32x4 b) { return {wasm_i32x4_add(a.v, b.v)}; }
inline I32x4 sub(I32x4 a, I32x4 b) { return {wasm_i32x4_sub(a.v, b.v)}; }
inline I32x4 shift_left_one(I32x4 a) { return {wasm_i32x4_shl(a.v, 1)}; }
/// Without the sign: a zero comes in from above.
inline I32x4 shift_right_one(I32x4 a) { return {wasm_u32x4_shr(a.v, 1)}; }
template <int kBits>
inline I32x4 shift_left(I32x4 a) {
  return {wasm_i32x4_shl(a.v, kBits)};
}
/// Without the sign.
template <int kBits>
inline I32x4 shift_right(I32x4 a) {
  return {wasm_u32x4_shr(a.v, kBits)};
}
/// All ones where a > b, as signed integers.
inline I32x4 greater(I32x4 a, I32x4 b) { return {wasm_i32x4_gt(a.v, b.v)}; }
inline I32x4 equal(I32x4 a, I32x4 b) { return {wasm_i32x4_eq(a.v, b.v)}; }
inline I32x4 bit_and(I32x4 a, I32x4 b) { return {wasm_v128_and(a.v, b.v)}; }
inline I32x4 bit_or(I32x4 a, I32x4 b) { return {wasm_v128_or(a.v, b.v)}; }
inline I32x4 bit_and_not(I32x4 a, I32x4 b) { return {wasm_v128_andnot(a.v, b.v)}; }
/// The sign bits, that of lane 0 lowest.
inline uint32_t top_bits(I32x4 a) { return wasm_i32x4_bitmask(a.v); }
inline bool any(I32x4 a) { return wasm_v128_any_true(a.v); }
inline I32x4 max_signed(I32x4 a, I32x4 b) { return {wasm_i32x4_max(a.v, b.v)}; }
inline I32x4 min_signed(I32x4 a, I32x4 b) { return {wasm_i32x4_min(a.v, b.v)}; }
inline I32x4 min_unsigned(I32x4 a, I32x4 b) { return {wasm_u32x4_min(a.v, b.v)}; }
inline I32x4 max_unsigned(I32x4 a, I32x4 b) { return {wasm_u32x4_max(a.v, b.v)}; }
inline I32x4 select(I32x4 mask, I32x4 a, I32x4 b) { return {wasm_v128_bitselect(a.v, b.v, mask.v)}; }
inline F32x4 select(I32x4 mask, F32x4 a, F32x4 b) { return {wasm_v128_bitselect(a.v, b.v, mask.v)}; }
inline F32x4 to_float(I32x4 a) { return {wasm_f32x4_convert_i32x4(a.v)}; }

inline F64x2 load(const double* p) { return {wasm_v128_load(p)}; }
inline void store(double* p, F64x2 a) { wasm_v128_store(p, a.v); }
inline F64x2 add(F64x2 a, F64x2 b) { return {wasm_f64x2_add(a.v, b.v)}; }
inline F64x2 mul(F64x2 a, F64x2 b) { return {wasm_f64x2_mul(a.v, b.v)}; }
inline F64x2 sub(F64x2 a, F64x2 b) { return {wasm_f64x2_sub(a.v, b.v)}; }
inline F64x2 div(F64x2 a, F64x2 b) { return {wasm_f64x2_div(a.v, b.v)}; }
inline F64x2 pmax(F64x2 a, F64x2 b) { return {wasm_f64x2_pmax(a.v, b.v)}; }
inline F64x2 nearest(F64x2 a) { return {wasm_f64x2_nearest(a.v)}; }
inline F64x2 widen_low(F32x4 a) { return {wasm_f64x2_promote_low_f32x4(a.v)}; }
inline F64x2 widen_high(F32x4 a) { return {wasm_f64x2_promote_low_f32x4(wasm_i32x4_shuffle(a.v, a.v, 2, 3, 2, 3))}; }
inline F64x2 to_double_low(I32x4 a) { return {wasm_f64x2_convert_low_i32x4(a.v)}; }
inline F64x2 to_double_high(I32x4 a) { return {wasm_f64x2_convert_low_i32x4(wasm_i32x4_shuffle(a.v, a.v, 2, 3, 2, 3))}; }
inline F32x4 narrow(F64x2 low, F64x2 high) {
  return {wasm_i32x4_shuffle(wasm_f32x4_demote_f64x2_zero(low.v), wasm_f32x4_demote_f64x2_zero(high.v), 0, 1, 4, 5)};
}
inline I32x4 narrow_to_int(F64x2 low, F64x2 high) {
  return {wasm_i32x4_shuffle(wasm_i32x4_trunc_sat_f64x2_zero(low.v), wasm_i32x4_trunc_sat_f64x2_zero(high.v), 0, 1, 4, 5)};
}
inline F64x2 pair(double a, double b) { return {wasm_f64x2_make(a, b)}; }
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

/// Four codes of a byte, extended to 16 bits, as the lowest bits of the float 2^23: the floats 2^23 + code.
inline F32x4 raise_low(v128_t codes) { return {wasm_i16x8_shuffle(codes, wasm_i16x8_splat(0x4B00), 0, 8, 1, 9, 2, 10, 3, 11)}; }
inline F32x4 raise_high(v128_t codes) {
  return {wasm_i16x8_shuffle(codes, wasm_i16x8_splat(0x4B00), 4, 12, 5, 13, 6, 14, 7, 15)};
}
/// Eight codes as the floats 2^23 + code - bottom, with the smallest code of the type for bottom. Takes fewer instructions than to
/// extend and convert them, which the scalar tier does.
inline void load_eight_raised(const uint8_t* p, F32x4& low, F32x4& high) {
  const v128_t v = wasm_u16x8_load8x8(p);
  low = raise_low(v);
  high = raise_high(v);
}
inline void load_eight_raised(const int8_t* p, F32x4& low, F32x4& high) {
  const v128_t v = wasm_i16x8_add(wasm_i16x8_load8x8(p), wasm_i16x8_splat(128));
  low = raise_low(v);
  high = raise_high(v);
}

// Eight 16-bit integers, for dot products.

inline I16x8 load(const int16_t* p) { return {wasm_v128_load(p)}; }
inline void store(int16_t* p, I16x8 a) { wasm_v128_store(p, a.v); }
inline I16x8 splat(int16_t x) { return {wasm_i16x8_splat(x)}; }
inline I16x8 sub(I16x8 a, I16x8 b) { return {wasm_i16x8_sub(a.v, b.v)}; }
/// Eight bytes, extended.
inline I16x8 widen(const int8_t* p) { return {wasm_i16x8_load8x8(p)}; }
inline I16x8 widen(const uint8_t* p) { return {wasm_u16x8_load8x8(p)}; }
/// The two integers at p, four times.
inline I16x8 splat_pair(const int16_t* p) { return {wasm_v128_load32_splat(p)}; }
/// The lowest four bits of each lane; and the bits above them, of lanes that are bytes.
inline I16x8 low_nibbles(I16x8 a) { return {wasm_v128_and(a.v, wasm_i16x8_splat(15))}; }
inline I16x8 high_nibbles(I16x8 a) { return {wasm_u16x8_shr(a.v, 4)}; }
/// Lane i: a[2 i] b[2 i] + a[2 i + 1] b[2 i + 1].
inline I32x4 dot(I16x8 a, I16x8 b) { return {wasm_i32x4_dot_i16x8(a.v, b.v)}; }
/// Eight rows of eight lanes become eight columns.
inline void transpose(I16x8 (&rows)[8]) {
  v128_t pairs[8], fours[8];
  for (int i = 0; i < 4; i++) {
    const v128_t a = rows[2 * i].v, b = rows[2 * i + 1].v;
    pairs[i] = wasm_i16x8_shuffle(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    pairs[i + 4] = wasm_i16x8_shuffle(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  }
  for (int i = 0; i < 4; i++) {
    const v128_t a = pairs[2 * i], b = pairs[2 * i + 1];
    fours[2 * i] = wasm_i32x4_shuffle(a, b, 0, 4, 1, 5);
    fours[2 * i + 1] = wasm_i32x4_shuffle(a, b, 2, 6, 3, 7);
  }
  for (int i = 0; i < 4; i++) {
    const v128_t a = fours[i + i / 2 * 2], b = fours[i + i / 2 * 2 + 2];
    rows[2 * i].v = wasm_i64x2_shuffle(a, b, 0, 2);
    rows[2 * i + 1].v = wasm_i64x2_shuffle(a, b, 1, 3);
  }
}
/// Stores eight integers of 16 bits as four pairs, `step` integers from one pair to the next.
inline void store_pairs(int16_t* p, size_t step, I32x4 a, I32x4 b) {
  const v128_t v = wasm_i16x8_narrow_i32x4(a.v, b.v);
  wasm_v128_store32_lane(p, v, 0);
  wasm_v128_store32_lane(p + step, v, 1);
  wasm_v128_store32_lane(p + 2 * step, v, 2);
  wasm_v128_store32_lane(p + 3 * step, v, 3);
}

// Sixteen bytes.

inline U8x16 load(const uint8_t* p) { return {wasm_v128_load(p)}; }
inline void store(uint8_t* p, U8x16 a) { wasm_v128_store(p, a.v); }
inline U8x16 splat(uint8_t x) { return {wasm_i8x16_splat(static_cast<int8_t>(x))}; }
inline U8x16 add(U8x16 a, U8x16 b) { return {wasm_i8x16_add(a.v, b.v)}; }
inline U8x16 sub(U8x16 a, U8x16 b) { return {wasm_i8x16_sub(a.v, b.v)}; }
inline U8x16 bit_and(U8x16 a, U8x16 b) { return {wasm_v128_and(a.v, b.v)}; }
inline U8x16 bit_or(U8x16 a, U8x16 b) { return {wasm_v128_or(a.v, b.v)}; }
inline U8x16 min_unsigned(U8x16 a, U8x16 b) { return {wasm_u8x16_min(a.v, b.v)}; }
/// Within each byte. No byte may lose bits.
template <int kBits>
inline U8x16 shift_left(U8x16 a) {
  return {wasm_i16x8_shl(a.v, kBits)};
}
template <int kBits>
inline U8x16 shift_right(U8x16 a) {
  return {wasm_u8x16_shr(a.v, kBits)};
}
/// table[index], 0 where the index is above 15.
inline U8x16 lookup(U8x16 table, U8x16 index) { return {wasm_i8x16_swizzle(table.v, index.v)}; }
/// The top bit of each byte; byte i gives bit i.
inline uint32_t top_bits(U8x16 a) { return wasm_i8x16_bitmask(a.v); }
/// The reverse: all ones where bit i of the lower 16 is set.
inline U8x16 spread_bits(uint32_t mask) {
  const v128_t bits = wasm_i8x16_make(1, 2, 4, 8, 16, 32, 64, -128, 1, 2, 4, 8, 16, 32, 64, -128);
  const v128_t halves = wasm_i16x8_splat(static_cast<int16_t>(mask));
  const v128_t each = wasm_i8x16_shuffle(halves, halves, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  return {wasm_i8x16_eq(wasm_v128_and(each, bits), bits)};
}

/// The lowest byte of every lane.
inline U8x16 low_bytes(I32x4 a, I32x4 b, I32x4 c, I32x4 d) {
  // Narrowing saturates the upper half of a lane and leaves the lower half, which is the only one that the mask keeps.
  const v128_t mask = wasm_i32x4_splat(0x00FF00FF);
  const v128_t ab = wasm_v128_and(wasm_i8x16_narrow_i16x8(a.v, b.v), mask);
  const v128_t cd = wasm_v128_and(wasm_i8x16_narrow_i16x8(c.v, d.v), mask);
  return {wasm_u8x16_narrow_i16x8(ab, cd)};
}

/// Lanes from -2048 to 2047 in two parts: the low four bits, and the bits above them, as signed bytes. Bits from the 16th on are not
/// read.
inline void split_low_nibbles(I32x4 a, I32x4 b, I32x4 c, I32x4 d, U8x16& low, U8x16& high) {
  const v128_t half = wasm_i32x4_splat(0xFFFF), nibble = wasm_i16x8_splat(15);
  const v128_t ab = wasm_u16x8_narrow_i32x4(wasm_v128_and(a.v, half), wasm_v128_and(b.v, half));
  const v128_t cd = wasm_u16x8_narrow_i32x4(wasm_v128_and(c.v, half), wasm_v128_and(d.v, half));
  low.v = wasm_u8x16_narrow_i16x8(wasm_v128_and(ab, nibble), wasm_v128_and(cd, nibble));
  high.v = wasm_i8x16_narrow_i16x8(wasm_i16x8_shr(ab, 4), wasm_i16x8_shr(cd, 4));
}

/// 16 signed bytes as floats.
inline void to_floats(U8x16 bytes, F32x4* out) {
  const v128_t low = wasm_i16x8_extend_low_i8x16(bytes.v), high = wasm_i16x8_extend_high_i8x16(bytes.v);
  out[0] = to_float(opaque({wasm_i32x4_extend_low_i16x8(low)}));
  out[1] = to_float(opaque({wasm_i32x4_extend_high_i16x8(low)}));
  out[2] = to_float(opaque({wasm_i32x4_extend_low_i16x8(high)}));
  out[3] = to_float(opaque({wasm_i32x4_extend_high_i16x8(high)}));
}

// For codes of less than a byte, which the scalar tier packs in 64-bit words instead (pack_bits_loops.cpp).

inline U8x16 bit_xor(U8x16 a, U8x16 b) { return {wasm_v128_xor(a.v, b.v)}; }
/// Two bytes as one integer, the lower one first; and back.
inline I16x8 as_int16s(U8x16 a) { return {a.v}; }
inline U8x16 as_bytes(I16x8 a) { return {a.v}; }
inline U8x16 as_bytes(I32x4 a) { return {a.v}; }
/// The lower half of each product.
inline I16x8 mul(I16x8 a, I16x8 b) { return {wasm_i16x8_mul(a.v, b.v)}; }
/// Without the sign.
template <int kBits>
inline I16x8 shift_right(I16x8 a) {
  return {wasm_u16x8_shr(a.v, kBits)};
}
/// Each half of the vector as an integer of 64 bits, without a sign.
template <int kBits>
inline U8x16 shift_halves_right(U8x16 a) {
  return {wasm_u64x2_shr(a.v, kBits)};
}
template <int kBits>
inline I16x8 shift_left(I16x8 a) {
  return {wasm_i16x8_shl(a.v, kBits)};
}
inline I16x8 add(I16x8 a, I16x8 b) { return {wasm_i16x8_add(a.v, b.v)}; }
inline I16x8 max_unsigned(I16x8 a, I16x8 b) { return {wasm_u16x8_max(a.v, b.v)}; }
/// a[0] b[0] a[1] b[1] and so on: the first four pairs, and the others.
inline I16x8 interleave_low(I16x8 a, I16x8 b) { return {wasm_i16x8_shuffle(a.v, b.v, 0, 8, 1, 9, 2, 10, 3, 11)}; }
inline I16x8 interleave_high(I16x8 a, I16x8 b) { return {wasm_i16x8_shuffle(a.v, b.v, 4, 12, 5, 13, 6, 14, 7, 15)}; }
/// Eight lanes without a sign, in 32 bits.
inline void widen_unsigned(I16x8 a, I32x4& low, I32x4& high) {
  low.v = wasm_u32x4_extend_low_u16x8(a.v);
  high.v = wasm_u32x4_extend_high_u16x8(a.v);
}
/// Lanes from 0 to 255, as bytes.
inline U8x16 narrow(I16x8 low, I16x8 high) { return {wasm_u8x16_narrow_i16x8(low.v, high.v)}; }
/// a[0] b[0] a[1] b[1] and so on: the first eight pairs, and the others.
inline U8x16 interleave_low(U8x16 a, U8x16 b) {
  return {wasm_i8x16_shuffle(a.v, b.v, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)};
}
inline U8x16 interleave_high(U8x16 a, U8x16 b) {
  return {wasm_i8x16_shuffle(a.v, b.v, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)};
}

}  // namespace scalepoint::lanes
