// Four lanes as plain arrays, for browsers without SIMD and for native builds. Has the names and results of lanes_simd128.h.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "lanes/round.h"

namespace scalepoint::lanes {

/// True if a vector is one value of the machine.
inline constexpr bool kSimd = false;

struct F32x4 {
  float v[4];
};
struct I32x4 {
  int32_t v[4];
};
struct F64x2 {
  double v[2];
};
struct I16x8 {
  int16_t v[8];
};
struct U8x16 {
  uint8_t v[16];
};

template <class R, class F, int... kLane>
inline R each_of(F f, std::integer_sequence<int, kLane...>) {
  return {{f(kLane)...}};
}

/// A vector of f(0), f(1), ... Written without a loop, because the checks of sanitizers would make up most of it.
template <class R, class F>
inline R each(F f) {
  return each_of<R>(f, std::make_integer_sequence<int, sizeof(R::v) / sizeof(R::v[0])>());
}

inline I32x4 opaque(I32x4 a) { return a; }
template <class T>
inline T* opaque(T* p) {
  return p;
}

inline F32x4 load(const float* p) {
  return each<F32x4>([&](int i) { return p[i]; });
}
inline I32x4 load(const int32_t* p) {
  return each<I32x4>([&](int i) { return p[i]; });
}
inline void store(float* p, F32x4 a) { std::memcpy(p, a.v, sizeof(a.v)); }
inline void store(int32_t* p, I32x4 a) { std::memcpy(p, a.v, sizeof(a.v)); }
inline F32x4 splat(float x) { return {{x, x, x, x}}; }
inline I32x4 splat(int32_t x) { return {{x, x, x, x}}; }
inline F64x2 splat(double x) { return {{x, x}}; }

inline I32x4 bits(F32x4 a) { return bit_cast<I32x4>(a); }
inline F32x4 from_bits(I32x4 a) { return bit_cast<F32x4>(a); }

#define SCALEPOINT_LANEWISE(type, name, expression) \
  inline type name(type a, type b) {                \
    return each<type>([&](int i) {                  \
      const auto x = a.v[i], y = b.v[i];            \
      return expression;                            \
    });                                             \
  }
SCALEPOINT_LANEWISE(F32x4, add, x + y)
SCALEPOINT_LANEWISE(F32x4, sub, x - y)
SCALEPOINT_LANEWISE(F32x4, mul, x* y)
SCALEPOINT_LANEWISE(F32x4, div, x / y)
SCALEPOINT_LANEWISE(F32x4, pmin, y < x ? y : x)
SCALEPOINT_LANEWISE(F32x4, pmax, x < y ? y : x)
SCALEPOINT_LANEWISE(U8x16, add, static_cast<uint8_t>(x + y))
SCALEPOINT_LANEWISE(U8x16, sub, static_cast<uint8_t>(x - y))
SCALEPOINT_LANEWISE(U8x16, bit_and, static_cast<uint8_t>(x& y))
SCALEPOINT_LANEWISE(U8x16, bit_or, static_cast<uint8_t>(x | y))
SCALEPOINT_LANEWISE(U8x16, min_unsigned, y < x ? y : x)
SCALEPOINT_LANEWISE(I16x8, sub, static_cast<int16_t>(x - y))
SCALEPOINT_LANEWISE(F64x2, add, x + y)
SCALEPOINT_LANEWISE(F64x2, sub, x - y)
SCALEPOINT_LANEWISE(F64x2, mul, x* y)
SCALEPOINT_LANEWISE(F64x2, div, x / y)
SCALEPOINT_LANEWISE(F64x2, pmax, x < y ? y : x)
// Unsigned arithmetic wraps where signed arithmetic would be undefined.
SCALEPOINT_LANEWISE(I32x4, add, static_cast<int32_t>(static_cast<uint32_t>(x) + static_cast<uint32_t>(y)))
SCALEPOINT_LANEWISE(I32x4, sub, static_cast<int32_t>(static_cast<uint32_t>(x) - static_cast<uint32_t>(y)))
SCALEPOINT_LANEWISE(I32x4, bit_and, x& y)
SCALEPOINT_LANEWISE(I32x4, bit_or, x | y)
SCALEPOINT_LANEWISE(I32x4, bit_and_not, x & ~y)
SCALEPOINT_LANEWISE(I32x4, max_signed, x < y ? y : x)
SCALEPOINT_LANEWISE(I32x4, min_signed, y < x ? y : x)
SCALEPOINT_LANEWISE(I32x4, min_unsigned, static_cast<uint32_t>(y) < static_cast<uint32_t>(x) ? y : x)
SCALEPOINT_LANEWISE(I32x4, max_unsigned, static_cast<uint32_t>(x) < static_cast<uint32_t>(y) ? y : x)
#undef SCALEPOINT_LANEWISE

inline I32x4 shift_left_one(I32x4 a) {
  return each<I32x4>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) << 1); });
}
inline I32x4 shift_right_one(I32x4 a) {
  return each<I32x4>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) >> 1); });
}
inline bool any(I32x4 a) { return (a.v[0] | a.v[1] | a.v[2] | a.v[3]) != 0; }
inline F32x4 abs(F32x4 a) {
  return each<F32x4>([&](int i) { return std::fabs(a.v[i]); });
}
inline F32x4 sqrt(F32x4 a) {
  return each<F32x4>([&](int i) { return std::sqrt(a.v[i]); });
}
inline F32x4 nearest(F32x4 a) {
  return each<F32x4>([&](int i) { return round_half_even(a.v[i]); });
}
inline F32x4 trunc(F32x4 a) {
  return each<F32x4>([&](int i) { return std::trunc(a.v[i]); });
}
inline F32x4 floor(F32x4 a) {
  return each<F32x4>([&](int i) { return std::floor(a.v[i]); });
}
template <int kBits>
inline I32x4 shift_left(I32x4 a) {
  return each<I32x4>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) << kBits); });
}
template <int kBits>
inline I32x4 shift_right(I32x4 a) {
  return each<I32x4>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) >> kBits); });
}
inline I32x4 greater(I32x4 a, I32x4 b) {
  return each<I32x4>([&](int i) { return a.v[i] > b.v[i] ? -1 : 0; });
}
inline I32x4 equal(I32x4 a, I32x4 b) {
  return each<I32x4>([&](int i) { return a.v[i] == b.v[i] ? -1 : 0; });
}
inline I32x4 greater(F32x4 a, F32x4 b) {
  return each<I32x4>([&](int i) { return a.v[i] > b.v[i] ? -1 : 0; });
}
inline I32x4 equal(F32x4 a, F32x4 b) {
  return each<I32x4>([&](int i) { return a.v[i] == b.v[i] ? -1 : 0; });
}
inline I32x4 select(I32x4 mask, I32x4 a, I32x4 b) {
  return each<I32x4>([&](int i) { return (a.v[i] & mask.v[i]) | (b.v[i] & ~mask.v[i]); });
}
inline F32x4 select(I32x4 mask, F32x4 a, F32x4 b) { return from_bits(select(mask, bits(a), bits(b))); }
inline F32x4 to_float(I32x4 a) {
  return each<F32x4>([&](int i) { return static_cast<float>(a.v[i]); });
}

