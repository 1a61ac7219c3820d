// Searches for ranges: finds the values of each parameter and passes them to the search.
#include "ranges/range_search.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "arrays/min_max.h"
#include "arrays/min_max_loops.h"
#include "arrays/qparams.h"
#include "ranges/quantile.h"
#include "ranges/range_entropy.h"
#include "ranges/range_mse.h"
#include "ranges/range_search_loops.h"

namespace scalepoint {
namespace {

/// Positions of the values of a parameter: `lines` lines of `length`, `line_step` apart, their elements `step` apart.
struct Place {
  size_t offset, lines, length, line_step, step;
  [[nodiscard]] size_t size() const { return lines * length; }
};

Place place_of(const Layout& layout, size_t size, size_t parameter) {
  const auto axis = static_cast<size_t>(layout.axis_size), inner = static_cast<size_t>(layout.inner_size);
  if (layout.granularity == Granularity::kPerTensor) return {0, 1, size, size, 1};
  if (layout.granularity == Granularity::kPerChannel) {
    return {parameter * inner, size / (axis * inner), inner, axis * inner, 1};
  }
  const auto group = static_cast<size_t>(layout.group_size), groups = static_cast<size_t>(layout.groups_per_axis());
  const size_t i = parameter % inner, g = parameter / inner % groups, o = parameter / inner / groups;
  return {(o * axis + g * group) * inner + i, 1, std::min(group, axis - g * group), 0, inner};
}

/// The largest number of values of a parameter.
size_t largest_place(const Layout& layout, size_t size) { return size == 0 ? 0 : place_of(layout, size, 0).size(); }

/// Copies the finite values of a parameter. Returns their number.
size_t gather(const float* x, const Place& place, float* to) {
  for (size_t line = 0; line < place.lines; line++) {
    loops::copy_steps(x + place.offset + line * place.line_step, place.step, place.length, 1, to + line * place.length, 1);
  }
  const size_t n = place.size();
  size_t kept = first_non_finite({to, n});
  for (size_t i = kept; i < n; i++) {
    if (is_finite(to[i])) to[kept++] = to[i];
  }
  return kept;
}

/// Bytes that a method works in; after them, the scratch memory has room for the values of one parameter.
size_t room_bytes(size_t run) { return std::max(sizeof(EntropySearch), mse_room(run)); }

/// Cuts a range at the threshold of least entropy loss.
void clip(EntropySearch& entropy, const loops::Run& run, DType dtype, float& min, float& max) {
  const double largest = std::max(std::fabs(static_cast<double>(min)), std::fabs(static_cast<double>(max)));
  if (largest == 0) return;
  const double threshold = entropy.threshold(run, largest, size_t{1} << (dtype.bits - 1));
  min = static_cast<float>(std::max<double>(min, -threshold));
  max = static_cast<float>(std::min<double>(max, threshold));
}

/// The search for all parameters of an array.
class RangeSearch {
 public:
  RangeSearch(std::span<const float> x, const QuantizationSpec& spec, RangeMethod method, double percentile,
              std::span<const float> importance, std::span<std::byte> scratch, size_t room, size_t most, std::span<float> scale,
              std::span<int32_t> zero_point)
      : x_(x),
        spec_(spec),
        method_(method),
        percentile_(percentile),
        importance_(importance),
        room_(scratch.data()),
        gathered_(reinterpret_cast<float*>(room_ + room)),
        pairs_(gathered_ + most + most % 2),
        entropy_(*reinterpret_cast<EntropySearch*>(room_)),
        scale_(scale),
        zero_point_(zero_point) {
    if (method == RangeMethod::kEntropy) entropy_.prepare();
  }

