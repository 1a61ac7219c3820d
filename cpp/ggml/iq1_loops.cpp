// ggml's types with a grid of three levels and a shift: IQ1_S and IQ1_M. Source: github.com/ggml-org/ggml d99724f, src/ggml-quants.c.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "ggml/blocks32_loops.h"
#include "ggml/ggml_loops.h"
#include "ggml/iq_grid_bytes_loops.h"
#include "ggml/iq_grid_search_loops.h"
#include "lanes/float16.h"

namespace scalepoint::loops {
namespace {

using namespace blocks32;

constexpr size_t kSuperBlock = 256, kGroups = kSuperBlock / 8, kLongest = 32;

/// The values of levels: -1, 0 and 1 with a shift of 1/8 up or down.
constexpr float kLevels[2][3] = {{-0.875f, 0.125f, 1.125f}, {-1.125f, -0.125f, 0.875f}};
/// Eight times these values: at index 2 * level + 1 for the first shift, at 8 more for the other.
constexpr int8_t kEights[16] = {0, -7, 0, 1, 0, 9, 0, 0, 0, -9, 0, -1, 0, 7};

/// The contents of a super-block.
struct Parts {
  uint8_t scales[16];        ///< of its sub-blocks, 3 bits each
  uint16_t points[kGroups];  ///< indexes
  bool down[kGroups];        ///< true if the shift of eight elements is -1/8
};

// ------------------------------------------------------------------------------------------------------------------- splits

/// The best way to give sorted elements three levels: the first ones the lowest, those from `first` on the middle one, those from
/// `second` on the highest.
struct Split {
  float scale, score;
  size_t first, second;
  uint32_t shifts;  ///< a bit for each half of the sub-block, the first half higher: 1 for a shift down
};

/// Keeps a split if it is better.
inline void take(Split& best, float qx, float q2, size_t first, size_t second, uint32_t shifts) {
  if (!(q2 > 0 && qx * qx > best.score * q2)) return;
  best.scale = qx / q2;
  best.score = best.scale * qx;
  best.first = first;
  best.second = second;
  best.shifts = shifts;
}

/// Keeps the best of four splits whose `second` are in a row, each in several shifts.
template <size_t kShifts>
inline void take_four(Split& best, const F32x4 (&qx)[kShifts], const F32x4 (&q2)[kShifts], size_t first, size_t second,
                      size_t size) {
  const F32x4 zero = splat(0.0f), score = splat(best.score);
  I32x4 better = splat(0);
  SCALEPOINT_PER_VECTOR
  for (size_t k = 0; k < kShifts; k++) {
    better = bit_or(better, bit_and(greater(q2[k], zero), greater(mul(qx[k], qx[k]), mul(score, q2[k]))));
  }
  // Usually all four are worse. Otherwise apply ggml's order.
  if (!any(better)) return;
  float x[kShifts][4], w[kShifts][4];
  for (size_t k = 0; k < kShifts; k++) {
    store(x[k], qx[k]);
    store(w[k], q2[k]);
  }
  SCALEPOINT_NO_UNROLL
  for (size_t lane = 0; lane < 4 && second + lane <= size; lane++) {
    SCALEPOINT_NO_UNROLL
    for (size_t k = 0; k < kShifts; k++) {
      take(best, x[k][lane], w[k][lane], first, second + lane, static_cast<uint32_t>(kShifts == 2 ? 3 * k : k));
    }
  }
}

/// Sums over the first elements in sorted order: of w x and w. Padded for vectors.
struct Prefixes {
  float x[kLongest + 5], w[kLongest + 5];
};

/// IQ1_S: one shift for all of a sub-block.
void split_one_shift(const Prefixes& sums, size_t size, Split& best) {
  for (size_t first = 0; first <= size; first++) {
    const F32x4 low_x = splat(sums.x[first]), low_w = splat(sums.w[first]);
    SCALEPOINT_NO_UNROLL
    for (size_t second = first; second <= size; second += 4) {
      const F32x4 x = load(sums.x + second), w = load(sums.w + second);
      const F32x4 middle_x = sub(x, low_x), high_x = sub(splat(sums.x[size]), x);
      const F32x4 middle_w = sub(w, low_w), high_w = sub(splat(sums.w[size]), w);
      F32x4 qx[2], q2[2];
      SCALEPOINT_PER_VECTOR
      for (size_t k = 0; k < 2; k++) {
        const F32x4 a = splat(kLevels[k][0]), b = splat(kLevels[k][1]), c = splat(kLevels[k][2]);
        qx[k] = add(add(mul(low_x, a), mul(middle_x, b)), mul(high_x, c));
        q2[k] = add(add(mul(mul(low_w, a), a), mul(mul(middle_w, b), b)), mul(mul(high_w, c), c));
      }
      take_four(best, qx, q2, first, second, size);
    }
  }
}

/// IQ1_M: a shift for each half.
void split_two_shifts(const Prefixes (&halves)[2], size_t size, Split& best) {
  for (size_t first = 0; first <= size; first++) {
    SCALEPOINT_NO_UNROLL
    for (size_t second = first; second <= size; second += 4) {
      F32x4 x[2][2], w[2][2];
      SCALEPOINT_PER_VECTOR
      for (size_t h = 0; h < 2; h++) {
        const Prefixes& sums = halves[h];
        const F32x4 both = add(splat(sums.x[first]), load(sums.x + second));
        SCALEPOINT_PER_VECTOR
        for (size_t k = 0; k < 2; k++) {
          const float *const level = kLevels[k], top = level[2];
          const float low = level[0] * level[0] - level[1] * level[1], high = level[1] * level[1] - top * top;
          x[h][k] = sub(splat(sums.x[size] * top), both);
          w[h][k] = add(splat(sums.w[size] * top * top + sums.w[first] * low), mul(load(sums.w + second), splat(high)));
        }
      }
      const F32x4 qx[4] = {add(x[0][0], x[1][0]), add(x[0][0], x[1][1]), add(x[0][1], x[1][0]), add(x[0][1], x[1][1])};
      const F32x4 q2[4] = {add(w[0][0], w[1][0]), add(w[0][0], w[1][1]), add(w[0][1], w[1][0]), add(w[0][1], w[1][1])};
      take_four(best, qx, q2, first, second, size);
    }
  }
}

/// Sorts indexes by their elements; equal elements stay in order.
void sort_indexes(const float* x, size_t size, uint8_t* order) {
  for (size_t i = 0; i < size; i++) {
    size_t at = i;
    for (; at > 0 && x[order[at - 1]] > x[i]; at--) order[at] = order[at - 1];
    order[at] = static_cast<uint8_t>(i);
  }
}

/// The best split of the elements of a sub-block, with one shift for all of them (IQ1_S, sub-blocks of 32) or one for each half (IQ1_M).
Split split(const float* x, const float* weights, size_t size, const uint8_t* order) {
  const size_t halves = size == kLongest ? 1 : 2;
  Prefixes sums[2] = {};
  for (size_t h = 0; h < halves; h++) {
    for (size_t j = 0; j < size + 4; j++) {
      const size_t i = order[j < size ? j : 0];
      const bool counts = j < size && (halves == 1 || i / 8 == h);
      sums[h].x[j + 1] = counts ? sums[h].x[j] + weights[i] * x[i] : sums[h].x[j];
      sums[h].w[j + 1] = counts ? sums[h].w[j] + weights[i] : sums[h].w[j];
    }
  }
  Split best = {0, -FLT_MAX, size + 1, 0, 0};
  if (halves == 1)
    split_one_shift(sums[0], size, best);
  else
    split_two_shifts(sums, size, best);
  return best;
}

// ---------------------------------------------------------------------------------------------------------------- quantize

/// Searches a sub-block: its scale, points and shifts.
struct Ternary {
  Grid grid;
  size_t size;
  float smallest;  ///< below it, the largest element of a sub-block counts as 0

