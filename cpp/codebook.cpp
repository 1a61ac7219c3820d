#include "codebook.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absmax.h"
#include "codebook_learning.h"
#include "kernels/codebook.h"
#include "kernels/metrics.h"
#include "kernels/range.h"
#include "metrics.h"
#include "range.h"

namespace scalepoint {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr float kNf4[16] = {-1.0f,
                            -0.6961928009986877f,
                            -0.5250730514526367f,
                            -0.39491748809814453f,
                            -0.28444138169288635f,
                            -0.18477343022823334f,
                            -0.09105003625154495f,
                            0.0f,
                            0.07958029955625534f,
                            0.16093020141124725f,
                            0.24611230194568634f,
                            0.33791524171829224f,
                            0.44070982933044434f,
                            0.5626170039176941f,
                            0.7229568362236023f,
                            1.0f};

// Decimal numbers of bitsandbytes, and the nearest floats of them: four lie so close to the middle of two floats that rounding them
// to double before gives other ones.
constexpr float kNf4Thresholds[15] = {-0.8480964004993439f,  -0.6106329262256622f,  -0.4599952697753906f,   -0.33967943489551544f,
                                      -0.23460740596055984f, -0.13791173323988914f, -0.045525018125772476f, 0.03979014977812767f,
                                      0.1202552504837513f,   0.2035212516784668f,   0.2920137718319893f,    0.3893125355243683f,
                                      0.5016634166240692f,   0.6427869200706482f,   0.8614784181118011f};

// 0, 1/16, 8, 12, 4, 6, 2 and 3, divided by 12, and the same with a sign.
constexpr float kFp4[16] = {0.0f, 5.208333333e-03f,  0.66666667f,  1.0f,  0.33333333f,  0.5f,  0.16666667f,  0.25f,
                            0.0f, -5.208333333e-03f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f};

/// Of sizes, and the codes that they lie between.
constexpr float kFp4Thresholds[7] = {0.00260417f, 0.0859375f, 0.20833333f, 0.29166667f, 0.4166667f, 0.583333f, 0.8333333f};
constexpr uint8_t kFp4Codes[8] = {0, 1, 6, 7, 4, 5, 2, 3};

float next_below(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x);
  if (x == 0) return -std::numeric_limits<float>::denorm_min();
  return bit_cast<float>(x > 0 ? bits - 1 : bits + 1);
}

/// The largest float that is not above the middle of two: what exceeds it exceeds the middle.
float middle_of(float a, float b) {
  // The sum in double, and exactly what its rounding left out (Knuth's two-sum).
  const double x = a, y = b, sum = x + y, part = sum - x, left = (x - (sum - part)) + (y - part);
  const auto middle = static_cast<float>(sum / 2);
  const double nearest = middle;
  return nearest > sum / 2 || (nearest == sum / 2 && left < 0) ? next_below(middle) : middle;
}

/// Sorts n of at most kMaxCodebookSize things: for so few, insertion takes less code than std::sort and hardly more time.
template <class T, class Less>
void sort(T* things, size_t n, Less less) {
  for (size_t i = 1; i < n; i++) {
    const T moved = things[i];
    size_t to = i;
    for (; to > 0 && less(moved, things[to - 1]); to--) things[to] = things[to - 1];
    things[to] = moved;
  }
}

void search_nearest(std::span<const float> codebook, kernels::CodeSearch& search) {
  const size_t n = codebook.size();
  for (size_t i = 0; i < n; i++) search.code[i] = static_cast<uint8_t>(i);
  sort(search.code, n, [codebook](uint8_t a, uint8_t b) { return codebook[a] < codebook[b]; });
  for (size_t i = 0; i + 1 < n; i++) search.threshold[i] = middle_of(codebook[search.code[i]], codebook[search.code[i + 1]]);
}

void search_nf4(kernels::CodeSearch& search) {
  std::copy(std::begin(kNf4Thresholds), std::end(kNf4Thresholds), search.threshold);
  for (size_t i = 0; i < 16; i++) search.code[i] = static_cast<uint8_t>(i);
}

