// Ranges that are searched for: finds the values of each parameter and hands them to the search.
#include "range_search.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/kernels.h"
#include "qparams.h"
#include "quantile.h"
#include "range.h"
#include "range_entropy.h"
#include "range_mse.h"

namespace scalepoint {
namespace {

/// Where the values of a parameter lie: `lines` lines of `length`, `line_step` apart, their elements `step` apart.
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

/// Copies the values of a parameter. What is not finite becomes the first value that is, or 0. Returns whether all were finite.
bool gather(const float* x, const Place& place, float* to) {
  for (size_t line = 0; line < place.lines; line++) {
    kernels::copy_steps(x + place.offset + line * place.line_step, place.step, place.length, 1, to + line * place.length, 1);
  }
  const size_t n = place.size();
  const size_t bad = first_non_finite({to, n});
  if (bad == n) return true;
  size_t good = 0;
  while (good < n && !is_finite(to[good])) good++;
  const float stand_in = good < n ? to[good] : 0.0f;
  for (size_t i = bad; i < n; i++) {
    if (!is_finite(to[i])) to[i] = stand_in;
  }
  return false;
}

/// The scratch memory in floats: four short runs, the room of a method, and the values of one parameter. The methods take turns
/// in their room, as a call uses one of them.
constexpr size_t kMethodRoom = kLongRunRoom;
static_assert(sizeof(EntropySearch) <= kMethodRoom * sizeof(float));

/// The search for all parameters of an array.
class RangeSearch {
 public:
  RangeSearch(std::span<const float> x, const QuantizationSpec& spec, RangeMethod method, double percentile,
              std::span<std::byte> scratch, std::span<float> scale, std::span<int32_t> zero_point)
      : x_(x),
        spec_(spec),
        space_(spec),
        method_(method),
        percentile_(percentile),
        four_x_(reinterpret_cast<float*>(scratch.data())),
        room_(four_x_ + 4 * kShortRun),
        gathered_(room_ + kMethodRoom),
        entropy_(*reinterpret_cast<EntropySearch*>(room_)),
        scale_(scale),
        zero_point_(zero_point) {
    if (method == RangeMethod::kEntropy) entropy_.prepare();
    kernels::FourRuns& runs = four_.runs;
    runs.x = four_x_;
    runs.qmin = static_cast<float>(space_.qmin);
    runs.qmax = static_cast<float>(space_.qmax);
    runs.lowest_zero = static_cast<float>(space_.lowest_zero);
    runs.highest_zero = static_cast<float>(space_.highest_zero);
    runs.steps = space_.symmetric ? kScales : kScalesOfZeros;
    runs.most_zeros = space_.symmetric ? 1 : kZeros;
  }

  Status search(const Layout& layout) {
    for (size_t p = 0; p < scale_.size(); p++) {
      const Place place = x_.empty() ? Place{} : place_of(layout, x_.size(), p);
      const Values values = values_at(place);
      const Status status = choose(values, p);
      if (status != Status::kOk) return status;
      if (method_ == RangeMethod::kMse) improve(values, p);
    }
    search_waiting();
    return finite_ || spec_.non_finite == NonFinite::kSaturate ? Status::kOk : Status::kNonFinite;
  }

 private:
  /// What a short run is searched with: scales, or scales and zero points at each. About as many candidates either way.
  static constexpr int kScales = 32, kScalesOfZeros = 12, kZeros = 5;

  /// The values of a parameter, in place or gathered, and their range.
  struct Values {
    const float* x;
    size_t n;
    bool gathered;
    float min, max;
    [[nodiscard]] double largest() const {
      return std::max(std::fabs(static_cast<double>(min)), std::fabs(static_cast<double>(max)));
    }
  };

  Values values_at(const Place& place) {
    const size_t n = place.size();
    if (n == 0) return {x_.data(), 0, false, 0, 0};
    if (place.step == 1 && place.lines <= 1) {
      const float* values = x_.data() + place.offset;
      const kernels::Range range = kernels::range(values, n);
      if (range.largest < kInfinityBits) return {values, n, false, range.min, range.max};
    }
    if (!gather(x_.data(), place, gathered_)) finite_ = false;
    const kernels::Range range = kernels::range(gathered_, n);
    return {gathered_, n, true, range.min, range.max};
  }

