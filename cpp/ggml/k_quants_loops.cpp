// ggml's super-blocks: the layouts of Q2_K to Q6_K, and the making of super-blocks from the scales of their sub-blocks. The searches
// for those scales are in k_quants_search_loops.h. Source: github.com/ggml-org/ggml d99724f, src/ggml-quants.c.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "ggml/ggml_loops.h"
#include "ggml/k_quants_packing_loops.h"
#include "ggml/k_quants_search_loops.h"
#include "lanes/float16.h"

namespace scalepoint::loops {
namespace {

using namespace superblocks;

// ----------------------------------------------------------------------------------------------------------------- layouts

/// x = d * scale * level - dmin * min, sub-blocks of 16; scales[i] holds scale and min of sub-block i. 2.625 bits per weight.
struct BlockQ2K {
  uint8_t scales[16], low[64], d[2], dmin[2];
};
/// x = d * (scale - 32) * (level - 4), sub-blocks of 16. 3.4375 bits per weight.
struct BlockQ3K {
  uint8_t high[32], low[64], scales[12], d[2];
};
/// x = d * scale * level - dmin * min, sub-blocks of 32. 4.5 bits per weight.
struct BlockQ4K {
  uint8_t d[2], dmin[2], scales[12], low[128];
};
/// The same with a fifth bit. 5.5 bits per weight.
struct BlockQ5K {
  uint8_t d[2], dmin[2], scales[12], high[32], low[128];
};
/// x = d * scale * (level - 32), sub-blocks of 16, signed scales. 6.5625 bits per weight.
struct BlockQ6K {
  uint8_t low[128], high[64], scales[16], d[2];
};
static_assert(sizeof(BlockQ2K) == 84 && sizeof(BlockQ3K) == 110 && sizeof(BlockQ4K) == 144 && sizeof(BlockQ5K) == 176 &&
              sizeof(BlockQ6K) == 210);

// ----------------------------------------------------------------------------------------------------------------- float16

/// Stores x as float16 and returns the stored value.
float store_float16(float x, uint8_t (&to)[2]) {
  const uint16_t half = float16_of(x);
  to[0] = static_cast<uint8_t>(half);
  to[1] = static_cast<uint8_t>(half >> 8);
  return float16_value(half);
}

float load_float16(const uint8_t (&from)[2]) { return float16_value(static_cast<uint16_t>(from[0] | from[1] << 8)); }

// ------------------------------------------------------------------------------------------------------- scales and levels

/// clamp(nearest_int((x + minimum) / scale) + zero, 0, top) for the elements of a sub-block.
void final_levels(const float* x, size_t size, float scale, float minimum, int32_t zero, int32_t top, uint8_t* levels) {
  const F32x4 s = splat(scale), m = splat(minimum);
  const I32x4 mask = splat(0x007FFFFF), bias = splat(0x00400000 - zero);
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < size; i += 16) {
    I32x4 l[4];
    for (size_t j = 0; j < 4; j++) {
      l[j] = sub(bit_and(bits(add(div(add(load(x + i + 4 * j), m), s), splat(kMagic))), mask), bias);
    }
    store_codes(levels + i, l[0], l[1], l[2], l[3], 0, top);
  }
}

/// Quantizes the scales or the minimums of the sub-blocks. Returns the largest. All codes are 0 unless one value is above 0.
float quantize_scales(const float* values, size_t n, int32_t largest, uint8_t* codes) {
  float most = 0;
  for (size_t b = 0; b < n; b++) most = values[b] > most ? values[b] : most;
  const float inverse = most > 0 ? static_cast<float>(largest) / most : 0;
  for (size_t b = 0; b < n; b++) codes[b] = static_cast<uint8_t>(nearest_int(inverse * values[b]));
  return most;
}

struct AffineBlock {
  uint8_t scales[16], minimums[16], levels[kElements];
};

/// The weights of sub-blocks: the sums of those of their elements.
void sum_weights(const float* weights, size_t size, float* sums) {
  for (size_t b = 0; b < kElements / size; b++) {
    sums[b] = 0;
    for (size_t i = 0; i < size; i++) sums[b] += weights[b * size + i];
  }
}

/// Makes a super-block from the scales and minimums of its sub-blocks.
void finish_affine(const float* x, const AffineRule& rule, const float* weights, const float* scales, const float* minimums,
                   AffineBlock& block, uint8_t (&d)[2], uint8_t (&dmin)[2]) {
  const size_t n = kElements / rule.size;
  float sums[16];
  if (weights != nullptr) sum_weights(weights, rule.size, sums);
  const auto quantize = [&](const float* values, uint8_t* codes) {
    if (weights != nullptr) return search_positive(values, n, rule.largest, sums, codes);
    return quantize_scales(values, n, rule.largest, codes) / static_cast<float>(rule.largest);
  };
  const float scale = store_float16(quantize(scales, block.scales), d);
  const float minimum = store_float16(quantize(minimums, block.minimums), dmin);
  for (size_t b = 0; b < n; b++) {
    uint8_t &s = block.scales[b], &m = block.minimums[b];
    if (rule.largest == 15) {
      // A negative scale overflows its nibble into that of the minimum, as in ggml.
      m = static_cast<uint8_t>((m | s >> 4) & 15);
      s &= 15;
    } else {
      s = s < 63 ? s : 63;
      m = m < 63 ? m : 63;
    }
    const float step = scale * static_cast<float>(s);
    const float* p = x + b * rule.size;
    uint8_t* levels = block.levels + b * rule.size;
    if (step == 0) {
      search_affine(p, rule, weights == nullptr ? nullptr : weights + b * rule.size, levels);
    } else {
      final_levels(p, rule.size, step, minimum * static_cast<float>(m), 0, rule.top, levels);
    }
  }
}

/// Calls finish(block, parts) for each block, which puts the parts into their places. Sixteen sub-blocks are searched at a time.
template <class Block, class Finish>
void quantize_affine(const float* x, const float* weights, size_t n, std::byte* out, const AffineRule& plain, Finish finish) {
  const AffineRule rule = weights == nullptr ? plain : weighted(plain);
  const size_t per_block = kElements / rule.size, together = kTogether / per_block;
  float scales[kTogether], minimums[kTogether];
  for (size_t i = 0; i < n; i++, x += kElements, out += sizeof(Block)) {
    const size_t j = i % together;
    if (j == 0) fit_affine(x, (n - i < together ? n - i : together) * per_block, rule, weights, scales, minimums, nullptr);
    Block block;
    AffineBlock parts;
    finish_affine(x, rule, weights, scales + j * per_block, minimums + j * per_block, parts, block.d, block.dmin);
    if (weights != nullptr) weights += kElements;
    finish(block, parts);
    std::memcpy(out, &block, sizeof(block));
  }
}

/// Eight scales and eight minimums of six bits each.
void pack_scales(const AffineBlock& block, uint8_t (&to)[12]) {
  const uint8_t *s = block.scales, *m = block.minimums;
  for (size_t j = 0; j < 4; j++) {
    to[j] = static_cast<uint8_t>(s[j] | s[j + 4] >> 4 << 6);
    to[j + 4] = static_cast<uint8_t>(m[j] | m[j + 4] >> 4 << 6);
    to[j + 8] = static_cast<uint8_t>((s[j + 4] & 15) | m[j + 4] << 4);
  }
}

// -------------------------------------------------------------------------------------------------------------- dequantize

/// x = scale * (level - zero) - minimum for sub-blocks of 16.
void restore(const uint8_t* levels, int32_t zero, const float* scales, const float* minimums, float* x) {
  const I32x4 z = splat(zero);
  SCALEPOINT_NO_UNROLL
  for (size_t b = 0; b < kElements / 16; b++) {
    const F32x4 scale = splat(scales[b]), minimum = splat(minimums[b]);
    I32x4 l[4];
    load_codes(levels + 16 * b, l);
    for (size_t j = 0; j < 4; j++) store(x + 16 * b + 4 * j, sub(mul(scale, to_float(opaque(sub(l[j], z)))), minimum));
  }
}

/// Scales and minimums of sub-blocks of 32, twice each: restore takes sub-blocks of 16.
void restore_scales(const uint8_t (&packed)[12], float d, float dmin, float* scales, float* minimums) {
  for (size_t j = 0; j < 8; j++) {
    const size_t k = j % 4;
    const int s = j < 4 ? packed[k] & 63 : (packed[k + 8] & 15) | packed[k] >> 6 << 4;
    const int m = j < 4 ? packed[k + 4] & 63 : packed[k + 8] >> 4 | packed[k + 4] >> 6 << 4;
    scales[2 * j] = scales[2 * j + 1] = d * static_cast<float>(s);
    minimums[2 * j] = minimums[2 * j + 1] = dmin * static_cast<float>(m);
  }
}

/// unpack_block(block, levels, scales, minimums) takes a block apart.
template <class Block, class Unpack>
void dequantize(const std::byte* blocks, size_t n, int32_t zero, float* x, Unpack unpack_block) {
  for (size_t i = 0; i < n; i++, blocks += sizeof(Block), x += kElements) {
    Block block;
    std::memcpy(&block, blocks, sizeof(Block));
    uint8_t levels[kElements];
    float scales[16], minimums[16] = {};
    unpack_block(block, levels, scales, minimums);
    restore(levels, zero, scales, minimums, x);
  }
}

}  // namespace

