#include "search/search_loops.h"

#include "lanes/lanes.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

/// Adds up four sums of doubles in a fixed order.
double total(F64x2 a, F64x2 b) {
  double x[2];
  store(x, add(a, b));
  return x[0] + x[1];
}

}  // namespace

void flip_signs(float* x, const uint32_t* signs, size_t n) {
  for (size_t i = 0; i < n; i++) x[i] = bit_cast<float>(bit_cast<uint32_t>(x[i]) ^ signs[i]);
}

void hadamard(float* x, size_t n, float factor) {
  // Neighbors in a vector: turn four vectors, so that neighbors lie in different ones.
  size_t half = 1;
  if (n >= 16) {
    for (size_t i = 0; i < n; i += 16) {
      F32x4 a = load(x + i), b = load(x + i + 4), c = load(x + i + 8), d = load(x + i + 12);
      transpose(a, b, c, d);
      const F32x4 ab = add(a, b), a_b = sub(a, b), cd = add(c, d), c_d = sub(c, d);
      a = add(ab, cd), b = add(a_b, c_d), c = sub(ab, cd), d = sub(a_b, c_d);
      transpose(a, b, c, d);
      store(x + i, a), store(x + i + 4, b), store(x + i + 8, c), store(x + i + 12, d);
    }
    half = 4;
  }
  for (; half < n && half < 4; half *= 2) {
    for (size_t i = 0; i < n; i += 2 * half) {
      for (size_t j = i; j < i + half; j++) {
        const float a = x[j], b = x[j + half];
        x[j] = a + b, x[j + half] = a - b;
      }
    }
  }
  // Two steps at a time.
  for (; 2 * half < n; half *= 4) {
    for (size_t i = 0; i < n; i += 4 * half) {
      SCALEPOINT_NO_UNROLL
      for (size_t j = i; j < i + half; j += 4) {
        float* const p = x + j;
        const F32x4 a = load(p), b = load(p + half), c = load(p + 2 * half), d = load(p + 3 * half);
        const F32x4 ab = add(a, b), a_b = sub(a, b), cd = add(c, d), c_d = sub(c, d);
        store(p, add(ab, cd)), store(p + half, add(a_b, c_d));
        store(p + 2 * half, sub(ab, cd)), store(p + 3 * half, sub(a_b, c_d));
      }
    }
  }
  for (; half < n; half *= 2) {
    SCALEPOINT_NO_UNROLL
    for (size_t j = 0; j < half; j += 4) {
      const F32x4 a = load(x + j), b = load(x + j + half);
      store(x + j, add(a, b)), store(x + j + half, sub(a, b));
    }
  }
  size_t i = 0;
  const F32x4 factors = splat(factor);
  for (; i + 4 <= n; i += 4) store(x + i, mul(load(x + i), factors));
  for (; i < n; i++) x[i] *= factor;
}

