// Memory for what a task needs while it is carried out.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arrays/status.h"

namespace scalepoint::codecs {

/// Memory for the inputs, the results and the temporary values of one task after the other. It grows as they need and is used again.
///
/// It consists of blocks of malloc, which stay where they are while a task lasts. A block too small for the next piece is released, unless
/// it holds a piece. When the next task begins, several blocks become one, so that a few tasks later all memory is one block of the size
/// of the largest task.
class Arena {
 public:
  /// unit: blocks are multiples of it, so that tasks that grow a little need no new blocks. limit: most bytes of all blocks together.
  explicit Arena(size_t unit = size_t{1} << 18, size_t limit = SIZE_MAX) : unit_(unit), limit_(limit) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() { release(); }

  /// The next n elements, at a multiple of 16. Null if there is no memory for them, and for no elements, which take no memory.
  template <class T>
  [[nodiscard]] T* take(uint64_t n) {
    return static_cast<T*>(take_bytes(n, sizeof(T)));
  }

  /// kOutOfMemory if there was no memory for a piece since the last rewind or reset.
  [[nodiscard]] Status status() const { return is_full_ ? Status::kOutOfMemory : Status::kOk; }
  /// Bytes of all blocks.
  [[nodiscard]] size_t capacity() const { return capacity_; }

  /// Has rewind keep the pieces taken so far.
  void keep();
  /// Frees all pieces but the kept ones. If then pieces of the same sizes are taken in the same order, they have the same addresses and
  /// contents as before.
  void rewind();
  /// Frees all pieces, also the kept ones, for a new task.
  void reset();
  /// Returns all memory.
  void release();

 private:
  struct Block;
  /// The end of the pieces taken so far.
  struct Position {
    Block* block = nullptr;  ///< null before the first piece
    size_t used = 0;         ///< bytes of the block
    size_t total = 0;        ///< bytes that all pieces would use in one block
  };

  void* take_bytes(uint64_t n, size_t size);
  Block* allocate(size_t bytes);
  void release_from(Block*& first);

  size_t unit_, limit_;
  size_t capacity_ = 0;
  size_t peak_ = 0;    ///< largest total since the last reset
  size_t wanted_ = 0;  ///< bytes of the block that replaces several
  bool is_full_ = false;
  Block* first_ = nullptr;
  Position end_, kept_;
};

}  // namespace scalepoint::codecs
