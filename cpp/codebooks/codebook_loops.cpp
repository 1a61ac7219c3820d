// Most of these loops go value by value: they look up a table at every value, and wasm has no vector instruction that gathers.
// Only search_codes_by_counting needs no table of more than 16 bytes.
#include "codebooks/codebook_loops.h"

#include <cstring>

#include "lanes/lanes.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

/// The place of a float among 2 side + 1 intervals of its bits, `side` in the middle. kFraction bits of the fraction tell
/// intervals apart, from magnitudes of 2^-32 on.
template <int32_t kFraction>
inline int32_t interval_of(float x, int32_t side) {
  const uint32_t bits = bit_cast<uint32_t>(x);
  constexpr int32_t kSmallest = (127 - 32) << kFraction;
  const int32_t place = clamp(static_cast<int32_t>((bits & kAbsMask) >> (23 - kFraction)) - kSmallest + 1, 0, side);
  return bits >> 31 != 0 ? side - place : side + place;
}

inline int32_t bucket_of(float x) { return interval_of<5>(x, kCodeBuckets / 2); }

/// kSteps steps of bisection, or search.steps of them if that is negative.
template <int32_t kSteps>
void search_buckets(const float* x, size_t n, float factor, const CodeSearch& search, uint8_t* codes) {
  const int32_t width = 1 << (kSteps < 0 ? search.steps : kSteps) >> 1;
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < n; i++) {
    const float v = x[i] * factor;
    uint32_t rank = search.first[bucket_of(v)];
    for (int32_t w = width; w > 0; w >>= 1) rank += v > search.threshold[rank + w - 1] ? w : 0;
    codes[i] = search.code[rank];
  }
}

#ifdef SCALEPOINT_SIMD_LANES
constexpr decltype(&search_buckets<0>) kSearchBuckets[] = {&search_buckets<0>, &search_buckets<1>, &search_buckets<2>,
                                                           &search_buckets<3>};
#endif

}  // namespace

void prepare(CodeSearch& search) {
  size_t rank = 0, most = 0, last = 0;
  for (int32_t bucket = 0; bucket < kCodeBuckets; bucket++) {
    search.first[bucket] = static_cast<uint8_t>(rank);
    while (rank < search.thresholds && bucket_of(search.threshold[rank]) == bucket) rank++;
    most = rank - last > most ? rank - last : most;
    last = rank;
  }
  search.steps = 0;
  while (most >> search.steps != 0) search.steps++;
}

void search_codes(const float* x, size_t n, float factor, const CodeSearch& search, uint8_t* codes) {
  if (kSimd && search.thresholds < 16) return search_codes_by_counting(x, n, factor, search, codes);
  search_codes_by_bucket(x, n, factor, search, codes);
}

void search_codes_by_bucket(const float* x, size_t n, float factor, const CodeSearch& search, uint8_t* codes) {
#ifdef SCALEPOINT_SIMD_LANES
  if (search.steps < 4) return kSearchBuckets[search.steps](x, n, factor, search, codes);
#endif
  search_buckets<-1>(x, n, factor, search, codes);
}

void search_codes_by_counting(const float* x, size_t n, float factor, const CodeSearch& search, uint8_t* codes) {
  const U8x16 code = load(search.code);
  const F32x4 by = splat(factor);
  const auto sixteen = [&](const float* from, uint8_t* to) {
    const F32x4 a = mul(load(from), by), b = mul(load(from + 4), by), c = mul(load(from + 8), by), d = mul(load(from + 12), by);
    I32x4 rank_a = splat(0), rank_b = rank_a, rank_c = rank_a, rank_d = rank_a;
    const float* end = search.threshold + search.thresholds;
    SCALEPOINT_NO_UNROLL
    for (const float* t = search.threshold; t != end; t++) {
      const F32x4 bound = splat(*t);
      rank_a = sub(rank_a, greater(a, bound));
      rank_b = sub(rank_b, greater(b, bound));
      rank_c = sub(rank_c, greater(c, bound));
      rank_d = sub(rank_d, greater(d, bound));
    }
    store(to, lookup(code, low_bytes(rank_a, rank_b, rank_c, rank_d)));
  };
  size_t i = 0;
  SCALEPOINT_NO_UNROLL
  for (; i + 16 <= n; i += 16) sixteen(x + i, codes + i);
  if (i == n) return;
  float rest[16] = {};
  uint8_t made[16];
  std::memcpy(rest, x + i, (n - i) * sizeof(float));
  sixteen(rest, made);
  std::memcpy(codes + i, made, n - i);
}

