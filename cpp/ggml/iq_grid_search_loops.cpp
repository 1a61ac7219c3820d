#include "ggml/iq_grid_search_loops.h"

#include <cfloat>
#include <cmath>

#include "ggml/k_quants_search_loops.h"
#include "lanes/lanes.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

/// Candidates of a search, padded for vectors that begin anywhere.
constexpr size_t kCandidates = 31;
constexpr size_t kRoom = kCandidates + 5;
constexpr int32_t kOff = 1 << 16;

struct Candidates {
  size_t count;
  float inverse[kRoom], scale[kRoom];
};

/// The points that candidates give a few elements.
struct Points {
  int32_t index[kRoom];  ///< with kOff where it is not that of the rounded levels
  int32_t point[kRoom];
};

/// Sums over a sub-block of w q x and w q^2. The scale with the least sum of w (x - scale q)^2 is their quotient.
struct GridSums {
  float qx[kRoom], q2[kRoom];
};

/// The magnitudes that are rounded to points.
struct Magnitudes {
  float x[kLongestGridBlock];
  float weights[kLongestGridBlock];
  float weighted[kLongestGridBlock];  ///< weight times x
  float roots[kLongestGridBlock];     ///< of the weights
};

/// ggml's nearest_int(0.5 (inverse x - 1)), within 0 and top.
SCALEPOINT_SHARED I32x4 levels_of(F32x4 x, F32x4 inverse, int32_t top) {
  const F32x4 half = mul(splat(0.5f), sub(mul(inverse, x), splat(1.0f)));
  const I32x4 level = sub(bit_and(bits(add(half, splat(kMagic))), splat(0x007FFFFF)), splat(0x00400000));
  return min_signed(max_signed(level, splat(0)), splat(top));
}

/// The codes of the rounded levels of one group of elements, for each candidate.
template <size_t kEach>
inline void round_group(const float* x, const Candidates& candidates, int32_t* codes) {
  SCALEPOINT_NO_UNROLL
  for (size_t c = 0; c < candidates.count; c += 4) {
    const F32x4 inverse = load(candidates.inverse + c);
    I32x4 code = splat(0);
    SCALEPOINT_PER_VECTOR
    for (size_t i = kEach; i-- > 0;) {
      const I32x4 level = levels_of(splat(x[i]), inverse, kEach == 4 ? 7 : 2);
      code = add(level, kEach == 4 ? shift_left<3>(code) : add(code, shift_left_one(code)));
    }
    store(codes + c, code);
  }
}

/// The index of the point with the least sum so far, for each of four scales; -1 if all sums are beyond float32.
struct Nearest {
  F32x4 least = splat(FLT_MAX);
  I32x4 index = splat(-1);

  void take(F32x4 sum, uint16_t point) {
    const I32x4 less = greater(least, sum);
    least = select(less, sum, least);
    index = select(less, splat(static_cast<int32_t>(point)), index);
  }
};

/// Of the points in a list, the index of that with the least sum of w (x - scale q)^2, for each of four scales. A point of four has too few
/// neighbors to need a table.
inline I32x4 nearest_of_four(const Grid& grid, const uint16_t* list, const float* x, const float* w, F32x4 scale) {
  F32x4 products[8];
  SCALEPOINT_NO_UNROLL
  for (size_t l = 0; l < 8; l++) products[l] = mul(scale, splat(static_cast<float>(2 * l + 1)));
  Nearest nearest;
  const size_t count = list[0];
  SCALEPOINT_NO_UNROLL
  for (size_t j = 1; j <= count; j++) {
    const uint32_t point = grid.points[list[j]];
    F32x4 sum = splat(0.0f);
    SCALEPOINT_PER_VECTOR
    for (size_t i = 0; i < 4; i++) {
      const F32x4 difference = sub(products[point >> (4 * i + 1) & 7], splat(x[i]));
      sum = add(sum, mul(mul(splat(w[i]), difference), difference));
    }
    nearest.take(sum, list[j]);
  }
  return nearest.index;
}

