// The searches of the K-quants one sub-block at a time, element by element as ggml goes. They differ from the loops over lanes
// (k_quants_affine_loops.cpp, k_quants_scale_loops.cpp) in three ways:
//   - they search a single sub-block: one with a quantized scale of 0 keeps the levels of its own search;
//   - they follow ggml's rounding where it wraps, for levels from 2^22 on;
//   - they are small. The build without SIMD runs them alone. With the loops over lanes it would give the same bytes in about 0.8
//     of the time (Q3_K: 1.5 times), but be 6 kB larger, compressed.
#include <cstring>

#include "ggml/k_quants_search_loops.h"

namespace scalepoint::loops {
namespace {

void affine_weights(const float* x, const AffineRule& rule, const float* given, float* weights) {
  if (given != nullptr) {
    std::memcpy(weights, given, rule.size * sizeof(float));
    return;
  }
  float mean = 0;
  if (!rule.absolute) {
    for (size_t i = 0; i < rule.size; i++) mean += x[i] * x[i];
    mean = std::sqrt(mean / static_cast<float>(rule.size));
  }
  for (size_t i = 0; i < rule.size; i++) weights[i] = mean + std::fabs(x[i]);
}

/// The weighted sum of the errors of x = scale * level + low.
float affine_error(const float* x, const float* weights, const uint8_t* levels, const AffineRule& rule, float scale, float low) {
  float sum = 0;
  for (size_t i = 0; i < rule.size; i++) {
    const float difference = scale * static_cast<float>(levels[i]) + low - x[i];
    sum += weights[i] * (rule.absolute ? std::fabs(difference) : difference * difference);
  }
  return sum;
}

/// Sums of (w * x) * level and (w * level) * level.
struct Sums {
  float lx = 0, l2 = 0;

