#include "arrays/pack_bits.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "arrays/pack_bits_loops.h"

namespace scalepoint {
namespace {

const uint8_t* bytes(std::span<const std::byte> span) { return reinterpret_cast<const uint8_t*>(span.data()); }
uint8_t* bytes(std::span<std::byte> span) { return reinterpret_cast<uint8_t*>(span.data()); }

loops::CodeForm form_of(DType dtype) { return dtype.is_signed ? loops::CodeForm::kTwosComplement : loops::CodeForm::kUnsigned; }

/// Checks the sizes in bytes of codes and of the packed codes.
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
    loops::pack_codes(bytes(codes), codes.size(), dtype.bits, form_of(dtype), bytes(packed));
  } else if (!codes.empty()) {  // one code fills its storage
    std::memcpy(packed.data(), codes.data(), codes.size());
  }
  return Status::kOk;
}

Status unpack(std::span<const std::byte> packed, DType dtype, std::span<std::byte> codes) noexcept {
  const Status status = check(codes.size(), dtype, packed.size());
  if (status != Status::kOk) return status;
  if (dtype.bits < 8) {
    loops::unpack_codes(bytes(packed), codes.size(), dtype.bits, form_of(dtype), bytes(codes));
  } else if (!codes.empty()) {
    std::memcpy(codes.data(), packed.data(), codes.size());
  }
  return Status::kOk;
}

size_t first_outside(std::span<const uint8_t> codes, DType dtype) noexcept {
  if (dtype.bits >= 8) return codes.size();
  // code - qmin has no bits above those of the type.
  const auto bias = static_cast<uint8_t>(-dtype.qmin());
  const auto outside = [&](size_t from, size_t n) { return loops::joined_bits(&codes[from], n, bias) >> dtype.bits != 0; };
  constexpr size_t kBlock = 1024;
  size_t i = 0;
  while (i < codes.size() && !outside(i, std::min(kBlock, codes.size() - i))) i += std::min(kBlock, codes.size() - i);
  while (i < codes.size() && !outside(i, 1)) i++;
  return i;
}

namespace {

/// True if all codes are below `values`.
bool all_below(std::span<const uint8_t> codes, size_t values) {
  // Join the bits of all codes, eight codes at a time. This decides if `values` is a power of two, as in most codebooks.
  uint64_t together = 0, eight;
  size_t i = 0;
  for (; i + sizeof eight <= codes.size(); i += sizeof eight) {
    std::memcpy(&eight, &codes[i], sizeof eight);
    together |= eight;
  }
  for (; i < codes.size(); i++) together |= codes[i];
  constexpr uint64_t kEachByte = 0x0101010101010101;
  if (std::has_single_bit(values)) return (together & (kEachByte * ((256 - values) & 0xFF))) == 0;
  return std::all_of(codes.begin(), codes.end(), [values](uint8_t code) { return code < values; });
}

}  // namespace

Status pack_codebook(std::span<const uint8_t> codes, size_t values, int32_t bits, std::span<std::byte> packed) noexcept {
  if (bits == 1) {  // the one width that no dtype has
    if (packed.size() != packed_bytes(codes.size(), bits)) return Status::kSizeMismatch;
    loops::pack_codes(codes.data(), codes.size(), bits, loops::CodeForm::kUnsigned, bytes(packed));
  } else if (const Status s = pack(std::as_bytes(codes), {bits > 8 ? 0 : bits, false}, packed); s != Status::kOk) {
    return s;
  }
  return all_below(codes, values) ? Status::kOk : Status::kBadRange;
}

Status unpack_codebook(std::span<const std::byte> packed, int32_t bits, std::span<uint8_t> codes) noexcept {
  if (bits != 1) return unpack(packed, {bits > 8 ? 0 : bits, false}, std::as_writable_bytes(codes));
  if (packed.size() != packed_bytes(codes.size(), bits)) return Status::kSizeMismatch;
  loops::unpack_codes(bytes(packed), codes.size(), bits, loops::CodeForm::kUnsigned, codes.data());
  return Status::kOk;
}

}  // namespace scalepoint
