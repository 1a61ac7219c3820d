// Vector search over codes of 1, 2, 4 or 8 bits.
//
// Codes of 1, 2 and 4 bits are those of RaBitQ (Gao and Long, arXiv 2405.12497 and 2409.09913) and TurboQuant (arXiv 2504.19874). What is
// left of a vector without the center, r, is rotated. Each coordinate becomes the nearest of the 2, 4 or 16 levels that have the least
// squared error for a normal distribution (Max, "Quantizing for Minimum Distortion", 1960). With c for the levels of the codes, the
// estimate of the dot product of r with a rotated u is <u, c> |r|^2 / <r, c>, which is unbiased over rotations.
// Codes of 8 bits are integers times one scale for each vector, without center and rotation.
// Codes for kHamming are a bit for each element, 1 above 0, without center and rotation; scores are exact.
//
// A block holds 32 vectors: byte b of vector v lies at b * 32 + v, with 8 / bits codes in a byte, the first in the lowest bits. Vectors of
// 8 bits follow each other, padded to a multiple of 16 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/status.h"

namespace scalepoint {

/// The score of a vector x for a query q: <q, x>, <q, x> / (|q| |x|), |q - x|, or the Hamming distance: the number of elements of which
/// one is above 0 and the other is not.
enum class Metric : int32_t { kDot = 0, kCosine = 1, kEuclidean = 2, kHamming = 3 };

/// Vectors of a block.
inline constexpr uint32_t kBlockVectors = 32;
/// Numbers of a block that bound the scores of its vectors.
inline constexpr uint32_t kBoundFloats = 3;
/// The most coordinates of a vector.
inline constexpr uint32_t kMaxDimension = 65536;

/// The form of an index.
struct SearchSpec {
  uint32_t dimension;  ///< from 1 to kMaxDimension
  int32_t bits;        ///< 1, 2, 4 or 8; 1 with kHamming
  Metric metric;