  void take(float x, float w, int32_t level) {
    const auto l = static_cast<float>(level);
    lx += w * x * l;
    l2 += w * l * l;
  }
};

}  // namespace

Affine search_affine(const float* x, const AffineRule& rule, const float* given, uint8_t* levels) {
  float weights[kLongestSubBlock];
  affine_weights(x, rule, given, weights);
  float low = x[0], high = x[0], sum_w = 0, sum_x = 0;
  for (size_t i = 0; i < rule.size; i++) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  if (low > 0) low = 0;
  if (high == low) {
    std::memset(levels, 0, rule.size);
    return {0, -low};
  }
  const auto round_levels = [&](float inverse, uint8_t* to) {
    for (size_t i = 0; i < rule.size; i++) {
      to[i] = static_cast<uint8_t>(clamp(nearest_int(inverse * (x[i] - low)), int32_t{0}, rule.top));
    }
  };
  const float inverse = static_cast<float>(rule.top) / (high - low);
  float scale = 1 / inverse;
  round_levels(inverse, levels);
  float best = affine_error(x, weights, levels, rule, scale, low);
  for (int32_t k = 0; k <= rule.steps; k++) {
    uint8_t candidate[kLongestSubBlock];
    round_levels((rule.first + rule.by * static_cast<float>(k) + static_cast<float>(rule.top)) / (high - low), candidate);
    float sum_l = 0, sum_l2 = 0, sum_xl = 0;
    for (size_t i = 0; i < rule.size; i++) {
      const auto level = static_cast<float>(candidate[i]);
      sum_l += weights[i] * level;
      sum_l2 += weights[i] * level * level;
      sum_xl += weights[i] * level * x[i];
    }
    const float determinant = sum_w * sum_l2 - sum_l * sum_l;
    if (!(determinant > 0)) continue;
    float new_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    float new_low = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    if (new_low > 0) {
      new_low = 0;
      new_scale = sum_xl / sum_l2;
    }
    const float error = affine_error(x, weights, candidate, rule, new_scale, new_low);
    if (!(error < best)) continue;
    // The next candidates start at the new minimum, as ggml's do.
    std::memcpy(levels, candidate, rule.size);
    best = error;
    scale = new_scale;
    low = new_low;
  }
  return {scale, -low};
}

float search_scale(const float* x, const ScaleRule& rule, const float* weights, uint8_t* levels) {
  const auto [size, top] = rule;
  std::memset(levels, 0, size);
  const float far = farthest(x, size);
  if (std::fabs(far) < kTooSmall) return 0;
  float scale = 0, best = 0;
  for (size_t k = 0; k < Spans::kCount; k++) {
    const float inverse = kSpans.negated(k, rule) / far;
    uint8_t candidate[kLongestSubBlock];
    Sums sums;
    for (size_t i = 0; i < size; i++) {
      const int32_t level = clamp(nearest_int(inverse * x[i]), -top, top - 1);
      candidate[i] = static_cast<uint8_t>(level + top);
      sums.take(x[i], weights == nullptr ? x[i] * x[i] : weights[i], level);
    }
    // Always take the first candidate.
    if (k > 0 && !(sums.l2 > 0 && sums.lx * sums.lx > best * sums.l2)) continue;
    std::memcpy(levels, candidate, size);
    scale = sums.l2 != 0 ? sums.lx / sums.l2 : 0;
    best = scale * sums.lx;
  }
  return scale;
}

float search_positive(const float* x, size_t n, int32_t top, const float* weights, uint8_t* codes) {
  std::memset(codes, 0, n);
  float most = 0;
  for (size_t i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
  if (most < kTooSmall) return 0;
  float inverse = 0, best = 0;
  for (int32_t k = 0; k < 9; k++) {
    // The plain scale comes first, and its codes are not limited.
    const int32_t step = k == 0 ? 0 : k < 5 ? k - 5 : k - 4;
    const float candidate = (k == 0 ? static_cast<float>(top) : 0.1f * static_cast<float>(step) + static_cast<float>(top)) / most;
    const float scale = 1 / candidate;
    float error = 0;
    for (size_t i = 0; i < n; i++) {
      const int32_t code = nearest_int(candidate * x[i]);
      const int32_t used = k == 0 ? static_cast<uint8_t>(code) : code < top ? code : top;
      const float difference = x[i] - scale * static_cast<float>(used);
      error += weights[i] * difference * difference;
    }
    if (k > 0 && !(error < best)) continue;
    best = error;
    inverse = candidate;
  }
  Sums sums;
  for (size_t i = 0; i < n; i++) {
    const int32_t code = nearest_int(inverse * x[i]), used = code < top ? code : top;
    codes[i] = static_cast<uint8_t>(used);
    sums.take(x[i], weights[i], used);
  }
  bool changed = true;
  for (int sweep = 0; sweep < 5 && changed; sweep++) {
    changed = false;
    for (size_t i = 0; i < n; i++) {
      const float w = weights[i], l = static_cast<float>(codes[i]);
      Sums without = {sums.lx - w * x[i] * l, sums.l2 - w * l * l};
      if (!(without.lx > 0 && without.l2 > 0)) continue;
      const int32_t code = nearest_int(x[i] * without.l2 / without.lx), other = code < top ? code : top;
      if (other == codes[i]) continue;
      without.take(x[i], w, other);
      if (!(without.lx * without.lx * sums.l2 > sums.lx * sums.lx * without.l2)) continue;
      codes[i] = static_cast<uint8_t>(other);
      sums = without;
      changed = true;
    }
  }
  return sums.l2 > 0 ? sums.lx / sums.l2 : 0;
}

float search_descent(const float* x, uint8_t* levels) {
  std::memset(levels, 0, 16);
  const float far = farthest(x, 16);
  if (std::fabs(far) < kTooSmall) return 0;
  const float inverse = -4 / far;
  int32_t level[16];
  Sums sums;
  for (size_t i = 0; i < 16; i++) {
    level[i] = clamp(nearest_int(inverse * x[i]), -4, 3);
    sums.take(x[i], x[i] * x[i], level[i]);
  }
  bool changed = true;
  for (int sweep = 0; sweep < 5 && changed; sweep++) {
    changed = false;
    for (size_t i = 0; i < 16; i++) {
      const float w = x[i] * x[i], l = static_cast<float>(level[i]);
      Sums without = {sums.lx - w * x[i] * l, sums.l2 - w * l * l};
      if (!(without.lx > 0)) continue;
      const int32_t other = clamp(nearest_int(x[i] * without.l2 / without.lx), -4, 3);
      if (other == level[i]) continue;
      without.take(x[i], w, other);
      if (!(without.l2 > 0 && without.lx * without.lx * sums.l2 > sums.lx * sums.lx * without.l2)) continue;
      level[i] = other;
      sums = without;
      changed = true;
    }
  }
  for (size_t i = 0; i < 16; i++) levels[i] = static_cast<uint8_t>(level[i] + 4);
  return sums.l2 > 0 ? sums.lx / sums.l2 : 0;
}

}  // namespace scalepoint::loops