// ---------------------------------------------------------------------------------------------------------------- quantize

void quantize_q2_k(const float* x, const float* weights, size_t n, std::byte* out) {
  quantize_affine<BlockQ2K>(x, weights, n, out, kRuleQ2K, [](BlockQ2K& block, const AffineBlock& parts) {
    for (size_t j = 0; j < 16; j++) block.scales[j] = static_cast<uint8_t>(parts.scales[j] | parts.minimums[j] << 4);
    pack<kPairs>(parts.levels, block.low);
  });
}

void quantize_q4_k(const float* x, const float* weights, size_t n, std::byte* out) {
  quantize_affine<BlockQ4K>(x, weights, n, out, kRuleQ4K, [](BlockQ4K& block, const AffineBlock& parts) {
    pack_scales(parts, block.scales);
    pack<kNibbles>(parts.levels, block.low);
  });
}

void quantize_q5_k(const float* x, const float* weights, size_t n, std::byte* out) {
  quantize_affine<BlockQ5K>(x, weights, n, out, kRuleQ5K, [](BlockQ5K& block, const AffineBlock& parts) {
    pack_scales(parts, block.scales);
    pack<kFifth>(parts.levels, block.high);
    pack<kNibbles>(parts.levels, block.low);
  });
}

void quantize_q6_k(const float* x, const float* weights, size_t n, std::byte* out) {
  for (size_t i = 0; i < n; i++, x += kElements, out += sizeof(BlockQ6K)) {
    BlockQ6K block = {};
    uint8_t levels[kElements];
    float scales[kTogether];
    fit_scales(x, 16, kScaleQ6K, weights, scales, nullptr);
    const float far = farthest(scales, 16);
    if (!(std::fabs(far) < kTooSmall)) {
      const float inverse = -128 / far, d = store_float16(1 / inverse, block.d);
      for (size_t b = 0; b < 16; b++) {
        const int32_t scale = nearest_int(inverse * scales[b]);
        block.scales[b] = static_cast<uint8_t>(scale < 127 ? scale : 127);
        const float step = d * static_cast<float>(static_cast<int8_t>(block.scales[b]));
        if (step == 0) {
          search_scale(x + 16 * b, kScaleQ6K, weights == nullptr ? nullptr : weights + 16 * b, levels + 16 * b);
        } else {
          final_levels(x + 16 * b, 16, step, 0, 32, 63, levels + 16 * b);
        }
      }
      pack<kLowFour>(levels, block.low);
      pack<kHighTwo>(levels, block.high);
    }
    if (weights != nullptr) weights += kElements;
    std::memcpy(out, &block, sizeof(block));
  }
}

