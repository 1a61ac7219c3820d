// Dot products of integers; layer_loops.h describes the layout of weights and activations. V8 loads all vectors of a step before it
// computes, and 14 vectors fit into the registers. So the loops keep few vectors alive: at most eight sums.
#include "layers/layer_loops.h"

#include <cmath>
#include <cstring>

#include "lanes/lanes.h"
#include "lanes/round.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

/// Sums of a tile: [row of activations][rows 0 to 3, rows 4 to 7].
template <int kRows>
struct Dots {
  I32x4 v[kRows][2];
};

template <int kRows>
inline void add_pair(Dots<kRows>& dots, I16x8 low, I16x8 high, const int16_t* x) {
  for (int r = 0; r < kRows; r++) {
    const I16x8 pair = splat_pair(x + 2 * r);
    dots.v[r][0] = add(dots.v[r][0], dot(low, pair));
    dots.v[r][1] = add(dots.v[r][1], dot(high, pair));
  }
}

template <int kBits, int kRows>
inline Dots<kRows> dots_of(const std::byte* weights, size_t columns, const int16_t* x) {
  Dots<kRows> dots;
  for (int r = 0; r < kRows; r++) dots.v[r][0] = dots.v[r][1] = splat(0);
  const int16_t* const end = x + columns * kRows;
  if constexpr (kBits == 16) {
    const auto* w = reinterpret_cast<const int16_t*>(weights);
    SCALEPOINT_NO_UNROLL
    for (; x != end; x += 2 * kRows, w += 16) add_pair(dots, load(w), load(w + 8), x);
  } else if constexpr (kBits == 8) {
    // Use at most 14 vectors for loads and sums. A pair loads two vectors of weights and kRows of activations.
    constexpr size_t kPairs = kRows == 1 ? 4 : 2;
    const auto* w = reinterpret_cast<const int8_t*>(weights);
    SCALEPOINT_NO_UNROLL
    for (; x != end; x += 2 * kRows * kPairs, w += 16 * kPairs) {
      for (size_t p = 0; p < kPairs; p++) add_pair(dots, widen(w + 16 * p), widen(w + 16 * p + 8), x + 2 * kRows * p);
    }
  } else {
    constexpr size_t kSteps = kRows == 1 ? 2 : 1;
    const auto* w = reinterpret_cast<const uint8_t*>(weights);
    SCALEPOINT_NO_UNROLL
    for (; x != end; x += 4 * kRows * kSteps, w += 16 * kSteps) {
      for (size_t s = 0; s < kSteps; s++) {
        const I16x8 low = widen(w + 16 * s), high = widen(w + 16 * s + 8);
        add_pair(dots, low_nibbles(low), low_nibbles(high), x + 4 * kRows * s);
        add_pair(dots, high_nibbles(low), high_nibbles(high), x + 4 * kRows * s + 2 * kRows);
      }
    }
  }
  return dots;
}

inline void add_to(double* total, F64x2 low, F64x2 high) {
  store(total, add(load(total), low));
  store(total + 2, add(load(total + 2), high));
}

