#include "codebooks/absmax.h"

#include <cmath>

#include "arrays/min_max.h"
#include "arrays/min_max_loops.h"
#include "codebooks/codebook_parts.h"

namespace scalepoint {
namespace {

// The scales that the search tries for a block. A width is a multiple of the scale that maps the largest value of the block to the largest
// of the codebook. Each constant was measured against a search with scales only 0.1% apart: squared error of normal and heavy-tailed values
// (Student's t, 4 degrees of freedom) in blocks of 32 to 256, with nf4, fp4 and learned codebooks of 4 to 256 values.

/// The widest scale. With codebooks of up to 16 values, ending at 1 would leave up to 1.3% more error, and 1.16 is not better than 1.12.
/// (Data with a hard bound gain by wider scales: uniform data with nf4 lose another 15% of their error up to 1.3.)
constexpr double kWidest = 1.12;
/// The search goes on at least this far. With 4 values 0.9 would leave 0.1% more error; with 16 it makes no difference.
constexpr double kNarrow = 0.67;
/// ... and beyond while the error is below this times the least so far. With 4 values 1 would leave 3.5% more error; 3 gains
/// nothing and tries four times as many scales.
constexpr double kPromising = 2;
/// Largest number of scales to try on either side of 0: down to 2e-8 of the widest with kStepOfFew, 5e-4 with kStepOfMany.
constexpr size_t kMostWidths = 500;
/// From one scale to the next. The more values, the more the error goes up and down from scale to scale. Up to 16 values 0.965
/// leaves 0.06% more error than 0.996 would, with 33 scales a block instead of 261. For more values 0.965 would leave 12% more
/// than the fine search with 256 values; 0.985 leaves 6%, with 71 scales.
constexpr double kStepOfFew = 0.965, kStepOfMany = 0.985;
/// Number of times that the best scale is replaced by the best for its codes. With 16 values the second time lowers the error by up to
/// 0.1%, the third by up to 0.03%; with 256 values by 0.5% and 0.1%. Further times have no effect.
constexpr int kImprovements = 3;
/// Multiples of a unit to try on either side of the nearest one. With 16 values the nearest alone would leave up to 0.07%
/// more error. With 256 values it would leave 8 to 32% more, and one on either side 2 to 8%.
constexpr int kMultiples = 2;

/// Scales whose errors differ by less than this share of the energy are compared by sums that are added in the order of the elements.
/// A sweep adds the changes from scale to scale, with other roundings.
constexpr double kRounding = 0x1p-44;
/// Largest number of such scales. Reached by values that any scale restores exactly.
constexpr size_t kMostNear = 100;

/// Elements that are processed together.
constexpr size_t kPiece = 512;

float largest_of(std::span<const float> values) {
  float largest = 0;
  for (const float v : values) largest = std::max(largest, std::fabs(v));
  return largest;
}

/// A codebook prepared for a search. Its search finds ranks instead of codes.
struct Book {
  loops::CodeSearch search;
  double values[kMaxCodebookSize];  ///< by rank
  float largest;
  double step;
  loops::Sweep sweep;  ///< over the scales between kWidest and kNarrow
  loops::SweepSums sums;
};

void prepare_book(std::span<const float> codebook, Decision decision, Book& book) {
  prepare_search(codebook, decision, book.search);
  const size_t last = codebook.size() - 1;
  for (size_t i = 0; i <= last; i++) {
    book.values[i] = codebook[book.search.code[i]];
    book.search.code[i] = static_cast<uint8_t>(i);
  }
  loops::Crossing *up = book.sweep.crossings, *down = up + kMaxCodebookSize + 2;
  for (size_t i = 0; i < last; i++) {
    const float bound = book.search.threshold[i];
    const double low = book.values[i], high = book.values[i + 1];
    up[i] = {high - low, high * high - low * low, bound};
    // A negative quotient is past the threshold when it does not exceed it.
    down[last - 1 - i] = {high - low, low * low - high * high, next_below(-bound)};
  }
  for (size_t i = last; i < last + 3; i++) up[i].threshold = down[i].threshold = HUGE_VALF;
  book.largest = largest_of(codebook);
  book.step = last < 16 ? kStepOfFew : kStepOfMany;
  size_t scales = 0;
  for (double width = kWidest; width > kNarrow; width *= book.step) scales++;
  loops::prepare_sweep(book.step, scales, book.sweep);
}

/// The squared error of a block with the codes of one scale s: energy - 2 s products + s^2 squares, where energy is the sum of its squares.
double error_of(const loops::FitSums& fit, double energy, double scale) {
  return energy - 2 * scale * fit.products + scale * scale * fit.squares;
}

/// The scale with the least error for these codes.
double best_scale_of(const loops::FitSums& fit) { return fit.squares > 0 ? fit.products / fit.squares : 0; }

/// Calls f(offset, size) for pieces of n elements.
template <class F>
void for_each_piece(size_t n, F f) {
  for (size_t i = 0; i < n; i += kPiece) f(i, std::min(kPiece, n - i));
}

[[gnu::noinline]] loops::FitSums fit(std::span<const float> x, float scale, const Book& book) {
  loops::FitSums sums;
  size_t done = 0;
  with_factor(x, scale, [&](std::span<const float> some, float factor) {
    for_each_piece(some.size(), [&](size_t i, size_t size) {
      uint8_t ranks[kPiece];
      loops::search_codes(&some[i], size, factor, book.search, ranks);
      loops::fit_codes(&x[done], size, ranks, book.values, &sums.products, &sums.squares);
      done += size;
    });
  });
  return sums;
}

bool exists(float scale) { return scale != 0 && is_finite(scale); }

/// The reciprocals of the scales between kWidest and kNarrow times `reach`, and infinite ones. Returns false if a scale has no finite
/// reciprocal.
bool many_factors(double reach, const Book& book, float* factors) {
  double width = kWidest;
  for (size_t i = 0; i < book.sweep.scales; i++, width *= book.step) {
    const auto scale = static_cast<float>(reach * width);
    factors[i] = 1 / scale;
    if (!exists(scale) || !is_finite(factors[i])) return false;
  }
  std::fill_n(factors + book.sweep.scales, loops::kBehindSweep, HUGE_VALF);
  return true;
}

/// Stores the sums of the scales with these factors in the book.
void fit_many(std::span<const float> x, const float* factors, bool negative, Book& book) {
  for_each_piece(x.size(), [&](size_t i, size_t size) {
    uint8_t ranks[kPiece];
    loops::search_codes(&x[i], size, negative ? -factors[0] : factors[0], book.search, ranks);
    book.sums.sweep(&x[i], ranks, size, factors, negative, book.search, book.values, book.sweep);
  });
}

double energy_of(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * v;
  return sum;
}

/// The best scale of either sign for a block. `largest` is its largest magnitude, above 0.
float search_scale(std::span<const float> x, float largest, Book& book) {
  const double energy = energy_of(x);
  float found = largest;
  double least = error_of(fit(x, largest, book), energy, largest);
  const double reach = largest / (book.largest > 0 ? book.largest : 1);
  float factors[loops::kMostInSweep + loops::kBehindSweep];
  const bool sweeps = many_factors(reach, book, factors);
  const double alike = kRounding * energy;
  double promised = least;
  float near[kMostNear];  // the best scales so far
  size_t count = 0;
  float best = 0;
  // Try scales of both signs, from wide to narrow.
  for (const double sign : {1.0, -1.0}) {
    if (sweeps) fit_many(x, factors, sign < 0, book);
    double width = kWidest, error = 0;
    for (size_t i = 0; i < kMostWidths; i++, width *= book.step) {
      const auto tried = static_cast<float>(reach * sign * width);
      const bool is_swept = sweeps && i < book.sweep.scales;
      if (!exists(tried) || (width <= kNarrow && error >= kPromising * promised)) break;
      const loops::FitSums sums = is_swept ? book.sums.take(i, book.sweep) : fit(x, tried, book);
      const double scale = best_scale_of(sums);
      error = error_of(sums, energy, scale);
      if (error < promised - alike) count = 0;
      if (error <= promised + alike && count < kMostNear) near[count++] = tried;
      if (error >= promised) continue;
      promised = error;
      best = static_cast<float>(scale);
    }
  }
  // Decide between scales with nearly equal errors.
  if (count > 1) {
    promised = least;
    best = 0;
    for (size_t i = 0; i < count; i++) {
      const loops::FitSums sums = fit(x, near[i], book);
      const double scale = best_scale_of(sums), error = error_of(sums, energy, scale);
      if (error >= promised) continue;
      promised = error;
      best = static_cast<float>(scale);
    }
  }
  // Improve the scale: its codes may have an even better one.
  for (int i = 0; i < kImprovements && best != 0 && is_finite(best); i++) {
    const loops::FitSums sums = fit(x, best, book);
    const double error = error_of(sums, energy, best);
    if (error >= least) break;
    least = error;
    found = best;
    best = static_cast<float>(best_scale_of(sums));
  }
  return found;
}

/// The unit of a set with that largest magnitude: the bfloat16 nearest to a 127th of it, or 0 if that is 0.
float unit_of(float largest) {
  const uint32_t exact = bit_cast<uint32_t>(largest / 127);
  const float unit = bit_cast<float>((exact + 0x8000) & 0xFFFF0000u);
  return is_finite(unit * 127) ? unit : bit_cast<float>(exact & 0xFFFF0000u);
}

/// Replaces each scale by the best of the multiples of a unit near it.
void search_multiples(std::span<const float> x, uint64_t block_size, const Book& book, std::span<float> absmax) {
  const float largest = largest_of(absmax), unit = unit_of(largest);
  bool reached = false;
  for_each_block(x.size(), {block_size}, [&](size_t i, size_t size, size_t block) {
    const float found = absmax[block];
    if (found == 0) return;
    if (!reached && std::fabs(found) == largest) {
      // This scale defines the unit, so it stays 127 units.
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
      const double error = error_of(fit(values, scale, book), energy, scale);
      if (error >= least) continue;
      least = error;
      absmax[block] = scale;
    }
  });
}

}  // namespace

Status observe_absmax(std::span<const float> x, Blocks blocks, std::span<float> absmax) noexcept {
  if (const Status s = check_absmax(x.size(), blocks, absmax); s != Status::kOk) return s;
  bool finite = true;
  for_each_block(x.size(), blocks, [&](size_t i, size_t size, size_t block) {
    const uint32_t largest = loops::largest_magnitude(&x[i], size);
    if (largest >= kInfinityBits) finite = false;
    if (largest > bit_cast<uint32_t>(absmax[block])) absmax[block] = bit_cast<float>(largest);
  });
  return finite ? Status::kOk : Status::kNonFinite;
}

Status round_absmax(std::span<float> absmax) noexcept {
  if (first_non_finite(absmax) < absmax.size()) return Status::kBadScale;
  for (size_t i = 0; i < absmax.size(); i += kAbsmaxSet) {
    const std::span<float> set = absmax.subspan(i, std::min(kAbsmaxSet, absmax.size() - i));
    const float largest = largest_of(set), unit = unit_of(largest);
    for (float& v : set) {
      const float magnitude = std::fabs(v);
      const bool is_smaller = unit > 0 && magnitude < largest;
      const float multiple = is_smaller ? std::min(round_half_even(magnitude / unit), 127.0f) : 127;
      v = std::copysign(multiple * unit, v);
    }
  }
  return Status::kOk;
}

Status search_absmax(std::span<const float> x, uint64_t block_size, std::span<const float> codebook, Decision decision,
                     bool rounded, std::span<float> absmax) noexcept {
  std::fill(absmax.begin(), absmax.end(), 0.0f);
  if (const Status s = observe_absmax(x, {block_size}, absmax); s != Status::kOk) return s;
  if (!has_size(codebook, decision)) return Status::kSizeMismatch;
  if (first_non_finite(codebook) < codebook.size()) return Status::kBadRange;
  Book book = {};
  prepare_book(codebook, decision, book);
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

}  // namespace scalepoint