void search_fp4(kernels::CodeSearch& search) {
  // A size has to exceed the threshold on either side of 0: below it, what does not is at or above the threshold.
  for (size_t i = 0; i < 7; i++) {
    search.threshold[6 - i] = next_below(-kFp4Thresholds[i]);
    search.threshold[8 + i] = kFp4Thresholds[i];
  }
  search.threshold[7] = next_below(0);
  for (size_t i = 0; i < 8; i++) {
    search.code[7 - i] = static_cast<uint8_t>(kFp4Codes[i] | 8);
    search.code[8 + i] = kFp4Codes[i];
  }
}

void prepare(std::span<const float> codebook, Decision decision, kernels::CodeSearch& search) {
  search.thresholds = static_cast<uint32_t>(codebook.size() - 1);
  std::fill(std::begin(search.threshold), std::end(search.threshold), kInfinity);
  if (decision == Decision::kNf4) {
    search_nf4(search);
  } else if (decision == Decision::kFp4) {
    search_fp4(search);
  } else {
    search_nearest(codebook, search);
  }
  kernels::prepare(search);
}

bool all_finite(std::span<const float> values) { return first_non_finite(values) == values.size(); }

Status check(size_t n, Blocks blocks, std::span<const float> absmax) {
  if (!blocks.valid()) return Status::kBadLayout;
  if (absmax.size() != blocks.count(n)) return Status::kSizeMismatch;
  return all_finite(absmax) ? Status::kOk : Status::kBadScale;
}

/// Calls f with the offset, the length and the block of every stretch of a piece that lies in one block.
template <class F>
void for_each_block(size_t n, Blocks blocks, F f) {
  uint64_t left = blocks.size - blocks.offset;
  for (size_t i = 0, block = 0; i < n; block++, left = blocks.size) {
    const size_t size = n - i < left ? n - i : static_cast<size_t>(left);
    f(i, size, block);
    i += size;
  }
}

/// Calls f with floats and the factor that makes quotients of them.
template <class F>
void with_factor(std::span<const float> x, float absmax, F f) {
  const float factor = absmax == 0 ? 0 : 1 / absmax;
  if (is_finite(factor)) {
    f(x, factor);
    return;
  }
  constexpr float kRaise = 0x1p64f;
  float raised[512];
  for (size_t i = 0; i < x.size(); i += std::size(raised)) {
    const std::span<const float> some = x.subspan(i, std::min(std::size(raised), x.size() - i));
    for (size_t j = 0; j < some.size(); j++) raised[j] = some[j] * kRaise;
    f(std::span<const float>(raised, some.size()), 1 / (absmax * kRaise));
  }
}

// ------------------------------------------------------------------------------------------------------ the best of a block

constexpr double kWidest = 1.12, kNarrow = 0.67;
constexpr int kMostWidths = 500;
/// Multiples on either side of the nearest that are tried.
constexpr int kMultiples = 2;

/// A codebook to search with.
struct Book {
  kernels::CodeSearch search;
  float values[kMaxCodebookSize];
  float largest;
};

/// What a block leaves with the codes of one scale: energy - 2 s products + s^2 squares at the scale s.
struct Fit {
  double products = 0, squares = 0;

  [[nodiscard]] double error(double energy, double scale) const {
    return energy - 2 * scale * products + scale * scale * squares;
  }
  [[nodiscard]] double best_scale() const { return squares > 0 ? products / squares : 0; }
};

Fit fit(std::span<const float> x, float scale, const Book& book) {
  Fit sums;
  size_t done = 0;
  with_factor(x, scale, [&](std::span<const float> some, float factor) {
    uint8_t codes[512];
    for (size_t i = 0; i < some.size(); i += std::size(codes)) {
      const size_t size = std::min(std::size(codes), some.size() - i);
      kernels::search_codes(&some[i], size, factor, book.search, codes);
      kernels::fit_codes(&x[done], size, codes, book.values, &sums.products, &sums.squares);
      done += size;
    }
  });
  return sums;
}

double energy_of(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * v;
  return sum;
}

