#include "arrays/qparams.h"

#include <cfloat>
#include <cmath>

namespace scalepoint {
namespace {

struct QParams {
  float scale;
  int32_t zero_point;
};

/// The scale as float32. Lowered if steps * scale exceeds float32, so that no code is restored as an infinity. This happens only for ranges
/// near the largest float.
float finite_scale(double scale, int32_t steps) {
  const double largest = FLT_MAX;
  auto rounded = static_cast<float>(scale * steps <= largest ? scale : largest / steps);
  while (rounded * static_cast<float>(steps) > FLT_MAX) rounded = bit_cast<float>(bit_cast<uint32_t>(rounded) - 1);
  return rounded;
}

QParams symmetric_qparams(double min, double max, DType dtype, SymmetricRange symmetric_range) {
  const DType type = {dtype.bits, true};
  const double absmax = -min > max ? -min : max;
  if (absmax == 0) return {1.0f, dtype.middle()};
  const double levels = symmetric_range == SymmetricRange::kRestricted ? type.qmax() : (type.qmax() - type.qmin()) / 2.0;
  const double scale = absmax / levels;
  const int32_t farthest = symmetric_range == SymmetricRange::kRestricted ? type.qmax() : -type.qmin();
  return {finite_scale(scale > kMinScale ? scale : kMinScale, farthest), dtype.middle()};
}

QParams asymmetric_qparams(double min, double max, DType dtype, bool include_zero) {
  if (include_zero) {
    min = min < 0 ? min : 0;
    max = max > 0 ? max : 0;
  }
  if (min == max) {
    if (min == 0) return {1.0f, 0};
    // c is one step from the zero point, in either direction. That restores it exactly, unless |c| is below the smallest scale.
    const double magnitude = min < 0 ? -min : min;
    return {static_cast<float>(magnitude > kMinScale ? magnitude : kMinScale), min < 0 && !dtype.is_signed ? 1 : 0};
  }
  double scale = (max - min) / (dtype.qmax() - dtype.qmin());
  if (!include_zero) {
    // Keeps |qmin - min / scale| within the limit. The other bound is at most 2^16 steps farther, so all of the range is within
    // 2^22 steps of 0, where float32 has every half.
    constexpr double kLimit = kMaxZeroPoint - 65536;
    const double widened = min > 0 ? min / (kLimit + dtype.qmin()) : -min / (kLimit - dtype.qmin());
    if (scale < widened) scale = widened;
  }
  if (scale < kMinScale) scale = kMinScale;
  const auto zero_point = static_cast<int32_t>(round_half_even(dtype.qmin() - min / scale));
  const int32_t below = zero_point - dtype.qmin(), above = dtype.qmax() - zero_point;
  return {finite_scale(scale, below > above ? below : above), zero_point};
}

}  // namespace

Status choose_qparams(std::span<const float> min, std::span<const float> max, const QuantizationSpec& spec,
                      std::span<float> scale, std::span<int32_t> zero_point) noexcept {
  if (!spec.dtype.valid()) return Status::kBadDType;
  if (min.size() != max.size() || min.size() != scale.size() || min.size() != zero_point.size()) return Status::kSizeMismatch;
  for (size_t i = 0; i < min.size(); i++) {
    double low = min[i], high = max[i];
    if (low > high) low = high = 0;  // an empty range: no value was finite
    if (!std::isfinite(low) || !std::isfinite(high)) return Status::kBadRange;
    const QParams chosen = spec.scheme == Scheme::kSymmetric ? symmetric_qparams(low, high, spec.dtype, spec.symmetric_range)
                                                             : asymmetric_qparams(low, high, spec.dtype, spec.include_zero);
    scale[i] = chosen.scale;
    zero_point[i] = chosen.zero_point;
  }
  return Status::kOk;
}

}  // namespace scalepoint
