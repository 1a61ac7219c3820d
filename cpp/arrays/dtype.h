// Types of codes: small integers, and floats of at most eight bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint {

/// An integer type of 2 to 8, or of 16 bits. A code takes one byte, or two if it has 16 bits; pack_bits.h stores codes without gaps.
struct DType {
  int32_t bits = 8;
  bool is_signed = true;

  [[nodiscard]] constexpr bool valid() const { return (bits >= 2 && bits <= 8) || bits == 16; }
  [[nodiscard]] constexpr int32_t qmin() const { return is_signed ? -(1 << (bits - 1)) : 0; }
  [[nodiscard]] constexpr int32_t qmax() const { return is_signed ? (1 << (bits - 1)) - 1 : (1 << bits) - 1; }
  /// The zero point of the symmetric scheme: 0, or the middle of an unsigned type.
  [[nodiscard]] constexpr int32_t middle() const { return is_signed ? 0 : 1 << (bits - 1); }
  [[nodiscard]] constexpr size_t storage_bytes() const { return bits > 8 ? 2 : 1; }
};

/// Bytes that n packed codes take: ceil(n * bits / 8).
[[nodiscard]] constexpr uint64_t packed_bytes(uint64_t n, int32_t bits) { return n / 8 * bits + (n % 8 * bits + 7) / 8; }

/// Floats of at most eight bits, one in each byte. Source: ONNX, "Float stored in 8 bits" and "Float stored in 4 bits".
///   float8e4m3fn  sign, 4 bits of exponent (bias 7), 3 of fraction; no infinities; NaN 0x7F; largest value 448
///   float8e5m2    sign, 5 bits of exponent (bias 15), 2 of fraction; infinity 0x7C, NaN above it; largest value 57344
///   float4e2m1    sign, 2 bits of exponent (bias 1), 1 of fraction; neither infinities nor NaN; largest value 6
enum class Minifloat : int32_t { kFloat8E4M3FN = 0, kFloat8E5M2 = 1, kFloat4E2M1 = 2 };

/// Result for infinities, and for values whose magnitude is above the largest value after rounding.
///   kSaturate  the largest value
///   kEscape    infinity, or NaN in float8e4m3fn; float4e2m1 has neither and saturates
enum class Overflow : int32_t { kSaturate = 0, kEscape = 1 };

}  // namespace scalepoint
