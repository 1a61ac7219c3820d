// Selects the form of a search: with SIMD the loops over lanes, else the reference alone, which is smaller (k_quants_reference_loops.cpp).
#include "ggml/k_quants_search_loops.h"

#include <cstring>

#include "lanes/lanes.h"

namespace scalepoint::loops {
namespace {

/// Sub-blocks that were filled up with zeros to kTogether.
struct Filled {
  float x[kTogether * kLongestSubBlock], weights[kTogether * kLongestSubBlock];

  Filled(const float* from, const float* given, size_t n) : x{}, weights{} {
    std::memcpy(x, from, n * sizeof(float));
    if (given != nullptr) std::memcpy(weights, given, n * sizeof(float));
  }
};

}  // namespace

void fit_affine(const float* x, size_t sub_blocks, const AffineRule& rule, const float* weights, float* scales, float* minimums,
                uint8_t* levels) {
  if constexpr (lanes::kSimd) {
    if (sub_blocks % 8 == 0) return find_affine(x, sub_blocks, rule, weights, scales, minimums, levels);
    const size_t n = sub_blocks * rule.size;
    const Filled filled(x, weights, n);
    uint8_t made[kTogether * kLongestSubBlock];
    find_affine(filled.x, kTogether, rule, weights == nullptr ? nullptr : filled.weights, scales, minimums, made);
    if (levels != nullptr) std::memcpy(levels, made, n);
    return;
  }
  uint8_t unused[kLongestSubBlock];
  for (size_t b = 0; b < sub_blocks; b++) {
    const size_t at = b * rule.size;
    const Affine found =
        search_affine(x + at, rule, weights == nullptr ? nullptr : weights + at, levels == nullptr ? unused : levels + at);
    scales[b] = found.scale;
    minimums[b] = found.minimum;
  }
}

void fit_scales(const float* x, size_t sub_blocks, const ScaleRule& rule, const float* weights, float* scales, uint8_t* levels) {
  if constexpr (lanes::kSimd) {
    if (sub_blocks == kTogether) return find_scales(x, rule, weights, scales, levels);
    const size_t n = sub_blocks * rule.size;
    const Filled filled(x, weights, n);
    uint8_t made[kTogether * kLongestSubBlock];
    find_scales(filled.x, rule, weights == nullptr ? nullptr : filled.weights, scales, made);
    if (levels != nullptr) std::memcpy(levels, made, n);
    return;
  }
  uint8_t unused[kLongestSubBlock];
  for (size_t b = 0; b < sub_blocks; b++) {
    const size_t at = b * rule.size;
    scales[b] = search_scale(x + at, rule, weights == nullptr ? nullptr : weights + at, levels == nullptr ? unused : levels + at);
  }
}

void fit_descents(const float* x, size_t super_blocks, float* scales) {
  if constexpr (lanes::kSimd) return find_descents(x, super_blocks, scales);
  uint8_t levels[16];
  for (size_t b = 0; b < 16 * super_blocks; b++) scales[b] = search_descent(x + 16 * b, levels);
}

}  // namespace scalepoint::loops