  Status search(const Layout& layout) {
    for (size_t p = 0; p < scale_.size(); p++) {
      const Place place = place_of(layout, x_.size(), p);
      const Values values = values_at(place);
      const Status status = choose(values, p);
      if (status != Status::kOk) return status;
      if (method_ != RangeMethod::kMse) continue;
      float scale = scale_[p];
      int32_t zero_point = zero_point_[p];
      search_mse({values.x, values.n, false}, values.min, values.max, spec_, room_, scale_[p], zero_point_[p]);
      // Compare with the best for the weighted errors.
      const loops::Run run = {pairs_, importance_.empty() ? 0 : gather_pairs(place), true};
      if (run.n == 0) continue;
      const double error = mse_error(run, values.min, values.max, spec_, scale_[p], zero_point_[p]);
      auto* const room = reinterpret_cast<std::byte*>(pairs_);
      if (!(search_mse(run, values.min, values.max, spec_, room, scale, zero_point) < error)) continue;
      scale_[p] = scale;
      zero_point_[p] = zero_point;
    }
    return finite_ || spec_.non_finite == NonFinite::kSaturate ? Status::kOk : Status::kNonFinite;
  }

 private:
  /// The finite values of a parameter, in place or gathered, and their range: [0, 0] without finite values.
  struct Values {
    const float* x;
    size_t n;
    bool gathered;
    float min, max;
  };

  Values values_at(const Place& place) {
    if (place.step == 1 && place.lines == 1) {
      const float* values = x_.data() + place.offset;
      const loops::Range range = loops::range(values, place.length);
      if (range.largest < kInfinityBits) return {values, place.length, false, range.min, range.max};
    }
    const size_t n = gather(x_.data(), place, gathered_);
    if (n < place.size()) finite_ = false;
    if (n == 0) return {gathered_, 0, true, 0, 0};
    const loops::Range range = loops::range(gathered_, n);
    return {gathered_, n, true, range.min, range.max};
  }

  /// Chooses the parameters for the range of the method; kMse starts from that of all values.
  Status choose(const Values& values, size_t p) {
    float min = values.min, max = values.max;
    if (method_ == RangeMethod::kPercentile && values.n > 0) {
      to_percentiles(values, min, max);
    } else if (method_ == RangeMethod::kEntropy) {
      clip(entropy_, {values.x, values.n, false}, spec_.dtype, min, max);
    }
    return choose_qparams({&min, 1}, {&max, 1}, spec_, scale_.subspan(p, 1), zero_point_.subspan(p, 1));
  }

  /// The finite values of a parameter with the importance of their columns, relative to the largest. Returns their number; 0 if all are
  /// equally important.
  size_t gather_pairs(const Place& place) {
    size_t n = 0;
    float least = INFINITY, most = 0;
    for (size_t line = 0; line < place.lines; line++) {
      for (size_t k = 0; k < place.length; k++) {
        const size_t i = place.offset + line * place.line_step + k * place.step;
        if (!is_finite(x_[i])) continue;
        const float weight = importance_[i % importance_.size()];
        least = std::min(least, weight);
        most = std::max(most, weight);
        pairs_[2 * n] = x_[i];
        pairs_[2 * n++ + 1] = weight;
      }
    }
    if (!(least < most)) return 0;
    const float factor = unit_factor(most);
    for (size_t i = 0; i < n; i++) pairs_[2 * i + 1] *= factor;
    return n;
  }

  void to_percentiles(const Values& values, float& min, float& max) {
    const std::span<float> x = {gathered_, values.n};
    if (!values.gathered) std::memcpy(gathered_, values.x, x.size_bytes());
    if (spec_.scheme == Scheme::kSymmetric) {
      for (float& v : x) v = std::fabs(v);
      max = quantile(x, percentile_ / 100);
      min = -max;
    } else {
      max = quantile(x, percentile_ / 100);
      min = quantile(x, 1 - percentile_ / 100);
    }
  }

