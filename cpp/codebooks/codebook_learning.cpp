#include "codebooks/codebook_learning.h"

#include <cstddef>
#include <cstring>

#include "arrays/min_max_loops.h"
#include "codebooks/codebook_loops.h"
#include "codebooks/codebook_parts.h"

namespace scalepoint {
namespace {

using loops::kQuotientBins;

/// Largest number of groups of bins in dynamic programming. Its time grows with their number times its logarithm, its memory with their
/// number times the number of cells. Lloyd's iteration, which follows, goes over all bins.
constexpr size_t kGroups = 2048;
/// Largest number of rounds of Lloyd's iteration. The largest in measurements was 207, for 255 values of a million quotients.
constexpr int32_t kMostRounds = 1000;

struct Learner {
  // First one element per bin. After compact, one per bin in use, with weight and moment summed over it and all bins before it.
  double weight[kQuotientBins];
  double moment[kQuotientBins];
  double mean[kQuotientBins];
  /// The gain of the best partitions of the first groups into n cells, and into n - 1 cells.
  double gain[2][kGroups + 1];
  uint32_t end[kGroups + 1];                     ///< bins in the first groups
  uint16_t last[kMaxCodebookSize][kGroups + 1];  ///< start of the last cell of the best partition, by cells and groups
};

/// Moves the bins in use to the front and makes running sums of weight and moment. Returns the number of bins in use.
size_t compact(Learner& learner) {
  size_t used = 0;
  double weight = 0, moment = 0;
  for (size_t i = 0; i < kQuotientBins; i++) {
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

/// Decrease of the squared error if the bins [from, to) are restored as their mean instead of 0.
double gain_of(const Learner& learner, size_t from, size_t to) {
  const double weight = sum_before(learner.weight, to) - sum_before(learner.weight, from);
  const double moment = sum_before(learner.moment, to) - sum_before(learner.moment, from);
  return weight > 0 ? moment * moment / weight : 0;  // a large sum may not notice a small weight
}

/// Joins neighboring bins into at most kGroups groups. A group of more than one bin has at most 1/341 of the weight, of the range
/// and of the number of bins together. Returns the number of groups, at least 341 if there are more than kGroups bins.
size_t group(Learner& learner, size_t used) {
  const bool join = used > kGroups;
  const double weight = learner.weight[used - 1], range = learner.mean[used - 1] - learner.mean[0];
  // The shares of all bins sum to 3, and any two neighboring groups exceed the limit: that makes fewer than 2 * 3 / limit + 1
  // groups.
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

/// Finds the best partitions of the first g groups, low <= g < high, into cells + 1 cells, given those into `cells`. The last
/// cell begins within [first, last]. With more groups it begins no earlier, so the middle one narrows the search on either side.
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

/// Lloyd's iteration: moves the bounds of the cells to the middles between their means until none moves.
void iterate(const Learner& learner, size_t used, size_t cells, uint32_t* begin, double* mean) {
  for (size_t cell = 0; cell < cells; cell++) mean[cell] = learner.mean[begin[cell]];
  for (int32_t round = 0; round < kMostRounds; round++) {
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
  if (const Status s = check_absmax(x.size(), blocks, absmax); s != Status::kOk) return s;
  bool finite = true;
  for_each_block(x.size(), blocks, [&](size_t i, size_t size, size_t block) {
    if (loops::largest_magnitude(&x[i], size) >= kInfinityBits) finite = false;
    const double weight = static_cast<double>(absmax[block]) * absmax[block];
    if (!finite || weight == 0) return;
    with_factor(x.subspan(i, size), absmax[block], [&](std::span<const float> some, float factor) {
      loops::count_quotients(some.data(), some.size(), factor, weight, to->weight, to->moment);
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
  // A cell that lost all of its bins keeps its value, so that the values may be out of order.
  sort_few(values.data(), cells, [](float a, float b) { return a < b; });
  return Status::kOk;
}

}  // namespace scalepoint