void quantize_q3_k(const float* x, const float* weights, size_t n, std::byte* out) {
  float scales[16 * kDescents];
  for (size_t i = 0; i < n; i++, x += kElements, out += sizeof(BlockQ3K)) {
    BlockQ3K block = {};
    uint8_t levels[kElements], codes[16];
    const size_t j = weights == nullptr ? i % kDescents : 0;
    float d = 0;
    if (weights != nullptr) {
      float sums[16];
      sum_weights(weights, 16, sums);
      fit_scales(x, 16, kScaleQ3K, weights, scales, nullptr);
      d = store_float16(search_scale(scales, kScaleQ6K, sums, codes), block.d);
    } else {
      if (j == 0) fit_descents(x, n - i < kDescents ? n - i : kDescents, scales);
      const float far = farthest(scales + 16 * j, 16), inverse = far != 0 ? -32 / far : 0;
      if (far != 0) d = store_float16(1 / inverse, block.d);
      for (size_t b = 0; b < 16; b++) {
        const auto scale = static_cast<int32_t>(static_cast<int8_t>(nearest_int(inverse * scales[16 * j + b])));
        codes[b] = static_cast<uint8_t>(far != 0 ? clamp(scale, -32, 31) + 32 : 0);
      }
    }
    for (size_t b = 0; b < 16; b++) {
      const uint32_t code = codes[b];
      block.scales[b % 8] = static_cast<uint8_t>(block.scales[b % 8] | (code & 15) << (b / 8 * 4));
      block.scales[8 + b % 4] = static_cast<uint8_t>(block.scales[8 + b % 4] | code >> 4 << (b / 4 * 2));
      const float step = d * static_cast<float>(static_cast<int32_t>(code) - 32);
      if (step != 0) {
        final_levels(x + 16 * b, 16, step, 0, 4, 7, levels + 16 * b);
      } else if (weights != nullptr) {
        search_scale(x + 16 * b, kScaleQ3K, weights + 16 * b, levels + 16 * b);
      } else {
        search_descent(x + 16 * b, levels + 16 * b);
      }
    }
    pack<kThird>(levels, block.high);
    pack<kPairs>(levels, block.low);
    if (weights != nullptr) weights += kElements;
    std::memcpy(out, &block, sizeof(block));
  }
}

