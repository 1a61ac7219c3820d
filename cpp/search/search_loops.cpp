#include "search/search_loops.h"

#include <cmath>

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

/// The sums of 16 vectors. The first eight integers of 16 bits hold those of even vectors plus 256 times those of odd ones, which follow.
struct NarrowSums {
  I16x8 even, odd;
  explicit NarrowSums(const int16_t* parts) : odd(load(parts + 8)) { even = sub(load(parts), shift_left<8>(odd)); }
};

/// Adds the sums of 16 vectors to others, or to zeros.
void widen_parts(const int16_t* parts, bool is_first, int32_t* sums) {
  const NarrowSums narrow(parts);
  const I16x8 low = interleave_low(narrow.even, narrow.odd), high = interleave_high(narrow.even, narrow.odd);
  I32x4 wide[4];
  widen_unsigned(low, wide[0], wide[1]);
  widen_unsigned(high, wide[2], wide[3]);
  for (int i = 0; i < 4; i++) store(sums + 4 * i, is_first ? wide[i] : add(load(sums + 4 * i), wide[i]));
}

/// Eight lanes, each the larger of two lanes of a or of b.
I16x8 larger_lanes(I16x8 a, I16x8 b) { return max_unsigned(interleave_low(a, b), interleave_high(a, b)); }

/// The largest of the 32 sums of each of eight blocks.
void largest_narrow(const int16_t* parts, size_t blocks, int32_t* largest) {
  static_assert(kStreams == 8);
  I16x8 lanes[kStreams];
  for (size_t i = 0; i < kStreams; i++) {
    const int16_t* const from = parts + (i < blocks ? i : 0) * kSearchBlock;
    const NarrowSums first(from), second(from + 16);
    lanes[i] = max_unsigned(max_unsigned(first.even, first.odd), max_unsigned(second.even, second.odd));
  }
  // Each step halves the lanes of a block. In the end, lane i is that of block i.
  for (size_t i = 0; i < 4; i++) lanes[i] = larger_lanes(lanes[i], lanes[i + 4]);
  for (size_t i = 0; i < 2; i++) lanes[i] = larger_lanes(lanes[i], lanes[i + 2]);
  I32x4 wide[2];
  widen_unsigned(larger_lanes(lanes[0], lanes[1]), wide[0], wide[1]);
  store(largest, wide[0]), store(largest + 4, wide[1]);
}

/// The largest of four lanes of each of four vectors.
I32x4 largest_of_four(const I32x4* of) {
  F32x4 a = from_bits(of[0]), b = from_bits(of[1]), c = from_bits(of[2]), d = from_bits(of[3]);
  transpose(a, b, c, d);
  return max_signed(max_signed(bits(a), bits(b)), max_signed(bits(c), bits(d)));
}

/// The largest of 32 sums of each of four blocks.
void largest_wide(const int32_t* sums, int32_t* largest) {
  I32x4 lanes[4];
  for (size_t block = 0; block < 4; block++) {
    lanes[block] = load(sums + block * kSearchBlock);
    for (size_t i = 4; i < kSearchBlock; i += 4) lanes[block] = max_signed(lanes[block], load(sums + block * kSearchBlock + i));
  }
  store(largest, largest_of_four(lanes));
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

void sum_tables(const uint8_t* const* codes, size_t blocks, size_t bytes, const uint8_t* tables, size_t together,
                SearchSums& sums) {
  constexpr size_t kTurnPairs = kTurnBytes / kPairBytes;
  sums.is_narrow = bytes / 2 <= kPairsAtOnce;
  for (size_t start = 0; start < bytes / 2; start += kPairsAtOnce) {
    const size_t end = bytes / 2 - start < kPairsAtOnce ? bytes / 2 : start + kPairsAtOnce;
    for (size_t i = 0; i < blocks * kSearchBlock; i += 8) store(sums.narrow + i, splat(static_cast<int16_t>(0)));
    for (size_t pair = start; pair < end; pair += kTurnPairs) {
      const size_t pairs = end - pair < kTurnPairs ? end - pair : kTurnPairs;
      for (size_t block = 0; block < blocks; block++) {
        const uint8_t* const from = codes[block] + pair * kPairBytes;
        const uint8_t* const table = tables + pair * kPairTables;
        int16_t* const to = sums.narrow + block * kSearchBlock;
        if (together == 4)
          add_entries<true>(from, pairs, table, 1, to);
        else
          add_entries<false>(from, pairs, table, together / 4, to);
      }
    }
    if (sums.is_narrow) break;
    for (size_t i = 0; i < blocks * kSearchBlock; i += 16) widen_parts(sums.narrow + i, start == 0, sums.wide + i);
  }
  if (sums.is_narrow) {
    largest_narrow(sums.narrow, blocks, sums.largest);
  } else {
    for (size_t i = 0; i < blocks; i += 4) largest_wide(sums.wide + i * kSearchBlock, sums.largest + i);
  }
}

const int32_t* widen_sums(SearchSums& sums, size_t block) {
  int32_t* const wide = sums.wide + block * kSearchBlock;
  if (sums.is_narrow) {
    const int16_t* const narrow = sums.narrow + block * kSearchBlock;
    for (size_t i = 0; i < kSearchBlock; i += 16) widen_parts(narrow + i, true, wide + i);
  }
  return wide;
}

void dot_rows(const int8_t* const* rows, size_t blocks, size_t n, const int16_t* query, SearchSums& sums) {
  sums.is_narrow = false;
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
      const I32x4 sum = add(add(bits(lanes[0]), bits(lanes[1])), add(bits(lanes[2]), bits(lanes[3])));
      store(sums.wide + block * kSearchBlock + row, sum);
    }
  }
  for (size_t i = 0; i < blocks; i += 4) largest_wide(sums.wide + i * kSearchBlock, sums.largest + i);
}