/// Adds the sums of segment i to the totals. kPlanes rows of integers make one row of activations. kScaled is true if groups have scales.
template <int kRows, int kPlanes, bool kScaled>
inline void add_segment(const Dots<kRows>& dots, const LayerTile& tile, const Activations& x, size_t i, double* total) {
  constexpr int kVectors = kRows / kPlanes;
  for (int half = 0; half < 2; half++) {
    const size_t lanes = x.segments[i].group * kTileRows + 4 * half;
    F64x2 scale_low, scale_high;
    if constexpr (kScaled) {
      const F32x4 scale = load(tile.scale + lanes);
      scale_low = widen_low(scale);
      scale_high = widen_high(scale);
    }
    for (int v = 0; v < kVectors; v++) {
      F64x2 low = to_double_low(dots.v[v * kPlanes][half]), high = to_double_high(dots.v[v * kPlanes][half]);
      // Join the planes of float activations.
      if constexpr (kPlanes == 2) {
        const F64x2 unit = splat(32768.0);
        low = add(mul(low, unit), to_double_low(dots.v[v * kPlanes + 1][half]));
        high = add(mul(high, unit), to_double_high(dots.v[v * kPlanes + 1][half]));
      }
      // Subtract the zero points.
      if (tile.zero != nullptr) {
        const F32x4 zero = load(tile.zero + lanes);
        const F64x2 sum = splat(x.sum[i * kVectors + v]);
        low = sub(low, mul(widen_low(zero), sum));
        high = sub(high, mul(widen_high(zero), sum));
      } else if (tile.common_zero != 0) {
        const F64x2 shift = splat(tile.common_zero * x.sum[i * kVectors + v]);
        low = sub(low, shift);
        high = sub(high, shift);
      }
      // Multiply by the scales, and add to the totals.
      if constexpr (kPlanes == 2) {
        const F64x2 factor = splat(x.factor[i * kVectors + v]);
        if constexpr (kScaled) {
          low = mul(low, mul(scale_low, factor));
          high = mul(high, mul(scale_high, factor));
        } else {
          low = mul(low, factor);
          high = mul(high, factor);
        }
      } else if constexpr (kScaled) {
        low = mul(low, scale_low);
        high = mul(high, scale_high);
      }
      add_to(total + v * kTileRows + 4 * half, low, high);
    }
  }
}

/// kRows rows of integers.
template <int kBits, int kRows, int kPlanes, bool kScaled>
void accumulate_with(const LayerTile& tile, const Activations& x, double* total) {
  const int16_t* values = x.values;
  for (size_t i = 0, n = static_cast<size_t>(x.count); i < n; i++) {
    const Segment& segment = x.segments[i];
    const Dots<kRows> dots = dots_of<kBits, kRows>(tile.weights + size_t{segment.start} * kBits, segment.length, values);
    values += segment.length * kRows;
    add_segment<kRows, kPlanes, kScaled>(dots, tile, x, i, total);
  }
}

#ifdef SCALEPOINT_SIMD_LANES

/// One row of x and kTilesTogether tiles of 8 bits, `stride` bytes apart. A pair of columns loads one vector of activations for all tiles.
inline void dots_of_tiles(const std::byte* weights, size_t stride, size_t columns, const int16_t* x,
                          Dots<1> (&dots)[kTilesTogether]) {
  for (Dots<1>& tile : dots) tile.v[0][0] = tile.v[0][1] = splat(0);
  const auto* w = reinterpret_cast<const int8_t*>(weights);
  const int16_t* const end = x + columns;
  SCALEPOINT_NO_UNROLL
  for (; x != end; x += 2, w += 16) {
    for (size_t t = 0; t < kTilesTogether; t++) {
      const int8_t* const tile = w + t * stride;
      add_pair(dots[t], widen(tile), widen(tile + 8), x);
    }
  }
}

template <bool kScaled>
void accumulate_tiles_with(const LayerTile* tiles, const Activations& x, double* total) {
  const int16_t* values = x.values;
  const auto stride = static_cast<size_t>(tiles[1].weights - tiles[0].weights);
  for (size_t i = 0, n = static_cast<size_t>(x.count); i < n; i++) {
    const Segment& segment = x.segments[i];
    Dots<1> dots[kTilesTogether];
    dots_of_tiles(tiles->weights + size_t{segment.start} * 8, stride, segment.length, values, dots);
    values += segment.length;
    for (size_t t = 0; t < kTilesTogether; t++) add_segment<1, 1, kScaled>(dots[t], tiles[t], x, i, total + t * kTileRows);
  }
}

#endif

template <int kBits, int kRows, int kPlanes>
void accumulate(const LayerTile& tile, const Activations& x, double* total) {
  if (tile.scale != nullptr)
    accumulate_with<kBits, kRows, kPlanes, true>(tile, x, total);
  else
    accumulate_with<kBits, kRows, kPlanes, false>(tile, x, total);
}

