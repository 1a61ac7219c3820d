#include "search/rotation.h"

#include <cmath>

#include "search/search_loops.h"

namespace scalepoint {
namespace {

size_t power_within(size_t dimension) {
  size_t power = 1;
  while (power <= dimension / 2) power *= 2;
  return power;
}

size_t rounds_of(size_t dimension) { return power_within(dimension) == dimension ? 3 : 4; }

/// The next 64 bits of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
uint64_t next_bits(uint64_t& state) {
  state += 0x9E3779B97F4A7C15u;
  uint64_t z = state;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

}  // namespace

size_t rotation_words(size_t dimension) noexcept { return rounds_of(dimension) * dimension; }

void make_rotation(uint32_t seed, size_t dimension, std::span<uint32_t> signs) noexcept {
  uint64_t state = static_cast<uint64_t>(seed) << 32 | static_cast<uint32_t>(dimension);
  uint64_t bits = 0;
  for (size_t i = 0; i < signs.size(); i++) {
    if (i % 64 == 0) bits = next_bits(state);
    signs[i] = static_cast<uint32_t>(bits >> i % 64 & 1) << 31;
  }
}

void rotate(std::span<float> x, std::span<const uint32_t> signs) noexcept {
  const size_t dimension = x.size(), power = power_within(dimension), rounds = rounds_of(dimension);
  const auto factor = static_cast<float>(1 / std::sqrt(static_cast<double>(power)));
  for (size_t round = 0; round < rounds; round++) {
    loops::flip_signs(x.data(), signs.data() + round * dimension, dimension);
    loops::hadamard(x.data() + round % 2 * (dimension - power), power, factor);
  }
}

}  // namespace scalepoint