  [[nodiscard]] constexpr bool valid() const {
    if (dimension < 1 || dimension > kMaxDimension) return false;
    return bits == 1 || (metric != Metric::kHamming && (bits == 2 || bits == 4 || bits == 8));
  }
  /// Bytes of the codes of a vector: a multiple of 2, or of 16 with 8 bits.
  [[nodiscard]] constexpr uint32_t vector_bytes() const {
    return bits == 8 ? (dimension + 15) / 16 * 16 : (dimension * static_cast<uint32_t>(bits) + 15) / 16 * 2;
  }
};

/// Rotation and center of an index; neither is read with 8 bits or kHamming.
struct SearchFrame {
  const uint32_t* signs;  ///< rotation_words(dimension), of make_rotation
  const float* center;    ///< dimension floats
};

/// Some vectors of an index in memory: a whole number of blocks.
struct SearchPart {
  std::byte* codes;   ///< kBlockVectors * vector_bytes() for each block, at a multiple of 16
  float* factors;     ///< one for each vector
  float* extras;      ///< a second number of each vector
  float* bounds;      ///< kBoundFloats for each block, of bound_blocks
  uint32_t capacity;  ///< in vectors, a multiple of kBlockVectors
};

/// A query, ready for search: its facts, and after them tables or integers.
struct SearchQuery {
  double base;     ///< score = base + unit * scored value; the square of a distance is base - 2 unit * scored value,
                   ///< and a Hamming distance is base - scored value
  float step;      ///< of sums of table entries or of integers
  float bias;      ///< of sums
  float weight;    ///< of the extras of vectors
  float unit = 1;  ///< a power of two, with which scored values of short queries stay in the range of float32
};

/// The best vectors of a query: a heap with the worst on top.
struct BestList {
  float* scores;      ///< room for k
  uint32_t* indices;  ///< room for k
  uint32_t k;
  uint32_t size;  ///< at most k
};

/// x[8 i + j] = 1 if bit 7 - j of bytes[i] ^ flip is 1, and -1 otherwise: vectors for kHamming whose first element has the highest bit, as
/// numpy.packbits has them. x: 8 floats for each byte.
void floats_of_bits(std::span<const uint8_t> bytes, uint8_t flip, std::span<float> x) noexcept;

/// Codes of vectors with a range for each element, as quantize_embeddings of sentence-transformers makes them: (x - start) / step for bytes
/// without a sign, and (x - start) / step - 128 for those with one, with step = (end - start) / 255, cut off toward zero. Restores each
/// code as the middle of the values that become it, computed in double.
/// starts, ends: one for each element of a vector. x: a float for each code.
void floats_of_ranges(std::span<const uint8_t> codes, bool is_signed, std::span<const float> starts, std::span<const float> ends,
                      std::span<float> x) noexcept;

/// sums[i] += x[i], of each row divided by its length with kCosine. Rows of zeros add nothing.
/// Status: kBadLayout, kSizeMismatch, kNonFinite, kOverflow if the reciprocal of a length is beyond float32.
[[nodiscard]] Status add_to_center(const SearchSpec& spec, std::span<const float> x, std::span<double> sums) noexcept;
/// center[i] = sums[i] / rows.
void finish_center(std::span<const double> sums, double rows, std::span<float> center) noexcept;

/// Floats of scratch memory of encode_vectors and prepare_query.
[[nodiscard]] size_t search_scratch_size(const SearchSpec& spec) noexcept;

/// Makes the codes of rows of x, as the vectors from `first` on.
/// Status: kBadLayout, kSizeMismatch, kNonFinite if x holds NaN or an infinity, kOverflow if a factor is beyond float32.
[[nodiscard]] Status encode_vectors(const SearchSpec& spec, const SearchFrame& frame, std::span<const float> x, uint32_t first,
                                    const SearchPart& part, std::span<float> scratch) noexcept;

/// Takes vectors for kHamming as the vectors from `first` on, each of row_bytes bytes as floats_of_bits describes them: the same codes as of
/// its floats. Bits beyond the dimension are left out.
[[nodiscard]] Status take_bits(const SearchSpec& spec, std::span<const uint8_t> bytes, size_t row_bytes, uint8_t flip,
                               uint32_t first, const SearchPart& part) noexcept;

/// Takes codes of 8 bits with one scale each, as the vectors from `first` on.
[[nodiscard]] Status take_codes(const SearchSpec& spec, std::span<const int8_t> codes, std::span<const float> scales,
                                uint32_t first, const SearchPart& part) noexcept;
/// The scale of vectors of 8 bits is their factor, unless that is the reciprocal of their length, where it is their extra number.
[[nodiscard]] Status read_codes(const SearchSpec& spec, const SearchPart& part, uint32_t first, std::span<int8_t> codes,
                                std::span<float> scales) noexcept;

/// Finds the bounds of the blocks of the vectors [first, first + rows). encode_vectors and take_codes do so for theirs; others who write
/// factors or extras have to call it before a scan.
[[nodiscard]] Status bound_blocks(const SearchPart& part, uint32_t first, uint32_t rows) noexcept;

/// Bytes of a query with what follows it: a multiple of 16.
[[nodiscard]] size_t query_bytes(const SearchSpec& spec) noexcept;
/// Prepares a query of `dimension` floats. query: query_bytes, at a multiple of 16.
/// Status: kBadLayout, kSizeMismatch, kNonFinite, kOverflow as encode_vectors.
[[nodiscard]] Status prepare_query(const SearchSpec& spec, const SearchFrame& frame, std::span<const float> x,
                                   std::span<std::byte> query, std::span<float> scratch) noexcept;

/// Bytes of scratch memory of scan_part for some queries: a multiple of 16.
[[nodiscard]] size_t scan_scratch_bytes(const SearchSpec& spec, size_t queries) noexcept;
/// Offers the vectors of a part to the lists of all queries. Vector i has the index first_index + i. It is skipped unless bit i % 32 of
/// allowed[i / 32] is set. Lists keep the best scored values; of equal ones those with the lowest indices, if parts come in ascending order.
[[nodiscard]] Status scan_part(const SearchSpec& spec, const SearchPart& part, std::span<const uint32_t> allowed,
                               uint32_t first_index, std::span<const std::byte> queries, std::span<BestList> best,
                               std::span<std::byte> scratch) noexcept;

/// Offers vectors with their scored values to a list, in any order. Of equal values the list keeps those with the lowest indices.
void merge_best(std::span<const float> scores, std::span<const uint32_t> indices, BestList& best) noexcept;

/// Sorts a list, best first, and replaces scored values by scores.
void finish_best(const SearchSpec& spec, const SearchQuery& query, BestList& best) noexcept;

/// Vectors kept to score the best again.
///   kFloat32, kFloat16  the elements
///   kInt8               a scale as float32, then the codes, padded to a multiple of 4 bytes
enum class StoredRow : int32_t { kFloat32 = 0, kFloat16 = 1, kInt8 = 2 };

/// Bytes of a row.
[[nodiscard]] size_t stored_row_bytes(StoredRow kind, size_t dimension) noexcept;
/// Status: kSizeMismatch, kNonFinite, kOverflow if a float16 would be infinite.
[[nodiscard]] Status store_rows(StoredRow kind, std::span<const float> x, size_t dimension, std::span<std::byte> rows) noexcept;
/// The square of the length of a vector, in double.
[[nodiscard]] double squared_norm(std::span<const float> x) noexcept;
/// The exact score of a query against a row, computed in double. query_squares: squared_norm of the query. scratch: dimension floats.
[[nodiscard]] double score_row(Metric metric, std::span<const float> query, double query_squares, StoredRow kind,
                               const std::byte* row, std::span<float> scratch) noexcept;

}  // namespace scalepoint
