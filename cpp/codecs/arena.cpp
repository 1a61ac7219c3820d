#include "codecs/arena.h"

#include <algorithm>
#include <cstdlib>

namespace scalepoint::codecs {
namespace {

/// Addresses and sizes of malloc are multiples of this.
constexpr size_t kMallocAlignment = std::min<size_t>(16, alignof(std::max_align_t));

constexpr size_t aligned(size_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

/// The head of a block. Its memory follows, from the next multiple of 16 on.
struct Arena::Block {
  Block* next;
  size_t size;  ///< bytes for pieces

  /// Bytes of a block beside its pieces.
  static constexpr size_t overhead() { return aligned(sizeof(Block)) + 16 - kMallocAlignment; }
  std::byte* memory() { return reinterpret_cast<std::byte*>(aligned(reinterpret_cast<uintptr_t>(this + 1))); }
};

void* Arena::take_bytes(uint64_t n, size_t size) {
  if (n == 0) return nullptr;
  if (n > limit_ / size) {
    is_full_ = true;
    return nullptr;
  }
  const auto bytes = static_cast<size_t>(n * size);
  const size_t begin = aligned(end_.used);
  if (end_.block != nullptr && begin <= end_.block->size && bytes <= end_.block->size - begin) {
    end_.used = begin + bytes;
    end_.total = aligned(end_.total) + bytes;
    peak_ = std::max(peak_, end_.total);
    return end_.block->memory() + begin;
  }
  // Go on in the next block, which holds no piece. Replace it if it is too small.
  Block*& next = end_.block == nullptr ? first_ : end_.block->next;
  if (next != nullptr && next->size < bytes) release_from(next);
  if (next == nullptr) next = allocate(bytes);
  if (next == nullptr) {
    is_full_ = true;
    return nullptr;
  }
  end_ = {next, bytes, aligned(end_.total) + bytes};
  peak_ = std::max(peak_, end_.total);
  return next->memory();
}

/// A block for at least this many bytes; null if there is no memory.
Arena::Block* Arena::allocate(size_t bytes) {
  const size_t rest = Block::overhead() + unit_ - 1, size = std::max(bytes, wanted_);
  wanted_ = 0;
  if (rest > limit_ || size > limit_ - rest) return nullptr;
  const size_t all = (size + rest) / unit_ * unit_;
  if (all > limit_ - capacity_) return nullptr;
  auto* const block = static_cast<Block*>(std::malloc(all));
  if (block == nullptr) return nullptr;
  block->next = nullptr;
  block->size = all - Block::overhead();
  capacity_ += all;
  return block;
}

/// Returns a block and all blocks behind it.
void Arena::release_from(Block*& first) {
  for (Block* block = first; block != nullptr;) {
    Block* const next = block->next;
    capacity_ -= block->size + Block::overhead();
    std::free(block);
    block = next;
  }
  first = nullptr;
}

void Arena::keep() { kept_ = end_; }

void Arena::rewind() {
  end_ = kept_;
  is_full_ = false;
}

void Arena::reset() {
  kept_ = {};
  rewind();
  if (first_ != nullptr && first_->next != nullptr) {
    release_from(first_);
    wanted_ = peak_;
  }
  peak_ = 0;
}

void Arena::release() {
  reset();
  release_from(first_);
  wanted_ = 0;
}

}  // namespace scalepoint::codecs
