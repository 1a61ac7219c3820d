// float32 to floats of 16 bits and fewer, and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dtype.h"
#include "layout.h"
#include "status.h"

namespace scalepoint {

/// float16 (IEEE 754 binary16) bits to float32, exactly. NaN stays NaN. x.size() == bits.size(), else kSizeMismatch.
[[nodiscard]] Status float16_to_float32(std::span<const uint16_t> bits, std::span<float> x) noexcept;

/// bfloat16 bits to float32, exactly: the bits are the upper half.
[[nodiscard]] Status bfloat16_to_float32(std::span<const uint16_t> bits, std::span<float> x) noexcept;

/// float32 to float16 bits, half to even; a size above 65504 (after rounding) gives infinity, NaN a quiet NaN of the same sign.
[[nodiscard]] Status float32_to_float16(std::span<const float> x, std::span<uint16_t> bits) noexcept;

/// float32 to bfloat16 bits, half to even; NaN gives a quiet NaN of the same sign.
[[nodiscard]] Status float32_to_bfloat16(std::span<const float> x, std::span<uint16_t> bits) noexcept;

/// float32 to the bits of such floats, half to even, as ONNX Cast-25 defines it. The sign of everything stays, that of -0 and NaN
/// too, but for NaN in float4e2m1, which becomes +6. NaN becomes 0x7F in both float8 formats.
/// Status: kSizeMismatch, kBadDType if there is no such format.
[[nodiscard]] Status float32_to_minifloat(std::span<const float> x, Minifloat format, Overflow overflow,
                                          std::span<uint8_t> bits) noexcept;

/// The values, exactly. Bits above the sign are not read. NaN stays NaN, of the same sign. Status as above.
[[nodiscard]] Status minifloat_to_float32(std::span<const uint8_t> bits, Minifloat format, std::span<float> x) noexcept;

/// bits[i] = float32_to_minifloat(x[i] / scale[p]), saturated, for the piece [start, start + x.size()) of an array.
/// Shape:  bits.size() == x.size(); scale reaches to layout.parameter_end().
/// Status: kBadDType, kBadLayout, kSizeMismatch, kBadScale.
[[nodiscard]] Status quantize_minifloat(std::span<const float> x, const Layout& layout, uint64_t start,
                                        std::span<const float> scale, Minifloat format, std::span<uint8_t> bits) noexcept;

/// x[i] = scale[p] * value of bits[i], one float32 multiplication. Shape and status as quantize_minifloat.
[[nodiscard]] Status dequantize_minifloat(std::span<const uint8_t> bits, const Layout& layout, uint64_t start,
                                          std::span<const float> scale, Minifloat format, std::span<float> x) noexcept;

}  // namespace scalepoint
