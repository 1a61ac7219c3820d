// The loop of range_weighted.cpp.
#pragma once

#include <cstddef>

#include "ranges/levels.h"

namespace scalepoint::loops {

/// Sums over values x with weights w, whose codes are q, without their zero point.
struct WeightedSums {
  double error = 0;    ///< w (x - scale q)^2
  double product = 0;  ///< w x q
  double square = 0;   ///< w q^2
  double code = 0;     ///< w q
};

/// q = round_half_even(x * inverse) within [low, high], or with levels that of x * inverse. weights may be null. Sums of up to 256 values are in
/// float32.
WeightedSums sum_weighted_codes(const float* x, const float* weights, size_t n, float scale, float inverse, float low, float high,
                                const Levels* levels = nullptr);

}  // namespace scalepoint::loops