double dot_product(const float* a, const float* b, size_t n) {
  F64x2 low = splat(0.0), high = low;
  size_t i = 0;
  SCALEPOINT_NO_UNROLL
  for (; i + 4 <= n; i += 4) {
    const F32x4 x = load(a + i), y = load(b + i);
    low = add(low, mul(widen_low(x), widen_low(y)));
    high = add(high, mul(widen_high(x), widen_high(y)));
  }
  double sum = total(low, high);
  for (; i < n; i++) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

double squared_distance(const float* a, const float* b, size_t n) {
  F64x2 low = splat(0.0), high = low;
  size_t i = 0;
  SCALEPOINT_NO_UNROLL
  for (; i + 4 <= n; i += 4) {
    const F32x4 x = load(a + i), y = load(b + i);
    const F64x2 first = sub(widen_low(x), widen_low(y)), second = sub(widen_high(x), widen_high(y));
    low = add(low, mul(first, first));
    high = add(high, mul(second, second));
  }
  double sum = total(low, high);
  for (; i < n; i++) {
    const double difference = static_cast<double>(a[i]) - b[i];
    sum += difference * difference;
  }
  return sum;
}

double squared_length(const int8_t* codes, size_t n) {
  // Each lane gets 2^11 pairs of products of at most 2^14: at most 2^26.
  constexpr size_t kAtOnce = 1 << 14;
  double sum = 0;
  for (size_t start = 0; start < n; start += kAtOnce) {
    const size_t end = n - start < kAtOnce ? n : start + kAtOnce;
    I32x4 sums = splat(0);
    size_t i = start;
    SCALEPOINT_NO_UNROLL
    for (; i + 8 <= end; i += 8) {
      const I16x8 x = widen(codes + i);
      sums = add(sums, dot(x, x));
    }
    int32_t lane[4];
    store(lane, sums);
    for (const int32_t v : lane) sum += v;
    for (; i < end; i++) sum += codes[i] * codes[i];
  }
  return sum;
}

void center_vector(const float* x, float factor, const float* center, size_t n, float* to) {
  const F32x4 factors = splat(factor);
  size_t i = 0;
  for (; i + 4 <= n; i += 4) store(to + i, sub(mul(load(x + i), factors), load(center + i)));
  for (; i < n; i++) to[i] = x[i] * factor - center[i];
}

void add_vector(const float* x, float factor, size_t n, double* sums) {
  for (size_t i = 0; i < n; i++) sums[i] += x[i] * factor;
}

void find_levels(const float* x, float factor, size_t n, const float* thresholds, size_t count, uint8_t* codes) {
  const F32x4 factors = splat(factor);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const F32x4 a = mul(load(x + i), factors), b = mul(load(x + i + 4), factors);
    I32x4 first = splat(0), second = first;
    SCALEPOINT_NO_UNROLL
    for (size_t t = 0; t < count; t++) {
      const F32x4 threshold = splat(thresholds[t]);
      first = sub(first, greater(a, threshold));
      second = sub(second, greater(b, threshold));
    }
    store_eight_codes(codes + i, first, second);
  }
  for (; i < n; i++) {
    const float v = x[i] * factor;
    uint8_t code = 0;
    for (size_t t = 0; t < count; t++) code = static_cast<uint8_t>(code + (v > thresholds[t] ? 1 : 0));
    codes[i] = code;
  }
}

#ifdef SCALEPOINT_SIMD_LANES

