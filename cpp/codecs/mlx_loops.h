// Loops over groups of codes with a scale and a bias. Groups hold a multiple of 16 elements.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint::loops {

/// codes[i] = round_half_even((x[i] - bias) / scale), saturated to [0, levels].
void make_biased_codes(const float* x, size_t n, float scale, float bias, int32_t levels, uint8_t* codes);

/// y[i] = codes[i] * scale + bias.
void restore_biased_codes(const uint8_t* codes, size_t n, float scale, float bias, float* y);

/// Weighted sums over a group and its codes q for a scale and a bias.
struct BiasedSums {
  float error;  ///< of squared errors
  float weight, x, code, x_code, code_code;
};

/// @param weights one for each element
BiasedSums sum_biased_codes(const float* x, const float* weights, size_t n, float scale, float bias, float levels);

}  // namespace scalepoint::loops
