// ggml's types with grids and signs: IQ3_XXS, IQ3_S, IQ2_XXS, IQ2_XS and IQ2_S. Source: github.com/ggml-org/ggml d99724f,
// src/ggml-quants.c.
#include <cstring>

#include "ggml/blocks32_loops.h"
#include "ggml/ggml_loops.h"
#include "ggml/iq_grid_bytes_loops.h"
#include "ggml/iq_grid_search_loops.h"
#include "ggml/k_quants_search_loops.h"
#include "lanes/float16.h"
#include "lanes/round.h"

namespace scalepoint::loops {
namespace {

using namespace blocks32;

constexpr size_t kSuperBlock = 256;
constexpr float kSmallestFloat = 0x1p-149f;

/// The contents of a super-block.
struct Parts {
  uint8_t scales[16];   ///< of its sub-blocks, 4 bits each
  uint16_t points[64];  ///< indexes
  uint8_t signs[32];    ///< of eight elements each
};

/// Offsets of the bytes of a type. The float16 scale of the super-block comes first.
struct Places {
  size_t bytes;
  size_t points;           ///< in all
  size_t step, sign_step;  ///< bytes from one four of points to the next, and from one four of signs to the next
  size_t signs_at;
  size_t high_at, high_bits;  ///< bits of the points above the eighth
  size_t scales_at;
};

/// A type. `values` has the values of points at 2 * level + 1. An element is d (1/2 + scale) times value, with the sign. `more` is a factor
/// for d that lowers the errors on average.
struct GridType {
  GridRule rule;
  Places places;
  uint8_t values[16];
  float more, times;
  void (*pack)(const Parts& parts, const Places& places, uint8_t* to);
  void (*unpack)(const uint8_t* from, const Places& places, Parts& parts);
};

// ----------------------------------------------------------------------------------------------------------------- layouts

/// The eighth sign makes the number of minuses even.
inline uint8_t with_parity(uint32_t signs) {
  signs &= 127;
  return static_cast<uint8_t>(signs | static_cast<uint32_t>(__builtin_popcount(signs) & 1) << 7);
}

/// IQ3_XXS and IQ2_XXS: four times seven signs and the scale of 32 elements are one word.
void pack_words(const Parts& parts, const Places& places, uint8_t* to) {
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < places.points; i++) to[2 + i / 4 * places.step + i % 4] = static_cast<uint8_t>(parts.points[i]);
  SCALEPOINT_NO_UNROLL
  for (size_t b = 0; b < 8; b++) {
    uint32_t word = static_cast<uint32_t>(parts.scales[b]) << 28;
    SCALEPOINT_NO_UNROLL
    for (size_t k = 0; k < 4; k++) word |= static_cast<uint32_t>(parts.signs[4 * b + k] & 127) << 7 * k;
    std::memcpy(to + places.signs_at + b * places.sign_step, &word, 4);
  }
}

void unpack_words(const uint8_t* from, const Places& places, Parts& parts) {
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < places.points; i++) parts.points[i] = from[2 + i / 4 * places.step + i % 4];
  SCALEPOINT_NO_UNROLL
  for (size_t b = 0; b < 8; b++) {
    uint32_t word;
    std::memcpy(&word, from + places.signs_at + b * places.sign_step, 4);
    parts.scales[b] = static_cast<uint8_t>(word >> 28);
    SCALEPOINT_NO_UNROLL
    for (size_t k = 0; k < 4; k++) parts.signs[4 * b + k] = with_parity(word >> 7 * k);
  }
}

void pack_scales(const Parts& parts, const Places& places, uint8_t* to) {
  SCALEPOINT_NO_UNROLL
  for (size_t i = places.scales_at; i < places.bytes; i++) {
    const size_t b = 2 * (i - places.scales_at);
    to[i] = static_cast<uint8_t>(parts.scales[b] | parts.scales[b + 1] << 4);
  }
}

void unpack_scales(const uint8_t* from, const Places& places, Parts& parts) {
  SCALEPOINT_NO_UNROLL
  for (size_t i = places.scales_at; i < places.bytes; i++) {
    const size_t b = 2 * (i - places.scales_at);
    parts.scales[b] = from[i] & 15;
    parts.scales[b + 1] = from[i] >> 4;
  }
}

