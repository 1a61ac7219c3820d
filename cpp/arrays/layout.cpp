#include "arrays/layout.h"

#include "arrays/stretches.h"
#include "lanes/round.h"

namespace scalepoint {

bool Layout::valid() const {
  return granularity == Granularity::kPerTensor || (axis_size > 0 && inner_size > 0 && group_size > 0);
}

uint64_t Layout::parameter_end(uint64_t start, uint64_t size) const {
  if (size == 0) return 0;
  if (granularity == Granularity::kPerTensor) return 1;
  const uint64_t line = axis_size * inner_size, last = start + size - 1;
  if (granularity == Granularity::kPerChannel) {
    // A piece that reaches into the next line contains the last channel.
    return start / line == last / line ? last / inner_size % axis_size + 1 : axis_size;
  }
  const auto row_of_groups = [&](uint64_t row) { return row / axis_size * groups_per_axis() + row % axis_size / group_size; };
  const uint64_t last_row = last / inner_size;
  uint64_t end = row_of_groups(last_row) * inner_size + last % inner_size + 1;
  if (start / inner_size < last_row) {
    // The piece contains the end of the row before. If that row belongs to the same groups, its end is farther.
    const uint64_t before = (row_of_groups(last_row - 1) + 1) * inner_size;
    end = before > end ? before : end;
  }
  return end;
}

Status check_parameters(const Layout& layout, uint64_t start, size_t size, std::span<const float> scale,
                        std::span<const int32_t> zero_point) noexcept {
  const uint64_t end = layout.parameter_end(start, size);
  if (scale.size() < end || zero_point.size() < end) return Status::kSizeMismatch;
  Status status = Status::kOk;
  for_each_stretch(layout, start, size, [&](const Stretch& s) {
    const uint64_t last = s.uniform ? s.parameter + 1 : s.parameter + s.size;
    for (uint64_t p = s.parameter; p < last && status == Status::kOk; p++) {
      if (!is_finite(scale[p]) || scale[p] <= 0) status = Status::kBadScale;
      if (zero_point[p] < -kMaxZeroPoint || zero_point[p] > kMaxZeroPoint) status = Status::kBadZeroPoint;
    }
  });
  return status;
}

}  // namespace scalepoint