void fit_codes(const float* x, size_t n, const uint8_t* codes, const double* values, double* products, double* squares) {
  double product[2] = {}, square[2] = {};
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i + 2 <= n; i += 2) {
    const double even = values[codes[i]], odd = values[codes[i + 1]];
    product[0] += x[i] * even;
    product[1] += x[i + 1] * odd;
    square[0] += even * even;
    square[1] += odd * odd;
  }
  if (n % 2 != 0) {
    const double last = values[codes[n - 1]];
    product[0] += x[n - 1] * last;
    square[0] += last * last;
  }
  *products += product[0] + product[1];
  *squares += square[0] + square[1];
}

void prepare_sweep(double share, size_t scales, Sweep& sweep) {
  // The rounding errors of a growth are at most about 2^-22 of it.
  constexpr double kSlack = 0x1p-20;
  sweep.scales = scales;
  size_t scale = 0;
  double growth = 1;
  for (size_t i = 0; i < sizeof(sweep.guess); i++) {
    for (; scale < scales && growth < 1 - kSlack + (static_cast<double>(i) - 1) / 256; growth /= share) scale++;
    sweep.guess[i] = static_cast<uint8_t>(scale < scales ? scale : scales + i % kBehindSweep);
  }
  sweep.limit = static_cast<float>(growth * (share + kSlack));
}

void SweepSums::sweep(const float* x, const uint8_t* ranks, size_t n, const float* factors, bool negative,
                      const CodeSearch& search, const double* values, const Sweep& by) {
  F64x2 first = splat(0.0);
  const uint32_t last_down = kMostCodes + 3 + search.thresholds;  // one more, as -1 - rank is the complement of rank
  const float first_factor = factors[0];
  const float sign = negative ? -1.0f : 1.0f;
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < n; i++) {
    const uint32_t bits = bit_cast<uint32_t>(x[i]), rank = ranks[i];
    const double value = values[rank];
    first = add(first, mul(pair(x[i], value), splat(value)));
    // Choose without a branch, because signs are unpredictable.
    const uint32_t falls = -(bits >> 31 ^ static_cast<uint32_t>(negative));
    const Crossing* next = by.crossings + ((rank ^ falls) + (falls & last_down));
    const float magnitude = bit_cast<float>(bits & kAbsMask), per_quotient = 1 / (magnitude * first_factor);
    const F64x2 grows = pair(magnitude * sign, 1);
    const auto cross = [&](FitSums* changes) {
      // The growth of a quotient that is 0 is infinite or NaN.
      const uint32_t growth = bit_cast<uint32_t>(next->threshold * per_quotient),
                     place = (growth - (0x3F800000 - (1 << 15))) >> 15;
      size_t scale = by.guess[place < sizeof(by.guess) ? place : sizeof(by.guess) - 1];
      scale += magnitude * factors[scale] > next->threshold ? 0 : 1;
      double* to = &changes[scale].products;
      store(to, add(load(to), mul(load(&next->product), grows)));
      next++;
    };
    size_t passed = 0;
    if constexpr (kSimd) {
      // Most quotients pass up to two thresholds. A check after each would take longer, because its branch is unpredictable.
      cross(changes_[0]);
      cross(changes_[1]);
      passed = 2;
    }
    for (; next->threshold * per_quotient < by.limit; passed++) cross(changes_[passed == 1 ? 1 : 0]);
  }
  store(&sum_.products, add(load(&sum_.products), first));
}

FitSums SweepSums::take(size_t i, const Sweep& by) {
  for (auto& changes : changes_) {
    sum_.products += changes[i].products;
    sum_.squares += changes[i].squares;
    changes[i] = {};
  }
  const FitSums taken = sum_;
  if (i + 1 == by.scales) sum_ = {};
  return taken;
}

uint32_t restore_codes(const uint8_t* codes, size_t n, const float* values, float factor, float* x) {
  uint32_t largest = 0;
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < n; i++) {
    const uint32_t code = codes[i];
    largest = code > largest ? code : largest;
    x[i] = values[code] * factor;
  }
  return largest;
}

void count_quotients(const float* x, size_t n, float factor, double weight, double* weights, double* moments) {
  for (size_t i = 0; i < n; i++) {
    const float v = x[i] * factor;
    const int32_t bin = interval_of<kQuotientFraction>(v, kQuotientSide);
    weights[bin] += weight;
    moments[bin] += weight * v;
  }
}

}  // namespace scalepoint::loops
