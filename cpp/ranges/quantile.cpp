#include "ranges/quantile.h"

#include <cstddef>
#include <utility>

namespace scalepoint {

// Selection by N. Wirth: partition, then continue in the part that holds k.
float select(float* x, size_t n, size_t k) {
  ptrdiff_t left = 0, right = static_cast<ptrdiff_t>(n) - 1;
  const auto wanted = static_cast<ptrdiff_t>(k);
  while (left < right) {
    const float pivot = x[wanted];
    ptrdiff_t i = left, j = right;
    do {
      while (x[i] < pivot) i++;
      while (pivot < x[j]) j--;
      if (i <= j) std::swap(x[i++], x[j--]);
    } while (i <= j);
    if (j < wanted) left = i;
    if (wanted < i) right = j;
  }
  return x[k];
}

float quantile(std::span<float> x, double share) {
  const double at = share * static_cast<double>(x.size() - 1);
  const auto below = static_cast<size_t>(at);
  const float low = select(x.data(), x.size(), below);
  const double rest = at - static_cast<double>(below);
  if (rest == 0) return low;
  const float high = select(x.data() + below + 1, x.size() - below - 1, 0);
  return static_cast<float>(low + rest * (static_cast<double>(high) - low));
}

}  // namespace scalepoint