namespace {

/// Two bytes of each vector of a block, and the tables of their halves.
constexpr size_t kPairBytes = 2 * kSearchBlock, kPairTables = 4 * kTableSize;
/// 16 bits hold the sums of this many pairs, each of up to 255.
constexpr size_t kPairsAtOnce = 256;

/// Adds the sums of 16 vectors: `all` holds those of even vectors plus 256 times those of odd ones, which are in `odd`.
void add_sums(I16x8 all, I16x8 odd, int32_t* sums) {
  const I16x8 even = sub(all, shift_left<8>(odd));
  const I16x8 low = interleave_low(even, odd), high = interleave_high(even, odd);
  I32x4 wide[4];
  widen_unsigned(low, wide[0], wide[1]);
  widen_unsigned(high, wide[2], wide[3]);
  for (int i = 0; i < 4; i++) store(sums + 4 * i, add(load(sums + 4 * i), wide[i]));
}

/// Sums of table entries of 32 vectors in 8 bits.
struct EntrySums {
  U8x16 first, second;
};

/// The entries of a pair of bytes of each vector.
EntrySums entries_of(const uint8_t* codes, const uint8_t* tables) {
  const U8x16 low_half = splat(static_cast<uint8_t>(15));
  // Shifts 16 bits and masks, which is what x86 does for a shift of bytes, and the mask is the one that is here already.
  const auto upper = [&](U8x16 x) { return bit_and(as_bytes(shift_right<4>(as_int16s(x))), low_half); };
  const U8x16 table0 = load(tables), table1 = load(tables + 16), table2 = load(tables + 32), table3 = load(tables + 48);
  const U8x16 a = load(codes), b = load(codes + 16), c = load(codes + 32), d = load(codes + 48);
  return {add(add(lookup(table0, bit_and(a, low_half)), lookup(table1, upper(a))),
              add(lookup(table2, bit_and(c, low_half)), lookup(table3, upper(c)))),
          add(add(lookup(table0, bit_and(b, low_half)), lookup(table1, upper(b))),
              add(lookup(table2, bit_and(d, low_half)), lookup(table3, upper(d))))};
}

/// Adds the entries for `pairs` pairs of bytes of a block to `parts`: for the first and for the second 16 vectors, all sums and those of
/// odd vectors, as add_sums takes them. Adds the entries of `together` pairs in 8 bits before; kOne says that this is 1.
template <bool kOne>
void add_entries(const uint8_t* codes, size_t pairs, const uint8_t* tables, [[maybe_unused]] size_t together, int16_t* parts) {
  I16x8 first_all = load(parts), first_odd = load(parts + 8), second_all = load(parts + 16), second_odd = load(parts + 24);
  const uint8_t* const end = codes + pairs * kPairBytes;
  SCALEPOINT_NO_UNROLL
  while (codes != end) {
    EntrySums sums;
    if constexpr (kOne) {
      sums = entries_of(codes, tables);
      codes += kPairBytes, tables += kPairTables;
    } else {
      sums = {splat(static_cast<uint8_t>(0)), splat(static_cast<uint8_t>(0))};
      const size_t left = static_cast<size_t>(end - codes), step = together * kPairBytes;
      const uint8_t* const stop = codes + (left < step ? left : step);
      SCALEPOINT_NO_UNROLL
      for (; codes != stop; codes += kPairBytes, tables += kPairTables) {
        const EntrySums more = entries_of(codes, tables);
        sums = {add(sums.first, more.first), add(sums.second, more.second)};
      }
    }
    first_all = add(first_all, as_int16s(sums.first));
    first_odd = add(first_odd, shift_right<8>(as_int16s(sums.first)));
    second_all = add(second_all, as_int16s(sums.second));
    second_odd = add(second_odd, shift_right<8>(as_int16s(sums.second)));
  }
  store(parts, first_all), store(parts + 8, first_odd), store(parts + 16, second_all), store(parts + 24, second_odd);
}

/// Adds the products of n codes of a row to eight sums. n is a multiple of 16.
void add_products(const int8_t* row, const int16_t* query, size_t n, int32_t* sums) {
  const int16_t* const end = query + n;
  I32x4 low = load(sums), high = load(sums + 4);
  const auto step = [&] {
    low = add(low, dot(widen(row), load(query)));
    high = add(high, dot(widen(row + 8), load(query + 8)));
    query += 16, row += 16;
  };
  // Two steps at a time take .8 of the time of one, for codes in a cache.
  if (n / 16 % 2 == 1) step();
  SCALEPOINT_NO_UNROLL
  while (query != end) {
    step();
    step();
  }
  store(sums, low), store(sums + 4, high);
}

/// Bytes of a block that a query passes before it goes on with the next one.
constexpr size_t kTurnBytes = 1024;

}  // namespace