/// The best of scales with either sign for a block with values other than 0.
float search_scale(std::span<const float> x, float largest, const Book& book) {
  const double energy = energy_of(x);
  float found = largest;
  double least = fit(x, largest, book).error(energy, largest);
  const double reach = largest / (book.largest > 0 ? book.largest : 1);
  // The more values, the more the error goes up and down from scale to scale.
  const double ratio = book.search.thresholds < 16 ? 0.965 : 0.985;
  float best = 0;
  double promised = least;
  for (const double sign : {1.0, -1.0}) {
    double width = kWidest, error = 0;
    // Narrower for as long as that looks promising: one value of very many may be far out.
    for (int i = 0; width > kNarrow || (i < kMostWidths && error < 2 * promised); i++, width *= ratio) {
      const auto scale = static_cast<float>(reach * sign * width);
      if (scale == 0 || !is_finite(scale)) break;
      const Fit sums = fit(x, scale, book);
      error = sums.error(energy, sums.best_scale());
      if (error >= promised) continue;
      promised = error;
      best = static_cast<float>(sums.best_scale());
    }
  }
  // The codes of the improved scale may have a better one yet.
  for (int i = 0; i < 3 && best != 0 && is_finite(best); i++) {
    const Fit sums = fit(x, best, book);
    const double error = sums.error(energy, best);
    if (error >= least) break;
    least = error;
    found = best;
    best = static_cast<float>(sums.best_scale());
  }
  return found;
}

/// The unit of a set with that largest size, the bfloat16 nearest to a 127th of it; 0 if that is 0.
float unit_of(float largest) {
  const uint32_t exact = bit_cast<uint32_t>(largest / 127);
  const float unit = bit_cast<float>((exact + 0x8000) & 0xFFFF0000u);
  return is_finite(unit * 127) ? unit : bit_cast<float>(exact & 0xFFFF0000u);
}

float largest_of(std::span<const float> absmax) {
  float largest = 0;
  for (const float v : absmax) largest = std::max(largest, std::fabs(v));
  return largest;
}

/// Whole units for the scales that were found: of those near each the best.
void search_multiples(std::span<const float> x, uint64_t block_size, const Book& book, std::span<float> absmax) {
  const float largest = largest_of(absmax), unit = unit_of(largest);
  bool reached = false;
  for_each_block(x.size(), {block_size}, [&](size_t i, size_t size, size_t block) {
    const float found = absmax[block];
    if (found == 0) return;
    if (!reached && std::fabs(found) == largest) {
      // The one that says what the unit is.
      reached = true;
      absmax[block] = std::copysign(127 * unit, found);
      return;
    }
    const std::span<const float> values = x.subspan(i, size);
    const double energy = energy_of(values);
    const float nearest = round_half_even(std::fabs(found) / unit);
    double least = HUGE_VAL;
    for (int step = -kMultiples; step <= kMultiples; step++) {
      const float multiple = nearest + static_cast<float>(step);
      if (multiple < 0 || multiple > 127) continue;
      const float scale = std::copysign(multiple * unit, found);
      const double error = fit(values, scale, book).error(energy, scale);
      if (error >= least) continue;
      least = error;
      absmax[block] = scale;
    }
  });
}

// ------------------------------------------------------------------------------------------------------------- learning

constexpr int32_t kFractionBits = 12, kSmallestExponent = 127 - 32;
/// Bins on one side of 0, from 2^-32 to 2: quotients may exceed 1 by a rounding.
constexpr int32_t kSide = 33 << kFractionBits;
constexpr size_t kBins = 2 * kSide + 1;
constexpr size_t kGroups = 2048;

struct Learner {
  // Of every bin; and then, for the bins in use, of it and all before it.
  double weight[kBins];
  double moment[kBins];
  double mean[kBins];
  /// The gain of the best partitions of the first groups into so many cells and one cell less.
  double gain[2][kGroups + 1];
  uint32_t end[kGroups + 1];                     ///< bins in the first groups
  uint16_t last[kMaxCodebookSize][kGroups + 1];  ///< where the last cell of the best partition begins, by cells and groups
};

int32_t bin_of(float v) {
  const uint32_t bits = bit_cast<uint32_t>(v);
  constexpr int32_t kSmallest = kSmallestExponent << kFractionBits;
  const int32_t size = clamp(static_cast<int32_t>((bits & kAbsMask) >> (23 - kFractionBits)) - kSmallest + 1, 0, kSide);
  return bits >> 31 != 0 ? kSide - size : kSide + size;
}

/// The bins in use, to the front; weight and moment become running sums. Returns their number.
size_t compact(Learner& learner) {
  size_t used = 0;
  double weight = 0, moment = 0;
  for (size_t i = 0; i < kBins; i++) {
    if (!(learner.weight[i] > 0)) continue;
    learner.mean[used] = learner.moment[i] / learner.weight[i];
    weight += learner.weight[i];
    moment += learner.moment[i];
    learner.weight[used] = weight;
    learner.moment[used] = moment;
    used++;
  }
  return used;
}