  /// Returns the scale; NaN if the numbers are beyond float32, where ggml ends the process or reads out of bounds.
  float search(const float* x, const float* weights, uint16_t* points, bool* down) const {
    float most = 0;
    for (size_t i = 0; i < size; i++) most = std::fabs(x[i]) > most ? std::fabs(x[i]) : most;
    if (most < smallest) return 0;
    uint8_t order[kLongest], levels[kLongest];
    sort_indexes(x, size, order);
    Split best = split(x, weights, size, order);
    if (best.first > size) return 0;
    const bool turned = best.scale < 0;
    for (size_t j = 0; j < size; j++) {
      const int level = j < best.first ? 0 : j < best.second ? 1 : 2;
      levels[order[j]] = static_cast<uint8_t>(turned ? 2 - level : level);
    }
    if (turned) best.shifts ^= 3;
    float scale = turned ? -best.scale : best.scale;
    bool off = false;
    for (size_t k = 0; k < size / 8; k++) {
      down[k] = (best.shifts >> (size == kLongest || k == 1 ? 0 : 1) & 1) != 0;
      int32_t code = 0;
      SCALEPOINT_NO_UNROLL
      for (size_t i = 8; i-- > 0;) code = 3 * code + levels[8 * k + i];
      int32_t index = grid.places[code];
      if (index < 0) {
        off = true;
        index = nearest_point(grid, grid.neighbors - 1 - index, x + 8 * k, weights + 8 * k, scale, kLevels[down[k] ? 1 : 0]);
        if (index < 0) return NAN;
      }
      points[k] = static_cast<uint16_t>(index);
    }
    Sums sums;
    for (size_t k = 0; k < size / 8; k++) sums.take(x + 8 * k, weights + 8 * k, grid.points[points[k]], down[k], 1);
    if (off && sums.qx > 0 && sums.q2 > 0) scale = sums.qx / sums.q2;
    return scale;
  }