void sum_tables(const uint8_t* const* codes, size_t blocks, size_t bytes, const uint8_t* tables, size_t together, int32_t* sums) {
  constexpr size_t kTurnPairs = kTurnBytes / kPairBytes;
  for (size_t i = 0; i < blocks * kSearchBlock; i += 4) store(sums + i, splat(0));
  for (size_t start = 0; start < bytes / 2; start += kPairsAtOnce) {
    const size_t end = bytes / 2 - start < kPairsAtOnce ? bytes / 2 : start + kPairsAtOnce;
    alignas(16) int16_t parts[kStreams * kSearchBlock];
    for (size_t i = 0; i < blocks * kSearchBlock; i += 8) store(parts + i, splat(static_cast<int16_t>(0)));
    for (size_t pair = start; pair < end; pair += kTurnPairs) {
      const size_t pairs = end - pair < kTurnPairs ? end - pair : kTurnPairs;
      for (size_t block = 0; block < blocks; block++) {
        const uint8_t* const from = codes[block] + pair * kPairBytes;
        const uint8_t* const table = tables + pair * kPairTables;
        int16_t* const to = parts + block * kSearchBlock;
        if (together == 4)
          add_entries<true>(from, pairs, table, 1, to);
        else
          add_entries<false>(from, pairs, table, together / 4, to);
      }
    }
    for (size_t i = 0; i < blocks * kSearchBlock; i += 16) {
      add_sums(load(parts + i), load(parts + i + 8), sums + i);
    }
  }
}

void dot_rows(const int8_t* const* rows, size_t blocks, size_t n, const int16_t* query, int32_t* sums) {
  for (size_t row = 0; row < kSearchBlock; row += 4) {
    alignas(16) int32_t parts[4][kStreams][8] = {};
    for (size_t r = 0; r < 4; r++) {
      for (size_t start = 0; start < n; start += kTurnBytes) {
        const size_t count = n - start < kTurnBytes ? n - start : kTurnBytes;
        for (size_t block = 0; block < blocks; block++) {
          add_products(rows[block] + (row + r) * n + start, query + start, count, parts[r][block]);
        }
      }
    }
    for (size_t block = 0; block < blocks; block++) {
      F32x4 lanes[4];
      for (size_t r = 0; r < 4; r++) lanes[r] = from_bits(add(load(parts[r][block]), load(parts[r][block] + 4)));
      transpose(lanes[0], lanes[1], lanes[2], lanes[3]);
      store(sums + block * kSearchBlock + row, add(add(bits(lanes[0]), bits(lanes[1])), add(bits(lanes[2]), bits(lanes[3]))));
    }
  }
}

void dot_rows_together(const int8_t* rows, size_t n, const int16_t* queries, size_t step, int32_t* sums) {
  static_assert(kDotQueries == 4);
  const int16_t* const end = queries + n;
  for (size_t row = 0; row < kSearchBlock; row += 2, rows += 2 * n) {
    // Two rows by four queries: eight sums stay in registers, and a load serves two or four products.
    I32x4 a0 = splat(0), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
    const int8_t* r = rows;
    SCALEPOINT_NO_UNROLL
    for (const int16_t* q = queries; q != end; q += 8, r += 8) {
      const I16x8 a = widen(r), b = widen(r + n);
      const I16x8 q0 = load(q), q1 = load(q + step), q2 = load(q + 2 * step), q3 = load(q + 3 * step);
      a0 = add(a0, dot(a, q0)), b0 = add(b0, dot(b, q0));
      a1 = add(a1, dot(a, q1)), b1 = add(b1, dot(b, q1));
      a2 = add(a2, dot(a, q2)), b2 = add(b2, dot(b, q2));
      a3 = add(a3, dot(a, q3)), b3 = add(b3, dot(b, q3));
    }
    const auto put = [&](I32x4 x0, I32x4 x1, I32x4 x2, I32x4 x3, int32_t* to) {
      F32x4 lanes[] = {from_bits(x0), from_bits(x1), from_bits(x2), from_bits(x3)};
      transpose(lanes[0], lanes[1], lanes[2], lanes[3]);
      int32_t sum[4];
      store(sum, add(add(bits(lanes[0]), bits(lanes[1])), add(bits(lanes[2]), bits(lanes[3]))));
      for (size_t q = 0; q < kDotQueries; q++) to[q * kSearchBlock] = sum[q];
    };
    put(a0, a1, a2, a3, sums + row);
    put(b0, b1, b2, b3, sums + row + 1);
  }
}