double sum_before(const double* sums, size_t i) { return i == 0 ? 0 : sums[i - 1]; }

/// How much smaller the squared error is when the bins [from, to) have their mean for a value instead of 0.
double gain_of(const Learner& learner, size_t from, size_t to) {
  const double weight = sum_before(learner.weight, to) - sum_before(learner.weight, from);
  const double moment = sum_before(learner.moment, to) - sum_before(learner.moment, from);
  return weight > 0 ? moment * moment / weight : 0;  // a sum may be too large to notice more
}

/// Joins neighbouring bins into at most kGroups groups: none but single bins has more than 1/341 of the weight, of the range and of
/// the bins together. Returns their number, at least 341 of more than kGroups bins.
size_t group(Learner& learner, size_t used) {
  const bool join = used > kGroups;
  const double weight = learner.weight[used - 1], range = learner.mean[used - 1] - learner.mean[0];
  // Any two groups side by side exceed the limit, of a total of 3.
  const double limit = 6.0 / (kGroups - 1);
  size_t groups = 0;
  double held = 0;
  learner.end[0] = 0;
  for (size_t i = 0; i < used; i++) {
    double share = 1.0 / static_cast<double>(used) + (learner.weight[i] - sum_before(learner.weight, i)) / weight;
    if (i > 0) share += (learner.mean[i] - learner.mean[i - 1]) / range;
    if (i > 0 && (!join || held + share > limit)) {
      learner.end[++groups] = static_cast<uint32_t>(i);
      held = 0;
    }
    held += share;
  }
  learner.end[++groups] = static_cast<uint32_t>(used);
  return groups;
}

/// The best partitions of the first [low, high) groups into cells + 1 cells, of those into cells. The last cell of a longer piece
/// begins no earlier, so that halving the piece narrows the search on either side.
void best_partitions(Learner& learner, size_t cells, size_t low, size_t high, size_t first, size_t last) {
  if (low >= high) return;
  const double* before = learner.gain[cells % 2 == 1 ? 0 : 1];
  double* after = learner.gain[cells % 2];
  const size_t middle = low + (high - low) / 2;
  double best = -1;
  size_t at = first;
  for (size_t i = first; i <= last && i < middle; i++) {
    const double gain = before[i] + gain_of(learner, learner.end[i], learner.end[middle]);
    if (gain > best) {
      best = gain;
      at = i;
    }
  }
  after[middle] = best;
  learner.last[cells][middle] = static_cast<uint16_t>(at);
  best_partitions(learner, cells, low, middle, first, at);
  best_partitions(learner, cells, middle + 1, high, at, last);
}

/// The bins at which the cells of the best partition of the groups begin, and the end.
void partition(Learner& learner, size_t groups, size_t cells, uint32_t* begin) {
  for (size_t g = 0; g <= groups; g++) learner.gain[0][g] = gain_of(learner, 0, learner.end[g]);
  for (size_t cell = 1; cell < cells; cell++) best_partitions(learner, cell, cell + 1, groups + 1, cell, groups);
  begin[cells] = learner.end[groups];
  size_t end = groups;
  for (size_t cell = cells; cell-- > 1;) {
    end = learner.last[cell][end];
    begin[cell] = learner.end[end];
  }
  begin[0] = 0;
}

/// Moves the bounds of the cells to the middles of their means until none moves.
void iterate(const Learner& learner, size_t used, size_t cells, uint32_t* begin, double* mean) {
  for (size_t cell = 0; cell < cells; cell++) mean[cell] = learner.mean[begin[cell]];
  for (int32_t round = 0; round < 1000; round++) {
    for (size_t cell = 0; cell < cells; cell++) {
      const double weight = sum_before(learner.weight, begin[cell + 1]) - sum_before(learner.weight, begin[cell]);
      const double moment = sum_before(learner.moment, begin[cell + 1]) - sum_before(learner.moment, begin[cell]);
      if (weight > 0) mean[cell] = moment / weight;
    }
    bool moved = false;
    for (size_t cell = 1; cell < cells; cell++) {
      const double bound = (mean[cell - 1] + mean[cell]) / 2;
      uint32_t at = begin[cell];
      while (at < used && learner.mean[at] <= bound) at++;
      while (at > 0 && learner.mean[at - 1] > bound) at--;
      moved = moved || at != begin[cell];
      begin[cell] = at;
    }
    if (!moved) return;
  }
}

