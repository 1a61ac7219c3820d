// The searches of ggml's K-quants. They find the same scale, or scale and minimum, of each sub-block as ggml. The results are
// ggml's, bit for bit: float32 throughout, candidates in ggml's order, sums in the order of the elements. Inputs are finite.
// Each search has two forms, which the native tests compare:
//   search_*  one sub-block at a time, as ggml does it (k_quants_reference_loops.cpp)
//   find_*    many sub-blocks side by side, one a lane (k_quants_affine_loops.cpp, k_quants_scale_loops.cpp)
// fit_* run the form of the build.
// `weights` are those of the squared errors, one for each element; null: they follow from the elements. `levels` may be null, if they are
// not needed.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "lanes/round.h"

namespace scalepoint::loops {

/// ggml's rounding, half to even. Takes the value from the low 23 bits of the sum, so that it wraps beyond +-2^22 and gives 0 for NaN.
inline int32_t nearest_int(float x) { return (bit_cast<int32_t>(x + kMagic) & 0x007FFFFF) - 0x00400000; }

/// In the types without a minimum, a sub-block whose largest magnitude is less than this counts as zeros.
inline constexpr float kTooSmall = 1e-15f;

/// The first of n elements that are farthest from 0.
inline float farthest(const float* x, size_t n) {
  float far = 0, magnitude = 0;
  for (size_t i = 0; i < n; i++) {
    if (std::fabs(x[i]) > magnitude) magnitude = std::fabs(far = x[i]);
  }
  return far;
}

// ------------------------------------------------------------------------------------------ scale and minimum: Q2_K, Q4_K, Q5_K

/// Parameters of a type with a minimum.
struct AffineRule {
  size_t size;      ///< elements of a sub-block
  int32_t top;      ///< largest level
  int32_t steps;    ///< candidates 0 to steps
  float first, by;  ///< candidate k stretches the range over first + by * k + top levels
  bool absolute;    ///< weights |x| and absolute errors; else weights sqrt(mean x^2) + |x| and squared errors
  int32_t largest;  ///< largest quantized scale and minimum
};
inline constexpr AffineRule kRuleQ2K = {16, 3, 15, -0.5f, 0.1f, true, 15};
inline constexpr AffineRule kRuleQ4K = {32, 15, 20, -1.0f, 0.1f, false, 63};
inline constexpr AffineRule kRuleQ5K = {32, 31, 15, -0.5f, 0.1f, false, 63};
inline constexpr size_t kLongestSubBlock = 32;
/// Sub-blocks that are searched together.
inline constexpr size_t kTogether = 16;

/// The rule for given weights.
constexpr AffineRule weighted(AffineRule rule) { return {rule.size, rule.top, 36, -0.9f, 0.05f, false, rule.largest}; }

struct Affine {
  float scale, minimum;  ///< x is about scale * level - minimum
};

/// Fits scale and minimum to the levels of several candidate ranges by least squares, and keeps the fit with the least error.
/// `levels` gets the levels of that fit.
Affine search_affine(const float* x, const AffineRule& rule, const float* weights, uint8_t* levels);

/// Scales and minimums of 16 sub-blocks, or of 8. scales and minimums have room for 16.
void find_affine(const float* x, size_t sub_blocks, const AffineRule& rule, const float* weights, float* scales, float* minimums,
                 uint8_t* levels);

/// The same for at most 16.
void fit_affine(const float* x, size_t sub_blocks, const AffineRule& rule, const float* weights, float* scales, float* minimums,
                uint8_t* levels);

// -------------------------------------------------------------------------------------------------- scale: Q6_K, and weighted

/// Levels from -top to top - 1, stored as 0 to 2 top - 1. Without weights, they are squares of the elements.
struct ScaleRule {
  size_t size;  ///< elements of a sub-block
  int32_t top;
};
inline constexpr ScaleRule kScaleQ6K = {16, 32};
/// With weights alone.
inline constexpr ScaleRule kScaleQ3K = {16, 4};

/// Level of the farthest element in each candidate, less `top`. ggml's order: 0, then -0.9 to 0.9.
struct Spans {
  static constexpr size_t kCount = 19;
  float more[kCount + 3] = {};  ///< padded for loops that take two and look two ahead

  constexpr Spans() {
    for (int32_t k = 0; k < static_cast<int32_t>(kCount); k++) {
      const int32_t step = k == 0 ? 0 : k < 10 ? k - 10 : k - 9;
      more[k] = 0.1f * static_cast<float>(step);
    }
  }

  [[nodiscard]] constexpr float negated(size_t k, const ScaleRule& rule) const {
    return -(static_cast<float>(rule.top) + more[k]);
  }
};
inline constexpr Spans kSpans;

/// Fits the scale to the levels of each candidate by least squares, and keeps the fit with the least error.
float search_scale(const float* x, const ScaleRule& rule, const float* weights, uint8_t* levels);

/// Scales of 16 sub-blocks.
void find_scales(const float* x, const ScaleRule& rule, const float* weights, float* scales, uint8_t* levels);

/// The same for at most 16.
void fit_scales(const float* x, size_t sub_blocks, const ScaleRule& rule, const float* weights, float* scales, uint8_t* levels);

/// Quantizes n scales from 0 on to codes up to `top`, where the error of each has a weight: fits their own scale like the above,
/// then moves one after the other to its best code. Returns that scale.
float search_positive(const float* x, size_t n, int32_t top, const float* weights, uint8_t* codes);

// -------------------------------------------------------------------------------------------------------------- scale: Q3_K

/// Q3_K: moves one element after the other to its best level, in at most five sweeps. The levels are 0 to 7, for -4 to 3.
float search_descent(const float* x, uint8_t* levels);

/// Super-blocks whose descents run side by side.
inline constexpr size_t kDescents = 4;

/// Scales of the 16 sub-blocks of each of up to kDescents super-blocks.
void find_descents(const float* x, size_t super_blocks, float* scales);
void fit_descents(const float* x, size_t super_blocks, float* scales);

}  // namespace scalepoint::loops
