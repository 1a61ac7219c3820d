#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "codecs/arena.h"

namespace scalepoint::tests {
namespace {

using codecs::Arena;

constexpr size_t kUnit = 4096;

/// A piece of n bytes, all of them written.
uint8_t* filled(Arena& arena, size_t n, int value = 7) {
  auto* const at = arena.take<uint8_t>(n);
  std::memset(at, value, n);
  return at;
}

TEST(Arena, hands_out_pieces_at_multiples_of_16) {
  Arena arena(kUnit);
  const uint8_t *const a = filled(arena, 3), *const b = filled(arena, 16);
  const auto* const c = arena.take<float>(5);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 16, 0u);
  EXPECT_EQ(b - a, 16);
  EXPECT_EQ(reinterpret_cast<const uint8_t*>(c) - a, 32);
  EXPECT_EQ(arena.status(), Status::kOk);
  EXPECT_EQ(arena.capacity(), kUnit);
  // A piece that fits no more has a block of its own.
  EXPECT_EQ(reinterpret_cast<uintptr_t>(filled(arena, kUnit)) % 16, 0u);
  EXPECT_EQ(arena.capacity(), 3 * kUnit);
}

TEST(Arena, gives_no_memory_for_no_elements) {
  Arena arena(kUnit);
  EXPECT_EQ(arena.take<double>(0), nullptr);
  EXPECT_EQ(arena.capacity(), 0u);
  EXPECT_EQ(arena.status(), Status::kOk);
  const uint8_t* const a = filled(arena, 16);
  EXPECT_EQ(arena.take<double>(0), nullptr);
  EXPECT_EQ(filled(arena, 1) - a, 16);
}

TEST(Arena, has_the_same_pieces_after_a_rewind) {
  const std::vector<size_t> sizes = {100, 5000, 40, 0, 9000, 12, 4000};
  Arena arena(kUnit);
  filled(arena, 300, 1);
  arena.keep();
  std::vector<uint8_t*> first;
  for (const size_t n : sizes) first.push_back(n == 0 ? nullptr : filled(arena, n, static_cast<int>(n % 100)));
  const size_t capacity = arena.capacity();
  for (int turn = 0; turn < 3; turn++) {
    arena.rewind();
    for (size_t i = 0; i < sizes.size(); i++) {
      const auto* const at = arena.take<uint8_t>(sizes[i]);
      EXPECT_EQ(at, first[i]) << i;
      for (size_t j = 0; j < sizes[i]; j += 7) ASSERT_EQ(at[j], sizes[i] % 100);
    }
  }
  EXPECT_EQ(arena.capacity(), capacity);
  // Smaller pieces behind equal ones leave these where they are.
  arena.rewind();
  EXPECT_EQ(arena.take<uint8_t>(100), first[0]);
  EXPECT_EQ(arena.take<uint8_t>(5000), first[1]);
  EXPECT_NE(arena.take<uint8_t>(10), nullptr);
  EXPECT_EQ(arena.capacity(), capacity);
}

TEST(Arena, keeps_pieces_while_others_come_and_go) {
  Arena arena(kUnit);
  const uint8_t* const kept = filled(arena, 5000, 3);
  arena.keep();
  for (const size_t n : {10, 20000, 100, 50000, 7}) {
    arena.rewind();
    filled(arena, n, 9);
    for (size_t i = 0; i < 5000; i++) ASSERT_EQ(kept[i], 3) << n;
  }
}

TEST(Arena, replaces_blocks_that_are_too_small) {
  Arena arena(kUnit);
  filled(arena, 10);
  arena.reset();
  filled(arena, 10 * kUnit);
  EXPECT_EQ(arena.capacity(), 11 * kUnit);
  filled(arena, 2 * kUnit);
  EXPECT_EQ(arena.capacity(), 14 * kUnit);
}

TEST(Arena, makes_one_block_of_several_for_the_next_task) {
  Arena arena(kUnit);
  const auto task = [&] {
    const uint8_t* const first = filled(arena, 3000);
    arena.keep();
    filled(arena, 3000);
    filled(arena, 3000);
    return first;
  };
  task();
  EXPECT_EQ(arena.capacity(), 3 * kUnit);
  arena.reset();
  EXPECT_EQ(arena.capacity(), 0u);
  // 3 * 3008 bytes and the head of a block.
  const uint8_t* const first = task();
  EXPECT_EQ(arena.capacity(), 3 * kUnit);
  EXPECT_EQ(filled(arena, 1) - first, 3 * 3008);
  // That block stays for smaller tasks.
  arena.reset();
  EXPECT_EQ(filled(arena, 1), first);
  EXPECT_EQ(arena.capacity(), 3 * kUnit);
}

TEST(Arena, has_a_status_if_memory_is_full) {
  Arena arena(kUnit, 4 * kUnit);
  const uint8_t* const first = filled(arena, 100);
  EXPECT_EQ(arena.take<uint8_t>(3 * kUnit), nullptr);  // and the head of a block
  EXPECT_EQ(arena.status(), Status::kOutOfMemory);
  EXPECT_NE(arena.take<uint8_t>(100), nullptr);
  EXPECT_EQ(arena.status(), Status::kOutOfMemory);
  arena.rewind();
  EXPECT_EQ(arena.status(), Status::kOk);
  EXPECT_EQ(filled(arena, 100), first);
  filled(arena, 2 * kUnit);
  EXPECT_EQ(arena.capacity(), 4 * kUnit);
  for (const uint64_t n : {uint64_t{1} << 40, UINT64_MAX / 8, UINT64_MAX / 8 + 1, UINT64_MAX}) {
    arena.rewind();
    EXPECT_EQ(arena.take<double>(n), nullptr) << n;
    EXPECT_EQ(arena.status(), Status::kOutOfMemory) << n;
  }
  Arena none(kUnit, kUnit - 1);
  EXPECT_EQ(none.take<uint8_t>(1), nullptr);
  EXPECT_EQ(none.status(), Status::kOutOfMemory);
}

TEST(Arena, goes_on_after_a_release) {
  Arena arena(kUnit);
  for (int turn = 0; turn < 3; turn++) {
    filled(arena, 100);
    arena.keep();
    filled(arena, 2 * kUnit);
    EXPECT_EQ(arena.capacity(), 4 * kUnit);
    arena.release();
    EXPECT_EQ(arena.capacity(), 0u);
    EXPECT_EQ(arena.status(), Status::kOk);
  }
}

}  // namespace
}  // namespace scalepoint::tests
