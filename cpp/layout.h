// Walks a piece of an array in stretches that share a parameter, or take consecutive ones.
#pragma once

#include "scalepoint.h"

namespace scalepoint {

/// size elements from offset (in the piece). With `uniform` all use `parameter`; otherwise element i of the stretch uses parameter + i.
struct Stretch {
  size_t offset;
  size_t size;
  uint64_t parameter;
  bool uniform;
};

/// Calls f for each stretch of the elements [start, start + size), in order.
template <class F>
void for_each_stretch(const Layout& layout, uint64_t start, size_t size, F f) {
  if (layout.granularity == Granularity::kPerTensor) {
    if (size > 0) f(Stretch{0, size, 0, true});
    return;
  }
  const uint64_t axis_size = layout.axis_size, inner_size = layout.inner_size;
  const bool per_group = layout.granularity == Granularity::kPerGroup;
  const uint64_t group_size = per_group ? layout.group_size : 1, groups = layout.groups_per_axis();
  uint64_t inner = start % inner_size, axis = start / inner_size % axis_size, outer = start / inner_size / axis_size;
  for (size_t offset = 0; offset < size;) {
    uint64_t parameter, length;
    const bool uniform = inner_size > 1 ? !per_group : per_group;
    if (per_group) {
      const uint64_t group = axis / group_size;
      parameter = (outer * groups + group) * inner_size + inner;
      if (inner_size > 1) {
        length = inner_size - inner;
      } else {
        const uint64_t end = (group + 1) * group_size;
        length = (end < axis_size ? end : axis_size) - axis;
      }
    } else {
      parameter = axis;
      length = inner_size > 1 ? inner_size - inner : axis_size - axis;
    }
    const size_t left = size - offset;
    const size_t taken = length < left ? static_cast<size_t>(length) : left;
    f(Stretch{offset, taken, parameter, uniform});
    offset += taken;
    // A stretch ends a row of inner elements, or, where those are single, moves along the axis.
    inner = 0;
    axis += inner_size > 1 ? 1 : length;
    if (axis >= axis_size) {
      axis = 0;
      outer++;
    }
  }
}

}  // namespace scalepoint
