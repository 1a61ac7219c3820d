#include "input.h"

#include <algorithm>
#include <cmath>

namespace scalepoint::fuzz {
namespace {

/// Prints the digest of all inputs when the process ends.
struct Total {
  uint64_t sum = 0, inputs = 0;
  ~Total() {
    std::fprintf(stderr, "digest: %016llx of %llu inputs\n", static_cast<unsigned long long>(sum),
                 static_cast<unsigned long long>(inputs));
  }
};
Total total;

/// Larger arrays take long.
constexpr uint64_t kMostBytes = 1 << 20;

}  // namespace

Input::~Input() {
  total.sum += sum_;
  total.inputs++;
}

std::byte* Input::take(size_t n) { return memory_.emplace_back(new std::byte[n]).get(); }

std::byte* Input::bytes(size_t n) {
  std::byte* const to = take(n);
  const size_t given = std::min(n, rest_.size());
  if (given > 0) std::memcpy(to, rest_.data(), given);
  // Small inputs fill large arrays. A byte that changes at each turn keeps these from being periodic.
  for (size_t i = given; i < n; i++) to[i] = given == 0 ? std::byte{0} : to[i - given] ^ static_cast<std::byte>(i / given);
  // An array leaves half of the input to those that follow.
  rest_ = rest_.subspan(std::min(given, (rest_.size() + 1) / 2));
  return to;
}

std::span<float> Input::floats(size_t n) {
  const bool any = (byte() & 3) == 0;
  const std::span<float> x = array<float>(n);
  if (any) return x;
  for (float& value : x) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    // Exponents from 2^-16 to 2^15.
    bits = (bits & 0x807FFFFF) | ((bits >> 24 & 31) + 111) << 23;
    std::memcpy(&value, &bits, sizeof(bits));
  }
  return x;
}

codecs::Bytes Input::part(uint64_t right) {
  const bool other = byte() > 247 || right > kMostBytes;
  const auto size = static_cast<size_t>(other ? number(4095) : right);
  return {bytes(size), size};
}

void Input::digest(std::span<const std::byte> bytes) {
  for (const std::byte value : bytes) sum_ = (sum_ ^ std::to_integer<uint64_t>(value)) * 0x100000001B3u;
  digest(uint64_t{bytes.size()});
}

void Input::digest(std::span<const float> x) {
  for (const float value : x) {
    uint32_t bits = 0x7FC00000;
    if (!std::isnan(value)) std::memcpy(&bits, &value, sizeof(bits));
    sum_ = (sum_ ^ bits) * 0x100000001B3u;
  }
  digest(uint64_t{x.size()});
}

}  // namespace scalepoint::fuzz