  const std::span<const float> x_;
  const QuantizationSpec& spec_;
  const RangeMethod method_;
  const double percentile_;
  const std::span<const float> importance_;
  std::byte* const room_;
  float* const gathered_;
  float* const pairs_;
  EntropySearch& entropy_;
  const std::span<float> scale_;
  const std::span<int32_t> zero_point_;
  bool finite_ = true;
};

/// Each parameter of an empty array has the empty range.
Status empty_qparams(const QuantizationSpec& spec, std::span<float> scale, std::span<int32_t> zero_point) {
  const float none = 0;
  if (zero_point.size() != scale.size()) return Status::kSizeMismatch;
  for (size_t p = 0; p < scale.size(); p++) {
    const Status status = choose_qparams({&none, 1}, {&none, 1}, spec, scale.subspan(p, 1), zero_point.subspan(p, 1));
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

}  // namespace

uint64_t search_scratch_bytes(uint64_t size, const Layout& layout, bool weighted) noexcept {
  if (!layout.valid()) return 0;
  const size_t run = largest_place(layout, static_cast<size_t>(size));
  return room_bytes(run) + (run + run % 2 + (weighted ? 2 * run : 0)) * sizeof(float);
}

Status search_qparams(std::span<const float> x, const Layout& layout, const QuantizationSpec& spec, RangeMethod method,
                      double percentile, std::span<std::byte> scratch, std::span<float> scale, std::span<int32_t> zero_point,
                      std::span<const float> importance) noexcept {
  if (!spec.dtype.valid()) return Status::kBadDType;
  if (x.empty()) return empty_qparams(spec, scale, zero_point);
  if (!layout.valid()) return Status::kBadLayout;
  if (zero_point.size() != scale.size() || scale.size() < layout.parameter_end(0, x.size()) ||
      scratch.size() < search_scratch_bytes(x.size(), layout, !importance.empty())) {
    return Status::kSizeMismatch;
  }
  if (method == RangeMethod::kPercentile && !(percentile > 50 && percentile <= 100)) return Status::kBadRange;
  const size_t most = largest_place(layout, x.size());
  return RangeSearch(x, spec, method, percentile, importance, scratch, room_bytes(most), most, scale, zero_point).search(layout);
}

Status search_weighted(std::span<float> pairs, const QuantizationSpec& spec, RangeMethod method, std::span<std::byte> scratch,
                       float& scale, int32_t& zero_point) noexcept {
  const size_t n = pairs.size() / 2;
  if (n < 2 || scratch.size() < room_bytes(0)) return Status::kSizeMismatch;
  const loops::Run run = {pairs.data(), n, true};
  const float one = pairs[2 * n - 4], other = pairs[2 * n - 2], min = std::min(one, other), max = std::max(one, other);
  float low = min, high = max;
  if (method == RangeMethod::kEntropy) {
    auto& entropy = *reinterpret_cast<EntropySearch*>(scratch.data());
    entropy.prepare();
    clip(entropy, run, spec.dtype, low, high);
  }
  const Status status = choose_qparams({&low, 1}, {&high, 1}, spec, {&scale, 1}, {&zero_point, 1});
  if (status == Status::kOk && method == RangeMethod::kMse) {
    search_mse(run, min, max, spec, reinterpret_cast<std::byte*>(pairs.data()), scale, zero_point);
  }
  return status;
}

Status take_better(std::span<const float> x, size_t run_size, DType dtype, std::span<float> scale, std::span<int32_t> zero_point,
                   std::span<const float> other_scale, std::span<const int32_t> other_zero_point) noexcept {
  if (!dtype.valid()) return Status::kBadDType;
  const size_t runs = scale.size();
  if (x.size() != runs * run_size || zero_point.size() != runs || other_zero_point.size() != runs) return Status::kSizeMismatch;
  if (runs == 0 ? !other_scale.empty() : other_scale.size() % runs != 0) return Status::kSizeMismatch;
  const auto is_scale = [](float s) { return is_finite(s) && s > 0; };
  for (size_t p = 0; p < runs; p++) {
    if (!is_scale(scale[p])) return Status::kBadScale;
    if (run_size == 0) continue;
    const float* const values = x.data() + p * run_size;
    const loops::Range range = loops::range(values, run_size);
    const float factor = unit_factor(std::max(std::fabs(range.min), std::fabs(range.max)));
    const auto error = [&](float s, int32_t zero) {
      return loops::error_of_run(values, run_size, factor, s * factor, static_cast<float>(dtype.qmin() - zero),
                                 static_cast<float>(dtype.qmax() - zero));
    };
    double least = error(scale[p], zero_point[p]);
    for (size_t other = p; other < other_scale.size(); other += runs) {
      if (!is_scale(other_scale[other])) continue;
      const double found = error(other_scale[other], other_zero_point[p]);
      if (!(found < least * kGain)) continue;
      least = found;
      scale[p] = other_scale[other];
      zero_point[p] = other_zero_point[p];
    }
  }
  return Status::kOk;
}

}  // namespace scalepoint
