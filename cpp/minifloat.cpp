#include "kernels/kernels.h"
#include "scalepoint.h"

namespace scalepoint {
namespace {

/// value / 2^shift, rounded half to even; shift is 1 to 31.
uint32_t shift_half_even(uint32_t value, uint32_t shift) {
  const uint32_t whole = value >> shift, rest = value & ((1u << shift) - 1), half = 1u << (shift - 1);
  return whole + (rest > half || (rest == half && (whole & 1)) ? 1 : 0);
}

uint16_t float16_of(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x), size = bits & kAbsMask, sign = bits >> 16 & 0x8000u;
  if (size > kInfinityBits) return static_cast<uint16_t>(sign | 0x7E00u);
  if (size >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 2^16 and more
  // A carry out of the fraction moves into the exponent, as it should, up to infinity.
  if (size >= 0x38800000u) return static_cast<uint16_t>(sign | (shift_half_even(size, 13) - (112u << 10)));
  const uint32_t exponent = size >> 23;
  if (exponent < 102) return static_cast<uint16_t>(sign);  // below half of the smallest subnormal, 2^-24
  const uint32_t fraction = (size & 0x007FFFFFu) | 0x00800000u;
  return static_cast<uint16_t>(sign | shift_half_even(fraction, 126 - exponent));
}

uint16_t bfloat16_of(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x), size = bits & kAbsMask, sign = bits >> 16 & 0x8000u;
  if (size > kInfinityBits) return static_cast<uint16_t>(sign | 0x7FC0u);
  return static_cast<uint16_t>(sign | shift_half_even(size, 16));
}

}  // namespace

Status float16_to_float32(std::span<const uint16_t> bits, std::span<float> x) noexcept {
  if (bits.size() != x.size()) return Status::kSizeMismatch;
  kernels::float16_to_float32(bits.data(), bits.size(), x.data());
  return Status::kOk;
}

Status bfloat16_to_float32(std::span<const uint16_t> bits, std::span<float> x) noexcept {
  if (bits.size() != x.size()) return Status::kSizeMismatch;
  kernels::bfloat16_to_float32(bits.data(), bits.size(), x.data());
  return Status::kOk;
}

Status float32_to_float16(std::span<const float> x, std::span<uint16_t> bits) noexcept {
  if (bits.size() != x.size()) return Status::kSizeMismatch;
    // The compiler's vectors would take the branches lane by lane.
#ifdef __clang__
#pragma clang loop vectorize(disable)
#endif
  for (size_t i = 0; i < x.size(); i++) bits[i] = float16_of(x[i]);
  return Status::kOk;
}

Status float32_to_bfloat16(std::span<const float> x, std::span<uint16_t> bits) noexcept {
  if (bits.size() != x.size()) return Status::kSizeMismatch;
  for (size_t i = 0; i < x.size(); i++) bits[i] = bfloat16_of(x[i]);
  return Status::kOk;
}

}  // namespace scalepoint