#ifdef SCALEPOINT_SIMD_LANES

// Between eight rows of codes and a tile, in steps of sixteen columns, which are eight columns of pairs.

constexpr size_t kStepColumns = 16;

/// Eight rows of a step.
struct StepRows {
  uint8_t v[kTileRows][kStepColumns];
};

/// Columns with their padding.
constexpr size_t padded(size_t columns) { return (columns + kColumnStep - 1) / kColumnStep * kColumnStep; }

template <int kBits>
inline void fill_step(const uint8_t* codes, size_t stride, U8x16 offset, uint8_t* to) {
  I16x8 rows[kTileRows];
  for (size_t r = 0; r < kTileRows; r++) rows[r] = as_int16s(add(load(codes + r * stride), offset));
  transpose(rows);
  for (size_t i = 0; i < kTileRows; i += 8 / kBits, to += 16) {
    const U8x16 low = as_bytes(rows[i]);
    store(to, kBits == 8 ? low : bit_or(low, shift_left<4>(as_bytes(rows[i + 1]))));
  }
}

template <int kBits>
void fill_rows(const uint8_t* codes, size_t stride, size_t columns, U8x16 offset, uint8_t* tile) {
  size_t c = 0;
  SCALEPOINT_NO_UNROLL
  for (; c + kStepColumns <= columns; c += kStepColumns) fill_step<kBits>(codes + c, stride, offset, tile + c * kBits);
  if (const size_t rest = columns - c; rest > 0) {
    StepRows rows = {};
    uint8_t made[kTileRows * kStepColumns];
    for (size_t r = 0; r < kTileRows; r++) std::memcpy(rows.v[r], codes + r * stride + c, rest);
    fill_step<kBits>(rows.v[0], kStepColumns, offset, made);
    std::memcpy(tile + c * kBits, made, padded(rest) * kBits);
  }
}

inline void read_step(const uint8_t* tile, uint8_t* codes, size_t stride) {
  I16x8 rows[kTileRows];
  for (size_t r = 0; r < kTileRows; r++) rows[r] = as_int16s(load(tile + r * 16));
  transpose(rows);
  for (size_t r = 0; r < kTileRows; r++) store(codes + r * stride, as_bytes(rows[r]));
}

void read_rows(const uint8_t* tile, size_t columns, uint8_t* codes, size_t stride) {
  size_t c = 0;
  SCALEPOINT_NO_UNROLL
  for (; c + kStepColumns <= columns; c += kStepColumns) read_step(tile + c * 8, codes + c, stride);
  if (const size_t rest = columns - c; rest > 0) {
    StepRows rows;
    uint8_t stored[kTileRows * kStepColumns] = {};
    std::memcpy(stored, tile + c * 8, padded(rest) * 8);
    read_step(stored, rows.v[0], kStepColumns);
    for (size_t r = 0; r < kTileRows; r++) std::memcpy(codes + r * stride + c, rows.v[r], rest);
  }
}

#endif

/// 2^e, from the smallest normal number to the largest power.
inline float power_of_two(int e) { return bit_cast<float>(static_cast<uint32_t>(e + 127) << 23); }

/// Adds the products of one column of floats to sums.
template <int kRows>
inline void add_products(F32x4 (&sums)[kRows][2], const float* w, const float* x) {
  const F32x4 low = load(w), high = load(w + 4);
  for (int r = 0; r < kRows; r++) {
    const F32x4 value = splat(x[r]);
    sums[r][0] = add(sums[r][0], mul(low, value));
    sums[r][1] = add(sums[r][1], mul(high, value));
  }
}

