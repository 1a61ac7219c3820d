// The block types of one to two bits and IQ4_XS against an oracle that follows the description of the formats word by word, one
// element at a time. The library itself is asked in tests/web/arrays/small-blocks.node.test.ts.
#include "uneven_values.h"

namespace scalepoint::tests {
namespace {

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;

constexpr BlockType kTernary[] = {BlockType::kQ2_0, BlockType::kTQ1_0, BlockType::kTQ2_0};
constexpr BlockType kTypes[] = {BlockType::kQ1_0, BlockType::kQ2_0, BlockType::kTQ1_0, BlockType::kTQ2_0, BlockType::kIQ4_XS};

std::string name(BlockType type) { return "block type " + std::to_string(static_cast<int>(type)); }

void put_half(Bytes& to, float v) {
  const uint16_t bits = reference::encode(v, reference::kFloat16);
  to.push_back(static_cast<uint8_t>(bits));
  to.push_back(static_cast<uint8_t>(bits >> 8));
}

float half_at(const uint8_t* p) {
  return static_cast<float>(reference::decode(static_cast<uint16_t>(p[0] | p[1] << 8), reference::kFloat16));
}

// -------------------------------------------------------------------------------------------------------- two, three values

/// Which element the level `k` of byte `i` is, of a block with levels in bytes.
size_t element_of(BlockType type, size_t i, size_t k) {
  if (type == BlockType::kQ2_0) return 4 * i + k;
  if (type == BlockType::kTQ2_0) return i / 32 * 128 + 32 * k + i % 32;
  if (i < 32) return 32 * k + i;
  return i < 48 ? 160 + 16 * k + (i - 32) : 240 + 4 * k + (i - 48);
}

Bytes ternary_block(BlockType type, const Floats& x) {
  float d = 0;
  for (const float v : x) d = std::max(d, std::fabs(v));
  const float inverse = d > 0 ? 1 / d : 0;
  const auto level = [&](size_t e) {
    const float rounded = std::round(x[e] * inverse);
    if (!std::isfinite(rounded)) return type == BlockType::kQ2_0 ? 0 : 1;
    return static_cast<int>(rounded) + 1;
  };
  const bool digits = type == BlockType::kTQ1_0;
  const size_t count = block_size(type).bytes - 2;
  Bytes levels;
  for (size_t i = 0; i < count; i++) {
    int byte = 0;
    for (size_t k = 0; k < (digits ? 5 : 4); k++) {
      if (!digits) byte |= level(element_of(type, i, k)) << 2 * k;
      if (digits) byte = 3 * byte + (i >= 48 && k == 4 ? 0 : level(element_of(type, i, k)));
    }
    levels.push_back(static_cast<uint8_t>(digits ? (256 * byte + 242) / 243 : byte));
  }
  Bytes block;
  if (type == BlockType::kQ2_0) put_half(block, d);
  block.insert(block.end(), levels.begin(), levels.end());
  if (type != BlockType::kQ2_0) put_half(block, d);
  return block;
}

Floats ternary_floats(BlockType type, const uint8_t* p) {
  const auto [elements, bytes] = block_size(type);
  const bool first = type == BlockType::kQ2_0, digits = type == BlockType::kTQ1_0;
  const float d = half_at(first ? p : p + bytes - 2);
  Floats x(elements);
  for (size_t i = 0; i < bytes - 2; i++) {
    unsigned rest = p[i + (first ? 2 : 0)];
    for (size_t k = 0; k < (digits && i < 48 ? 5 : 4); k++) {
      const int level = static_cast<int>(digits ? 3 * rest >> 8 : rest >> 2 * k & 3);
      x[element_of(type, i, k)] = static_cast<float>(level - 1) * d;
      if (digits) rest = 3 * rest & 255;
    }
  }
  return x;
}

Bytes binary_block(const Floats& x) {
  float sum = 0;
  for (const float v : x) sum += std::fabs(v);
  Bytes block;
  put_half(block, sum / 128);
  for (size_t i = 0; i < 128; i += 8) {
    int byte = 0;
    for (size_t k = 0; k < 8; k++) byte |= (x[i + k] >= 0 ? 1 : 0) << k;
    block.push_back(static_cast<uint8_t>(byte));
  }
  return block;
}

// ------------------------------------------------------------------------------------------------------------------ IQ4_XS

Bytes uneven_block(const Floats& x) {
  float scales[8], far = 0;
  for (size_t b = 0; b < 8; b++) {
    scales[b] = search_uneven(std::span(x).subspan(32 * b, 32));
    far = std::fabs(scales[b]) > std::fabs(far) ? scales[b] : far;
  }
  const float d = -far / 32, inverse = d != 0 ? 1 / d : 0;
  int high = 0, low[4] = {};
  Bytes levels;
  for (size_t b = 0; b < 8; b++) {
    const int scale = std::clamp(static_cast<int>(std::nearbyint(inverse * scales[b])), -32, 31);
    low[b / 2] |= ((scale + 32) & 15) << 4 * (b % 2);
    high |= (scale + 32) >> 4 << 2 * b;
    const float step = d * static_cast<float>(scale), factor = step != 0 ? 1 / step : 0;
    for (size_t j = 0; j < 16; j++) {
      const int a = nearest_uneven(factor * x[32 * b + j]), c = nearest_uneven(factor * x[32 * b + 16 + j]);
      levels.push_back(static_cast<uint8_t>(a | c << 4));
    }
  }
  Bytes block;
  put_half(block, d);
  for (const int byte : {high & 255, high >> 8, low[0], low[1], low[2], low[3]}) block.push_back(static_cast<uint8_t>(byte));
  block.insert(block.end(), levels.begin(), levels.end());
  return block;
}

Floats uneven_floats(const uint8_t* p) {
  Floats x(256);
  for (size_t b = 0; b < 8; b++) {
    const int low = p[4 + b / 2] >> 4 * (b % 2) & 15, high = (p[2] | p[3] << 8) >> 2 * b & 3;
    const float step = half_at(p) * static_cast<float>((low | high << 4) - 32);
    for (size_t j = 0; j < 32; j++) {
      const int level = p[8 + 16 * b + j % 16] >> (j < 16 ? 0 : 4) & 15;
      x[32 * b + j] = step * static_cast<float>(kUnevenValues[level]);
    }
  }
  return x;
}

// ------------------------------------------------------------------------------------------------------------------- tests

Bytes block_of(BlockType type, const Floats& x) {
  if (type == BlockType::kQ1_0) return binary_block(x);
  return type == BlockType::kIQ4_XS ? uneven_block(x) : ternary_block(type, x);
}

Floats floats_of(BlockType type, const uint8_t* block) {
  if (type == BlockType::kIQ4_XS) return uneven_floats(block);
  if (type != BlockType::kQ1_0) return ternary_floats(type, block);
  Floats x(128);
  for (size_t i = 0; i < 128; i++) x[i] = (block[2 + i / 8] >> i % 8 & 1) != 0 ? half_at(block) : -half_at(block);
  return x;
}

/// A block of one of several kinds, all within float16.
Floats make_block(Random& random, size_t n) {
  Floats x = random.uniform_values(n, -1, 1);
  const int kind = static_cast<int>(random.below(9));
  const float scale = random.power(-20, 8), tiny = std::ldexp(1.0f, random.integer(-149, -100));
  for (float& v : x) {
    if (kind == 1) v *= scale;
    if (kind == 2) v = scale;
    if (kind == 3) v = random.coin() ? 0.0f : -0.0f;
    if (kind == 4) v = std::round(v * 1.5f) * scale;
    if (kind == 5) v *= tiny;
    if (kind == 6) v = std::round(v * 4) / 4;
    if (kind == 7) v = std::ldexp(v, random.integer(-60, 8));
  }
  if (kind == 8) x[random.below(n)] = random.coin() ? 900.0f : -900.0f;
  return x;
}

TEST(SmallBlocks, quantize_as_the_formats_say) {
  Random random(61);
  for (const BlockType type : kTypes) {
    const size_t elements = block_size(type).elements;
    for (int round = 0; round < 150; round++) {
      SCOPED_TRACE(name(type) + ", seed 61, round " + std::to_string(round));
      Floats x;
      Bytes expected;
      for (size_t n = random.below(7); n > 0; n--) {
        const Floats block = make_block(random, elements);
        x.insert(x.end(), block.begin(), block.end());
        const Bytes made = block_of(type, block);
        expected.insert(expected.end(), made.begin(), made.end());
      }
      Buffer<float> input(x, random.below(4));
      Buffer<std::byte> blocks(expected.size());
      ASSERT_EQ(quantize_blocks(input.span(), type, blocks), Status::kOk);
      ASSERT_TRUE(same(std::as_bytes(std::span(expected)), std::span<const std::byte>(blocks.values())));
    }
  }
}

TEST(SmallBlocks, dequantize_any_bytes) {
  Random random(62);
  for (const BlockType type : kTypes) {
    const auto [elements, bytes] = block_size(type);
    for (const size_t n : {size_t{0}, size_t{1}, size_t{2}, size_t{500}}) {
      Bytes blocks(n * bytes);
      for (uint8_t& byte : blocks) byte = static_cast<uint8_t>(random.bits());
      Buffer<uint8_t> input(blocks, random.below(4));
      Buffer<float> x(n * elements);
      ASSERT_EQ(dequantize_blocks(std::as_bytes(input.span()), type, x), Status::kOk);
      Floats expected, actual = x.values();
      for (size_t i = 0; i < n; i++) {
        const Floats block = floats_of(type, blocks.data() + i * bytes);
        expected.insert(expected.end(), block.begin(), block.end());
      }
      for (Floats* values : {&expected, &actual}) {
        for (float& v : *values) v = std::isnan(v) ? kNan : v;
      }
      ASSERT_TRUE(same(expected, actual)) << name(type);
    }
  }
}

TEST(SmallBlocks, round_halves_away_from_zero) {
  for (const BlockType type : kTernary) {
    const size_t elements = block_size(type).elements;
    for (const float d : {1.0f, 3.0f, 0x1p-20f, 65504.0f}) {
      Floats x(elements);
      for (size_t i = 0; i < elements; i++) {
        const float half = i % 2 == 0 ? d / 2 : -d / 2;
        x[i] = i % 3 == 0 ? half : std::nextafter(half, i % 3 == 1 ? 0 : 2 * half);
      }
      x[7] = d;
      Buffer<std::byte> blocks(block_size(type).bytes);
      ASSERT_EQ(quantize_blocks(x, type, blocks), Status::kOk);
      const Bytes expected = block_of(type, x);
      EXPECT_TRUE(same(std::as_bytes(std::span(expected)), std::span<const std::byte>(blocks.values()))) << name(type);
    }
  }
}

}  // namespace
}  // namespace scalepoint::tests
