#include "pack.h"

#include <cstring>

#include "kernels/pack.h"

namespace scalepoint {
namespace {

const uint8_t* bytes(std::span<const std::byte> span) { return reinterpret_cast<const uint8_t*>(span.data()); }
uint8_t* bytes(std::span<std::byte> span) { return reinterpret_cast<uint8_t*>(span.data()); }

kernels::CodeForm form_of(DType dtype) {
  return dtype.is_signed ? kernels::CodeForm::kTwosComplement : kernels::CodeForm::kUnsigned;
}

/// Checks the sizes in bytes of codes and of what they are packed into.
[[gnu::noinline]] Status check(size_t codes, DType dtype, size_t packed) {
  if (!dtype.valid()) return Status::kBadDType;
  const size_t n = codes / dtype.storage_bytes();
  return codes == n * dtype.storage_bytes() && packed == packed_bytes(n, dtype.bits) ? Status::kOk : Status::kSizeMismatch;
}

}  // namespace

Status pack(std::span<const std::byte> codes, DType dtype, std::span<std::byte> packed) noexcept {
  const Status status = check(codes.size(), dtype, packed.size());
  if (status != Status::kOk) return status;
  if (dtype.bits < 8) {
    kernels::pack_codes(bytes(codes), codes.size(), dtype.bits, form_of(dtype), bytes(packed));
  } else if (!codes.empty()) {  // one code fills its storage
    std::memcpy(packed.data(), codes.data(), codes.size());
  }
  return Status::kOk;
}

Status unpack(std::span<const std::byte> packed, DType dtype, std::span<std::byte> codes) noexcept {
  const Status status = check(codes.size(), dtype, packed.size());
  if (status != Status::kOk) return status;
  if (dtype.bits < 8) {
    kernels::unpack_codes(bytes(packed), codes.size(), dtype.bits, form_of(dtype), bytes(codes));
  } else if (!codes.empty()) {
    std::memcpy(codes.data(), packed.data(), codes.size());
  }
  return Status::kOk;
}

Status pack_codebook(std::span<const uint8_t> codes, int32_t bits, std::span<std::byte> packed) noexcept {
  if (bits != 1) return pack(std::as_bytes(codes), {bits > 8 ? 0 : bits, false}, packed);  // the one width that no dtype has
  if (packed.size() != packed_bytes(codes.size(), bits)) return Status::kSizeMismatch;
  kernels::pack_codes(codes.data(), codes.size(), bits, kernels::CodeForm::kUnsigned, bytes(packed));
  return Status::kOk;
}

Status unpack_codebook(std::span<const std::byte> packed, int32_t bits, std::span<uint8_t> codes) noexcept {
  if (bits != 1) return unpack(packed, {bits > 8 ? 0 : bits, false}, std::as_writable_bytes(codes));
  if (packed.size() != packed_bytes(codes.size(), bits)) return Status::kSizeMismatch;
  kernels::unpack_codes(bytes(packed), codes.size(), bits, kernels::CodeForm::kUnsigned, codes.data());
  return Status::kOk;
}

}  // namespace scalepoint
