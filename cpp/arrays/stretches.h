// Walks a piece of an array in stretches: elements in a row that share one parameter, or that have consecutive parameters.
#pragma once

#include "arrays/layout.h"
#include "arrays/metrics_loops.h"

namespace scalepoint {

/// `size` elements from `offset` in the piece. If uniform, all use `parameter`; otherwise element i of the stretch uses parameter
/// + i.
struct Stretch {
  size_t offset;
  size_t size;
  uint64_t parameter;
  bool uniform;
};

/// Calls f for each stretch of the elements [start, start + size), in order. Divides once, not for every stretch, because a 64-bit division
/// takes longer than a short stretch.
template <class F>
void for_each_stretch(const Layout& layout, uint64_t start, size_t size, F f) {
  if (layout.granularity == Granularity::kPerTensor) {
    if (size > 0) f(Stretch{0, size, 0, true});
    return;
  }
  const bool per_group = layout.granularity == Granularity::kPerGroup, rows = layout.inner_size > 1;
  const uint64_t axis_size = layout.axis_size, inner_size = layout.inner_size;
  const uint64_t group_size = per_group ? layout.group_size : 1;
  uint64_t inner = start % inner_size, axis = start / inner_size % axis_size;
  uint64_t group = axis / group_size, in_group = axis % group_size;
  // The parameter of the first element of the current line along the axis.
  uint64_t line = per_group ? start / inner_size / axis_size * layout.groups_per_axis() * inner_size : 0;
  const uint64_t parameters_per_line = per_group ? layout.groups_per_axis() * inner_size : 0;
  for (size_t offset = 0; offset < size;) {
    const uint64_t parameter = per_group ? line + group * inner_size + inner : axis;
    uint64_t length = rows ? inner_size - inner : axis_size - axis;
    if (per_group && !rows && group_size - in_group < length) length = group_size - in_group;
    const size_t left = size - offset, taken = length < left ? static_cast<size_t>(length) : left;
    f(Stretch{offset, taken, parameter, rows != per_group});
    offset += taken;
    // Move on to the next row of inner elements. If inner_size is 1, the stretch itself runs along the axis.
    const uint64_t moved = rows ? 1 : taken;
    inner = 0;
    axis += moved;
    in_group += moved;
    if (in_group >= group_size) {
      in_group = 0;
      group++;
    }
    if (axis >= axis_size) {
      axis = group = in_group = 0;
      line += parameters_per_line;
    }
  }
}

/// The first stretch of the elements [start, start + size). size > 0.
inline Stretch stretch_at(const Layout& layout, uint64_t start, size_t size) {
  if (layout.granularity == Granularity::kPerTensor) return {0, size, 0, true};
  // No stretch is longer than this, so this many elements hold at most two stretches.
  const bool per_group = layout.granularity == Granularity::kPerGroup;
  const uint64_t longest = layout.inner_size > 1 ? layout.inner_size : per_group ? layout.group_size : layout.axis_size;
  Stretch first{};
  for_each_stretch(layout, start, longest < size ? static_cast<size_t>(longest) : size, [&](const Stretch& s) {
    if (first.size == 0) first = s;
  });
  return first;
}

/// Elements of a measured stretch without a common parameter: 8 KiB of floats, which stay in the first-level cache between two passes.
inline constexpr size_t kMeasuredSize = 4 * loops::kErrorBlock;

/// Elements that the error sums take at a time: whole blocks with one parameter, or whole blocks with a parameter for each run of a size
/// that divides loops::kErrorBlock, or else kMeasuredSize elements of any parameters. Blocks begin at the start of the piece.
struct MeasuredStretch {
  size_t size;
  uint64_t parameter;  ///< the first
  size_t run_size;     ///< elements that share a parameter. The next ones use the next parameter. 0 if it is not so.
};

/// Number of the elements [start, start + size) that belong to runs of the size of `run`, the first run, with consecutive parameters.
inline size_t size_of_runs(const Layout& layout, const Stretch& run, size_t size) {
  uint64_t length = size;
  if (layout.granularity == Granularity::kPerChannel) {
    if (run.size != layout.inner_size) return 0;
    length = (layout.axis_size - run.parameter) * layout.inner_size;
  } else if (run.size != layout.group_size || layout.axis_size % layout.group_size != 0) {
    return 0;
  }
  return length < size ? static_cast<size_t>(length) : size;
}

/// The first measured stretch of the elements [start, start + size). size > 0.
inline MeasuredStretch measured_stretch_at(const Layout& layout, uint64_t start, size_t size) {
  using loops::kErrorBlock;
  const Stretch s = stretch_at(layout, start, size);
  if (s.uniform && s.size == size) return {size, s.parameter, size};
  if (s.uniform && s.size >= kErrorBlock) return {s.size - s.size % kErrorBlock, s.parameter, s.size - s.size % kErrorBlock};
  if (s.uniform && kErrorBlock % s.size == 0 && s.size % 8 == 0) {
    const size_t runs = size_of_runs(layout, s, size),
                 taken = runs == size && size % s.size == 0 ? size : runs - runs % kErrorBlock;
    if (taken > 0) return {taken, s.parameter, s.size};
  }
  return {size < kMeasuredSize ? size : kMeasuredSize, 0, 0};
}

}  // namespace scalepoint
