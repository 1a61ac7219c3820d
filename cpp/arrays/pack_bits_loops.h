// Loops that pack codes of at most a byte without gaps.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint::loops {

/// Meaning of the bits of a packed code.
///   kUnsigned        the code itself
///   kTwosComplement  a signed code in two's complement
///   kOffsetBinary    a signed code plus 2^(bits - 1): two's complement with the sign bit flipped
enum class CodeForm { kUnsigned, kTwosComplement, kOffsetBinary };

/// Packs n codes of one byte each, 1 <= bits <= 8. Element i takes the bits [i * bits, (i + 1) * bits) of the result, least
/// significant first. A code outside the type loses its upper bits; unused bits of the last byte are 0. Writes
/// packed_bytes(n, bits) bytes, which must not overlap the codes.
void pack_codes(const uint8_t* codes, size_t n, int32_t bits, CodeForm form, uint8_t* packed);

/// The reverse of pack_codes; it ignores unused bits of the last byte.
void unpack_codes(const uint8_t* packed, size_t n, int32_t bits, CodeForm form, uint8_t* codes);

/// The bits of code + bias of n codes, joined by "or".
uint8_t joined_bits(const uint8_t* codes, size_t n, uint8_t bias);

}  // namespace scalepoint::loops