// -------------------------------------------------------------------------------------------------------------- dequantize

void dequantize_q2_k(const std::byte* blocks, size_t n, float* x) {
  dequantize<BlockQ2K>(blocks, n, 0, x, [](const BlockQ2K& block, uint8_t* levels, float* scales, float* minimums) {
    const float d = load_float16(block.d), dmin = load_float16(block.dmin);
    unpack<kPairs>(block.low, levels);
    I32x4 both[4];
    load_codes(block.scales, both);
    for (size_t b = 0; b < 4; b++) {
      store(scales + 4 * b, mul(splat(d), to_float(opaque(bit_and(both[b], splat(15))))));
      store(minimums + 4 * b, mul(splat(dmin), to_float(opaque(shift_right<4>(both[b])))));
    }
  });
}

void dequantize_q3_k(const std::byte* blocks, size_t n, float* x) {
  dequantize<BlockQ3K>(blocks, n, 4, x, [](const BlockQ3K& block, uint8_t* levels, float* scales, float*) {
    const float d = load_float16(block.d);
    unpack<kPairs>(block.low, levels);
    unpack<kThird>(block.high, levels);
    for (size_t b = 0; b < 16; b++) {
      const int low = block.scales[b % 8] >> (b / 8 * 4) & 15, high = block.scales[8 + b % 4] >> (b / 4 * 2) & 3;
      scales[b] = d * static_cast<float>((low | high << 4) - 32);
    }
  });
}

void dequantize_q4_k(const std::byte* blocks, size_t n, float* x) {
  dequantize<BlockQ4K>(blocks, n, 0, x, [](const BlockQ4K& block, uint8_t* levels, float* scales, float* minimums) {
    restore_scales(block.scales, load_float16(block.d), load_float16(block.dmin), scales, minimums);
    unpack<kNibbles>(block.low, levels);
  });
}

void dequantize_q5_k(const std::byte* blocks, size_t n, float* x) {
  dequantize<BlockQ5K>(blocks, n, 0, x, [](const BlockQ5K& block, uint8_t* levels, float* scales, float* minimums) {
    restore_scales(block.scales, load_float16(block.d), load_float16(block.dmin), scales, minimums);
    unpack<kNibbles>(block.low, levels);
    unpack<kFifth>(block.high, levels);
  });
}

void dequantize_q6_k(const std::byte* blocks, size_t n, float* x) {
  dequantize<BlockQ6K>(blocks, n, 32, x, [](const BlockQ6K& block, uint8_t* levels, float* scales, float*) {
    const float d = load_float16(block.d);
    unpack<kLowFour>(block.low, levels);
    unpack<kHighTwo>(block.high, levels);
    I32x4 stored[4];
    load_codes(reinterpret_cast<const int8_t*>(block.scales), stored);
    for (size_t b = 0; b < 4; b++) store(scales + 4 * b, mul(splat(d), to_float(opaque(stored[b]))));
  });
}

}  // namespace scalepoint::loops
