// memcpy, memmove and memset of the wasm modules, in place of those of libc. The modules are linked for size, and that libc copies and
// fills byte by byte: percentiles and searches for codebooks, which copy short stretches, take up to 1.7 times as long with it.
#include <cstddef>
#include <cstdint>

namespace {

// Without SIMD the compiler makes two words of each.
using Bytes16 [[gnu::vector_size(16)]] = uint8_t;

/// A value at any address, among values of other types.
template <class T>
struct [[gnu::packed, gnu::may_alias]] Unaligned {
  T value;
};

template <class T>
T load(const std::byte* from) {
  return reinterpret_cast<const Unaligned<T>*>(from)->value;
}

template <class T>
void store(std::byte* to, T value) {
  reinterpret_cast<Unaligned<T>*>(to)->value = value;
}

/// Copies from the first byte on. `to` lies before `from`, or they do not overlap.
void copy_forward(std::byte* to, const std::byte* from, size_t n) {
  for (; n >= 64; n -= 64, to += 64, from += 64) {
    const auto a = load<Bytes16>(from), b = load<Bytes16>(from + 16), c = load<Bytes16>(from + 32), d = load<Bytes16>(from + 48);
    store(to, a);
    store(to + 16, b);
    store(to + 32, c);
    store(to + 48, d);
  }
  for (; n >= 16; n -= 16, to += 16, from += 16) store(to, load<Bytes16>(from));
  if (n >= 8) {
    store(to, load<uint64_t>(from));
    n -= 8, to += 8, from += 8;
  }
  if (n >= 4) {
    store(to, load<uint32_t>(from));
    n -= 4, to += 4, from += 4;
  }
  for (; n > 0; n--) *to++ = *from++;
}

/// Copies from the last byte on.
void copy_backward(std::byte* to, const std::byte* from, size_t n) {
  for (; n >= 16; n -= 16) store(to + n - 16, load<Bytes16>(from + n - 16));
  for (; n >= 4; n -= 4) store(to + n - 4, load<uint32_t>(from + n - 4));
  for (; n > 0; n--) to[n - 1] = from[n - 1];
}

}  // namespace

extern "C" {

void* memcpy(void* to, const void* from, size_t n) {
  copy_forward(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), n);
  return to;
}

void* memmove(void* to, const void* from, size_t n) {
  auto* const target = static_cast<std::byte*>(to);
  const auto* const source = static_cast<const std::byte*>(from);
  const bool ahead = reinterpret_cast<uintptr_t>(target) - reinterpret_cast<uintptr_t>(source) >= n;
  (ahead ? copy_forward : copy_backward)(target, source, n);
  return to;
}

void* memset(void* to, int value, size_t n) {
  auto* target = static_cast<std::byte*>(to);
  const auto byte = static_cast<uint8_t>(value);
  const Bytes16 all = Bytes16{} + byte;
  for (; n >= 16; n -= 16, target += 16) store(target, all);
  for (; n > 0; n--) *target++ = std::byte{byte};
  return to;
}
}
