// Stand-ins for the values of a long run. Internal to range_mse.cpp.
#pragma once

#include <cstddef>
#include <span>

#include "ranges/range_search_loops.h"

namespace scalepoint {

/// Octaves of y = 1 + |x - mean| / unit that have bins, for types of up to 8 bits. The unit is the standard deviation, or 2^-11
/// of the range.
inline constexpr int kStandInOctaves = 12, kMostBinBits = 12;

/// Bytes that stand_in works in.
inline constexpr size_t kStandInBytes = 2 * (size_t{kStandInOctaves} << kMostBinBits) * sizeof(loops::Bin);

/// The means of the values that share a bin, times the factor, and the counts of these values. Around the mean 2^bin_bits bins make a
/// unit; they grow with the distance from it. Replacing values by their mean adds their variance to the error. This variance is the same
/// for all scales, except if a bin lies across the middle between two levels. Stand-ins come in the order of their distance from the mean.
/// root_mean: of the squares; memory: kStandInBytes, aligned to 8; the result lies in it.
loops::Run stand_in(std::span<const float> x, double min, double max, double root_mean, float factor, int bin_bits,
                    std::byte* memory);

}  // namespace scalepoint
