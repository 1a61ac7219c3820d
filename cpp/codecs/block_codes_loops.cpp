#include "codecs/block_codes_loops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "arrays/min_max_loops.h"
#include "arrays/minifloat_loops.h"
#include "lanes/lanes.h"

namespace scalepoint::loops {

using namespace lanes;

namespace {

/// 2^23. If an integer below it is added, the lowest bits of the sum are that integer.
constexpr float kWhole = 8388608.0f;
/// The largest float below 1/2. Added to a positive number before truncation, it rounds halves up, and numbers below them down.
constexpr float kHalf = 0x1.fffffep-2f;

/// Saturates to [0, levels] and rounds half away from zero.
F32x4 rounded(F32x4 code, float levels) { return trunc(add(pmin(pmax(code, splat(0.0f)), splat(levels)), splat(kHalf))); }

/// The parameters of four blocks.
struct FourBlocks {
  F32x4 scale, reciprocal, zero_point;

  FourBlocks(const BlockCodes& blocks, size_t i)
      : scale(load(blocks.scale + i)), reciprocal(load(blocks.reciprocal + i)), zero_point(load(blocks.zero_point + i)) {}
  /// Rounded codes of four values, as floats.
  [[nodiscard]] F32x4 codes(F32x4 x, float levels) const { return rounded(add(mul(x, reciprocal), zero_point), levels); }
  [[nodiscard]] F32x4 values(F32x4 code) const { return mul(sub(code, zero_point), scale); }
};

/// A whole number below 2^23.
I32x4 whole(F32x4 x) { return sub(bits(add(x, splat(kWhole))), bits(splat(kWhole))); }

/// The codes of n neighbors in each of four columns, together at most 16 bits. They stay floats, which hold 24 bits exactly.
template <size_t kRows>
F32x4 joined(const float* x, size_t rows, const FourBlocks& four, const BlockCodes& blocks, float radix, float* y) {
  F32x4 sum = splat(0.0f);
  for (size_t row = kRows > 0 ? kRows : rows; row-- > 0;) {
    const F32x4 code = four.codes(load(x + row * kPanel), blocks.levels);
    if (y != nullptr) store(y + row * kPanel, four.values(code));
    sum = add(mul(sum, splat(radix)), code);
  }
  return sum;
}

}  // namespace

void make_block_codes(const float* x, size_t n, const BlockCodes& blocks, uint8_t* codes, float* y) {
  const auto eight = [&](const float* xs, const BlockCodes& p, size_t i, uint8_t* made, float* ys) {
    I32x4 c[2];
    SCALEPOINT_PER_VECTOR
    for (size_t j = 0; j < 2; j++) {
      const FourBlocks four(p, i + 4 * j);
      const F32x4 code = four.codes(load(xs + 4 * j), p.levels);
      if (ys != nullptr) store(ys + 4 * j, four.values(code));
      c[j] = whole(code);
    }
    store_eight_codes(made, c[0], c[1]);
  };
  size_t i = 0;
  for (; i + 8 <= n; i += 8) eight(x + i, blocks, i, codes + i, y == nullptr ? nullptr : y + i);
  if (i == n) return;
  float few[4][8] = {};
  const float* const from[4] = {x, blocks.scale, blocks.reciprocal, blocks.zero_point};
  for (size_t j = 0; j < 4; j++) std::memcpy(few[j], from[j] + i, (n - i) * sizeof(float));
  uint8_t made[8];
  eight(few[0], {few[1], few[2], few[3], blocks.levels}, 0, made, few[0]);
  std::memcpy(codes + i, made, n - i);
  if (y != nullptr) std::memcpy(y + i, few[0], (n - i) * sizeof(float));
}

void choose_blocks(const float* min, const float* max, size_t n, int32_t width, bool symmetric, bool half, float* scale,
                   float* reciprocal, float* zero_point) {
  const F32x4 zero = splat(0.0f), infinity = from_bits(splat(static_cast<int32_t>(kInfinityBits)));
  const auto middle = static_cast<float>(1 << (width - 1)), levels = static_cast<float>((1 << width) - 1);
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < n; i += 4) {
    F32x4 low = load(min + i), high = load(max + i);
    if (symmetric) {
      store(scale + i, div(select(greater(abs(high), abs(low)), high, low), splat(-middle)));
    } else {
      low = pmin(zero, low);
      store(scale + i, div(sub(pmax(zero, high), low), splat(levels)));
    }
    if (half) {
      uint16_t stored[4];
      float32_to_float16(scale + i, 4, stored);
      float16_to_float32(stored, 4, scale + i);
    }
    const F32x4 stored = load(scale + i), inverse = div(splat(1.0f), stored);
    const I32x4 vanishes = equal(abs(inverse), infinity);
    store(scale + i, select(vanishes, zero, stored));
    store(reciprocal + i, select(vanishes, zero, inverse));
    const F32x4 exact = select(vanishes, low, sub(zero, div(low, stored)));
    store(zero_point + i, symmetric ? splat(middle) : rounded(exact, levels));
  }
}

