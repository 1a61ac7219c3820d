#include "ranges/range_mse_stand_ins.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "lanes/round.h"
#include "ranges/range_mse.h"

namespace scalepoint {

loops::Run stand_in(std::span<const float> x, double min, double max, double root_mean, float factor, int bin_bits,
                    std::byte* memory) {
  const size_t half = size_t{kStandInOctaves} << bin_bits;
  const int rest_bits = 23 - bin_bits;
  auto* const bins = reinterpret_cast<loops::Bin*>(memory);
  std::memset(memory, 0, 2 * half * sizeof(loops::Bin));
  // With v = x * unit_of_sum, the sum of v^2 less that of (v - 1)^2 is twice the sum of v less the number of values.
  const float unit_of_sum = unit_factor(std::max(-min, max));
  const double root = root_mean * unit_of_sum,
               from_one = loops::error_of_run(x.data(), x.size(), unit_of_sum, 1, 1, 1) / static_cast<double>(x.size());
  const double mean = (root * root - from_one + 1) / 2 / unit_of_sum;
  const auto middle = static_cast<float>(clamp(mean, min, max));
  const double variance = root_mean * root_mean - static_cast<double>(middle) * middle,
               deviation = std::sqrt(std::max(variance, 0.0));
  const double unit = std::max({deviation, (max - min) / (1 << (kStandInOctaves - 1)), 0x1p-126});
  loops::add_to_bins(x.data(), x.size(), middle, static_cast<float>(1 / unit), rest_bits, bins, half);
  // Go outward from the mean. The pairs of floats for two bins fit into the memory of one bin that was read.
  auto* const pairs = reinterpret_cast<float*>(memory);
  size_t n = 0;
  for (size_t i = 0; i < half; i++) {
    const auto edge = static_cast<uint32_t>(0x3F800000u + (i << rest_bits));
    const double low = bit_cast<float>(edge), width = bit_cast<float>(edge + (1u << rest_bits)) - low;
    const loops::Bin two[2] = {bins[i], bins[half + i]};
    for (const loops::Bin& bin : two) {
      if (bin.count == 0) continue;
      const double share = static_cast<double>(bin.rest) / static_cast<double>(bin.count) / (1 << rest_bits);
      const double distance = (low + width * share - 1) * unit;
      pairs[2 * n] = static_cast<float>((&bin == two ? middle + distance : middle - distance) * factor);
      pairs[2 * n + 1] = static_cast<float>(bin.count);
      n++;
    }
  }
  return {pairs, n, true};
}

}  // namespace scalepoint
