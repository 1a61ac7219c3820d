// Layout of the scales and zero points over the elements of an array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/status.h"

namespace scalepoint {

enum class Granularity : int32_t { kPerTensor = 0, kPerChannel = 1, kPerGroup = 2 };

/// Maps the elements of an array to parameters (a scale and a zero point each). A row-major array of any rank is viewed as
/// [outer, axis_size, inner_size] around the axis of the granularity. `outer` follows from the number of elements.
///   per tensor   one parameter; the sizes are not read
///   per channel  element [o, a, i] has parameter a
///   per group    element [o, a, i] has parameter (o * ceil(axis_size / group_size) + a / group_size) * inner_size + i. This is the
///                row-major order of the array's shape with the axis divided by group_size, rounded up. The last group of an axis
///                may be shorter.
struct Layout {
  Granularity granularity = Granularity::kPerTensor;
  uint64_t axis_size = 1;
  uint64_t inner_size = 1;
  uint64_t group_size = 1;

  [[nodiscard]] bool valid() const;
  [[nodiscard]] uint64_t groups_per_axis() const { return axis_size / group_size + (axis_size % group_size != 0); }
  /// Index of the last parameter that the elements [start, start + size) use, plus 1.
  [[nodiscard]] uint64_t parameter_end(uint64_t start, uint64_t size) const;
};

/// kSizeMismatch if parameters of the elements [start, start + size) are missing; kBadScale or kBadZeroPoint if one of them is
/// wrong.
[[nodiscard]] Status check_parameters(const Layout& layout, uint64_t start, size_t size, std::span<const float> scale,
                                      std::span<const int32_t> zero_point) noexcept;

}  // namespace scalepoint