/// IQ2_XS: a point and seven signs are one word.
void pack_pairs(const Parts& parts, const Places& places, uint8_t* to) {
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < places.points; i++) store_half(to + 2 + 2 * i, parts.points[i] | (parts.signs[i] & 127) << 9);
  pack_scales(parts, places, to);
}

void unpack_pairs(const uint8_t* from, const Places& places, Parts& parts) {
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < places.points; i++) {
    const auto word = static_cast<uint32_t>(from[2 + 2 * i] | from[3 + 2 * i] << 8);
    parts.points[i] = word & 511;
    parts.signs[i] = with_parity(word >> 9);
  }
  unpack_scales(from, places, parts);
}

/// IQ3_S and IQ2_S: all signs, and the points in two parts.
void pack_apart(const Parts& parts, const Places& places, uint8_t* to) {
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < places.points; i++) {
    const size_t bit = i * places.high_bits;
    uint8_t& high = to[places.high_at + bit / 8];
    to[2 + i] = static_cast<uint8_t>(parts.points[i]);
    high = static_cast<uint8_t>(high | parts.points[i] >> 8 << bit % 8);
  }
  std::memcpy(to + places.signs_at, parts.signs, 32);
  pack_scales(parts, places, to);
}

void unpack_apart(const uint8_t* from, const Places& places, Parts& parts) {
  const int mask = (1 << places.high_bits) - 1;
  SCALEPOINT_NO_UNROLL
  for (size_t i = 0; i < places.points; i++) {
    const size_t bit = i * places.high_bits;
    parts.points[i] = static_cast<uint16_t>(from[2 + i] | (from[places.high_at + bit / 8] >> bit % 8 & mask) << 8);
  }
  std::memcpy(parts.signs, from + places.signs_at, 32);
  unpack_scales(from, places, parts);
}

// clang-format off
constexpr GridType kIQ3_XXS = {  // 3.0625 bits per weight
    {GridName::kIQ3_XXS, 32, 4, 1e-8f, 15, 0.2f, true, false, false, false},
    {98, 64, 4, 4, 66, 0, 0, 0},
    {0, 4, 0, 12, 0, 20, 0, 28, 0, 36, 0, 44, 0, 52, 0, 62}, 1.0125f, 0.5f, pack_words, unpack_words};
constexpr GridType kIQ3_S = {  // 3.4375
    {GridName::kIQ3_S, 32, 4, kSmallestFloat, 9, 0.2f, false, false, true, true},
    {110, 64, 4, 4, 74, 66, 1, 106},
    {0, 1, 0, 3, 0, 5, 0, 7, 0, 9, 0, 11, 0, 13, 0, 15}, 1.033f, 2.0f, pack_apart, unpack_apart};
constexpr GridType kIQ2_XXS = {  // 2.0625
    {GridName::kIQ2_XXS, 32, 8, kTooSmall, 6, 0.1f, true, true, true, false},
    {66, 32, 8, 8, 6, 0, 0, 0}, {0, 8, 0, 25, 0, 43}, 1.0f, 0.25f, pack_words, unpack_words};
constexpr GridType kIQ2_XS = {  // 2.3125
    {GridName::kIQ2_XS, 16, 8, kTooSmall, 9, 0.1f, true, false, false, false},
    {74, 32, 0, 0, 0, 0, 0, 66}, {0, 8, 0, 25, 0, 43}, 1.0f, 0.25f, pack_pairs, unpack_pairs};
constexpr GridType kIQ2_S = {  // 2.5625
    {GridName::kIQ2_S, 16, 8, 1e-8f, 9, 0.1f, false, false, false, false},
    {82, 32, 4, 4, 34, 66, 2, 74}, {0, 8, 0, 25, 0, 43}, 0.9875f, 0.25f, pack_apart, unpack_apart};
// clang-format on

// ---------------------------------------------------------------------------------------------------------------- quantize

/// Searches the sub-blocks of a super-block. Returns false if ggml would end the process.
bool search_parts(const float* x, const float* weights, const GridRule& rule, Parts& parts, float* scales) {
  const size_t points = rule.size / rule.each, signs = rule.size / 8;
  size_t at = 0;
  for (size_t b = 0; b < kSuperBlock / rule.size; b++) {
    GridBlock block;
    if (!search_grid(x + b * rule.size, weights + b * rule.size, rule, block)) return false;
    scales[b] = block.scale;
    // In ggml, the low bytes of the points and the signs of IQ3_S move up past a sub-block of zeros, and the ninth bits do not. The rest of
    // the super-block is then restored wrongly, in ggml as here.
    SCALEPOINT_NO_UNROLL
    for (size_t k = 0; k < points; k++) {
      parts.points[at * points + k] |= block.point[k] & 0x00FF;
      parts.points[b * points + k] |= block.point[k] & 0xFF00;
    }
    std::memcpy(parts.signs + at * signs, block.signs, signs);
    if (!(rule.moves_up && block.is_zero)) at++;
  }
  return true;
}

