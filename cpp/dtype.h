// The integer types that a code can have.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint {

/// An integer type of 2..8 or 16 bits. One code takes one byte (up to 8 bits) or two (16 bits); see pack.cpp for dense storage.
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

}  // namespace scalepoint
