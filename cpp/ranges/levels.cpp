#include "ranges/levels.h"

namespace scalepoint {
namespace {

template <size_t kCount>
constexpr Levels make_levels(const float (&values)[kCount]) {
  Levels levels = {.count = kCount};
  for (size_t i = 0; i < kCount; i++) levels.values[i] = values[i];
  for (size_t i = 0; i + 1 < kCount; i++) levels.middles[i] = (values[i] + values[i + 1]) / 2;
  return levels;
}

}  // namespace

constexpr Levels kE2M1Levels = make_levels({-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12});
constexpr Levels kIQ4Levels = make_levels({-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113});

}  // namespace scalepoint
