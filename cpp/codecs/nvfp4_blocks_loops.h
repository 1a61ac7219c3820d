// Loops over 16 elements of NVFP4 in the order of ggml. nvfp4_blocks.cpp checks arguments.
#pragma once

#include <cstdint>

namespace scalepoint::loops {

/// The codes of 16 finite floats for a positive finite scale, two a byte: element j in the low bits of byte j, element j + 8 in the high
/// ones. Of two equally near values, the smaller magnitude; -0 is never made.
void nvfp4_codes(const float* x, float scale, uint8_t* bytes);

/// Restores 16 floats.
void restore_nvfp4(const uint8_t* bytes, float scale, float* x);

}  // namespace scalepoint::loops
