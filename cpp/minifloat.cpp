#include "float16.h"
#include "kernels/kernels.h"
#include "scalepoint.h"

namespace scalepoint {
namespace {

uint16_t bfloat16_of(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x), size = bits & kAbsMask, sign = bits >> 16 & 0x8000u;
  if (size > kInfinityBits) return static_cast<uint16_t>(sign | 0x7FC0u);
  // Adding just below half of the last bit that stays, and that bit itself, carries where it has to.
  return static_cast<uint16_t>(sign | (size + 0x7FFFu + (size >> 16 & 1)) >> 16);
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
