// Counts of values in the bins of a range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/status.h"

namespace scalepoint {

/// Adds the elements of x to counts. The bins divide [min, max] evenly: bin i holds [min + i w, min + (i + 1) w) with
/// w = (max - min) / counts.size(), and the last bin also max. The bin of x is floor((x - min) * (counts.size() / (max - min))),
/// computed in double.
/// Special: smaller values, -infinity too, add to *below, and larger ones to *above. NaN is skipped. If min == max, values equal
///          to it go into bin 0.
/// Status:  kBadRange unless min <= max and both are finite; kSizeMismatch if counts is empty.
[[nodiscard]] Status histogram(std::span<const float> x, float min, float max, std::span<uint32_t> counts, double* below,
                               double* above) noexcept;

}  // namespace scalepoint
