// Limits of memory and of the divider: loops with the traffic of the library's operations and none of their arithmetic. The benchmark
// states the library's times as multiples of these, measured in the same process.
#include <wasm_simd128.h>

#include <cstddef>
#include <cstdint>

namespace {
inline v128_t load(const void* p) { return wasm_v128_load(p); }
inline void store(void* p, v128_t v) { wasm_v128_store(p, v); }
}  // namespace

extern "C" {

/// Reads 4 n bytes.
int32_t limit_read(const float* x, size_t n) {
  v128_t a = wasm_i32x4_splat(0), b = a, c = a, d = a;
  for (size_t i = 0; i + 16 <= n; i += 16) {
    a = wasm_v128_xor(a, load(x + i));
    b = wasm_v128_xor(b, load(x + i + 4));
    c = wasm_v128_xor(c, load(x + i + 8));
    d = wasm_v128_xor(d, load(x + i + 12));
  }
  a = wasm_v128_xor(wasm_v128_xor(a, b), wasm_v128_xor(c, d));
  return wasm_i32x4_extract_lane(a, 0) ^ wasm_i32x4_extract_lane(a, 1) ^ wasm_i32x4_extract_lane(a, 2) ^
         wasm_i32x4_extract_lane(a, 3);
}

/// Reads 4 n bytes and writes n, as quantize does.
void limit_four_to_one(const float* x, int8_t* codes, size_t n) {
  for (size_t i = 0; i + 16 <= n; i += 16) {
    const v128_t low = wasm_i16x8_narrow_i32x4(load(x + i), load(x + i + 4));
    const v128_t high = wasm_i16x8_narrow_i32x4(load(x + i + 8), load(x + i + 12));
    store(codes + i, wasm_i8x16_narrow_i16x8(low, high));
  }
}

/// Reads n bytes and writes 4 n, as dequantize does.
void limit_one_to_four(const int8_t* codes, float* x, size_t n) {
  for (size_t i = 0; i + 16 <= n; i += 16) {
    const v128_t v = load(codes + i), low = wasm_i16x8_extend_low_i8x16(v), high = wasm_i16x8_extend_high_i8x16(v);
    store(x + i, wasm_i32x4_extend_low_i16x8(low));
    store(x + i + 4, wasm_i32x4_extend_high_i16x8(low));
    store(x + i + 8, wasm_i32x4_extend_low_i16x8(high));
    store(x + i + 12, wasm_i32x4_extend_high_i16x8(high));
  }
}

/// n exact float32 divisions, four at a time, on values in registers.
int32_t limit_divide(float by, size_t n) {
  v128_t a = wasm_f32x4_splat(1.5f), b = wasm_f32x4_splat(2.5f), c = wasm_f32x4_splat(3.5f), d = wasm_f32x4_splat(4.5f);
  v128_t e = wasm_f32x4_splat(5.5f), f = wasm_f32x4_splat(6.5f), g = wasm_f32x4_splat(7.5f), h = wasm_f32x4_splat(8.5f);
  const v128_t s = wasm_f32x4_splat(by);
  for (size_t i = 0; i < n; i += 32) {
    a = wasm_f32x4_div(a, s);
    b = wasm_f32x4_div(b, s);
    c = wasm_f32x4_div(c, s);
    d = wasm_f32x4_div(d, s);
    e = wasm_f32x4_div(e, s);
    f = wasm_f32x4_div(f, s);
    g = wasm_f32x4_div(g, s);
    h = wasm_f32x4_div(h, s);
  }
  a = wasm_v128_xor(wasm_v128_xor(wasm_v128_xor(a, b), wasm_v128_xor(c, d)),
                    wasm_v128_xor(wasm_v128_xor(e, f), wasm_v128_xor(g, h)));
  return wasm_i32x4_extract_lane(a, 0);
}
}