uint32_t panel_range(const float* panel, size_t rows, float* min, float* max) {
  if constexpr (!kSimd) {
    // Takes less code than vectors in the scalar build.
    std::fill_n(min, kPanel, HUGE_VALF);
    std::fill_n(max, kPanel, -HUGE_VALF);
    uint32_t largest = 0;
    for (size_t row = 0; row < rows; row++) {
      largest = std::max(largest, range_each(panel + row * kPanel, kPanel, false, min, max));
    }
    return largest;
  }
  I32x4 largest = splat(0);
  for (size_t i = 0; i < kPanel; i += 4) {
    F32x4 low = load(panel + i), high = low;
    SCALEPOINT_NO_UNROLL
    for (size_t row = 0; row < rows; row++) {
      const F32x4 x = load(panel + row * kPanel + i);
      low = pmin(low, x);
      high = pmax(high, x);
      largest = max_unsigned(largest, twice_magnitude_bits(x));
    }
    // Adding 0 turns -0 into +0.
    store(min + i, add(low, splat(0.0f)));
    store(max + i, add(high, splat(0.0f)));
  }
  return largest_lane(largest) >> 1;
}

void make_panel_codes(const float* panel, size_t rows, size_t size, const BlockCodes& blocks, int32_t width, int32_t* words,
                      float* y) {
  const auto bits_of_code = static_cast<size_t>(width);
  if constexpr (!kSimd) {
    // Takes less code than vectors in the scalar build.
    std::fill_n(words, kPanel * size * bits_of_code / 32, 0);
    for (size_t row = 0; row < rows; row++) {
      uint8_t codes[kPanel];
      make_block_codes(panel + row * kPanel, kPanel, blocks, codes, y == nullptr ? nullptr : y + row * kPanel);
      int32_t* const word = words + row * bits_of_code / 32 * kPanel;
      const size_t shift = row * bits_of_code % 32;
      for (size_t i = 0; i < kPanel; i++) word[i] |= static_cast<int32_t>(static_cast<uint32_t>(codes[i]) << shift);
    }
    return;
  }
  const size_t joins = 16 / bits_of_code;
  const auto radix = static_cast<float>(1 << width);
  for (size_t i = 0; i < kPanel; i += 4) {
    const FourBlocks four(blocks, i);
    const auto half_word = [&](size_t row) {
      const size_t left = row < rows ? rows - row : 0, at = row * kPanel + i;
      float* const ys = y == nullptr ? nullptr : y + at;
      if (width == 4 && left >= 4) return whole(joined<4>(panel + at, 4, four, blocks, radix, ys));
      return whole(joined<0>(panel + at, left < joins ? left : joins, four, blocks, radix, ys));
    };
    int32_t* to = words + i;
    SCALEPOINT_NO_UNROLL
    for (size_t row = 0; row < size; row += 2 * joins, to += kPanel) {
      store(to, add(half_word(row), shift_left<16>(half_word(row + joins))));
    }
  }
}

void put_words(const int32_t* words, size_t count, size_t some, uint8_t* to, size_t stride) {
  size_t word = 0;
  for (; kSimd && some == kPanel && word + 4 <= count; word += 4) {
    for (size_t i = 0; i < kPanel; i += 4) {
      F32x4 v[4];
      for (size_t j = 0; j < 4; j++) v[j] = from_bits(load(words + (word + j) * kPanel + i));
      transpose(v[0], v[1], v[2], v[3]);
      for (size_t j = 0; j < 4; j++) store(reinterpret_cast<float*>(to + (i + j) * stride + 4 * word), v[j]);
    }
  }
  for (; word < count; word++) {
    for (size_t i = 0; i < some; i++) std::memcpy(to + i * stride + 4 * word, words + word * kPanel + i, sizeof(int32_t));
  }
}

void take_panels(const float* x, size_t rows, size_t width, size_t some, float* panels) {
  const size_t rest = some % kPanel, step = rows * kPanel;
  if (rest > 0) std::memset(panels + (some - rest) * rows, 0, step * sizeof(float));
  SCALEPOINT_NO_UNROLL
  for (size_t row = 0; row < rows; row++, x += width, panels += kPanel) {
    float* to = panels;
    for (size_t i = 0; i < some; i += kPanel, to += step) {
      if (!kSimd || i + kPanel > some) {
        std::memcpy(to, x + i, std::min(kPanel, some - i) * sizeof(float));
        continue;
      }
      SCALEPOINT_PER_VECTOR
      for (size_t j = 0; j < kPanel; j += 4) store(to + j, load(x + i + j));
    }
  }
}

void gather_columns(const float* x, size_t rows, size_t width, size_t some, float* columns, size_t stride) {
  size_t row = 0;
  for (; kSimd && row + 4 <= rows; row += 4) {
    const float* const from = x + row * width;
    size_t i = 0;
    for (; i + 4 <= some; i += 4) {
      F32x4 a = load(from + i), b = load(from + width + i), c = load(from + 2 * width + i), d = load(from + 3 * width + i);
      transpose(a, b, c, d);
      float* const to = columns + i * stride + row;
      store(to, a);
      store(to + stride, b);
      store(to + 2 * stride, c);
      store(to + 3 * stride, d);
    }
    for (; i < some; i++) {
      for (size_t j = 0; j < 4; j++) columns[i * stride + row + j] = from[j * width + i];
    }
  }
  for (; row < rows; row++) {
    for (size_t i = 0; i < some; i++) columns[i * stride + row] = x[row * width + i];
  }
}

}  // namespace scalepoint::loops
