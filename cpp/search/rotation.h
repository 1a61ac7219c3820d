// A seeded rotation: random signs and Hadamard transforms, after which the coordinates of any vector are close to normal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace scalepoint {

/// Words of the signs of a rotation: one for each round and coordinate.
[[nodiscard]] size_t rotation_words(size_t dimension) noexcept;

/// The signs of a rotation: 0, or the sign bit of a float. They depend on seed and dimension alone.
void make_rotation(uint32_t seed, size_t dimension, std::span<uint32_t> signs) noexcept;

/// Rotates a vector in place, with as many coordinates as the signs are for. Let p be the largest power of two that is at most the
/// dimension. A round flips signs, then replaces p coordinates by their Hadamard transform divided by sqrt(p): all of them in three
/// rounds if the dimension is p; else the first p and the last p in turns, in four rounds. Both overlap, so no padding is needed.
void rotate(std::span<float> x, std::span<const uint32_t> signs) noexcept;

}  // namespace scalepoint
