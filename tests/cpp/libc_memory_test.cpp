// memcpy, memmove and memset of the wasm modules, under other names, so that the system's stay in use.
#include <cstring>

#include "helpers.h"

#define memcpy wasm_memcpy
#define memmove wasm_memmove
#define memset wasm_memset
#include "libc_memory.cpp"
#undef memcpy
#undef memmove
#undef memset

namespace scalepoint::tests {
namespace {

constexpr size_t kMost = 200;

std::vector<uint8_t> random_bytes(size_t n) {
  Random random(91);
  std::vector<uint8_t> bytes(n);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.below(256));
  return bytes;
}

TEST(LibcMemory, copies_and_fills_any_length_at_any_address) {
  const std::vector<uint8_t> from = random_bytes(kMost + 16);
  for (size_t n = 0; n <= kMost; n++) {
    for (const size_t at : {0u, 1u, 3u, 8u}) {
      std::vector<uint8_t> expected(kMost + 16, 7), copied = expected, filled = expected;
      std::copy_n(from.begin() + 5, n, expected.begin() + static_cast<std::ptrdiff_t>(at));
      EXPECT_EQ(wasm_memcpy(copied.data() + at, from.data() + 5, n), copied.data() + at);
      EXPECT_EQ(copied, expected) << n << " " << at;
      std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(at), n, uint8_t{0xFE});
      EXPECT_EQ(wasm_memset(filled.data() + at, -2, n), filled.data() + at);
      EXPECT_EQ(filled, expected) << n << " " << at;
    }
  }
}

TEST(LibcMemory, moves_bytes_that_overlap) {
  constexpr size_t kMiddle = 100;
  for (size_t n = 0; n <= kMost; n++) {
    for (size_t to = kMiddle - 80; to <= kMiddle + 80; to++) {
      std::vector<uint8_t> moved = random_bytes(kMiddle + 80 + kMost), expected = moved;
      std::memmove(expected.data() + to, expected.data() + kMiddle, n);
      EXPECT_EQ(wasm_memmove(moved.data() + to, moved.data() + kMiddle, n), moved.data() + to);
      ASSERT_EQ(moved, expected) << n << " to " << to;
    }
  }
}

}  // namespace
}  // namespace scalepoint::tests