template <int kRows>
void accumulate_floats(const float* w, size_t columns, const float* x, float* total) {
  // A single row has two sums for each lane and takes turns, because an addition waits for the one before it.
  constexpr int kTurns = kRows == 1 ? 2 : 1;
  for (size_t at = 0; at < columns; at += kFloatBlock) {
    const size_t size = columns - at < kFloatBlock ? columns - at : kFloatBlock;
    F32x4 sums[kTurns][kRows][2];
    for (auto& turn : sums) {
      for (auto& row : turn) row[0] = row[1] = splat(0.0f);
    }
    const float* const end = x + size * kRows;
    SCALEPOINT_NO_UNROLL
    for (; x != end; x += kRows * kTurns, w += kTileRows * kTurns) {
      for (int t = 0; t < kTurns; t++) add_products(sums[t], w + t * kTileRows, x + t * kRows);
    }
    for (int r = 0; r < kRows; r++) {
      for (int half = 0; half < 2; half++) {
        F32x4 sum = sums[0][r][half];
        if constexpr (kTurns == 2) sum = add(sum, sums[1][r][half]);
        float* const to = total + r * kTileRows + 4 * half;
        store(to, add(load(to), sum));
      }
    }
  }
}

}  // namespace

void accumulate_int8(int bits, const LayerTile& tile, const Activations& x, double* total) {
  if (bits == 16)
    accumulate<16, 4, 1>(tile, x, total);
  else if (bits == 8)
    accumulate<8, 1, 1>(tile, x, total);
  else
    accumulate<4, 1, 1>(tile, x, total);
}

void accumulate_int8_tiles(const LayerTile* tiles, const Activations& x, double* total) {
#ifdef SCALEPOINT_SIMD_LANES
  (tiles->scale != nullptr ? accumulate_tiles_with<true> : accumulate_tiles_with<false>)(tiles, x, total);
#else
  // Without vectors, tiles at once are no faster.
  for (size_t t = 0; t < kTilesTogether; t++) accumulate_int8(8, tiles[t], x, total + t * kTileRows);
#endif
}

void accumulate_float32(int bits, const LayerTile& tile, const Activations& x, double* total) {
  if (bits == 16)
    accumulate<16, 4, 2>(tile, x, total);
  else if (bits == 8)
    accumulate<8, 2, 2>(tile, x, total);
  else
    accumulate<4, 2, 2>(tile, x, total);
}

void fill_tile(int bits, const uint8_t* codes, size_t stride, uint8_t offset, const TilePart& part) {
#ifdef SCALEPOINT_SIMD_LANES
  if (part.count == kTileRows) {
    (bits == 8 ? fill_rows<8> : fill_rows<4>)(codes, stride, part.columns, splat(offset), part.tile);
    return;
  }
#endif
  for (size_t r = part.first; r < part.first + part.count; r++, codes += stride) {
    uint8_t* const tile = part.tile + r * 2;
    for (size_t c = 0; c < part.columns; c++) {
      const auto code = static_cast<uint8_t>(codes[c] + offset);
      if (bits == 8) {
        tile[c / 2 * 16 + c % 2] = code;
      } else {
        uint8_t& both = tile[c / 4 * 16 + c % 2];
        both = static_cast<uint8_t>(c % 4 < 2 ? (both & 0xF0) | code : (both & 0x0F) | code << 4);
      }
    }
  }
}

void read_tile(const TilePart& part, uint8_t* codes, size_t stride) {
#ifdef SCALEPOINT_SIMD_LANES
  if (part.count == kTileRows) {
    read_rows(part.tile, part.columns, codes, stride);
    return;
  }
#endif
  for (size_t r = part.first; r < part.first + part.count; r++, codes += stride) {
    for (size_t c = 0; c < part.columns; c++) codes[c] = part.tile[c / 2 * 16 + r * 2 + c % 2];
  }
}

void widen_tile(int bits, const std::byte* weights, size_t columns, int16_t less, int16_t* to) {
  const I16x8 zero = splat(less);
  if (bits == 8) {
    const auto* w = reinterpret_cast<const int8_t*>(weights);
    for (size_t i = 0; i < columns * kTileRows; i += 8) store(to + i, sub(widen(w + i), zero));
  } else {
    const auto* w = reinterpret_cast<const uint8_t*>(weights);
    for (size_t c = 0; c < columns; c += 4, w += 16, to += 32) {
      const I16x8 low = widen(w), high = widen(w + 8);
      store(to, sub(low_nibbles(low), zero));
      store(to + 8, sub(low_nibbles(high), zero));
      store(to + 16, sub(high_nibbles(low), zero));
      store(to + 24, sub(high_nibbles(high), zero));
    }
  }
}