inline F64x2 load(const double* p) { return {{p[0], p[1]}}; }
inline void store(double* p, F64x2 a) { std::memcpy(p, a.v, sizeof(a.v)); }
inline F64x2 to_double_low(I32x4 a) { return {{static_cast<double>(a.v[0]), static_cast<double>(a.v[1])}}; }
inline F64x2 to_double_high(I32x4 a) { return {{static_cast<double>(a.v[2]), static_cast<double>(a.v[3])}}; }
inline F64x2 nearest(F64x2 a) {
  return each<F64x2>([&](int i) { return round_half_even(a.v[i]); });
}
inline F64x2 widen_low(F32x4 a) { return {{a.v[0], a.v[1]}}; }
inline F64x2 widen_high(F32x4 a) { return {{a.v[2], a.v[3]}}; }
inline F32x4 narrow(F64x2 low, F64x2 high) {
  return {
      {static_cast<float>(low.v[0]), static_cast<float>(low.v[1]), static_cast<float>(high.v[0]), static_cast<float>(high.v[1])}};
}
inline int32_t truncate(double x) { return x != x ? 0 : static_cast<int32_t>(clamp(x, -2147483648.0, 2147483647.0)); }
inline I32x4 narrow_to_int(F64x2 low, F64x2 high) {
  return {{truncate(low.v[0]), truncate(low.v[1]), truncate(high.v[0]), truncate(high.v[1])}};
}
inline F64x2 pair(double a, double b) { return {{a, b}}; }
inline void transpose(F32x4& a, F32x4& b, F32x4& c, F32x4& d) {
  const F32x4 rows[4] = {a, b, c, d};
  F32x4* columns[4] = {&a, &b, &c, &d};
  for (int i = 0; i < 4; i++) {
    for (int j = 0; j < 4; j++) columns[i]->v[j] = rows[j].v[i];
  }
}

template <class Code>
inline void store_codes(Code* p, I32x4 a, I32x4 b, I32x4 c, I32x4 d, int32_t bottom, int32_t top) {
  const I32x4 parts[4] = {a, b, c, d};
  for (int i = 0; i < 16; i++) p[i] = static_cast<Code>(clamp(parts[i / 4].v[i % 4], bottom, top));
}

