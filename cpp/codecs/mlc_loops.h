// Loops over groups of codes around 7. Groups hold a multiple of 16 elements.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint::loops {

/// x[i] += 7.
void add_seven(float* x, size_t n);

/// codes[i] = x[i] rounded half to even and saturated to [0, top]. NaN gives 0.
void round_to_codes(const float* x, size_t n, int32_t top, uint8_t* codes);

/// y[i] = (codes[i] - 7) * scale.
void restore_around_seven(const uint8_t* codes, size_t n, float scale, float* y);

}  // namespace scalepoint::loops
