#include "kernels/minifloat.h"

#include "scalepoint.h"

namespace scalepoint {
namespace {

bool exists(Minifloat format) { return format >= Minifloat::kFloat8E4M3FN && format <= Minifloat::kFloat4E2M1; }

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
  kernels::float32_to_float16(x.data(), x.size(), bits.data());
  return Status::kOk;
}

Status float32_to_bfloat16(std::span<const float> x, std::span<uint16_t> bits) noexcept {
  if (bits.size() != x.size()) return Status::kSizeMismatch;
  kernels::float32_to_bfloat16(x.data(), x.size(), bits.data());
  return Status::kOk;
}

Status float32_to_minifloat(std::span<const float> x, Minifloat format, Overflow overflow, std::span<uint8_t> bits) noexcept {
  if (!exists(format)) return Status::kBadDType;
  if (bits.size() != x.size()) return Status::kSizeMismatch;
  kernels::float32_to_minifloat(x.data(), x.size(), format, overflow, bits.data());
  return Status::kOk;
}

Status minifloat_to_float32(std::span<const uint8_t> bits, Minifloat format, std::span<float> x) noexcept {
  if (!exists(format)) return Status::kBadDType;
  if (bits.size() != x.size()) return Status::kSizeMismatch;
  kernels::minifloat_to_float32(bits.data(), bits.size(), format, x.data());
  return Status::kOk;
}

}  // namespace scalepoint
