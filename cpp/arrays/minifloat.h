// Casts between float32 and floats of 16 bits and fewer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/dtype.h"
#include "arrays/layout.h"
#include "arrays/status.h"

namespace scalepoint {

/// float16 (IEEE 754 binary16) bits to float32, exactly. NaN stays NaN. kSizeMismatch unless x.size() == bits.size().
[[nodiscard]] Status float16_to_float32(std::span<const uint16_t> bits, std::span<float> x) noexcept;

/// bfloat16 bits to float32, exactly: they are the upper half of its bits. kSizeMismatch unless x.size() == bits.size().
[[nodiscard]] Status bfloat16_to_float32(std::span<const uint16_t> bits, std::span<float> x) noexcept;

/// float32 to float16 bits, half to even. A magnitude above 65504 after rounding gives infinity. NaN gives a quiet NaN of the
/// same sign. kSizeMismatch unless x.size() == bits.size().
[[nodiscard]] Status float32_to_float16(std::span<const float> x, std::span<uint16_t> bits) noexcept;

/// float32 to bfloat16 bits, half to even. NaN gives a quiet NaN of the same sign. kSizeMismatch unless x.size() == bits.size().
[[nodiscard]] Status float32_to_bfloat16(std::span<const float> x, std::span<uint16_t> bits) noexcept;

/// float32 to the bits of a float of at most eight bits, half to even, as ONNX Cast-25 defines it.
/// Special: the sign stays, including that of -0 and NaN. NaN becomes 0x7F in both float8 formats, with its sign. In float4e2m1, which
///          has no NaN, it becomes +6.
/// Status:  kSizeMismatch, or kBadDType for an unknown format.
[[nodiscard]] Status float32_to_minifloat(std::span<const float> x, Minifloat format, Overflow overflow,
                                          std::span<uint8_t> bits) noexcept;

/// The values of such bits, exactly. Bits above the sign are not read. NaN stays NaN, of the same sign. Status as above.
[[nodiscard]] Status minifloat_to_float32(std::span<const uint8_t> bits, Minifloat format, std::span<float> x) noexcept;

/// bits[i] = float32_to_minifloat(x[i] / scale[p]), saturated, for the piece [start, start + x.size()) of an array.
/// Shape:  bits.size() == x.size(); scale has at least layout.parameter_end(start, x.size()) elements.
/// Status: kBadDType, kBadLayout, kSizeMismatch, kBadScale.
[[nodiscard]] Status quantize_minifloat(std::span<const float> x, const Layout& layout, uint64_t start,
                                        std::span<const float> scale, Minifloat format, std::span<uint8_t> bits) noexcept;

/// x[i] = scale[p] * value of bits[i], one float32 multiplication. Shape and status as quantize_minifloat.
[[nodiscard]] Status dequantize_minifloat(std::span<const uint8_t> bits, const Layout& layout, uint64_t start,
                                          std::span<const float> scale, Minifloat format, std::span<float> x) noexcept;

}  // namespace scalepoint
