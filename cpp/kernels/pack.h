// The loops of dense packing. No checks: cpp/pack.cpp has made them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint::kernels {

/// Packs n codes of one byte each into ceil(n * bits / 8) bytes, the first code lowest. bits: 1 to 7. Bits of a code above `bits` are
/// dropped.
void pack_bits(const std::byte* codes, size_t n, int32_t bits, std::byte* packed);

/// The reverse. Extends the sign of the codes if is_signed.
void unpack_bits(const std::byte* packed, size_t n, int32_t bits, bool is_signed, std::byte* codes);

}  // namespace scalepoint::kernels
