#include "search/search.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "arrays/linear.h"
#include "arrays/linear_loops.h"
#include "arrays/minifloat_loops.h"
#include "lanes/float16.h"
#include "lanes/round.h"
#include "search/rotation.h"
#include "search/search_loops.h"

namespace scalepoint {
namespace {

static_assert(kBlockVectors == loops::kSearchBlock);

/// The levels of least squared error for the normal distribution of variance 1, in ascending order, and the middles between them.
/// Source: Max, "Quantizing for Minimum Distortion", table I, computed again to 10 digits by Lloyd's iteration.
constexpr float kLevels1[] = {-0.7978845608f, 0.7978845608f};
constexpr float kLevels2[] = {-1.510417608f, -0.4527800398f, 0.4527800398f, 1.510417608f};
constexpr float kLevels4[] = {-2.732589571f,  -2.069016887f,  -1.618046486f, -1.256231197f, -0.9423404565f, -0.6567591051f,
                              -0.3880483004f, -0.1283950299f, 0.1283950299f, 0.3880483004f, 0.6567591051f,  0.9423404565f,
                              1.256231197f,   1.618046486f,   2.069016887f,  2.732589571f};

std::span<const float> levels_of(int32_t bits) {
  if (bits == 1) return kLevels1;
  if (bits == 2) return kLevels2;
  return kLevels4;
}

/// Writes the middles between levels, and returns their number.
size_t thresholds_of(std::span<const float> levels, float* middles) {
  for (size_t i = 0; i + 1 < levels.size(); i++) middles[i] = (levels[i] + levels[i + 1]) / 2;
  return levels.size() - 1;
}

/// The factor that a vector of this squared length is multiplied with: the reciprocal of its length with kCosine.
float unit_factor(Metric metric, double squares) {
  if (metric != Metric::kCosine) return 1;
  return squares > 0 ? static_cast<float>(1 / std::sqrt(squares)) : 0;
}

constexpr QuantizationSpec kInt8Spec{.dtype = {8, true}};

/// Symmetric codes of a vector, with its scale.
Status quantize_row(std::span<const float> x, int8_t* codes, float& scale) {
  int32_t zero_point;
  return quantize_runs(x, x.size(), x.size(), kInt8Spec, {&scale, 1}, {&zero_point, 1},
                       {reinterpret_cast<std::byte*>(codes), x.size()});
}

/// Fills in the numbers of a vector of 8 bits.
void set_int8_facts(Metric metric, const int8_t* codes, size_t n, float scale, float& factor, float& extra) {
  factor = scale;
  extra = 0;
  if (metric == Metric::kDot) return;
  const double squares = loops::squared_length(codes, n);
  if (metric == Metric::kCosine) {
    factor = squares > 0 ? static_cast<float>(1 / std::sqrt(squares)) : 0;
    extra = scale;
  } else {
    extra = static_cast<float>(-0.5 * scale * scale * squares);
  }
}

void find_bounds(const SearchPart& part, size_t first, size_t rows) {
  for (size_t block = first / kBlockVectors; block * kBlockVectors < first + rows; block++) {
    const size_t start = block * kBlockVectors;
    const auto [factor, low, high] = loops::bound_block(part.factors + start, part.extras + start);
    float* const to = part.bounds + block * kBoundFloats;
    to[0] = factor, to[1] = low, to[2] = high;
  }
}

loops::BlockBounds bounds_of(const SearchPart& part, size_t block) {
  const float* const from = part.bounds + block * kBoundFloats;
  return {from[0], from[1], from[2]};
}

bool fits(const SearchSpec& spec, const SearchPart& part, uint64_t first, uint64_t rows) {
  return spec.valid() && part.capacity % kBlockVectors == 0 && first + rows <= part.capacity;
}

/// The first byte of a vector of 1, 2 or 4 bits in its block.
uint8_t* slot_of(const SearchSpec& spec, uint32_t slot, const SearchPart& part) {
  const size_t block = static_cast<size_t>(slot / kBlockVectors) * kBlockVectors * spec.vector_bytes();
  return reinterpret_cast<uint8_t*>(part.codes) + block + slot % kBlockVectors;
}

/// Puts the codes of a vector of 1, 2 or 4 bits into their block.
void put_codes(const SearchSpec& spec, const uint8_t* codes, uint32_t slot, const SearchPart& part) {
  const size_t n = spec.dimension, bytes = spec.vector_bytes();
  uint8_t* to = slot_of(spec, slot, part);
  const size_t in_byte = 8 / static_cast<size_t>(spec.bits);
  for (size_t b = 0; b < bytes; b++, to += kBlockVectors) {
    const size_t start = b * in_byte, end = std::min(n, start + in_byte);
    uint32_t byte = 0;
    for (size_t i = start; i < end; i++) byte |= static_cast<uint32_t>(codes[i]) << (i - start) * static_cast<size_t>(spec.bits);
    *to = static_cast<uint8_t>(byte);
  }
}

/// A byte with its bits in the opposite order.
uint8_t reversed(uint32_t byte) {
  byte = (byte & 0x0F) << 4 | byte >> 4;
  byte = (byte & 0x33) << 2 | (byte >> 2 & 0x33);
  return static_cast<uint8_t>((byte & 0x55) << 1 | (byte >> 1 & 0x55));
}

/// codes[i] = 1 if x[i] is above 0, and 0 otherwise.
void find_bits(const float* x, size_t n, uint8_t* codes) {
  constexpr float kZero = 0;
  loops::find_levels(x, 1, n, &kZero, 1, codes);
}

/// Makes the codes of one vector of 1, 2 or 4 bits.
Status encode_row(const SearchSpec& spec, const SearchFrame& frame, const float* x, uint32_t slot, const SearchPart& part,
                  float* scratch) {
  const size_t n = spec.dimension;
  float* const r = scratch;
  auto* const codes = reinterpret_cast<uint8_t*>(scratch + n);
  const double squares = loops::dot_product(x, x, n);
  if (!std::isfinite(squares)) return Status::kNonFinite;
  if (spec.metric == Metric::kHamming) {
    find_bits(x, n, codes);
    put_codes(spec, codes, slot, part);
    part.factors[slot] = 1;
    part.extras[slot] = 0;
    return Status::kOk;
  }

  // Find what is left without the center, and rotate it.
  loops::center_vector(x, unit_factor(spec.metric, squares), frame.center, n, r);
  const double rest = loops::dot_product(r, r, n);
  if (!std::isfinite(rest)) return Status::kOverflow;
  const double extra = spec.metric == Metric::kEuclidean ? -0.5 * rest : loops::dot_product(frame.center, r, n);
  rotate({r, n}, {frame.signs, rotation_words(n)});

  // Choose the levels.
  const std::span<const float> levels = levels_of(spec.bits);
  float thresholds[16];
  const size_t count = thresholds_of(levels, thresholds);
  const auto scale = rest > 0 ? static_cast<float>(std::sqrt(static_cast<double>(n) / rest)) : 0.0f;
  if (!is_finite(scale)) return Status::kOverflow;
  loops::find_levels(r, scale, n, thresholds, count, codes);
  double product = 0;
  for (size_t i = 0; i < n; i++) product += static_cast<double>(r[i]) * levels[codes[i]];
  // Sums of the rotation may exceed float32.
  if (!std::isfinite(product)) return Status::kOverflow;
  const auto factor = product > 0 ? static_cast<float>(rest / product) : 0.0f;
  if (!is_finite(factor) || !is_finite(static_cast<float>(extra))) return Status::kOverflow;
  part.factors[slot] = factor;
  part.extras[slot] = static_cast<float>(extra);
  put_codes(spec, codes, slot, part);
  return Status::kOk;
}

bool is_worse(float score, uint32_t index, float other_score, uint32_t other_index) {
  return score < other_score || (score == other_score && index > other_index);
}

/// Moves children that are worse than the new entry up, from place `at` of a heap downwards.
void sift_down(BestList& best, uint32_t size, uint32_t at, float score, uint32_t index) {
  for (;;) {
    uint32_t child = 2 * at + 1;
    if (child >= size) break;
    if (child + 1 < size && is_worse(best.scores[child + 1], best.indices[child + 1], best.scores[child], best.indices[child])) {
      child++;
    }
    if (!is_worse(best.scores[child], best.indices[child], score, index)) break;
    best.scores[at] = best.scores[child];
    best.indices[at] = best.indices[child];
    at = child;
  }
  best.scores[at] = score;
  best.indices[at] = index;
}

/// Moves parents that are better than the new entry down, from the end of a heap upwards.
void push(BestList& best, float score, uint32_t index) {
  uint32_t at = best.size++;
  while (at > 0) {
    const uint32_t parent = (at - 1) / 2;
    if (!is_worse(score, index, best.scores[parent], best.indices[parent])) break;
    best.scores[at] = best.scores[parent];
    best.indices[at] = best.indices[parent];
    at = parent;
  }
  best.scores[at] = score;
  best.indices[at] = index;
}

/// The score that a further vector needs. A lower index decides between equal ones.
float threshold_of(const BestList& best) { return best.size < best.k ? -HUGE_VALF : best.scores[0]; }

/// Offers a vector to a list that has room for at least one.
void offer(BestList& best, float score, uint32_t index) {
  if (best.size < best.k)
    push(best, score, index);
  else if (is_worse(best.scores[0], best.indices[0], score, index))
    sift_down(best, best.size, 0, score, index);
}

/// The largest and the smallest sum of level times coordinate in half a byte.
struct NibbleRange {
  double low = 0, high = 0;
};

NibbleRange nibble_range(const float* u, size_t count, std::span<const float> levels) {
  NibbleRange range;
  for (size_t i = 0; i < count; i++) {
    const double reach = std::fabs(static_cast<double>(u[i])) * levels.back();
    range.low -= reach;
    range.high += reach;
  }
  return range;
}

/// Half bytes of a vector whose entries are added in 8 bits: with few bits, entries may be rougher than with many, because the error of
/// the codes is far larger than that of the entries.
size_t nibbles_together(const SearchSpec& spec) { return 16 / static_cast<size_t>(spec.bits); }

/// Makes the lookup tables of a rotated query.
void make_tables(const SearchSpec& spec, const float* u, SearchQuery& query, uint8_t* tables) {
  const std::span<const float> levels = levels_of(spec.bits);
  const size_t n = spec.dimension, bits = static_cast<size_t>(spec.bits), in_nibble = 4 / bits;
  const size_t nibbles = static_cast<size_t>(spec.vector_bytes()) * 2;
  const auto range_of = [&](size_t nibble) {
    const size_t start = nibble * in_nibble;
    return start >= n ? NibbleRange{} : nibble_range(u + start, std::min(in_nibble, n - start), levels);
  };
  const size_t together = nibbles_together(spec);
  double widest = 0, bias = 0;
  for (size_t first = 0; first < nibbles; first += together) {
    double sum = 0;
    for (size_t i = first; i < std::min(nibbles, first + together); i++) {
      const NibbleRange range = range_of(i);
      sum += range.high - range.low;
      bias += range.low;
    }
    widest = std::max(widest, sum);
  }
  // Each entry may round up by a half.
  const double step = widest / (255 - static_cast<double>(together) / 2);
  query.step = static_cast<float>(step);
  query.bias = static_cast<float>(bias);
  const double inverse = step > 0 ? 1 / step : 0;
  for (size_t i = 0; i < nibbles; i++, tables += loops::kTableSize) {
    const size_t start = i * in_nibble;
    if (start >= n) {
      std::memset(tables, 0, loops::kTableSize);
      continue;
    }
    // Sums for all codes of the first coordinates, from which those with one more coordinate are made.
    double sums[loops::kTableSize] = {-range_of(i).low};
    for (size_t j = 0, count = 1; count < loops::kTableSize; j++, count *= levels.size()) {
      const double value = start + j < n ? static_cast<double>(u[start + j]) : 0;
      for (size_t level = levels.size(); level-- > 0;) {
        for (size_t k = 0; k < count; k++) sums[level * count + k] = sums[k] + value * levels[level];
      }
    }
    for (size_t value = 0; value < loops::kTableSize; value++) {
      tables[value] = static_cast<uint8_t>(round_half_even(std::max(0.0, sums[value] * inverse)));
    }
  }
}

/// Makes the lookup tables of the bits of a query: the number of equal bits.
void make_bit_tables(const SearchSpec& spec, const uint8_t* bits, SearchQuery& query, uint8_t* tables) {
  const size_t n = spec.dimension, nibbles = static_cast<size_t>(spec.vector_bytes()) * 2;
  query.step = 1;
  query.bias = query.weight = 0;
  query.base = static_cast<double>(n);
  for (size_t i = 0; i < nibbles; i++) {
    for (size_t value = 0; value < loops::kTableSize; value++) {
      uint8_t equal = 0;
      for (size_t j = 0; j < 4 && i * 4 + j < n; j++) equal += (value >> j & 1) == bits[i * 4 + j];
      *tables++ = equal;
    }
  }
}

/// Quantizes a query for codes of 8 bits.
Status make_integers(const SearchSpec& spec, std::span<const float> x, SearchQuery& query, int16_t* values, int8_t* codes) {
  float scale;
  if (const Status status = quantize_row(x, codes, scale); status != Status::kOk) return status;
  const double squares = loops::squared_length(codes, x.size());
  query.bias = 0;
  query.weight = spec.metric == Metric::kEuclidean ? 1.0f : 0.0f;
  query.step = spec.metric != Metric::kCosine ? scale : squares > 0 ? static_cast<float>(1 / std::sqrt(squares)) : 0.0f;
  query.base = spec.metric == Metric::kEuclidean ? squares * scale * scale : 0;
  for (size_t i = 0; i < x.size(); i++) values[i] = codes[i];
  std::fill(values + x.size(), values + spec.vector_bytes(), int16_t{0});
  return Status::kOk;
}

/// Gives scored values of dot products a unit that depends on the query, so that short queries and short vectors together keep their order
/// in float32. Distances add the lengths of vectors to them and keep their unit. Steps of 2^-15 leave room for sums of 2^31 with factors of
/// 2^111. Powers of two change no other bits.
void choose_unit(const SearchSpec& spec, SearchQuery& query) {
  if (spec.metric != Metric::kDot || !(query.step > 0) || !is_finite(query.step)) return;
  query.unit = static_cast<float>(std::ldexp(1.0, std::clamp(std::ilogb(query.step) + 15, -126, 127)));
  for (float* const value : {&query.step, &query.bias, &query.weight}) {
    *value = static_cast<float>(static_cast<double>(*value) / query.unit);
  }
}

const SearchQuery& facts_of(std::span<const std::byte> queries, size_t bytes, size_t i) {
  return *reinterpret_cast<const SearchQuery*>(queries.data() + i * bytes);
}

const uint8_t* tables_of(const SearchQuery& query) { return reinterpret_cast<const uint8_t*>(&query + 1); }
const int16_t* integers_of(const SearchQuery& query) { return reinterpret_cast<const int16_t*>(&query + 1); }
loops::ScoreRule rule_of(const SearchQuery& query) { return {query.step, query.bias, query.weight}; }

/// Offers the allowed vectors of a block to a list.
void offer_block(const SearchPart& part, size_t block, uint32_t allowed, uint32_t first_index, const int32_t* sums,
                 const loops::ScoreRule& rule, BestList& best) {
  alignas(16) float scores[kBlockVectors];
  const size_t first = block * kBlockVectors;
  uint32_t above = loops::score_block(sums, part.factors + first, part.extras + first, rule, threshold_of(best), scores);
  for (above &= allowed; above != 0; above &= above - 1) {
    const auto i = static_cast<uint32_t>(__builtin_ctz(above));
    offer(best, scores[i], first_index + static_cast<uint32_t>(first) + i);
  }
}

/// Codes that stay in a cache while all queries pass.
constexpr size_t kCachedBytes = 1 << 17;
/// Fewest queries and blocks for which joined tables pay.
constexpr size_t kLeastJoined = 16, kLeastBlocks = 8;
/// Blocks that pass one joined table after the other: more share the work of making them, and have more sums to keep in a cache.
constexpr size_t kGroupBlocks = 128;
/// Blocks whose codes are gathered at a time, 6 kB, so that they do not push the joined tables out of the innermost cache.
constexpr size_t kGatheredBlocks = 32;

/// The parts of the scratch memory of scan_joined.
struct JoinedScratch {
  uint8_t* joined;   ///< the tables of kBytesJoined bytes of a vector
  uint8_t* spread;   ///< a table of kJoinedQueries entries for each entry of a query's tables
  uint16_t* places;  ///< kBytesJoined codes of each vector of some blocks
  uint8_t* parts;    ///< kJoinedQueries sums in 8 bits for each vector of a group
  int16_t* sums;     ///< kJoinedQueries for each vector of a group
  int32_t* totals;   ///< kJoinedQueries for each vector of a group, if 16 bits do not hold the sums

