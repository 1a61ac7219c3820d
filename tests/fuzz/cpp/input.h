// Shared by the targets of libFuzzer: numbers, choices and arrays from the bytes of an input, and a digest of all results.
//
// Numbers come from the beginning of an input, and contents of arrays follow. Each array has memory of its own, of exactly its size, so that
// AddressSanitizer sees each access outside of it. A program ends with a line `digest: ...`: the sum over all inputs, in any order. Programs
// of both kinds of lanes that run the same inputs have the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "codecs/arena.h"
#include "codecs/codec.h"

/// One input of libFuzzer. Ends the process if a property does not hold.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace scalepoint::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(data, size) {}
  Input(const Input&) = delete;
  ~Input();

  /// A byte; 0 after the end.
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const uint8_t value = rest_[0];
    rest_ = rest_.subspan(1);
    return value;
  }
  uint32_t word() {
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) value = value << 8 | byte();
    return value;
  }
  bool flag() { return (byte() & 1) != 0; }
  /// A number up to `most`, which is below 2^16.
  uint32_t number(uint32_t most) {
    const uint32_t high = most > 255 ? byte() : 0u;
    return (high << 8 | byte()) % (most + 1);
  }
  /// A number of rows, columns or neighbors: seldom 0, and one that no memory holds in 1 of 64 inputs.
  uint32_t length(uint32_t most) {
    const uint32_t value = number(most);
    return byte() > 251 ? word() : value;
  }
  template <class T>
  T choice(std::initializer_list<T> values) {
    return values.begin()[number(static_cast<uint32_t>(values.size() - 1))];
  }
  /// A float of any bits in 1 of 4 cases, else one of usual magnitude.
  float real() {
    const uint32_t bits = word();
    float value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    return (byte() & 3) == 0 ? value : static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-28f;
  }

  /// Contents of an array, repeated where the input ends.
  std::byte* bytes(size_t n);
  template <class T>
  std::span<T> array(size_t n) {
    return {reinterpret_cast<T*>(bytes(n * sizeof(T))), n};
  }
  /// Floats; of usual magnitude in 3 of 4 arrays, so that they are finite.
  std::span<float> floats(size_t n);
  /// Memory for results.
  template <class T>
  std::span<T> room(size_t n) {
    return {reinterpret_cast<T*>(take(n * sizeof(T))), n};
  }
  /// A part of `right` bytes, and of another size in 1 of 32 cases, or if no small array has that size.
  codecs::Bytes part(uint64_t right);

  /// Adds results to the digest. All NaN are the same: their bits depend on the instructions.
  void digest(std::span<const std::byte> bytes);
  void digest(std::span<const float> x);
  void digest(uint64_t number) {
    sum_ = (sum_ ^ number) * 0x9E3779B97F4A7C15u;
    sum_ ^= sum_ >> 29;
  }
  void digest(Status status) { digest(static_cast<uint64_t>(status)); }

 private:
  std::byte* take(size_t n);

  std::span<const uint8_t> rest_;
  uint64_t sum_ = 0x243F6A8885A308D3u;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

/// An arena whose pieces have memory of their own, as far as there is: 64 MiB.
class SmallArena : public codecs::Arena {
 public:
  SmallArena() : Arena(1, size_t{1} << 26) {}
};

/// Ends the process unless a property holds.
inline void require(bool holds, const char* property) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", property);
  std::abort();
}

}  // namespace scalepoint::fuzz
