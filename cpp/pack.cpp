#include "pack.h"

#include <cstring>

namespace scalepoint {
namespace {

// Eight codes travel together in one 64-bit word, little-endian: 8 bytes with one code each on one side, `bits` bytes on the
// other. Three steps join neighbours of 1, 2 and 4 codes (or part them):
//
//   0000hhhh 0000gggg ... 0000bbbb 0000aaaa   ->   00000000hhhhgggg ... 00000000bbbbaaaa   ->  ...
//
// Reading and writing whole words would run over the ends, so the last words go through a padded one.

constexpr uint64_t repeat(uint64_t pattern, int width) {
  uint64_t all = 0;
  for (int i = 0; i < 64; i += width) all |= pattern << i;
  return all;
}

uint64_t join(uint64_t word, int bits) {
  word &= repeat((1u << bits) - 1, 8);
  for (int width = 8, held = bits; width < 64; width *= 2, held *= 2) {
    const uint64_t low = repeat((uint64_t{1} << width) - 1, 2 * width);
    word = (word & low) | ((word >> width & low) << held);
  }
  return word;
}

uint64_t part(uint64_t word, int bits) {
  for (int width = 32; width >= 8; width /= 2) {
    const int held = width / 8 * bits;
    const uint64_t low = repeat((uint64_t{1} << held) - 1, 2 * width);
    word = (word & low) | ((word >> held & low) << width);
  }
  return word;
}

/// Spreads the sign bit of every byte's code over the rest of the byte: (code ^ s) - s with s = 2^(bits-1), where the subtraction
/// is an addition of 256 - s that must not carry into the next byte.
uint64_t extend_sign(uint64_t word, int bits) {
  const uint64_t sign = repeat(uint64_t{1} << (bits - 1), 8), less = repeat(256 - (1u << (bits - 1)), 8), top = repeat(0x80, 8);
  word ^= sign;
  return ((word & ~top) + (less & ~top)) ^ ((word ^ less) & top);
}

/// Codes of less than 8 bits. Called from two places each, and not worth two copies.
[[gnu::noinline]] void pack_narrow(std::span<const std::byte> codes, int32_t width, std::span<std::byte> packed) {
  const auto bits = static_cast<size_t>(width);
  const size_t n = codes.size();
  const std::byte* from = codes.data();
  std::byte* to = packed.data();
  for (size_t i = 0; i < n; i += 8) {
    const size_t count = n - i < 8 ? n - i : 8;
    uint64_t word = 0;
    std::memcpy(&word, from + i, count == 8 ? 8 : count);
    word = join(word, width);
    const size_t at = i / 8 * bits, left = packed.size() - at;
    // Surplus bytes of a whole word are written over by the next ones.
    if (left >= 8) {
      std::memcpy(to + at, &word, 8);
    } else {
      std::memcpy(to + at, &word, left < bits ? left : bits);
    }
  }
}

[[gnu::noinline]] void unpack_narrow(std::span<const std::byte> packed, int32_t width, bool is_signed,
                                     std::span<std::byte> codes) {
  const auto bits = static_cast<size_t>(width);
  const size_t n = codes.size();
  for (size_t i = 0; i < n; i += 8) {
    const size_t count = n - i < 8 ? n - i : 8, at = i / 8 * bits, left = packed.size() - at;
    uint64_t word = 0;
    std::memcpy(&word, packed.data() + at, left < 8 ? left : 8);
    word = part(word, width);
    if (is_signed) word = extend_sign(word, width);
    std::memcpy(codes.data() + i, &word, count);
  }
}

}  // namespace

Status pack(std::span<const std::byte> codes, DType dtype, std::span<std::byte> packed) noexcept {
  if (!dtype.valid()) return Status::kBadDType;
  const size_t n = codes.size() / dtype.storage_bytes();
  if (codes.size() != n * dtype.storage_bytes() || packed.size() != packed_bytes(n, dtype.bits)) return Status::kSizeMismatch;
  if (dtype.bits < 8) {
    pack_narrow(codes, dtype.bits, packed);
  } else if (n > 0) {  // one code fills its storage
    std::memcpy(packed.data(), codes.data(), codes.size());
  }
  return Status::kOk;
}

Status unpack(std::span<const std::byte> packed, DType dtype, std::span<std::byte> codes) noexcept {
  if (!dtype.valid()) return Status::kBadDType;
  const size_t n = codes.size() / dtype.storage_bytes();
  if (codes.size() != n * dtype.storage_bytes() || packed.size() != packed_bytes(n, dtype.bits)) return Status::kSizeMismatch;
  if (dtype.bits < 8) {
    unpack_narrow(packed, dtype.bits, dtype.is_signed, codes);
  } else if (n > 0) {
    std::memcpy(codes.data(), packed.data(), codes.size());
  }
  return Status::kOk;
}

Status pack_codebook(std::span<const uint8_t> codes, int32_t bits, std::span<std::byte> packed) noexcept {
  if (bits != 1) return pack(std::as_bytes(codes), {bits > 8 ? 0 : bits, false}, packed);  // the one width that no dtype has
  if (packed.size() != packed_bytes(codes.size(), bits)) return Status::kSizeMismatch;
  pack_narrow(std::as_bytes(codes), bits, packed);
  return Status::kOk;
}

Status unpack_codebook(std::span<const std::byte> packed, int32_t bits, std::span<uint8_t> codes) noexcept {
  if (bits != 1) return unpack(packed, {bits > 8 ? 0 : bits, false}, std::as_writable_bytes(codes));
  if (packed.size() != packed_bytes(codes.size(), bits)) return Status::kSizeMismatch;
  unpack_narrow(packed, bits, false, std::as_writable_bytes(codes));
  return Status::kOk;
}

}  // namespace scalepoint