  /// Joined tables begin at a line of the caches, so that an entry lies in one.
  static constexpr size_t kLine = 64, kJoined = loops::kBytesJoined * loops::kJoinedTable + kLine;
  static constexpr size_t kSums = kGroupBlocks * kBlockVectors * loops::kJoinedQueries;
  static constexpr size_t kPlaces = kGatheredBlocks * kBlockVectors * loops::kBytesJoined;
  static size_t spread_bytes(size_t vector_bytes) { return vector_bytes * 2 * loops::kTableSize * loops::kJoinedQueries; }
  static bool has_totals(size_t vector_bytes) { return vector_bytes > loops::kBytesInSums; }
  static size_t bytes(size_t vector_bytes) {
    const size_t sum_bytes = 1 + sizeof(int16_t) + (has_totals(vector_bytes) ? sizeof(int32_t) : 0);
    return kJoined + spread_bytes(vector_bytes) + kPlaces * sizeof(uint16_t) + kSums * sum_bytes;
  }
  JoinedScratch(std::byte* scratch, size_t vector_bytes)
      : joined(reinterpret_cast<uint8_t*>(scratch) + (kLine - reinterpret_cast<uintptr_t>(scratch) % kLine)),
        spread(reinterpret_cast<uint8_t*>(scratch) + kJoined),
        places(reinterpret_cast<uint16_t*>(spread + spread_bytes(vector_bytes))),
        parts(reinterpret_cast<uint8_t*>(places + kPlaces)),
        sums(reinterpret_cast<int16_t*>(parts + kSums)),
        totals(has_totals(vector_bytes) ? reinterpret_cast<int32_t*>(sums + kSums) : nullptr) {}
};

/// Adds up the entries of the blocks of a group.
void sum_group(const SearchSpec& spec, const SearchPart& part, std::span<const uint32_t> allowed, size_t group,
               const JoinedScratch& scratch) {
  constexpr size_t kBlockSums = kBlockVectors * loops::kJoinedQueries;
  const size_t bytes = spec.vector_bytes(), blocks = allowed.size();
  if (scratch.totals != nullptr) std::memset(scratch.totals, 0, blocks * kBlockSums * sizeof(int32_t));
  for (size_t start = 0; start < bytes; start += loops::kBytesInSums) {
    const size_t end = std::min(bytes, start + loops::kBytesInSums);
    std::memset(scratch.sums, 0, blocks * kBlockSums * sizeof(int16_t));
    for (size_t b = start; b < end; b += loops::kBytesJoined) {
      const size_t count = std::min(loops::kBytesJoined, end - b);
      loops::join_tables(scratch.spread + b * 2 * loops::kTableSize * loops::kJoinedQueries, count, scratch.joined);
      for (size_t first = 0; first < blocks; first += kGatheredBlocks) {
        const size_t some = std::min(kGatheredBlocks, blocks - first);
        const auto* const from = reinterpret_cast<const uint8_t*>(part.codes) + ((group + first) * bytes + b) * kBlockVectors;
        loops::gather_codes(from, bytes * kBlockVectors, count, some, scratch.places);
        for (size_t i = 0; i < some; i++) {
          if (allowed[first + i] == 0) continue;
          const size_t at = (first + i) * kBlockSums;
          loops::add_joined(scratch.joined, scratch.places + i * count * kBlockVectors, count, b, b + count == bytes,
                            nibbles_together(spec), scratch.parts + at, scratch.sums + at);
        }
      }
    }
    if (scratch.totals == nullptr) continue;
    for (size_t i = 0; i < blocks * kBlockSums; i += loops::kJoinedQueries) {
      loops::add_to_totals(scratch.sums + i, scratch.totals + i);
    }
  }
}

/// scan_part for at most kJoinedQueries queries, by tables that are joined for all of them.
void scan_joined(const SearchSpec& spec, const SearchPart& part, std::span<const uint32_t> allowed, uint32_t first_index,
                 std::span<const std::byte> queries, std::span<BestList> best, const JoinedScratch& scratch) {
  const size_t entries = static_cast<size_t>(spec.vector_bytes()) * 2 * loops::kTableSize, each = query_bytes(spec);
  loops::JoinedRules rules{};
  uint32_t asked = 0;
  std::memset(scratch.spread, 0, entries * loops::kJoinedQueries);
  for (size_t q = 0; q < best.size(); q++) {
    if (best[q].k == 0) continue;
    const SearchQuery& query = facts_of(queries, each, q);
    const loops::ScoreRule rule = loops::bound_rule(rule_of(query));
    rules.step[q] = rule.step, rules.bias[q] = rule.bias, rules.weight[q] = rule.weight;
    rules.threshold[q] = threshold_of(best[q]);
    asked |= 1u << q;
    loops::spread_tables(tables_of(query), entries, q, scratch.spread);
  }
  for (size_t group = 0; group < allowed.size(); group += kGroupBlocks) {
    const std::span<const uint32_t> some = allowed.subspan(group, std::min(kGroupBlocks, allowed.size() - group));
    sum_group(spec, part, some, group, scratch);
    for (size_t i = 0; i < some.size(); i++) {
      if (some[i] == 0) continue;
      const size_t at = i * kBlockVectors * loops::kJoinedQueries, block = group + i;
      alignas(16) int32_t largest[loops::kJoinedQueries], sums[kBlockVectors];
      if (scratch.totals == nullptr)
        loops::largest_joined(scratch.sums + at, largest);
      else
        loops::largest_totals(scratch.totals + at, largest);
      for (uint32_t rest = loops::queries_that_reach(largest, bounds_of(part, block), rules) & asked; rest != 0;
           rest &= rest - 1) {
        const auto q = static_cast<size_t>(__builtin_ctz(rest));
        if (scratch.totals == nullptr)
          loops::sums_of_query(scratch.sums + at, q, sums);
        else
          for (size_t v = 0; v < kBlockVectors; v++) sums[v] = scratch.totals[at + v * loops::kJoinedQueries + q];
        offer_block(part, block, some[i], first_index, sums, rule_of(facts_of(queries, each, q)), best[q]);
        rules.threshold[q] = threshold_of(best[q]);
      }
    }
  }
}

/// scan_part for codes of 8 bits and kDotQueries queries, from one block to another.
void scan_dots(const SearchPart& part, size_t bytes, std::span<const uint32_t> allowed, size_t start, size_t end,
               uint32_t first_index, std::span<const std::byte> queries, size_t each, std::span<BestList> best) {
  for (size_t block = start; block < end; block++) {
    if (allowed[block] == 0) continue;
    loops::SearchSums sums;
    loops::dot_rows_together(reinterpret_cast<const int8_t*>(part.codes) + block * kBlockVectors * bytes, bytes,
                             integers_of(facts_of(queries, each, 0)), each / sizeof(int16_t), sums);
    for (size_t q = 0; q < best.size(); q++) {
      const loops::ScoreRule rule = rule_of(facts_of(queries, each, q));
      if (best[q].k == 0) continue;
      if (!loops::may_reach(sums.largest[q], bounds_of(part, block), loops::bound_rule(rule), threshold_of(best[q]))) continue;
      offer_block(part, block, allowed[block], first_index, loops::widen_sums(sums, q), rule, best[q]);
    }
  }
}

/// scan_part for one query, from one block to another.
void scan_one(const SearchSpec& spec, const SearchPart& part, std::span<const uint32_t> allowed, size_t start, size_t end,
              uint32_t first_index, const SearchQuery& query, BestList& best) {
  const size_t bytes = spec.vector_bytes();
  const loops::ScoreRule rule = rule_of(query), bound = loops::bound_rule(rule);
  if (best.k == 0) return;
  // Streams are runs of blocks of the same length, which lie one after the other.
  const size_t run = (end - start + loops::kStreams - 1) / loops::kStreams;
  loops::SearchSums sums;
  for (size_t i = start; i < start + run; i++) {
    size_t among[loops::kStreams], count = 0;
    const std::byte* codes[loops::kStreams];
    for (size_t block = i; block < end; block += run) {
      if (allowed[block] == 0) continue;
      among[count] = block;
      codes[count] = part.codes + block * kBlockVectors * bytes;
      count++;
    }
    if (count == 0) continue;
    if (spec.bits == 8) {
      loops::dot_rows(reinterpret_cast<const int8_t* const*>(codes), count, bytes, integers_of(query), sums);
    } else {
      loops::sum_tables(reinterpret_cast<const uint8_t* const*>(codes), count, bytes, tables_of(query), nibbles_together(spec),
                        sums);
    }
    for (size_t c = 0; c < count; c++) {
      const size_t block = among[c];
      if (!loops::may_reach(sums.largest[c], bounds_of(part, block), bound, threshold_of(best))) continue;
      offer_block(part, block, allowed[block], first_index, loops::widen_sums(sums, c), rule, best);
    }
  }
}

}  // namespace

void floats_of_bits(std::span<const uint8_t> bytes, uint8_t flip, std::span<float> x) noexcept {
  for (size_t i = 0; i < x.size(); i++) x[i] = ((bytes[i / 8] ^ flip) >> (7 - i % 8) & 1) != 0 ? 1.0f : -1.0f;
}

void floats_of_ranges(std::span<const uint8_t> codes, bool is_signed, std::span<const float> starts, std::span<const float> ends,
                      std::span<float> x) noexcept {
  const size_t n = starts.size();
  for (size_t i = 0; i < x.size(); i++) {
    const double start = starts[i % n], step = (ends[i % n] - start) / 255;
    // The code -1 stands for (-2, -1], 0 for (-1, 1), and 1 for [1, 2).
    const int code = is_signed ? static_cast<int8_t>(codes[i]) : codes[i];
    const double half = code > 0 || !is_signed ? 0.5 : code < 0 ? -0.5 : 0;
    x[i] = static_cast<float>(start + (code + (is_signed ? 128 : 0) + half) * step);
  }
}

Status add_to_center(const SearchSpec& spec, std::span<const float> x, std::span<double> sums) noexcept {
  if (!spec.valid()) return Status::kBadLayout;
  const size_t n = spec.dimension;
  if (x.size() % n != 0 || sums.size() != n) return Status::kSizeMismatch;
  for (size_t start = 0; start < x.size(); start += n) {
    const double squares = loops::dot_product(x.data() + start, x.data() + start, n);
    if (!std::isfinite(squares)) return Status::kNonFinite;
    const float factor = unit_factor(spec.metric, squares);
    if (!is_finite(factor)) return Status::kOverflow;
    loops::add_vector(x.data() + start, factor, n, sums.data());
  }
  return Status::kOk;
}

void finish_center(std::span<const double> sums, double rows, std::span<float> center) noexcept {
  for (size_t i = 0; i < center.size(); i++) center[i] = static_cast<float>(sums[i] / rows);
}

size_t search_scratch_size(const SearchSpec& spec) noexcept { return 2 * static_cast<size_t>(spec.dimension); }

Status encode_vectors(const SearchSpec& spec, const SearchFrame& frame, std::span<const float> x, uint32_t first,
                      const SearchPart& part, std::span<float> scratch) noexcept {
  const size_t n = spec.dimension;
  if (!spec.valid() || x.size() % n != 0) return Status::kBadLayout;
  const size_t rows = x.size() / n;
  if (!fits(spec, part, first, rows) || scratch.size() < search_scratch_size(spec)) return Status::kSizeMismatch;
  Status status = Status::kOk;
  for (size_t row = 0; row < rows && status == Status::kOk; row++) {
    const auto slot = static_cast<uint32_t>(first + row);
    const float* const from = x.data() + row * n;
    if (spec.bits != 8) {
      status = encode_row(spec, frame, from, slot, part, scratch.data());
      continue;
    }
    auto* const to = reinterpret_cast<int8_t*>(part.codes) + static_cast<size_t>(slot) * spec.vector_bytes();
    float scale;
    status = quantize_row({from, n}, to, scale);
    if (status != Status::kOk) continue;
    std::memset(to + n, 0, spec.vector_bytes() - n);
    set_int8_facts(spec.metric, to, n, scale, part.factors[slot], part.extras[slot]);
    if (!is_finite(part.extras[slot])) status = Status::kOverflow;
  }
  find_bounds(part, first, rows);
  return status;
}

Status take_bits(const SearchSpec& spec, std::span<const uint8_t> bytes, size_t row_bytes, uint8_t flip, uint32_t first,
                 const SearchPart& part) noexcept {
  const size_t n = spec.dimension, vector_bytes = spec.vector_bytes(), whole = n / 8;
  if (!spec.valid() || spec.metric != Metric::kHamming || row_bytes * 8 < n) return Status::kBadLayout;
  const size_t rows = bytes.size() / row_bytes;
  if (bytes.size() % row_bytes != 0 || !fits(spec, part, first, rows)) return Status::kSizeMismatch;
  for (size_t row = 0; row < rows; row++) {
    const size_t slot = first + row;
    const uint8_t* const from = bytes.data() + row * row_bytes;
    uint8_t* const to = slot_of(spec, static_cast<uint32_t>(slot), part);
    // The first element has the lowest bit here.
    const auto turned = [&](size_t b) { return reversed(from[b] ^ flip); };
    for (size_t b = 0; b < whole; b++) to[b * kBlockVectors] = turned(b);
    for (size_t b = whole; b < vector_bytes; b++) {
      to[b * kBlockVectors] = b * 8 < n ? static_cast<uint8_t>(turned(b) & ((1u << n % 8) - 1)) : uint8_t{0};
    }
    part.factors[slot] = 1;
    part.extras[slot] = 0;
  }
  find_bounds(part, first, rows);
  return Status::kOk;
}

Status take_codes(const SearchSpec& spec, std::span<const int8_t> codes, std::span<const float> scales, uint32_t first,
                  const SearchPart& part) noexcept {
  const size_t n = spec.dimension, bytes = spec.vector_bytes();
  if (!fits(spec, part, first, scales.size()) || spec.bits != 8) return Status::kBadLayout;
  if (codes.size() != scales.size() * n) return Status::kSizeMismatch;
  auto* const to = reinterpret_cast<int8_t*>(part.codes) + first * bytes;
  // Codes that lie in place already need no copy.
  if (bytes == n && to != codes.data()) std::memcpy(to, codes.data(), codes.size());
  Status status = Status::kOk;
  for (size_t row = 0; row < scales.size() && status == Status::kOk; row++) {
    if (bytes != n) {
      std::memcpy(to + row * bytes, codes.data() + row * n, n);
      std::memset(to + row * bytes + n, 0, bytes - n);
    }
    set_int8_facts(spec.metric, to + row * bytes, n, scales[row], part.factors[first + row], part.extras[first + row]);
    if (!is_finite(part.extras[first + row])) status = Status::kOverflow;
  }
  find_bounds(part, first, scales.size());
  return status;
}

Status read_codes(const SearchSpec& spec, const SearchPart& part, uint32_t first, std::span<int8_t> codes,
                  std::span<float> scales) noexcept {
  const size_t n = spec.dimension, bytes = spec.vector_bytes();
  if (!fits(spec, part, first, scales.size()) || spec.bits != 8) return Status::kBadLayout;
  if (codes.size() != scales.size() * n) return Status::kSizeMismatch;
  const std::byte* const from = part.codes + first * bytes;
  if (bytes == n)
    std::memcpy(codes.data(), from, codes.size());
  else
    for (size_t row = 0; row < scales.size(); row++) std::memcpy(codes.data() + row * n, from + row * bytes, n);
  const float* const scale = spec.metric == Metric::kCosine ? part.extras : part.factors;
  std::copy(scale + first, scale + first + scales.size(), scales.begin());
  return Status::kOk;
}

Status bound_blocks(const SearchPart& part, uint32_t first, uint32_t rows) noexcept {
  if (part.capacity % kBlockVectors != 0 || uint64_t{first} + rows > part.capacity) return Status::kBadLayout;
  find_bounds(part, first, rows);
  return Status::kOk;
}

size_t query_bytes(const SearchSpec& spec) noexcept {
  const size_t vector = spec.vector_bytes();
  return (sizeof(SearchQuery) + (spec.bits == 8 ? vector * 2 : vector * 2 * loops::kTableSize) + 15) / 16 * 16;
}

Status prepare_query(const SearchSpec& spec, const SearchFrame& frame, std::span<const float> x, std::span<std::byte> query,
                     std::span<float> scratch) noexcept {
  if (!spec.valid()) return Status::kBadLayout;
  const size_t n = spec.dimension;
  if (x.size() != n || query.size() != query_bytes(spec) || scratch.size() < search_scratch_size(spec)) {
    return Status::kSizeMismatch;
  }
  auto& facts = *reinterpret_cast<SearchQuery*>(query.data());
  facts.unit = 1;
  std::byte* const rest = query.data() + sizeof(SearchQuery);
  const double squares = loops::dot_product(x.data(), x.data(), n);
  if (!std::isfinite(squares)) return Status::kNonFinite;
  if (spec.bits == 8) {
    const Status status =
        make_integers(spec, x, facts, reinterpret_cast<int16_t*>(rest), reinterpret_cast<int8_t*>(scratch.data()));
    if (status == Status::kOk) choose_unit(spec, facts);
    return status;
  }
  if (spec.metric == Metric::kHamming) {
    auto* const bits = reinterpret_cast<uint8_t*>(scratch.data());
    find_bits(x.data(), n, bits);
    make_bit_tables(spec, bits, facts, reinterpret_cast<uint8_t*>(rest));
    return Status::kOk;
  }

  // Take the part along the center away, of which the products with vectors are known.
  float* const unit = scratch.data();
  float* const u = unit + n;
  const float factor = unit_factor(spec.metric, squares);
  for (size_t i = 0; i < n; i++) unit[i] = x[i] * factor;
  if (spec.metric == Metric::kEuclidean) {
    facts.weight = 1;
    facts.base = loops::squared_distance(unit, frame.center, n);
  } else {
    const double length = loops::dot_product(frame.center, frame.center, n);
    facts.base = loops::dot_product(unit, frame.center, n);
    facts.weight = length > 0 ? static_cast<float>(facts.base / length) : 0;
    if (!is_finite(facts.weight)) facts.weight = 0;
  }
  for (size_t i = 0; i < n; i++) u[i] = unit[i] - facts.weight * frame.center[i];
  rotate({u, n}, {frame.signs, rotation_words(n)});
  if (!std::isfinite(loops::dot_product(u, u, n))) return Status::kOverflow;
  make_tables(spec, u, facts, reinterpret_cast<uint8_t*>(rest));
  choose_unit(spec, facts);
  return Status::kOk;
}

size_t scan_scratch_bytes(const SearchSpec& spec, size_t queries) noexcept {
  return spec.bits == 8 || queries < kLeastJoined ? 0 : JoinedScratch::bytes(spec.vector_bytes());
}

Status scan_part(const SearchSpec& spec, const SearchPart& part, std::span<const uint32_t> allowed, uint32_t first_index,
                 std::span<const std::byte> queries, std::span<BestList> best, std::span<std::byte> scratch) noexcept {
  if (!spec.valid() || part.capacity % kBlockVectors != 0) return Status::kBadLayout;
  const size_t blocks = part.capacity / kBlockVectors, bytes = spec.vector_bytes(), each = query_bytes(spec);
  if (allowed.size() != blocks || queries.size() != best.size() * each) return Status::kSizeMismatch;
  if (scratch.size() < scan_scratch_bytes(spec, best.size())) return Status::kSizeMismatch;
  if (spec.bits != 8 && blocks >= kLeastBlocks) {
    while (best.size() >= kLeastJoined) {
      const size_t count = std::min(loops::kJoinedQueries, best.size());
      scan_joined(spec, part, allowed, first_index, queries.first(count * each), best.first(count), {scratch.data(), bytes});
      queries = queries.subspan(count * each), best = best.subspan(count);
    }
  }
  const size_t step = best.size() == 1 ? blocks : std::max<size_t>(1, kCachedBytes / (bytes * kBlockVectors));
  for (size_t start = 0; start < blocks; start += step) {
    const size_t end = std::min(blocks, start + step);
    size_t q = 0;
    for (; spec.bits == 8 && q + loops::kDotQueries <= best.size(); q += loops::kDotQueries) {
      scan_dots(part, bytes, allowed, start, end, first_index, queries.subspan(q * each), each,
                best.subspan(q, loops::kDotQueries));
    }
    for (; q < best.size(); q++) scan_one(spec, part, allowed, start, end, first_index, facts_of(queries, each, q), best[q]);
  }
  return Status::kOk;
}

void merge_best(std::span<const float> scores, std::span<const uint32_t> indices, BestList& best) noexcept {
  if (best.k == 0) return;
  for (size_t i = 0; i < scores.size(); i++) offer(best, scores[i], indices[i]);
}

void finish_best(const SearchSpec& spec, const SearchQuery& query, BestList& best) noexcept {
  // The worst goes to the end, then the worst of the others.
  for (uint32_t size = best.size; size > 1; size--) {
    const float score = best.scores[0];
    const uint32_t index = best.indices[0];
    const float last = best.scores[size - 1];
    const uint32_t last_index = best.indices[size - 1];
    sift_down(best, size - 1, 0, last, last_index);
    best.scores[size - 1] = score;
    best.indices[size - 1] = index;
  }
  for (uint32_t i = 0; i < best.size; i++) {
    const double value = static_cast<double>(best.scores[i]) * query.unit;
    double score = query.base + value;
    if (spec.metric == Metric::kHamming) score = query.base - value;
    if (spec.metric == Metric::kEuclidean) score = std::sqrt(std::max(0.0, query.base - 2 * value));
    best.scores[i] = static_cast<float>(score);
  }
}

size_t stored_row_bytes(StoredRow kind, size_t dimension) noexcept {
  if (kind == StoredRow::kInt8) return 4 + (dimension + 3) / 4 * 4;
  return dimension * (kind == StoredRow::kFloat16 ? 2 : 4);
}

Status store_rows(StoredRow kind, std::span<const float> x, size_t dimension, std::span<std::byte> rows) noexcept {
  const size_t bytes = stored_row_bytes(kind, dimension);
  if (dimension == 0 || x.size() % dimension != 0 || rows.size() != x.size() / dimension * bytes) return Status::kSizeMismatch;
  std::byte* to = rows.data();
  for (size_t start = 0; start < x.size(); start += dimension, to += bytes) {
    const std::span<const float> row = x.subspan(start, dimension);
    if (kind == StoredRow::kInt8) {
      auto* const codes = reinterpret_cast<int8_t*>(to + 4);
      std::memset(codes, 0, bytes - 4);
      float scale;
      if (const Status status = quantize_row(row, codes, scale); status != Status::kOk) return status;
      std::memcpy(to, &scale, 4);
      continue;
    }
    for (size_t i = 0; i < dimension; i++) {
      if (!is_finite(row[i])) return Status::kNonFinite;
      const uint16_t half = kind == StoredRow::kFloat16 ? float16_of(row[i]) : uint16_t{0};
      if ((half & 0x7FFF) == 0x7C00) return Status::kOverflow;
      if (kind == StoredRow::kFloat16)
        std::memcpy(to + i * 2, &half, 2);
      else
        std::memcpy(to + i * 4, &row[i], 4);
    }
  }
  return Status::kOk;
}

double squared_norm(std::span<const float> x) noexcept { return loops::dot_product(x.data(), x.data(), x.size()); }

double score_row(Metric metric, std::span<const float> query, double query_squares, StoredRow kind, const std::byte* row,
                 std::span<float> scratch) noexcept {
  const size_t n = query.size();
  const float* x = scratch.data();
  if (kind == StoredRow::kFloat32) {
    x = reinterpret_cast<const float*>(row);
  } else if (kind == StoredRow::kFloat16) {
    loops::float16_to_float32(reinterpret_cast<const uint16_t*>(row), n, scratch.data());
  } else {
    float scale;
    std::memcpy(&scale, row, 4);
    loops::dequantize_uniform(row + 4, kInt8Spec.dtype, n, scale, 0, scratch.data());
  }
  if (metric == Metric::kEuclidean) return std::sqrt(loops::squared_distance(query.data(), x, n));
  if (metric == Metric::kHamming) {
    size_t distance = 0;
    for (size_t i = 0; i < n; i++) distance += (query[i] > 0) != (x[i] > 0);
    return static_cast<double>(distance);
  }
  const double product = loops::dot_product(query.data(), x, n);
  if (metric == Metric::kDot) return product;
  const double squares = query_squares * loops::dot_product(x, x, n);
  return squares > 0 ? product / std::sqrt(squares) : 0;
}

}  // namespace scalepoint