template <class Code>
inline void store_eight_codes(Code* p, I32x4 a, I32x4 b) {
  for (int i = 0; i < 8; i++) p[i] = static_cast<Code>(i < 4 ? a.v[i] : b.v[i - 4]);
}

template <class Code>
inline void load_codes(const Code* p, I32x4* out) {
  for (int i = 0; i < 16; i++) out[i / 4].v[i % 4] = p[i];
}

template <class Code>
inline void load_eight_codes(const Code* p, I32x4* out) {
  for (int i = 0; i < 8; i++) out[i / 4].v[i % 4] = p[i];
}

inline I16x8 load(const int16_t* p) {
  return each<I16x8>([&](int i) { return p[i]; });
}
inline void store(int16_t* p, I16x8 a) { std::memcpy(p, a.v, sizeof(a.v)); }
inline I16x8 splat(int16_t x) {
  return each<I16x8>([&](int) { return x; });
}
template <class Byte>
inline I16x8 widen(const Byte* p) {
  return each<I16x8>([&](int i) { return static_cast<int16_t>(p[i]); });
}
inline I16x8 splat_pair(const int16_t* p) {
  return each<I16x8>([&](int i) { return p[i % 2]; });
}
inline I16x8 low_nibbles(I16x8 a) {
  return each<I16x8>([&](int i) { return static_cast<int16_t>(a.v[i] & 15); });
}
inline I16x8 high_nibbles(I16x8 a) {
  return each<I16x8>([&](int i) { return static_cast<int16_t>(a.v[i] >> 4); });
}
inline I32x4 dot(I16x8 a, I16x8 b) {
  return each<I32x4>([&](int i) { return a.v[2 * i] * b.v[2 * i] + a.v[2 * i + 1] * b.v[2 * i + 1]; });
}
inline void store_pairs(int16_t* p, size_t step, I32x4 a, I32x4 b) {
  for (size_t i = 0; i < 8; i++) p[i / 2 * step + i % 2] = static_cast<int16_t>(i < 4 ? a.v[i] : b.v[i - 4]);
}

inline U8x16 load(const uint8_t* p) {
  return each<U8x16>([&](int i) { return p[i]; });
}
inline void store(uint8_t* p, U8x16 a) { std::memcpy(p, a.v, sizeof(a.v)); }
inline U8x16 splat(uint8_t x) {
  return each<U8x16>([&](int) { return x; });
}
template <int kBits>
inline U8x16 shift_left(U8x16 a) {
  return each<U8x16>([&](int i) { return static_cast<uint8_t>(a.v[i] << kBits); });
}
template <int kBits>
inline U8x16 shift_right(U8x16 a) {
  return each<U8x16>([&](int i) { return static_cast<uint8_t>(a.v[i] >> kBits); });
}
inline U8x16 lookup(const U8x16& table, U8x16 index) {
  // A loop: without one, the search of IQ4_NL takes a sixth longer.
  U8x16 r;
  for (int i = 0; i < 16; i++) r.v[i] = index.v[i] < 16 ? table.v[index.v[i]] : 0;
  return r;
}
inline uint32_t top_bits(U8x16 a) {
  uint32_t mask = 0;
  for (int i = 0; i < 16; i++) mask |= static_cast<uint32_t>(a.v[i] >> 7) << i;
  return mask;
}
/// The sign bits, that of lane 0 lowest.
inline uint32_t top_bits(I32x4 a) {
  uint32_t mask = 0;
  for (int i = 0; i < 4; i++) mask |= static_cast<uint32_t>(a.v[i]) >> 31 << i;
  return mask;
}
inline U8x16 spread_bits(uint32_t mask) {
  return each<U8x16>([&](int i) { return static_cast<uint8_t>((mask >> i & 1) != 0 ? 255 : 0); });
}
inline U8x16 low_bytes(I32x4 a, I32x4 b, I32x4 c, I32x4 d) {
  const I32x4* parts[4] = {&a, &b, &c, &d};
  return each<U8x16>([&](int i) { return static_cast<uint8_t>(parts[i / 4]->v[i % 4]); });
}
inline void split_low_nibbles(I32x4 a, I32x4 b, I32x4 c, I32x4 d, U8x16& low, U8x16& high) {
  const I32x4* parts[4] = {&a, &b, &c, &d};
  for (int i = 0; i < 16; i++) {
    const int32_t v = parts[i / 4]->v[i % 4];
    low.v[i] = static_cast<uint8_t>(v & 15);
    high.v[i] = static_cast<uint8_t>(v >> 4);
  }
}
inline void to_floats(U8x16 bytes, F32x4* out) {
  for (int i = 0; i < 16; i++) out[i / 4].v[i % 4] = static_cast<int8_t>(bytes.v[i]);
}

}  // namespace scalepoint::lanes