Learner* learner_in(std::span<std::byte> memory) {
  return memory.size() == sizeof(Learner) ? reinterpret_cast<Learner*>(memory.data()) : nullptr;
}

}  // namespace

std::span<const float> published_codebook(PublishedCodebook codebook) noexcept {
  return codebook == PublishedCodebook::kNf4 ? kNf4 : kFp4;
}

Status observe_absmax(std::span<const float> x, Blocks blocks, std::span<float> absmax) noexcept {
  if (const Status s = check(x.size(), blocks, absmax); s != Status::kOk) return s;
  bool finite = true;
  for_each_block(x.size(), blocks, [&](size_t i, size_t size, size_t block) {
    const uint32_t largest = kernels::largest_magnitude(&x[i], size);
    if (largest >= kInfinityBits) finite = false;
    if (largest > bit_cast<uint32_t>(absmax[block])) absmax[block] = bit_cast<float>(largest);
  });
  return finite ? Status::kOk : Status::kNonFinite;
}

Status quantize_codebook(std::span<const float> x, Blocks blocks, std::span<const float> absmax, std::span<const float> codebook,
                         Decision decision, std::span<uint8_t> codes) noexcept {
  if (codes.size() != x.size() || codebook.size() < 2 || codebook.size() > kMaxCodebookSize) return Status::kSizeMismatch;
  if (decision != Decision::kNearest && codebook.size() != 16) return Status::kSizeMismatch;
  if (const Status s = check(x.size(), blocks, absmax); s != Status::kOk) return s;
  if (!all_finite(codebook)) return Status::kBadRange;
  kernels::CodeSearch search;
  prepare(codebook, decision, search);
  bool finite = true;
  for_each_block(x.size(), blocks, [&](size_t i, size_t size, size_t block) {
    if (kernels::largest_magnitude(&x[i], size) >= kInfinityBits) finite = false;
    uint8_t* to = &codes[i];
    with_factor(x.subspan(i, size), absmax[block], [&](std::span<const float> some, float factor) {
      kernels::search_codes(some.data(), some.size(), factor, search, to);
      to += some.size();
    });
  });
  return finite ? Status::kOk : Status::kNonFinite;
}

Status round_absmax(std::span<float> absmax) noexcept {
  if (!all_finite(absmax)) return Status::kBadScale;
  for (size_t i = 0; i < absmax.size(); i += kAbsmaxSet) {
    const std::span<float> set = absmax.subspan(i, std::min(kAbsmaxSet, absmax.size() - i));
    const float largest = largest_of(set), unit = unit_of(largest);
    for (float& v : set) {
      const float size = std::fabs(v),
                  multiple = unit > 0 && size < largest ? std::min(round_half_even(size / unit), 127.0f) : 127;
      v = std::copysign(multiple * unit, v);
    }
  }
  return Status::kOk;
}

Status search_absmax(std::span<const float> x, uint64_t block_size, std::span<const float> codebook, Decision decision,
                     bool rounded, std::span<float> absmax) noexcept {
  std::fill(absmax.begin(), absmax.end(), 0.0f);
  if (const Status s = observe_absmax(x, {block_size}, absmax); s != Status::kOk) return s;
  if (codebook.size() < 2 || codebook.size() > kMaxCodebookSize) return Status::kSizeMismatch;
  if (decision != Decision::kNearest && codebook.size() != 16) return Status::kSizeMismatch;
  if (!all_finite(codebook)) return Status::kBadRange;
  Book book = {};
  prepare(codebook, decision, book.search);
  std::copy(codebook.begin(), codebook.end(), book.values);
  book.largest = largest_of(codebook);
  for_each_block(x.size(), {block_size}, [&](size_t i, size_t size, size_t block) {
    if (absmax[block] > 0) absmax[block] = search_scale(x.subspan(i, size), absmax[block], book);
  });
  for (size_t first = 0; rounded && first < absmax.size(); first += kAbsmaxSet) {
    const size_t from = first * static_cast<size_t>(block_size), blocks = std::min(kAbsmaxSet, absmax.size() - first);
    const size_t size = first + blocks == absmax.size() ? x.size() - from : blocks * static_cast<size_t>(block_size);
    search_multiples(x.subspan(from, size), block_size, book, absmax.subspan(first, blocks));
  }
  return Status::kOk;
}

