// Shared by the oracles of IQ4_NL and IQ4_XS: their sixteen values, and how a scale is searched for them.
#pragma once
#include "helpers.h"

namespace scalepoint::tests {

constexpr int kUnevenValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/// The first of the elements that are farthest from 0; 0 of none.
inline float first_farthest(std::span<const float> x) {
  float farthest = 0, size = 0;
  for (const float v : x) {
    if (std::fabs(v) <= size) continue;
    size = std::fabs(v);
    farthest = v;
  }
  return farthest;
}

/// The level of the value nearest to v; the upper one where two are as near.
inline uint8_t nearest_uneven(float v) {
  if (v <= static_cast<float>(kUnevenValues[0])) return 0;
  if (v >= static_cast<float>(kUnevenValues[15])) return 15;
  size_t above = 1;
  while (v >= static_cast<float>(kUnevenValues[above])) above++;
  const float down = v - static_cast<float>(kUnevenValues[above - 1]);
  const float up = static_cast<float>(kUnevenValues[above]) - v;
  return static_cast<uint8_t>(down < up ? above - 1 : above);
}

/// The least-squares scale over fifteen candidates and the plain one.
inline float search_uneven(std::span<const float> x) {
  const float farthest = first_farthest(x);
  if (std::fabs(farthest) < 1e-15f) return 0;
  float d = 0, best = 0;
  for (int t = -8; t <= 7; t++) {
    const bool plain = t == -8;
    const float inverse = plain ? 1 / (-farthest / -127.0f) : static_cast<float>(t - 127) / farthest;
    float vx = 0, v2 = 0;
    for (const float v : x) {
      const auto value = static_cast<float>(kUnevenValues[nearest_uneven(inverse * v)]);
      const float w = v * v;
      vx += w * value * v;
      v2 += w * value * value;
    }
    if (!plain && !(v2 > 0 && vx * vx > best * v2)) continue;
    d = vx / v2;
    best = d * vx;
  }
  return d;
}

}  // namespace scalepoint::tests
