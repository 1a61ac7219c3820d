#include "ranges/levels.h"

#include <iterator>

namespace scalepoint {
namespace {

constexpr Levels make_levels(const float* values, size_t count) {
  Levels levels = {.count = count};
  for (size_t i = 0; i < count; i++) levels.values[i] = values[i];
  for (size_t i = 0; i + 1 < count; i++) levels.middles[i] = (values[i] + values[i + 1]) / 2;
  return levels;
}

constexpr float kE2M1[] = {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12};
constexpr float kIQ4[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

}  // namespace

constexpr Levels kE2M1Levels = make_levels(kE2M1, std::size(kE2M1));
constexpr Levels kIQ4Levels = make_levels(kIQ4, std::size(kIQ4));

Levels levels_of(std::span<const float> values) noexcept { return make_levels(values.data(), values.size()); }

}  // namespace scalepoint