Status dequantize_codebook(std::span<const uint8_t> codes, Blocks blocks, std::span<const float> absmax,
                           std::span<const float> codebook, std::span<float> x) noexcept {
  if (codes.size() != x.size() || codebook.size() < 2 || codebook.size() > kMaxCodebookSize) return Status::kSizeMismatch;
  if (const Status s = check(x.size(), blocks, absmax); s != Status::kOk) return s;
  float values[256] = {};
  std::copy(codebook.begin(), codebook.end(), values);
  uint32_t largest = 0;
  for_each_block(x.size(), blocks, [&](size_t i, size_t size, size_t block) {
    const uint32_t code = kernels::restore_codes(&codes[i], size, values, absmax[block], &x[i]);
    largest = code > largest ? code : largest;
  });
  return largest < codebook.size() ? Status::kOk : Status::kBadRange;
}

Status accumulate_codebook_error(std::span<const float> x, std::span<const uint8_t> codes, Blocks blocks,
                                 std::span<const float> absmax, std::span<const float> codebook, ErrorSums& sums) noexcept {
  if (codes.size() != x.size()) return Status::kSizeMismatch;
  if (const Status s = check(x.size(), blocks, absmax); s != Status::kOk) return s;
  float y[kernels::kErrorBlock];
  for (size_t i = 0; i < x.size(); i += std::size(y)) {
    const size_t size = std::min(std::size(y), x.size() - i);
    const uint64_t at = blocks.offset + i;
    const Blocks rest = {blocks.size, at % blocks.size};
    const std::span<const float> some = absmax.subspan(static_cast<size_t>(at / blocks.size), rest.count(size));
    const Status status = dequantize_codebook(codes.subspan(i, size), rest, some, codebook, {y, size});
    if (status != Status::kOk) return status;
    kernels::accumulate_error(&x[i], y, size, sums);
  }
  return Status::kOk;
}

size_t codebook_learner_bytes() noexcept { return sizeof(Learner); }

Status clear_codebook_learner(std::span<std::byte> learner) noexcept {
  if (learner_in(learner) == nullptr) return Status::kSizeMismatch;
  std::memset(learner.data(), 0, offsetof(Learner, mean));
  return Status::kOk;
}

Status observe_codebook(std::span<const float> x, Blocks blocks, std::span<const float> absmax,
                        std::span<std::byte> learner) noexcept {
  Learner* to = learner_in(learner);
  if (to == nullptr) return Status::kSizeMismatch;
  if (const Status s = check(x.size(), blocks, absmax); s != Status::kOk) return s;
  bool finite = true;
  for_each_block(x.size(), blocks, [&](size_t i, size_t size, size_t block) {
    if (kernels::largest_magnitude(&x[i], size) >= kInfinityBits) finite = false;
    const double weight = static_cast<double>(absmax[block]) * absmax[block];
    if (!finite || weight == 0) return;
    with_factor(x.subspan(i, size), absmax[block], [&](std::span<const float> some, float factor) {
      for (const float value : some) {
        const float v = value * factor;
        const int32_t bin = bin_of(v);
        to->weight[bin] += weight;
        to->moment[bin] += weight * v;
      }
    });
  });
  return finite ? Status::kOk : Status::kNonFinite;
}

Status learn_codebook(std::span<std::byte> memory, std::span<float> values) noexcept {
  Learner* learner = learner_in(memory);
  const size_t cells = values.size();
  if (learner == nullptr || cells < 2 || cells > kMaxCodebookSize) return Status::kSizeMismatch;
  const size_t used = compact(*learner);
  if (used <= cells) {
    for (size_t i = 0; i < cells; i++) values[i] = used == 0 ? 0 : static_cast<float>(learner->mean[std::min(i, used - 1)]);
    return Status::kOk;
  }
  uint32_t begin[kMaxCodebookSize + 1];
  double mean[kMaxCodebookSize];
  partition(*learner, group(*learner, used), cells, begin);
  iterate(*learner, used, cells, begin, mean);
  for (size_t i = 0; i < cells; i++) values[i] = static_cast<float>(mean[i]);
  // A cell that lost all of its bins keeps its value, which another one may pass.
  sort(values.data(), cells, [](float a, float b) { return a < b; });
  return Status::kOk;
}

}  // namespace scalepoint
