#include "pack.h"

#include <cstring>

#include "kernels/pack.h"

namespace scalepoint {

Status pack(std::span<const std::byte> codes, DType dtype, std::span<std::byte> packed) noexcept {
  if (!dtype.valid()) return Status::kBadDType;
  const size_t n = codes.size() / dtype.storage_bytes();
  if (codes.size() != n * dtype.storage_bytes() || packed.size() != packed_bytes(n, dtype.bits)) return Status::kSizeMismatch;
  if (dtype.bits < 8) {
    kernels::pack_bits(codes.data(), n, dtype.bits, packed.data());
  } else if (n > 0) {  // a code fills its bytes
    std::memcpy(packed.data(), codes.data(), codes.size());
  }
  return Status::kOk;
}

Status unpack(std::span<const std::byte> packed, DType dtype, std::span<std::byte> codes) noexcept {
  if (!dtype.valid()) return Status::kBadDType;
  const size_t n = codes.size() / dtype.storage_bytes();
  if (codes.size() != n * dtype.storage_bytes() || packed.size() != packed_bytes(n, dtype.bits)) return Status::kSizeMismatch;
  if (dtype.bits < 8) {
    kernels::unpack_bits(packed.data(), n, dtype.bits, dtype.is_signed, codes.data());
  } else if (n > 0) {
    std::memcpy(codes.data(), packed.data(), codes.size());
  }
  return Status::kOk;
}

Status pack_codebook(std::span<const uint8_t> codes, int32_t bits, std::span<std::byte> packed) noexcept {
  // No dtype has one bit. A dtype of 0 bits is refused.
  if (bits != 1) return pack(std::as_bytes(codes), {bits > 8 ? 0 : bits, false}, packed);
  if (packed.size() != packed_bytes(codes.size(), bits)) return Status::kSizeMismatch;
  kernels::pack_bits(std::as_bytes(codes).data(), codes.size(), bits, packed.data());
  return Status::kOk;
}

Status unpack_codebook(std::span<const std::byte> packed, int32_t bits, std::span<uint8_t> codes) noexcept {
  if (bits != 1) return unpack(packed, {bits > 8 ? 0 : bits, false}, std::as_writable_bytes(codes));
  if (packed.size() != packed_bytes(codes.size(), bits)) return Status::kSizeMismatch;
  kernels::unpack_bits(packed.data(), codes.size(), bits, false, std::as_writable_bytes(codes).data());
  return Status::kOk;
}

}  // namespace scalepoint
