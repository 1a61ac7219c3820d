// The loops of vector search. rotation.cpp and search.cpp check arguments.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint::loops {

/// Vectors whose codes lie interleaved, and whose scores are compared together.
inline constexpr size_t kSearchBlock = 32;
/// Blocks that a query passes together, in turns of a few cache lines. The processor fetches ahead in each of them, so that more lines
/// are on their way while others are used. With one block after the other, 100,000 vectors of 1536 dimensions take up to 1.6 times as long.
inline constexpr size_t kStreams = 8;
/// Entries of a lookup table: one for each value of half a byte.
inline constexpr size_t kTableSize = 16;
/// Queries whose dot products are made together.
inline constexpr size_t kDotQueries = 4;
/// Queries that joined tables are for.
inline constexpr size_t kJoinedQueries = 32;
/// Bytes of a joined table.
inline constexpr size_t kJoinedTable = 256 * kJoinedQueries;
/// Joined tables in use at a time, 32 kB: with more, tables and codes leave the innermost cache.
inline constexpr size_t kBytesJoined = 4;
/// Bytes of a vector whose entries 16 bits hold: 256 times four halves of a byte, of at most 255 together.
inline constexpr size_t kBytesInSums = 512;

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

/// Sums of 32 vectors for each of some blocks, or for each of some queries.
struct SearchSums {
  alignas(16) int32_t wide[kStreams * kSearchBlock];    ///< the sums, unless is_narrow
  alignas(16) int16_t narrow[kStreams * kSearchBlock];  ///< the sums in 16 bits, for widen_sums
  int32_t largest[kStreams];                            ///< the largest of each 32 sums
  bool is_narrow;
};

/// The sums of table entries of the 32 vectors of each block, at most kStreams blocks. Byte b of vector v of block i lies at
/// codes[i][b * 32 + v]; its lower half is nibble 2 b, its upper half nibble 2 b + 1. Nibble i has the table at tables + 16 i. The
/// entries of `together` nibbles from a multiple of `together` on are at most 255. together is 4, 8 or 16; bytes is even.
void sum_tables(const uint8_t* const* codes, size_t blocks, size_t bytes, const uint8_t* tables, size_t together,
                SearchSums& sums);
/// Dot products of the 32 rows of each block with n integers of 16 bits. n is a multiple of 16, and the rows of a block lie `n` bytes
/// apart.
void dot_rows(const int8_t* const* rows, size_t blocks, size_t n, const int16_t* query, SearchSums& sums);
/// The same for one block and kDotQueries queries that lie `step` integers apart.
void dot_rows_together(const int8_t* rows, size_t n, const int16_t* queries, size_t step, SearchSums& sums);
/// The 32 sums of a block or query. Most blocks are skipped by their largest sum, so the others are widened here one by one.
const int32_t* widen_sums(SearchSums& sums, size_t block);

// Many queries together. A joined table has 32 entries for each value of a byte, one for each query: an entry is the sum of those of
// both halves of the byte. A vector costs one load for 16 queries, where sum_tables needs two lookups for each of them.

/// Puts the tables of a query between those of others: entry i goes to spread[i * 32 + a place that the query decides].
void spread_tables(const uint8_t* tables, size_t entries, size_t query, uint8_t* spread);
/// Makes the joined tables of at most kBytesJoined bytes of a vector, kJoinedTable bytes each, from the spread ones of their halves.
void join_tables(const uint8_t* spread, size_t bytes, uint8_t* joined);
/// Copies `bytes` rows of 32 codes of each block, `step` bytes from one block to the next, as places in a joined table. Loads of codes that
/// lie far from each other wait together here; in add_joined they would wait one after the other, which takes 1.3 times as long.
void gather_codes(const uint8_t* codes, size_t step, size_t bytes, size_t blocks, uint16_t* places);
/// Adds entries for `bytes` rows of 32 codes to the sums of 32 vectors, kJoinedQueries for each. bytes is even, and at most kBytesJoined.
/// Sums hold the entries of kBytesInSums bytes. `first` is the place of these rows among all bytes of a vector, `is_last` says that no more
/// follow. together as for sum_tables. parts: kJoinedQueries bytes for each vector, which keep entries between calls.
void add_joined(const uint8_t* joined, const uint16_t* places, size_t bytes, size_t first, bool is_last, size_t together,
                uint8_t* parts, int16_t* sums);
/// totals[q] += the sum for query q, for a vector.
void add_to_totals(const int16_t* sums, int32_t* totals);
/// The largest sum of 32 vectors for each query.
void largest_joined(const int16_t* sums, int32_t* largest);
void largest_totals(const int32_t* totals, int32_t* largest);
/// The sums of 32 vectors for one query.
void sums_of_query(const int16_t* sums, size_t query, int32_t* to);

/// Turns the sums of a block into scores.
struct ScoreRule {
  float step;    ///< of the sums
  float bias;    ///< of sums times step
  float weight;  ///< of the second number of each vector
};

/// scores[i] = factors[i] * (sums[i] * step + bias) + weight * extras[i], for 32 vectors, in float32. Returns the vectors whose scores
/// are at least a threshold as bits.
uint32_t score_block(const int32_t* sums, const float* factors, const float* extras, const ScoreRule& rule, float threshold,
                     float* scores);

// Most blocks hold no vector that gets into a list, which a bound of their scores shows. With largest for the largest sum of a block, each
// of its scores is, as score_block computes it, at most
//
//   max(largest * step + bias, 0) * factor + max(weight * low, weight * high).
//
// The bound needs no margin for rounding: a sum or product of floats grows with each operand (for a product, if the other is not negative),
// its rounded value too, and all of step and factors are at least 0. An infinity of the bound's terms exceeds all thresholds, or the bound
// is NaN. Blocks are skipped only if the bound is below the threshold, and NaN never is.

/// Numbers of a block that bound its scores.
struct BlockBounds {
  float factor;  ///< the largest factor; NaN if a number is not finite or a factor is negative
  float low;     ///< the smallest extra number
  float high;    ///< the largest extra number
};

BlockBounds bound_block(const float* factors, const float* extras);

/// The rule for bounds. Its step is NaN, and so are all bounds, unless the numbers of the rule are finite and step is not negative.
ScoreRule bound_rule(const ScoreRule& rule);
/// False if the scores of a block with this largest sum are all below the threshold. rule: of bound_rule.
bool may_reach(int32_t largest, const BlockBounds& bounds, const ScoreRule& rule, float threshold);

/// The rules for bounds of all queries, and the thresholds of their lists.
struct JoinedRules {
  alignas(16) float step[kJoinedQueries];
  alignas(16) float bias[kJoinedQueries];
  alignas(16) float weight[kJoinedQueries];
  alignas(16) float threshold[kJoinedQueries];
};

/// may_reach for all queries, as bits.
uint32_t queries_that_reach(const int32_t* largest, const BlockBounds& bounds, const JoinedRules& rules);

}  // namespace scalepoint::loops