void dot_rows_together(const int8_t* rows, size_t n, const int16_t* queries, size_t step, SearchSums& sums) {
  static_assert(kDotQueries == 4);
  sums.is_narrow = false;
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
    put(a0, a1, a2, a3, sums.wide + row);
    put(b0, b1, b2, b3, sums.wide + row + 1);
  }
  largest_wide(sums.wide, sums.largest);
}

namespace {

/// The place of a query among 16 bytes, so that even and odd bytes have queries that follow each other.
size_t place_of(size_t query) { return query / 16 * 16 + query % 8 * 2 + query % 16 / 8; }

/// Adds entries for kBytes rows of codes: those of kTogether rows in 8 bits, and with those of `parts` if kGoesOn. They stay there if
/// kStays.
template <size_t kBytes, size_t kTogether, bool kGoesOn = false, bool kStays = false>
void add_joined_rows(const uint8_t* joined, const uint16_t* places, uint8_t* parts, int16_t* sums) {
  SCALEPOINT_NO_UNROLL
  for (size_t v = 0; v < kSearchBlock; v++, places++, parts += kJoinedQueries, sums += kJoinedQueries) {
    for (size_t b = 0; b < kBytes; b += kTogether) {
      U8x16 first, second;
      for (size_t i = 0; i < kTogether; i++) {
        const uint8_t* const entries = joined + (b + i) * kJoinedTable + places[(b + i) * kSearchBlock];
        first = i == 0 ? load(entries) : add(first, load(entries));
        second = i == 0 ? load(entries + 16) : add(second, load(entries + 16));
      }
      if constexpr (kGoesOn) first = add(first, load(parts)), second = add(second, load(parts + 16));
      if constexpr (kStays) {
        store(parts, first), store(parts + 16, second);
      } else {
        store(sums, add(load(sums), as_int16s(first)));
        store(sums + 8, add(load(sums + 8), shift_right<8>(as_int16s(first))));
        store(sums + 16, add(load(sums + 16), as_int16s(second)));
        store(sums + 24, add(load(sums + 24), shift_right<8>(as_int16s(second))));
      }
    }
  }
}

/// The sums for 16 queries: of the first eight, and of the other eight.
void widen_joined(const int16_t* sums, I32x4 (&wide)[4]) {
  const NarrowSums narrow(sums);
  widen_unsigned(narrow.even, wide[0], wide[1]);
  widen_unsigned(narrow.odd, wide[2], wide[3]);
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

void gather_codes(const uint8_t* codes, size_t step, size_t bytes, size_t blocks, uint16_t* places) {
  for (size_t block = 0; block < blocks; block++, codes += step) {
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < bytes * kSearchBlock; i += 8, places += 8) {
      static_assert(kJoinedQueries == 32);
      store(reinterpret_cast<int16_t*>(places), shift_left<5>(widen(codes + i)));
    }
  }
}

void add_joined(const uint8_t* joined, const uint16_t* places, size_t bytes, size_t first, bool is_last, size_t together,
                uint8_t* parts, int16_t* sums) {
  static_assert(kBytesJoined == 4);
  // The entries of eight bytes of 1 bit are added in 8 bits: those of the first four stay for the others.
  const bool goes_on = together == 16 && first % 8 != 0, stays = together == 16 && first % 8 == 0 && !is_last;
  if (goes_on) {
    bytes == 4 ? add_joined_rows<4, 4, true>(joined, places, parts, sums)
               : add_joined_rows<2, 2, true>(joined, places, parts, sums);
  } else if (stays) {
    add_joined_rows<4, 4, false, true>(joined, places, parts, sums);
  } else if (bytes == 2) {
    add_joined_rows<2, 2>(joined, places, parts, sums);
  } else if (together == 4) {
    add_joined_rows<4, 2>(joined, places, parts, sums);
  } else {
    add_joined_rows<4, 4>(joined, places, parts, sums);
  }
}

void add_to_totals(const int16_t* sums, int32_t* totals) {
  for (size_t half = 0; half < 2; half++, sums += 16, totals += 16) {
    I32x4 wide[4];
    widen_joined(sums, wide);
    for (size_t i = 0; i < 4; i++) store(totals + 4 * i, add(load(totals + 4 * i), wide[i]));
  }
}

void largest_joined(const int16_t* sums, int32_t* largest) {
  for (size_t half = 0; half < 2; half++, sums += 16, largest += 16) {
    I16x8 even = splat(static_cast<int16_t>(0)), odd = even;
    SCALEPOINT_NO_UNROLL
    for (size_t v = 0; v < kSearchBlock; v++) {
      const NarrowSums narrow(sums + v * kJoinedQueries);
      even = max_unsigned(even, narrow.even), odd = max_unsigned(odd, narrow.odd);
    }
    I32x4 wide[4];
    widen_unsigned(even, wide[0], wide[1]);
    widen_unsigned(odd, wide[2], wide[3]);
    for (size_t i = 0; i < 4; i++) store(largest + 4 * i, wide[i]);
  }
}

void sums_of_query(const int16_t* sums, size_t query, int32_t* to) {
  // The layout of NarrowSums.
  const int16_t* const all = sums + query / 16 * 16 + query % 8;
  const bool is_odd = query % 16 >= 8;
  for (size_t v = 0; v < kSearchBlock; v++, sums += kJoinedQueries) {
    const auto odd = static_cast<uint32_t>(static_cast<uint16_t>(all[v * kJoinedQueries + 8]));
    const auto both = static_cast<uint32_t>(static_cast<uint16_t>(all[v * kJoinedQueries]));
    to[v] = static_cast<int32_t>(is_odd ? odd : (both - (odd << 8)) & 0xFFFF);
  }
}

#else

namespace {

int32_t largest_of(const int32_t* sums) {
  int32_t largest = sums[0];
  for (size_t v = 1; v < kSearchBlock; v++) largest = sums[v] > largest ? sums[v] : largest;
  return largest;
}

}  // namespace

void sum_tables(const uint8_t* const* codes, size_t blocks, size_t bytes, const uint8_t* tables, size_t, SearchSums& sums) {
  for (size_t block = 0; block < blocks; block++) {
    int32_t* const to = sums.wide + block * kSearchBlock;
    const uint8_t* c = codes[block];
    const uint8_t* table = tables;
    for (size_t v = 0; v < kSearchBlock; v++) to[v] = 0;
    for (size_t b = 0; b < bytes; b++, c += kSearchBlock, table += 2 * kTableSize) {
      for (size_t v = 0; v < kSearchBlock; v++) to[v] += table[c[v] & 15] + table[kTableSize + (c[v] >> 4)];
    }
    sums.largest[block] = largest_of(to);
  }
}

const int32_t* widen_sums(SearchSums& sums, size_t block) { return sums.wide + block * kSearchBlock; }

namespace {

void dot_block(const int8_t* row, size_t n, const int16_t* query, size_t place, SearchSums& sums) {
  int32_t* const to = sums.wide + place * kSearchBlock;
  for (size_t v = 0; v < kSearchBlock; v++, row += n) {
    to[v] = 0;
    for (size_t j = 0; j < n; j++) to[v] += row[j] * query[j];
  }
  sums.largest[place] = largest_of(to);
}

}  // namespace

void dot_rows(const int8_t* const* rows, size_t blocks, size_t n, const int16_t* query, SearchSums& sums) {
  for (size_t block = 0; block < blocks; block++) dot_block(rows[block], n, query, block, sums);
}

void dot_rows_together(const int8_t* rows, size_t n, const int16_t* queries, size_t step, SearchSums& sums) {
  for (size_t q = 0; q < kDotQueries; q++) dot_block(rows, n, queries + q * step, q, sums);
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

void gather_codes(const uint8_t* codes, size_t step, size_t bytes, size_t blocks, uint16_t* places) {
  for (size_t block = 0; block < blocks; block++, codes += step) {
    for (size_t i = 0; i < bytes * kSearchBlock; i++) *places++ = static_cast<uint16_t>(codes[i] * kJoinedQueries);
  }
}

void add_joined(const uint8_t* joined, const uint16_t* places, size_t bytes, size_t, bool, size_t, uint8_t*, int16_t* sums) {
  for (size_t v = 0; v < kSearchBlock; v++, sums += kJoinedQueries) {
    for (size_t b = 0; b < bytes; b++) {
      const uint8_t* const entries = joined + b * kJoinedTable + places[b * kSearchBlock + v];
      for (size_t q = 0; q < kJoinedQueries; q++) sums[q] = static_cast<int16_t>(sums[q] + entries[q]);
    }
  }
}

void add_to_totals(const int16_t* sums, int32_t* totals) {
  for (size_t q = 0; q < kJoinedQueries; q++) totals[q] += static_cast<uint16_t>(sums[q]);
}

void largest_joined(const int16_t* sums, int32_t* largest) {
  for (size_t q = 0; q < kJoinedQueries; q++) largest[q] = 0;
  for (size_t i = 0; i < kSearchBlock * kJoinedQueries; i++) {
    const int32_t sum = static_cast<uint16_t>(sums[i]);
    int32_t& most = largest[i % kJoinedQueries];
    most = sum > most ? sum : most;
  }
}

void sums_of_query(const int16_t* sums, size_t query, int32_t* to) {
  for (size_t v = 0; v < kSearchBlock; v++) to[v] = static_cast<uint16_t>(sums[v * kJoinedQueries + query]);
}

#endif

void largest_totals(const int32_t* totals, int32_t* largest) {
  for (size_t q = 0; q < kJoinedQueries; q += 4) {
    I32x4 most = load(totals + q);
    for (size_t v = 1; v < kSearchBlock; v++) most = max_signed(most, load(totals + v * kJoinedQueries + q));
    store(largest + q, most);
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

BlockBounds bound_block(const float* factors, const float* extras) {
  BlockBounds bounds{0, extras[0], extras[0]};
  bool is_bounded = true;
  for (size_t i = 0; i < kSearchBlock; i++) {
    is_bounded = is_bounded && factors[i] >= 0 && is_finite(factors[i]) && is_finite(extras[i]);
    if (factors[i] > bounds.factor) bounds.factor = factors[i];
    if (extras[i] < bounds.low) bounds.low = extras[i];
    if (extras[i] > bounds.high) bounds.high = extras[i];
  }
  if (!is_bounded) bounds.factor = NAN;
  return bounds;
}

ScoreRule bound_rule(const ScoreRule& rule) {
  const bool is_bounded = rule.step >= 0 && is_finite(rule.step) && is_finite(rule.bias) && is_finite(rule.weight);
  return {is_bounded ? rule.step : NAN, rule.bias, rule.weight};
}

bool may_reach(int32_t largest, const BlockBounds& bounds, const ScoreRule& rule, float threshold) {
  const float product = static_cast<float>(largest) * rule.step + rule.bias;
  const float low = rule.weight * bounds.low, high = rule.weight * bounds.high;
  return !((product < 0 ? 0 : product) * bounds.factor + (low < high ? high : low) < threshold);
}

uint32_t queries_that_reach(const int32_t* largest, const BlockBounds& bounds, const JoinedRules& rules) {
  const F32x4 factor = splat(bounds.factor), lows = splat(bounds.low), highs = splat(bounds.high), zero = splat(0.0f);
  uint32_t above = 0;
  SCALEPOINT_PER_VECTOR
  for (size_t q = 0; q < kJoinedQueries; q += 4) {
    const F32x4 product = pmax(add(mul(to_float(load(largest + q)), load(rules.step + q)), load(rules.bias + q)), zero);
    const F32x4 weight = load(rules.weight + q);
    const F32x4 bound = add(mul(product, factor), pmax(mul(weight, lows), mul(weight, highs)));
    above |= (top_bits(greater(load(rules.threshold + q), bound)) ^ 15) << q;
  }
  return above;
}

}  // namespace scalepoint::loops