/// The same for points of eight and any values of the three levels, by a table of the errors of each element at each level.
SCALEPOINT_SHARED I32x4 nearest_of_eight(const Grid& grid, const uint16_t* list, const float* x, const float* w, F32x4 scale,
                                         const float* values) {
  float errors[8][4][4];
  SCALEPOINT_NO_UNROLL
  for (size_t l = 0; l < 3; l++) {
    const F32x4 product = mul(scale, splat(values[l]));
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < 8; i++) {
      const F32x4 difference = sub(product, splat(x[i]));
      store(errors[i][l], mul(mul(splat(w[i]), difference), difference));
    }
  }
  Nearest nearest;
  const size_t count = list[0];
  SCALEPOINT_NO_UNROLL
  for (size_t j = 1; j <= count; j++) {
    const uint32_t point = grid.points[list[j]];
    F32x4 sum = load(errors[0][point >> 1 & 3]);
    SCALEPOINT_PER_VECTOR
    for (size_t i = 1; i < 8; i++) sum = add(sum, load(errors[i][point >> (4 * i + 1) & 3]));
    nearest.take(sum, list[j]);
  }
  return nearest.index;
}

constexpr float kOdd[3] = {1, 3, 5};

/// The points of one group of elements, for each candidate. Returns false if a point is missing.
template <size_t kEach>
bool find_points(const Grid& grid, const float* x, const float* roots, const Candidates& candidates, Points& points) {
  int32_t codes[kRoom];
  round_group<kEach>(x, candidates, codes);
  // Candidates in a row often give the same code. Then they have the same neighbors, and are searched four at a time.
  for (size_t c = 0; c < candidates.count;) {
    size_t end = c + 1;
    while (end < candidates.count && codes[end] == codes[c]) end++;
    const int32_t place = grid.places[codes[c]];
    if (place >= 0) {
      const auto point = static_cast<int32_t>(grid.points[place]);
      for (; c < end; c++) {
        points.index[c] = place;
        points.point[c] = point;
      }
      continue;
    }
    const uint16_t* const list = grid.neighbors - 1 - place;
    for (size_t k = c; k < end; k += 4) {
      const F32x4 scale = load(candidates.scale + k);
      store(points.index + k,
            kEach == 4 ? nearest_of_four(grid, list, x, roots, scale) : nearest_of_eight(grid, list, x, roots, scale, kOdd));
    }
    for (; c < end; c++) {
      if (points.index[c] < 0) return false;
      points.point[c] = static_cast<int32_t>(grid.points[points.index[c]]);
      points.index[c] |= kOff;
    }
  }
  return true;
}

void sum_up(const Magnitudes& of, const GridRule& rule, const Points* points, size_t count, GridSums& sums) {
  SCALEPOINT_NO_UNROLL
  for (size_t c = 0; c < count; c += 4) {
    F32x4 qx = splat(0.0f), q2 = qx;
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < rule.size; i += rule.each) {
      I32x4 point = load(points[i / rule.each].point + c);
      SCALEPOINT_NO_UNROLL
      for (size_t j = i; j < i + rule.each; j += 4) {
        SCALEPOINT_PER_VECTOR
        for (size_t k = j; k < j + 4; k++) {
          const F32x4 q = to_float(bit_and(point, splat(15)));
          qx = add(qx, mul(splat(of.weighted[k]), q));
          q2 = add(q2, mul(mul(splat(of.weights[k]), q), q));
          point = shift_right<4>(point);
        }
      }
    }
    store(sums.qx + c, qx);
    store(sums.q2 + c, q2);
  }
}

/// Magnitudes and signs of eight elements. If the signs are to be even, the element whose change costs least gets the other one.
uint8_t split_signs(const float* x, const float* weights, bool even, float* magnitudes) {
  uint32_t signs = 0;
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < 8; i++) {
    const bool negative = !(x[i] >= 0);
    magnitudes[i] = negative ? -x[i] : x[i];
    signs |= static_cast<uint32_t>(negative) << i;
  }
  if (!even) return static_cast<uint8_t>(signs);
  if (__builtin_popcount(signs) % 2 != 0) {
    size_t cheapest = 0;
    float least = weights[0] * x[0] * x[0];
    SCALEPOINT_NO_UNROLL
    for (size_t i = 1; i < 8; i++) {
      const float cost = weights[i] * x[i] * x[i];
      if (cost < least) {
        least = cost;
        cheapest = i;
      }
    }
    magnitudes[cheapest] = -magnitudes[cheapest];
    signs ^= 1u << cheapest;
  }
  return signs & 127;
}

struct Search {
  const GridRule& rule;
  Grid grid;
  Magnitudes of;
  Points points[8];
  GridSums sums;
  Candidates candidates;

  // Does not fill the room for candidates with zeros, which would take as long as a tenth of a search. Lanes beyond the last candidate are
  // computed, but never read.
  Search(const GridRule& r, const Grid& g) : rule(r), grid(g) {}

