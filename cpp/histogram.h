// How many values lie in each bin of a range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "status.h"

namespace scalepoint {

/// Adds the elements of x to counts: bin i holds [min + i w, min + (i + 1) w) with w = (max - min) / counts.size(), the last bin
/// also max; the bin of x is floor((x - min) * (counts.size() / (max - min))) in double. Smaller values (and -infinity) add to
/// *below, larger ones to *above, NaN to neither. min == max puts the values equal to it into bin 0.
/// Status:  kBadRange unless min <= max, both finite; kSizeMismatch if counts is empty.
[[nodiscard]] Status histogram(std::span<const float> x, float min, float max, std::span<uint32_t> counts, double* below,
                               double* above) noexcept;

}  // namespace scalepoint
