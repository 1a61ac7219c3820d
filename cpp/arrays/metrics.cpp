#include "arrays/metrics.h"

#include "arrays/linear.h"
#include "arrays/metrics_loops.h"
#include "arrays/stretches.h"

namespace scalepoint {

Status accumulate_error(std::span<const float> x, std::span<const float> y, ErrorSums& sums) noexcept {
  if (x.size() != y.size()) return Status::kSizeMismatch;
  loops::accumulate_error(x.data(), y.data(), x.size(), sums);
  return Status::kOk;
}

Status accumulate_code_error(std::span<const float> x, std::span<const std::byte> codes, DType dtype, const Layout& layout,
                             uint64_t start, std::span<const float> scale, std::span<const int32_t> zero_point,
                             ErrorSums& sums) noexcept {
  if (!dtype.valid()) return Status::kBadDType;
  if (!layout.valid()) return Status::kBadLayout;
  const size_t bytes = dtype.storage_bytes();
  if (codes.size() != x.size() * bytes) return Status::kSizeMismatch;
  if (const Status s = check_parameters(layout, start, x.size(), scale, zero_point); s != Status::kOk) return s;
  for (size_t i = 0; i < x.size();) {
    const MeasuredStretch part = measured_stretch_at(layout, start + i, x.size() - i);
    const float* from = x.data() + i;
    const std::span<const std::byte> given = codes.subspan(i * bytes, part.size * bytes);
    if (part.run_size > 0) {
      const loops::Runs runs = {part.run_size, &scale[part.parameter], &zero_point[part.parameter]};
      loops::accumulate_code_error(from, given.data(), dtype, part.size, runs, sums);
    } else {
      float y[kMeasuredSize];
      const Status status = dequantize_linear(given, dtype, layout, start + i, scale, zero_point, {y, part.size});
      if (status != Status::kOk) return status;
      loops::accumulate_error(from, y, part.size, sums);
    }
    i += part.size;
  }
  return Status::kOk;
}

Status accumulate_error_each(std::span<const float> x, std::span<const float> y, const Layout& layout, uint64_t start,
                             std::span<ErrorSums> sums) noexcept {
  if (!layout.valid()) return Status::kBadLayout;
  if (x.size() != y.size() || sums.size() < layout.parameter_end(start, x.size())) return Status::kSizeMismatch;
  for_each_stretch(layout, start, x.size(), [&](const Stretch& s) {
    const float *a = x.data() + s.offset, *b = y.data() + s.offset;
    if (s.uniform) {
      loops::accumulate_error(a, b, s.size, sums[s.parameter]);
    } else {
      loops::accumulate_error_each(a, b, s.size, &sums[s.parameter]);
    }
  });
  return Status::kOk;
}

Status add_squares(std::span<const float> x, size_t first, std::span<double> sums) noexcept {
  if (first >= sums.size()) return Status::kSizeMismatch;
  size_t column = first;
  for (const double v : x) {
    sums[column] += v * v;
    if (++column == sums.size()) column = 0;
  }
  return Status::kOk;
}

}  // namespace scalepoint
