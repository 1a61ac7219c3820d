// The loops of vector search. rotation.cpp and search.cpp check arguments.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint::loops {

/// Vectors whose codes lie interleaved, and whose scores are compared together.
inline constexpr size_t kSearchBlock = 32;
/// Half bytes of each vector whose entries are added in 8 bits.
inline constexpr size_t kNibblesTogether = 4;
/// Entries of a lookup table: one for each value of half a byte.
inline constexpr size_t kTableSize = 16;

void flip_signs(float* x, const uint32_t* signs, size_t n);
/// The Hadamard transform of n floats, n a power of two, times a factor.
void hadamard(float* x, size_t n, float factor);

/// The sum of a[i] b[i] in double, in an order that n alone decides. NaN or infinite if a product is.
double dot_product(const float* a, const float* b, size_t n);
/// The sum of (a[i] - b[i])^2, in the same way.
double squared_distance(const float* a, const float* b, size_t n);
/// The sum of the squares of codes, exact up to 2^53.
double squared_length(const int8_t* codes, size_t n);
/// to[i] = x[i] * factor - center[i], in float32.
void center_vector(const float* x, float factor, const float* center, size_t n, float* to);
/// sums[i] += x[i] * factor, with the product in float32 and the sum in double.
void add_vector(const float* x, float factor, size_t n, double* sums);

/// codes[i] = number of thresholds below x[i] * factor.
void find_levels(const float* x, float factor, size_t n, const float* thresholds, size_t count, uint8_t* codes);

/// The sums of table entries of 32 vectors. Byte b of vector v lies at codes[b * 32 + v]; its lower half is nibble 2 b, its upper
/// half nibble 2 b + 1. Nibble i has the table at tables + 16 i. The entries of four nibbles from a multiple of four on are at most
/// 255 together. bytes is even.
void sum_tables(const uint8_t* codes, size_t bytes, const uint8_t* tables, int32_t* sums);
/// Dot products of 32 rows of int8 with n integers of 16 bits. n is a multiple of 16, and rows lie `n` bytes apart.
void dot_rows(const int8_t* rows, size_t n, const int16_t* query, int32_t* sums);

/// Turns the sums of a block into scores.
struct ScoreRule {
  float step;    ///< of the sums
  float bias;    ///< of sums times step
  float weight;  ///< of the second number of each vector
};

/// scores[i] = factors[i] * (sums[i] * step + bias) + weight * extras[i], for 32 vectors, in float32. Returns the vectors whose scores
/// are above a threshold as bits.
uint32_t score_block(const int32_t* sums, const float* factors, const float* extras, const ScoreRule& rule, float threshold,
                     float* scores);

}  // namespace scalepoint::loops
