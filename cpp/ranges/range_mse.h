// The search for the scale and zero point with the least squared error, for one run of values. Internal to range_search.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arrays/spec.h"
#include "ranges/range_search_loops.h"

namespace scalepoint {

/// Longer runs are searched by stand-ins for their values.
inline constexpr size_t kLongestDirectRun = 32768;

/// An error counts as smaller than another if it is below this share of it. The sums behind both are off by less: in blocks of
/// 512 values 8 sums of 64 float32 each are off by 64 * 2^-24 < 4e-6 at most.
inline constexpr double kGain = 1 - 1e-5;

/// Bytes that search_mse works in, for runs of up to n values.
size_t mse_room(size_t n);

/// A power of two that brings |x| of at most `largest` to about 1, so that squares neither overflow nor vanish.
float unit_factor(double largest);

/// Replaces the scale and zero point, which are those of min-max, if it finds better ones. [min, max] is the range of the values,
/// which are finite. room: mse_room(run.n), aligned to 8. Pairs lie in room: they may be replaced by multiples of them, in another order.
/// Returns mse_error of the result for pairs; for values, nothing of use.
double search_mse(loops::Run run, float min, float max, const QuantizationSpec& spec, std::byte* room, float& scale,
                  int32_t& zero_point);

/// The squared error of values within [min, max], times the square of unit_factor of the largest magnitude.
double mse_error(const loops::Run& run, float min, float max, const QuantizationSpec& spec, float scale, int32_t zero_point);

}  // namespace scalepoint