  bool find(size_t i) {
    const float *const x = of.x + i * rule.each, *const roots = of.roots + i * rule.each;
    return (rule.each == 4 ? find_points<4> : find_points<8>)(grid, x, roots, candidates, points[i]);
  }

  bool find() {
    for (size_t i = 0; i < rule.size / rule.each; i++) {
      if (!find(i)) return false;
    }
    sum_up(of, rule, points, candidates.count, sums);
    return true;
  }

  /// The largest q.
  [[nodiscard]] float top() const { return rule.each == 4 ? 15 : 5; }

  /// Tries the candidates for a range, and keeps the best.
  bool choose(float range, GridBlock& block, uint32_t& off) {
    candidates.count = 0;
    for (int32_t k = -rule.steps; k <= rule.steps; k++) {
      const float inverse = (top() + static_cast<float>(k) * rule.by) / range;
      candidates.inverse[candidates.count] = inverse;
      candidates.scale[candidates.count++] = 1 / inverse;
    }
    if (!find()) return false;
    float best = 0;
    size_t taken = kRoom;
    for (size_t c = 0; c < candidates.count; c++) {
      if (!(sums.q2[c] > 0 && sums.qx[c] * sums.qx[c] > best * sums.q2[c])) continue;
      block.scale = sums.qx[c] / sums.q2[c];
      best = block.scale * sums.qx[c];
      taken = c;
    }
    for (size_t i = 0; i < rule.size / rule.each && taken < kRoom; i++) {
      const int32_t index = points[i].index[taken];
      block.point[i] = static_cast<uint16_t>(index);
      if (index >= kOff)
        off |= 1u << i;
      else
        off &= ~(1u << i);
    }
    return true;
  }

  /// Searches the points in `which` again with the best scale, and fits the scale to them.
  bool refine(uint32_t which, GridBlock& block) {
    candidates.count = 1;
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < 4; i++) {
      candidates.inverse[i] = 1 / block.scale;
      candidates.scale[i] = block.scale;
    }
    for (size_t i = 0; i < rule.size / rule.each; i++) {
      if ((which >> i & 1) == 0) {
        points[i].point[0] = static_cast<int32_t>(grid.points[block.point[i]]);
        continue;
      }
      if (!find(i)) return false;
      block.point[i] = static_cast<uint16_t>(points[i].index[0]);
    }
    sum_up(of, rule, points, 1, sums);
    if (sums.q2[0] > 0) block.scale = sums.qx[0] / sums.q2[0];
    return true;
  }

  bool run(const float* x, const float* weights, GridBlock& block) {
    block = {};
    float most = 0;
    for (size_t i = 0; i < rule.size; i += 8) block.signs[i / 8] = split_signs(x + i, weights + i, rule.even, of.x + i);
    for (size_t i = 0; i < rule.size; i++) most = of.x[i] > most ? of.x[i] : most;
    for (size_t i = 0; i < rule.size; i += 4) {
      const F32x4 w = load(weights + i);
      store(of.weights + i, w);
      store(of.weighted + i, mul(w, load(of.x + i)));
      store(of.roots + i, sqrt(w));
    }
    block.is_zero = most < rule.smallest;
    block.scale = most / top();
    float range = most;
    if (rule.is_fitted && !block.is_zero) {
      uint8_t unused[kLongestGridBlock];
      block.scale = search_positive(of.x, rule.size, 4, weights, unused);
      range = block.scale * 3;
      block.is_zero = range <= 0;
    }
    if (block.is_zero) {
      block = {0, true, {}, {}};
      return true;
    }
    uint32_t off = rule.all_again ? 255 : 0;
    if (!choose(range, block, off)) return false;
    if (rule.is_fitted || (rule.all_again && off != 0)) off = 255;
    if (off != 0 && block.scale > 0 && !refine(off, block)) return false;
    if (block.scale < 0) {
      block.scale = -block.scale;
      for (size_t i = 0; i < rule.size / 8; i++) block.signs[i] = static_cast<uint8_t>(~block.signs[i] & (rule.even ? 127 : 255));
    }
    return block.scale >= 0;
  }
};

}  // namespace

int32_t nearest_point(const Grid& grid, const uint16_t* list, const float* x, const float* weights, float scale,
                      const float* values) {
  int32_t best[4];
  store(best, nearest_of_eight(grid, list, x, weights, splat(scale), values));
  return best[0];
}

bool search_grid(const float* x, const float* weights, const GridRule& rule, GridBlock& block) {
  return Search(rule, grid_of(rule.grid)).run(x, weights, block);
}

}  // namespace scalepoint::loops