  /// Sums over elements of w q x and w q^2, where q is a multiple of the values of the levels.
  struct Sums {
    float qx = 0, q2 = 0;

    void take(const float* x, const float* weights, uint32_t point, bool down, int32_t times) {
      SCALEPOINT_NO_UNROLL
      for (size_t i = 0; i < 8; i++, point >>= 4) {
        const float q = kLevels[down ? 1 : 0][point >> 1 & 3] * static_cast<float>(times);
        qx += weights[i] * q * x[i];
        q2 += weights[i] * q * q;
      }
    }
  };
};

/// Searches a whole super-block. Returns the largest scale of its sub-blocks; NaN if one of them is NaN.
float search_parts(const Ternary& of, const float* x, const float* weights, Parts& parts) {
  float scales[16];
  for (size_t b = 0; b < kSuperBlock / of.size; b++) {
    const size_t at = b * of.size;
    scales[b] = of.search(x + at, weights + at, parts.points + at / 8, parts.down + at / 8);
    if (!(scales[b] >= 0)) return NAN;
  }
  const float most = quantize_scales(scales, kSuperBlock / of.size, 15, parts.scales);
  if (most == 0) std::fill_n(parts.down, kGroups, false);
  return most;
}

void pack_iq1_s(const Parts& parts, uint8_t* to) {
  SCALEPOINT_NO_UNROLL
  for (size_t b = 0; b < 8; b++) {
    int32_t high = parts.scales[b] << 12 | static_cast<int32_t>(parts.down[4 * b]) << 15;
    SCALEPOINT_NO_UNROLL
    for (size_t k = 0; k < 4; k++) {
      to[2 + 4 * b + k] = static_cast<uint8_t>(parts.points[4 * b + k]);
      high |= parts.points[4 * b + k] >> 8 << 3 * k;
    }
    store_half(to + 34 + 2 * b, high);
  }
}

void unpack_iq1_s(const uint8_t* from, Parts& parts) {
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < kGroups; i++) {
    const int32_t high = from[34 + i / 4 * 2] | from[35 + i / 4 * 2] << 8;
    parts.points[i] = static_cast<uint16_t>(from[2 + i] | (high >> 3 * (i % 4) & 7) << 8);
    parts.down[i] = high >> 15 != 0;
    parts.scales[i / 2] = high >> 12 & 7;
  }
}

void pack_iq1_m(const Parts& parts, uint16_t d, uint8_t* to) {
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < kGroups; i++) {
    to[i] = static_cast<uint8_t>(parts.points[i]);
    const int32_t high = parts.points[i] >> 8 | static_cast<int32_t>(parts.down[i]) << 3;
    to[32 + i / 2] = static_cast<uint8_t>(to[32 + i / 2] | high << 4 * (i % 2));
  }
  // The float16 scale is in the top four bits of four words.
  SCALEPOINT_NO_UNROLL
  for (size_t k = 0; k < 4; k++) {
    const uint8_t* const s = parts.scales + 4 * k;
    store_half(to + 48 + 2 * k, s[0] | s[1] << 3 | s[2] << 6 | s[3] << 9 | (d >> 4 * k & 15) << 12);
  }
}

