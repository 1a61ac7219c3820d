// Eight codes travel together in one 64-bit word, little-endian: eight bytes with one code each on one side, `bits` bytes on the
// other. Three steps join neighbors of 1, 2 and 4 codes, or part them:
//
//   0000hhhh 0000gggg ... 0000bbbb 0000aaaa   ->   00000000hhhhgggg ... 00000000bbbbaaaa   ->  ...
//
// Whole words would run over the ends of the arrays, so the last words go through a padded one. The shifts are those of 64-bit
// integers and need no vectors: one word holds as many codes as two vectors of four lanes.
#include "pack.h"

#include <cstring>

namespace scalepoint::kernels {
namespace {

/// A word of copies of a pattern, one every `width` bits.
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

/// Spreads the sign bit of the code in each byte over the rest of the byte: (code ^ s) - s with s = 2^(bits - 1). The subtraction is an
/// addition of 256 - s to each byte that must not carry into the next byte.
uint64_t extend_sign(uint64_t word, int bits) {
  const uint64_t sign = repeat(uint64_t{1} << (bits - 1), 8), less = repeat(256 - (1u << (bits - 1)), 8), top = repeat(0x80, 8);
  word ^= sign;
  return ((word & ~top) + (less & ~top)) ^ ((word ^ less) & top);
}

}  // namespace

void pack_bits(const std::byte* codes, size_t n, int32_t width, std::byte* packed) {
  const auto bits = static_cast<size_t>(width);
  const size_t bytes = n / 8 * bits + (n % 8 * bits + 7) / 8;
  for (size_t i = 0; i < n; i += 8) {
    const size_t count = n - i < 8 ? n - i : 8;
    uint64_t word = 0;
    std::memcpy(&word, codes + i, count == 8 ? 8 : count);
    word = join(word, width);
    const size_t at = i / 8 * bits, left = bytes - at;
    // A whole word has bytes to spare. The next words overwrite them.
    if (left >= 8) {
      std::memcpy(packed + at, &word, 8);
    } else {
      std::memcpy(packed + at, &word, left < bits ? left : bits);
    }
  }
}

void unpack_bits(const std::byte* packed, size_t n, int32_t width, bool is_signed, std::byte* codes) {
  const auto bits = static_cast<size_t>(width);
  const size_t bytes = n / 8 * bits + (n % 8 * bits + 7) / 8;
  for (size_t i = 0; i < n; i += 8) {
    const size_t count = n - i < 8 ? n - i : 8, at = i / 8 * bits, left = bytes - at;
    uint64_t word = 0;
    std::memcpy(&word, packed + at, left < 8 ? left : 8);
    word = part(word, width);
    if (is_signed) word = extend_sign(word, width);
    std::memcpy(codes + i, &word, count);
  }
}

}  // namespace scalepoint::kernels