  /// The parameters for the range that the method asks for; kMse starts from that of all values.
  Status choose(const Values& values, size_t p) {
    float min = values.min, max = values.max;
    if (method_ == RangeMethod::kPercentile && values.n > 0) {
      to_percentiles(values, min, max);
    } else if (method_ == RangeMethod::kEntropy && values.largest() > 0) {
      const double threshold = entropy_.threshold({values.x, values.n}, values.largest(), size_t{1} << (spec_.dtype.bits - 1));
      min = static_cast<float>(std::max<double>(min, -threshold));
      max = static_cast<float>(std::min<double>(max, threshold));
    }
    return choose_qparams({&min, 1}, {&max, 1}, spec_, scale_.subspan(p, 1), zero_point_.subspan(p, 1));
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

  /// Searches for less error than that of min-max. Short runs of one length wait until there are four of them.
  void improve(const Values& values, size_t p) {
    const size_t n = values.n;
    const bool is_short = n <= kShortRun;
    if (is_short && waiting_ > 0 && four_.runs.n != n) search_waiting();
    if (values.min == values.max) return;  // there is nothing to search for
    const bool with_zero = spec_.include_zero || space_.symmetric;
    const double low = with_zero ? std::min<double>(values.min, 0) : values.min;
    const double high = with_zero ? std::max<double>(values.max, 0) : values.max;
    const float factor = unit_factor(values.largest());
    if (!is_short) {
      search_long({values.x, n, factor, low * factor, high * factor}, space_, room_, &scale_[p], &zero_point_[p]);
      return;
    }
    four_.runs.n = n;
    four_.runs.min[waiting_] = static_cast<float>(low) * factor;
    four_.runs.max[waiting_] = static_cast<float>(high) * factor;
    four_.factor[waiting_] = factor;
    four_.scale[waiting_] = scale_[p];
    four_.zero[waiting_] = zero_point_[p];
    kernels::copy_steps(values.x, 1, n, factor, four_x_ + waiting_, 4);
    waiting_for_[waiting_++] = p;
    if (waiting_ == 4) search_waiting();
  }

  void search_waiting() {
    if (waiting_ == 0) return;
    // Lanes without a run hold what was there before. Their results are not read.
    float scale[4];
    int32_t zero[4];
    search_short(four_, space_, scale, zero);
    for (size_t lane = 0; lane < waiting_; lane++) {
      scale_[waiting_for_[lane]] = scale[lane];
      zero_point_[waiting_for_[lane]] = zero[lane];
    }
    waiting_ = 0;
  }

  const std::span<const float> x_;
  const QuantizationSpec& spec_;
  const SearchSpace space_;
  const RangeMethod method_;
  const double percentile_;
  float* const four_x_;
  float* const room_;
  float* const gathered_;
  EntropySearch& entropy_;
  const std::span<float> scale_;
  const std::span<int32_t> zero_point_;
  bool finite_ = true;
  ShortRuns four_ = {};
  size_t waiting_ = 0, waiting_for_[4];
};

}  // namespace

uint64_t search_scratch_bytes(uint64_t size, const Layout& layout) noexcept {
  if (!layout.valid()) return 0;
  const uint64_t run = largest_place(layout, static_cast<size_t>(size));
  return (4 * kShortRun + kMethodRoom + run) * sizeof(float);
}

Status search_qparams(std::span<const float> x, const Layout& layout, const QuantizationSpec& spec, RangeMethod method,
                      double percentile, std::span<std::byte> scratch, std::span<float> scale,
                      std::span<int32_t> zero_point) noexcept {
  if (!spec.dtype.valid()) return Status::kBadDType;
  if (!layout.valid()) return Status::kBadLayout;
  if (zero_point.size() != scale.size() || scale.size() < layout.parameter_end(0, x.size()) ||
      scratch.size() < search_scratch_bytes(x.size(), layout)) {
    return Status::kSizeMismatch;
  }
  if (method == RangeMethod::kPercentile && !(percentile > 50 && percentile <= 100)) return Status::kBadRange;
  return RangeSearch(x, spec, method, percentile, scratch, scale, zero_point).search(layout);
}

Status take_better(std::span<const float> x, size_t run_size, DType dtype, std::span<float> scale, std::span<int32_t> zero_point,
                   std::span<const float> other_scale, std::span<const int32_t> other_zero_point) noexcept {
  if (!dtype.valid()) return Status::kBadDType;
  const size_t runs = scale.size();
  if (x.size() != runs * run_size || zero_point.size() != runs || other_scale.size() != runs || other_zero_point.size() != runs) {
    return Status::kSizeMismatch;
  }
  const auto is_scale = [](float s) { return is_finite(s) && s > 0; };
  for (size_t p = 0; p < runs; p++) {
    if (!is_scale(scale[p])) return Status::kBadScale;
    if (!is_scale(other_scale[p]) || run_size == 0) continue;
    const float* const values = x.data() + p * run_size;
    const kernels::Range range = kernels::range(values, run_size);
    const float factor = unit_factor(std::max(std::fabs(range.min), std::fabs(range.max)));
    const auto error = [&](float s, int32_t zero) {
      return kernels::error_of_run(values, run_size, factor, s * factor, static_cast<float>(dtype.qmin() - zero),
                                   static_cast<float>(dtype.qmax() - zero));
    };
    if (error(other_scale[p], other_zero_point[p]) < error(scale[p], zero_point[p]) * kGain) {
      scale[p] = other_scale[p];
      zero_point[p] = other_zero_point[p];
    }
  }
  return Status::kOk;
}

}  // namespace scalepoint