FixedPoint to_fixed_point(float* x, size_t n, size_t step, int16_t* to) {
  I32x4 largest = splat(0);
  for (size_t i = 0; i < n; i += 4) largest = max_unsigned(largest, magnitude_bits(load(x + i)));
  const uint32_t top = largest_lane(largest);
  if (top >= kInfinityBits) return {.factor = 0, .sum = 0, .finite = false, .more = false};

  // 2^(e - 1) <= largest < 2^e. For zeros e = 29, with which everything is finite.
  int e = 29;
  if (top > 0) std::frexp(bit_cast<float>(top), &e);
  // Scale by 2^(29 - e), from 2^-99 to 2^177, in two steps. Scaling up is exact. Scaling down may lose bits below 2^-99 of the largest,
  // which become 0 anyway. Scaling back is exact.
  const int exponent = 29 - e, first = exponent > 126 ? 126 : exponent, second = exponent - first;
  const F32x4 up_first = splat(power_of_two(first)), up_second = splat(power_of_two(second));
  const F32x4 down_first = splat(power_of_two(-first)), down_second = splat(power_of_two(-second));
  const F32x4 magic = splat(kMagic), to_high = splat(0x1p-15f), from_high = splat(0x1p15f), threshold = splat(0x1p22f);
  const F32x4 zero = splat(0.0f);
  const I32x4 magic_bits = splat(kMagicBits);
  I32x4 high_sum = splat(0), low_sum = splat(0), nonzero = splat(0), coarse = splat(0);
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < n; i += 8, to += 4 * step) {
    I32x4 high[2], low[2];
    for (int j = 0; j < 2; j++) {
      const F32x4 value = load(x + i + 4 * j), scaled = mul(mul(value, up_first), up_second);
      // |scaled| < 2^29. The high part is the nearest multiple of 2^15, half to even. The low part is the rest, at most 2^14.
      const F32x4 high_magic = add(mul(scaled, to_high), magic);
      const F32x4 rest = sub(scaled, mul(sub(high_magic, magic), from_high));
      const F32x4 low_magic = add(rest, magic);
      high[j] = sub(bits(high_magic), magic_bits);
      low[j] = sub(bits(low_magic), magic_bits);
      high_sum = add(high_sum, high[j]);
      low_sum = add(low_sum, low[j]);
      const F32x4 lost = sub(rest, sub(low_magic, magic)), kept = sub(scaled, lost);
      const F32x4 remainder = sub(value, mul(mul(kept, down_second), down_first));
      store(x + i + 4 * j, remainder);
      const F32x4 magnitude = abs(value);
      nonzero = sub(nonzero, greater(magnitude, zero));
      coarse = sub(coarse, greater(mul(abs(remainder), threshold), magnitude));
    }
    store_pairs(to, step, high[0], high[1]);
    store_pairs(to + 2, step, low[0], low[1]);
  }
  int32_t counts[4][4];
  store(counts[0], high_sum);
  store(counts[1], low_sum);
  store(counts[2], nonzero);
  store(counts[3], coarse);
  int64_t sums[4] = {0, 0, 0, 0};
  for (int s = 0; s < 4; s++) {
    for (const int32_t lane : counts[s]) sums[s] += lane;
  }
  return {.factor = std::ldexp(1.0, -exponent),
          .sum = static_cast<double>(sums[0] * 32768 + sums[1]),
          .finite = true,
          .more = sums[3] > 0 && 2 * sums[3] >= sums[2]};
}

void accumulate_plain(size_t rows, const float* weights, size_t columns, const float* x, float* total) {
  if (rows == 4)
    accumulate_floats<4>(weights, columns, x, total);
  else
    accumulate_floats<1>(weights, columns, x, total);
}

}  // namespace scalepoint::loops