namespace {

/// The place of a query among 16 bytes, so that even and odd bytes have queries that follow each other.
size_t place_of(size_t query) { return query / 16 * 16 + query % 8 * 2 + query % 16 / 8; }

/// Adds entries for kBytes rows of codes.
template <size_t kBytes>
void add_joined_rows(const uint8_t* codes, const uint8_t* joined, int16_t* sums) {
  SCALEPOINT_NO_UNROLL
  for (size_t v = 0; v < kSearchBlock; v++, codes++, sums += kJoinedQueries) {
    I16x8 first_all = load(sums), first_odd = load(sums + 8), second_all = load(sums + 16), second_odd = load(sums + 24);
    for (size_t b = 0; b < kBytes; b += 2) {
      const uint8_t* const even = joined + b * kJoinedTable + codes[b * kSearchBlock] * kJoinedQueries;
      const uint8_t* const odd = joined + (b + 1) * kJoinedTable + codes[(b + 1) * kSearchBlock] * kJoinedQueries;
      const I16x8 first = as_int16s(add(load(even), load(odd))), second = as_int16s(add(load(even + 16), load(odd + 16)));
      first_all = add(first_all, first), first_odd = add(first_odd, shift_right<8>(first));
      second_all = add(second_all, second), second_odd = add(second_odd, shift_right<8>(second));
    }
    store(sums, first_all), store(sums + 8, first_odd), store(sums + 16, second_all), store(sums + 24, second_odd);
  }
}

}  // namespace

void join_tables(const uint8_t* spread, size_t bytes, uint8_t* joined) {
  constexpr size_t kHalf = kTableSize * kJoinedQueries;
  for (size_t b = 0; b < bytes; b++, spread += 2 * kHalf) {
    for (size_t high = 0; high < kTableSize; high++) {
      const uint8_t* const upper = spread + kHalf + high * kJoinedQueries;
      const U8x16 first = load(upper), second = load(upper + 16);
      SCALEPOINT_NO_UNROLL
      for (size_t low = 0; low < kHalf; low += kJoinedQueries, joined += kJoinedQueries) {
        store(joined, add(first, load(spread + low))), store(joined + 16, add(second, load(spread + low + 16)));
      }
    }
  }
}

void add_joined(const uint8_t* codes, size_t bytes, const uint8_t* joined, int16_t* sums) {
  static_assert(kBytesJoined == 6);
  if (bytes == 6) {
    add_joined_rows<6>(codes, joined, sums);
  } else if (bytes == 4) {
    add_joined_rows<4>(codes, joined, sums);
  } else {
    add_joined_rows<2>(codes, joined, sums);
  }
}

void add_to_totals(const int16_t* sums, int32_t* totals) {
  for (size_t half = 0; half < 2; half++, sums += 16, totals += 16) {
    const I16x8 odd = load(sums + 8), even = sub(load(sums), shift_left<8>(odd));
    I32x4 wide[4];
    widen_unsigned(even, wide[0], wide[1]);
    widen_unsigned(odd, wide[2], wide[3]);
    for (size_t i = 0; i < 4; i++) store(totals + 4 * i, add(load(totals + 4 * i), wide[i]));
  }
}

#else

void sum_tables(const uint8_t* const* codes, size_t blocks, size_t bytes, const uint8_t* tables, size_t, int32_t* sums) {
  for (size_t block = 0; block < blocks; block++, sums += kSearchBlock) {
    const uint8_t* c = codes[block];
    const uint8_t* table = tables;
    for (size_t v = 0; v < kSearchBlock; v++) sums[v] = 0;
    for (size_t b = 0; b < bytes; b++, c += kSearchBlock, table += 2 * kTableSize) {
      for (size_t v = 0; v < kSearchBlock; v++) sums[v] += table[c[v] & 15] + table[kTableSize + (c[v] >> 4)];
    }
  }
}