/// ggml's weights of errors without importance.
void weigh(const float* x, GridName grid, float* weights) {
  const float mean = grid == GridName::kIQ2_S ? 0.25f * (2 * sum_squares(x, kSuperBlock) / kSuperBlock) : 0;
  for (size_t i = 0; i < kSuperBlock; i += 4) {
    const F32x4 v = load(x + i);
    store(weights + i, add(splat(mean), mul(v, v)));
  }
}

bool quantize(const GridType& type, const float* x, const float* weights, size_t n, std::byte* out) {
  const auto& [rule, places, values, more, times, pack, unpack] = type;
  auto* to = reinterpret_cast<uint8_t*>(out);
  for (; n > 0; n--, x += kSuperBlock, to += places.bytes) {
    float own[kSuperBlock], scales[16];
    if (weights == nullptr) weigh(x, rule.grid, own);
    Parts parts = {};
    if (!search_parts(x, weights == nullptr ? own : weights, rule, parts, scales)) return false;
    const float most = quantize_scales(scales, kSuperBlock / rule.size, 31, parts.scales);
    std::memset(to, 0, places.bytes);
    // For types that store seven signs, ggml omits points and signs if all scales are 0.
    if (most > 0 || !rule.even) pack(parts, places, to);
    const uint16_t half = float16_of(most / 31 * more);
    store_half(to, half);
    if (half > kFloat16Largest) return false;
    if (weights != nullptr) weights += kSuperBlock;
  }
  return true;
}

// -------------------------------------------------------------------------------------------------------------- dequantize

void dequantize(const GridType& type, const std::byte* blocks, size_t n, float* x) {
  const uint32_t* const points = grid_points(type.rule.grid);
  const U8x16 values = load(type.values);
  const size_t each = type.rule.each, size = type.rule.size;
  const auto* from = reinterpret_cast<const uint8_t*>(blocks);
  SCALEPOINT_NO_UNROLL
  for (; n > 0; n--, from += type.places.bytes) {
    Parts parts;
    type.unpack(from, type.places, parts);
    uint8_t levels[kSuperBlock];
    load_points(points, parts.points, each, levels);
    const float d = float16_value(static_cast<uint16_t>(from[0] | from[1] << 8));
    SCALEPOINT_NO_UNROLL
    for (size_t i = 0; i < kSuperBlock; i += 16, x += 16) {
      const U8x16 value = lookup(values, load(levels + i));
      const U8x16 minus = spread_bits(static_cast<uint32_t>(parts.signs[i / 8] | parts.signs[i / 8 + 1] << 8));
      const float step = d * (0.5f + static_cast<float>(parts.scales[i / size])) * type.times;
      F32x4 v[4];
      to_floats(sub(value, shift_left<1>(bit_and(value, minus))), v);
      SCALEPOINT_PER_VECTOR
      for (size_t k = 0; k < 4; k++) store(x + 4 * k, mul(splat(step), v[k]));
    }
  }
}

}  // namespace

#define SCALEPOINT_GRID_TYPE(name, type)                                                 \
  bool quantize_##name(const float* x, const float* weights, size_t n, std::byte* out) { \
    return quantize(type, x, weights, n, out);                                           \
  }                                                                                      \
  void dequantize_##name(const std::byte* blocks, size_t n, float* x) { dequantize(type, blocks, n, x); }
SCALEPOINT_GRID_TYPE(iq3_xxs, kIQ3_XXS)
SCALEPOINT_GRID_TYPE(iq3_s, kIQ3_S)
SCALEPOINT_GRID_TYPE(iq2_xxs, kIQ2_XXS)
SCALEPOINT_GRID_TYPE(iq2_xs, kIQ2_XS)
SCALEPOINT_GRID_TYPE(iq2_s, kIQ2_S)
#undef SCALEPOINT_GRID_TYPE

}  // namespace scalepoint::loops
