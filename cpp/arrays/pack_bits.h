// Packs codes of less than a byte without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/dtype.h"
#include "arrays/status.h"

namespace scalepoint {

/// Packs codes, which take one or two bytes each (see DType). Element i takes the bits [i * bits, (i + 1) * bits) of the result,
/// least significant first, in two's complement. Unused bits of the last byte are 0. A code outside the type loses its upper
/// bits.
/// Shape:   packed.size() == packed_bytes(n, bits).
/// Status:  kBadDType, kSizeMismatch.
[[nodiscard]] Status pack(std::span<const std::byte> codes, DType dtype, std::span<std::byte> packed) noexcept;

/// The reverse of pack. The sign of signed types is extended.
[[nodiscard]] Status unpack(std::span<const std::byte> packed, DType dtype, std::span<std::byte> codes) noexcept;

/// The index of the first code outside of a type of at most 8 bits, or codes.size().
[[nodiscard]] size_t first_outside(std::span<const uint8_t> codes, DType dtype) noexcept;

/// Packs the codes of a codebook as pack does, in 1 to 8 bits.
/// Arguments: values, the number of values in the codebook, at most 2^bits.
/// Status:    kSizeMismatch; kBadRange if a code is not below `values`; `packed` is then undefined.
[[nodiscard]] Status pack_codebook(std::span<const uint8_t> codes, size_t values, int32_t bits,
                                   std::span<std::byte> packed) noexcept;

/// The reverse of pack_codebook.
[[nodiscard]] Status unpack_codebook(std::span<const std::byte> packed, int32_t bits, std::span<uint8_t> codes) noexcept;

}  // namespace scalepoint