uint16_t unpack_iq1_m(const uint8_t* from, Parts& parts) {
  uint32_t d = 0;
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < kGroups; i++) {
    const int32_t high = from[32 + i / 2] >> 4 * (i % 2);
    parts.points[i] = static_cast<uint16_t>(from[i] | (high & 7) << 8);
    parts.down[i] = (high & 8) != 0;
  }
  SCALEPOINT_NO_UNROLL
  for (size_t b = 0; b < 16; b++) {
    const auto word = static_cast<uint32_t>(from[48 + b / 4 * 2] | from[49 + b / 4 * 2] << 8);
    parts.scales[b] = static_cast<uint8_t>(word >> 3 * (b % 4) & 7);
    d |= word >> 12 << 4 * (b / 4);
  }
  return static_cast<uint16_t>(d);
}

/// x[i] = d (2 scale + 1) value of level i.
void restore(const Parts& parts, uint16_t half, const uint32_t* points, float* x) {
  const U8x16 eights = load(reinterpret_cast<const uint8_t*>(kEights));
  const float d = float16_value(half);
  uint8_t levels[kSuperBlock];
  load_points(points, parts.points, 8, levels);
  SCALEPOINT_NO_UNROLL
  for (size_t b = 0; b < 16; b++, x += 16) {
    const float step = d * static_cast<float>(2 * parts.scales[b] + 1) * 0.125f;
    // A shift down is a bit that points never have.
    const auto down = static_cast<uint32_t>((parts.down[2 * b] ? 255 : 0) | (parts.down[2 * b + 1] ? 255 << 8 : 0));
    const U8x16 index = bit_or(load(levels + 16 * b), bit_and(spread_bits(down), splat(uint8_t{8})));
    F32x4 v[4];
    to_floats(lookup(eights, index), v);
    SCALEPOINT_PER_VECTOR
    for (size_t k = 0; k < 4; k++) store(x + 4 * k, mul(splat(step), v[k]));
  }
}

}  // namespace

bool quantize_iq1_s(const float* x, const float* weights, size_t n, std::byte* out) {
  const Ternary of = {grid_of(GridName::kIQ1), 32, 1e-12f};
  auto* to = reinterpret_cast<uint8_t*>(out);
  for (; n > 0; n--, x += kSuperBlock, weights += kSuperBlock, to += 50) {
    Parts parts = {};
    const float most = search_parts(of, x, weights, parts);
    const uint16_t half = float16_of(most / 15 * 1.125f);
    pack_iq1_s(parts, to);
    store_half(to, half);
    if (half > kFloat16Largest) return false;
  }
  return true;
}

bool quantize_iq1_m(const float* x, const float* weights, size_t n, std::byte* out) {
  const Ternary of = {grid_of(GridName::kIQ1), 16, 1e-7f};
  auto* to = reinterpret_cast<uint8_t*>(out);
  for (; n > 0; n--, x += kSuperBlock, to += 56) {
    float own[kSuperBlock];
    for (size_t i = 0; i < kSuperBlock && weights == nullptr; i++) own[i] = x[i] * x[i];
    const float* const w = weights == nullptr ? own : weights;
    Parts parts = {};
    const float most = search_parts(of, x, w, parts);
    float d = most / 15;
    // Fit the scale to all points.
    Ternary::Sums sums;
    for (size_t i = 0; i < kGroups && most > 0; i++) {
      sums.take(x + 8 * i, w + 8 * i, of.grid.points[parts.points[i]], parts.down[i], 2 * parts.scales[i / 2] + 1);
    }
    if (sums.q2 > 0) d = sums.qx / sums.q2;
    const uint16_t half = float16_of(d * 1.1125f);
    std::memset(to, 0, 56);
    pack_iq1_m(parts, half, to);
    if ((half & 0x7FFF) > kFloat16Largest) return false;
    if (weights != nullptr) weights += kSuperBlock;
  }
  return true;
}

void dequantize_iq1_s(const std::byte* blocks, size_t n, float* x) {
  const auto* from = reinterpret_cast<const uint8_t*>(blocks);
  for (; n > 0; n--, from += 50, x += kSuperBlock) {
    Parts parts;
    unpack_iq1_s(from, parts);
    restore(parts, static_cast<uint16_t>(from[0] | from[1] << 8), grid_points(GridName::kIQ1), x);
  }
}

void dequantize_iq1_m(const std::byte* blocks, size_t n, float* x) {
  const auto* from = reinterpret_cast<const uint8_t*>(blocks);
  for (; n > 0; n--, from += 56, x += kSuperBlock) {
    Parts parts;
    const uint16_t half = unpack_iq1_m(from, parts);
    restore(parts, half, grid_points(GridName::kIQ1), x);
  }
}

}  // namespace scalepoint::loops