void dot_rows(const int8_t* const* rows, size_t blocks, size_t n, const int16_t* query, int32_t* sums) {
  for (size_t i = 0; i < blocks * kSearchBlock; i++) {
    const int8_t* const row = rows[i / kSearchBlock] + i % kSearchBlock * n;
    int32_t sum = 0;
    for (size_t j = 0; j < n; j++) sum += row[j] * query[j];
    sums[i] = sum;
  }
}

void dot_rows_together(const int8_t* rows, size_t n, const int16_t* queries, size_t step, int32_t* sums) {
  for (size_t q = 0; q < kDotQueries; q++) dot_rows(&rows, 1, n, queries + q * step, sums + q * kSearchBlock);
}

namespace {

size_t place_of(size_t query) { return query; }

}  // namespace

void join_tables(const uint8_t* spread, size_t bytes, uint8_t* joined) {
  constexpr size_t kHalf = kTableSize * kJoinedQueries;
  for (size_t i = 0; i < bytes * kJoinedTable; i++) {
    const size_t byte = i / kJoinedTable, value = i / kJoinedQueries % 256, query = i % kJoinedQueries;
    const uint8_t* const lower = spread + byte * 2 * kHalf + query;
    joined[i] = static_cast<uint8_t>(lower[value % 16 * kJoinedQueries] + lower[kHalf + value / 16 * kJoinedQueries]);
  }
}

void add_joined(const uint8_t* codes, size_t bytes, const uint8_t* joined, int16_t* sums) {
  for (size_t v = 0; v < kSearchBlock; v++, sums += kJoinedQueries) {
    for (size_t b = 0; b < bytes; b++) {
      const uint8_t* const entries = joined + b * kJoinedTable + codes[b * kSearchBlock + v] * kJoinedQueries;
      for (size_t q = 0; q < kJoinedQueries; q++) sums[q] = static_cast<int16_t>(sums[q] + entries[q]);
    }
  }
}

void add_to_totals(const int16_t* sums, int32_t* totals) {
  for (size_t q = 0; q < kJoinedQueries; q++) totals[q] += static_cast<uint16_t>(sums[q]);
}

#endif

void gather_codes(const uint8_t* codes, size_t step, size_t bytes, size_t blocks, uint8_t* to) {
  for (size_t block = 0; block < blocks; block++, codes += step) {
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < bytes * kSearchBlock; i += 16, to += 16) store(to, load(codes + i));
  }
}

void spread_tables(const uint8_t* tables, size_t entries, size_t query, uint8_t* spread) {
  spread += place_of(query);
  for (size_t i = 0; i < entries; i++) spread[i * kJoinedQueries] = tables[i];
}

uint32_t score_block(const int32_t* sums, const float* factors, const float* extras, const ScoreRule& rule, float threshold,
                     float* scores) {
  const F32x4 step = splat(rule.step), bias = splat(rule.bias), weight = splat(rule.weight), least = splat(threshold);
  uint32_t above = 0;
  SCALEPOINT_PER_VECTOR
  for (size_t i = 0; i < kSearchBlock; i += 4) {
    const F32x4 product = add(mul(to_float(load(sums + i)), step), bias);
    const F32x4 score = add(mul(load(factors + i), product), mul(weight, load(extras + i)));
    store(scores + i, score);
    above |= (top_bits(greater(least, score)) ^ 15) << i;
  }
  return above;
}

uint32_t score_queries(const int32_t* totals, float factor, float extra, const JoinedRules& rules, float* scores) {
  const F32x4 factors = splat(factor), extras = splat(extra);
  uint32_t above = 0;
  SCALEPOINT_PER_VECTOR
  for (size_t q = 0; q < kJoinedQueries; q += 4) {
    const F32x4 product = add(mul(to_float(load(totals + q)), load(rules.step + q)), load(rules.bias + q));
    const F32x4 score = add(mul(factors, product), mul(load(rules.weight + q), extras));
    store(scores + q, score);
    above |= top_bits(greater(score, load(rules.threshold + q))) << q;
  }
  return above;
}

}  // namespace scalepoint::loops
