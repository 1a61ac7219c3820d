// ggml's blocks of 32 against an oracle that follows the description of the formats word by word, one element at a time, and what
// the functions for all block types refuse. The library itself is asked in tests/web/arrays/blocks.node.test.ts.
#include "uneven_values.h"

namespace scalepoint::tests {
namespace {

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;

constexpr size_t kElements = 32;
constexpr BlockType kTypes[] = {BlockType::kQ8_0, BlockType::kQ4_0,   BlockType::kQ4_1, BlockType::kQ5_0,
                                BlockType::kQ5_1, BlockType::kIQ4_NL, BlockType::kMXFP4};
constexpr int kDoubledFloat4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

std::string name(BlockType type) { return "block type " + std::to_string(static_cast<int>(type)); }

// ---------------------------------------------------------------------------------------------------------------- oracle

/// Result of x86 for a float cast to 32 bits and then to 8: NaN and all that is too large become the smallest int32.
uint8_t low_byte(float v) {
  const bool fits = v > -2147483648.0f && v < 2147483648.0f;
  return fits ? static_cast<uint8_t>(static_cast<int32_t>(v)) : uint8_t{0};
}

float inverse_of(float d) { return d != 0 ? 1 / d : 0; }

void put_half(Bytes& to, float v) {
  const uint16_t bits = std::isnan(v) ? 0x7E00 : reference::encode(v, reference::kFloat16);
  to.push_back(static_cast<uint8_t>(bits));
  to.push_back(static_cast<uint8_t>(bits >> 8));
}

float half_at(const uint8_t* p) {
  return static_cast<float>(reference::decode(static_cast<uint16_t>(p[0] | p[1] << 8), reference::kFloat16));
}

/// Element j in the low half of byte j, element j + 16 in the high one.
void put_nibbles(Bytes& to, const Bytes& levels) {
  for (size_t j = 0; j < 16; j++) to.push_back(static_cast<uint8_t>((levels[j] & 15) | (levels[j + 16] & 15) << 4));
}

float scale_of_exponent(uint8_t e) { return std::ldexp(1.0f, e - 128); }

/// One block.
Bytes quantize(BlockType type, const Floats& x) {
  Bytes to, levels;
  const float low = *std::min_element(x.begin(), x.end()), high = *std::max_element(x.begin(), x.end());
  const float farthest = first_farthest(x);
  const auto each = [&](auto level) {
    for (const float v : x) levels.push_back(level(v));
  };
  const auto put_fifth_bits = [&] {
    uint32_t bits = 0;
    for (size_t j = 0; j < kElements; j++) bits |= static_cast<uint32_t>(levels[j] >> 4 & 1) << j;
    for (int k = 0; k < 4; k++) to.push_back(static_cast<uint8_t>(bits >> 8 * k));
  };
  switch (type) {
    case BlockType::kQ8_0: {
      const float d = std::fabs(farthest) / 127, inverse = inverse_of(d);
      put_half(to, d);
      each([&](float v) { return low_byte(std::round(v * inverse)); });
      to.insert(to.end(), levels.begin(), levels.end());
      break;
    }
    case BlockType::kQ4_0:
    case BlockType::kQ5_0: {
      const int middle = type == BlockType::kQ4_0 ? 8 : 16;
      const float d = farthest / static_cast<float>(-middle), inverse = inverse_of(d);
      put_half(to, d);
      each([&](float v) {
        return std::min(static_cast<uint8_t>(2 * middle - 1), low_byte(v * inverse + (static_cast<float>(middle) + 0.5f)));
      });
      if (type == BlockType::kQ5_0) put_fifth_bits();
      put_nibbles(to, levels);
      break;
    }
    case BlockType::kQ4_1:
    case BlockType::kQ5_1: {
      const float d = (high - low) / (type == BlockType::kQ4_1 ? 15.0f : 31.0f), inverse = inverse_of(d);
      put_half(to, d);
      put_half(to, low);
      each([&](float v) { return low_byte((v - low) * inverse + 0.5f); });
      if (type == BlockType::kQ5_1) put_fifth_bits();
      put_nibbles(to, levels);
      break;
    }
    case BlockType::kIQ4_NL: {
      const float d = search_uneven(x), inverse = inverse_of(d);
      put_half(to, d);
      each([&](float v) { return nearest_uneven(inverse * v); });
      put_nibbles(to, levels);
      break;
    }
    default: {
      const float size = std::fabs(farthest);
      const auto e = size > 0 ? static_cast<uint8_t>(static_cast<int>(std::floor(std::log2(size))) - 2 + 127) : uint8_t{0};
      to.push_back(e);
      each([&](float v) {
        size_t best = 0;
        const auto distance = [&](size_t k) {
          return std::fabs(static_cast<float>(kDoubledFloat4[k]) * scale_of_exponent(e) - v);
        };
        for (size_t k = 1; k < 16; k++) best = distance(k) < distance(best) ? k : best;
        return static_cast<uint8_t>(best);
      });
      put_nibbles(to, levels);
    }
  }
  return to;
}

/// One block.
Floats dequantize(BlockType type, const uint8_t* p) {
  Floats x(kElements);
  const auto level = [&](const uint8_t* pairs, size_t j) { return j < 16 ? pairs[j] & 15 : pairs[j - 16] >> 4; };
  const auto fifth = [&](const uint8_t* bits, size_t j) { return (bits[j / 8] >> j % 8 & 1) << 4; };
  for (size_t j = 0; j < kElements; j++) {
    switch (type) {
      case BlockType::kQ8_0:
        x[j] = static_cast<float>(static_cast<int8_t>(p[2 + j])) * half_at(p);
        break;
      case BlockType::kQ4_0:
        x[j] = static_cast<float>(level(p + 2, j) - 8) * half_at(p);
        break;
      case BlockType::kQ5_0:
        x[j] = static_cast<float>((level(p + 6, j) | fifth(p + 2, j)) - 16) * half_at(p);
        break;
      case BlockType::kQ4_1:
        x[j] = static_cast<float>(level(p + 4, j)) * half_at(p) + half_at(p + 2);
        break;
      case BlockType::kQ5_1:
        x[j] = static_cast<float>(level(p + 8, j) | fifth(p + 4, j)) * half_at(p) + half_at(p + 2);
        break;
      case BlockType::kIQ4_NL:
        x[j] = static_cast<float>(kUnevenValues[level(p + 2, j)]) * half_at(p);
        break;
      default:
        x[j] = static_cast<float>(kDoubledFloat4[level(p + 1, j)]) * scale_of_exponent(p[0]);
    }
  }
  return x;
}

/// True if a scale or minimum of the block is an infinity or NaN.
bool overflows(BlockType type, const Bytes& block) {
  if (type == BlockType::kMXFP4) return false;
  const bool affine = type == BlockType::kQ4_1 || type == BlockType::kQ5_1;
  return !std::isfinite(half_at(block.data())) || (affine && !std::isfinite(half_at(block.data() + 2)));
}

// --------------------------------------------------------------------------------------------------------------- inputs

/// A block of one of many kinds.
Floats make_block(Random& random) {
  Floats x = random.uniform_values(kElements, -1, 1);
  const auto all = [&](auto f) {
    for (float& v : x) v = f(v);
  };
  const float scale = random.power(-20, 8);
  switch (random.below(14)) {
    case 0:
      break;
    case 1:
      all([&](float v) { return v * scale; });
      break;
    case 2:
      all([&](float v) { return v / (std::fabs(random.uniform(-1, 1)) + 0.01f); });
      break;
    case 3:
      all([&](float v) { return std::fabs(v) + 0.5f; });
      break;
    case 4:
      all([&](float v) { return -std::fabs(v) * scale; });
      break;
    case 5:
      all([&](float) { return scale; });
      break;
    case 6:
      all([&](float) { return random.coin() ? 0.0f : -0.0f; });
      break;
    case 7:
      all([&](float v) { return random.below(6) == 0 ? v : random.coin() ? 0.0f : -0.0f; });
      break;
    case 8:
      all([&](float v) { return random.below(6) == 0 ? std::fabs(v) : random.coin() ? 0.0f : -0.0f; });
      break;
    case 9:
      all([&](float v) { return std::copysign(random.coin() ? scale : scale / 4, v); });
      break;
    case 10:
      all([&](float v) { return std::ldexp(v, random.integer(-149, -120)); });
      break;
    case 11: {
      const float tiny = std::ldexp(1.0f, random.integer(-100, -40));
      all([&](float v) { return v * tiny; });
      break;
    }
    case 12: {
      // Multiples of half a step and their neighbours, symmetric or from 0 up.
      constexpr int kWhole[] = {8, 12, 15, 16, 31, 113, 127};
      const int top = kWhole[random.below(std::size(kWhole))], bottom = random.coin() ? -top : 0;
      const float step = std::ldexp(1.0f, random.integer(-10, 8));
      all([&](float) {
        float v = static_cast<float>(random.integer(2 * bottom, 2 * top)) / 2;
        if (random.below(4) == 0) v = std::nextafter(v, 0.0f);
        return v * step;
      });
      x[random.below(kElements)] = static_cast<float>(top) * step;
      if (bottom < 0 && random.coin()) x[random.below(kElements)] = static_cast<float>(bottom) * step;
      break;
    }
    default:
      // Around a power of two, where log2f rounds up.
      const float power = std::ldexp(1.0f, random.integer(-126, 127));
      all([&](float v) { return v * power; });
      x[random.below(kElements)] = std::bit_cast<float>(float_bits(power) - static_cast<uint32_t>(random.below(60)));
  }
  return x;
}

std::vector<std::byte> quantize_all(BlockType type, std::span<const float> x, Status expected = Status::kOk) {
  const auto [elements, bytes] = block_size(type);
  Buffer<std::byte> blocks(x.size() / elements * bytes);
  const Floats alike(block_facts(type)->importance == Importance::kNeeded ? elements : 0, 1.0f);
  EXPECT_EQ(quantize_blocks(x, type, blocks, alike), expected) << name(type);
  return blocks.values();
}

// ---------------------------------------------------------------------------------------------------------------- tests

TEST(Blocks32, quantize_as_the_formats_say) {
  Random random(42);
  int overflowing = 0;
  // 7000 blocks, so that each type sees each kind 500 times.
  for (int round = 0; round < 2000; round++) {
    // A number of blocks at once, as the loops take them four by four.
    std::vector<Floats> blocks(1 + random.below(6));
    for (Floats& block : blocks) block = make_block(random);
    for (const BlockType type : kTypes) {
      SCOPED_TRACE(name(type) + ", seed 42, round " + std::to_string(round));
      Floats x;
      Bytes expected;
      for (const Floats& block : blocks) {
        const Bytes one = quantize(type, block);
        ASSERT_EQ(one.size(), block_size(type).bytes);
        if (overflows(type, one)) {
          quantize_all(type, block, Status::kOverflow);
          overflowing++;
          continue;
        }
        x.insert(x.end(), block.begin(), block.end());
        expected.insert(expected.end(), one.begin(), one.end());
      }
      Buffer<float> input(x, random.below(4));
      const auto actual = quantize_all(type, input.span());
      ASSERT_TRUE(same(std::as_bytes(std::span(expected)), std::span<const std::byte>(actual)));
    }
  }
  EXPECT_GT(overflowing, 333);
}

TEST(Blocks32, dequantize_any_bytes) {
  Random random(7);
  for (const BlockType type : kTypes) {
    const size_t bytes = block_size(type).bytes;
    for (const size_t n : {size_t{0}, size_t{1}, size_t{2}, size_t{5}, size_t{3000}}) {
      SCOPED_TRACE(name(type) + ", seed 7, " + std::to_string(n) + " blocks");
      Bytes blocks(n * bytes);
      for (uint8_t& byte : blocks) byte = static_cast<uint8_t>(random.bits());
      Buffer<uint8_t> input(blocks, random.below(4));
      Buffer<float> x(n * kElements);
      ASSERT_EQ(dequantize_blocks(std::as_bytes(input.span()), type, x), Status::kOk);
      Floats expected, actual = x.values();
      for (size_t i = 0; i < n; i++) {
        const Floats block = dequantize(type, blocks.data() + i * bytes);
        expected.insert(expected.end(), block.begin(), block.end());
      }
      for (Floats* values : {&expected, &actual}) {
        for (float& v : *values) v = std::isnan(v) ? kNan : v;
      }
      ASSERT_TRUE(same(expected, actual));
    }
  }
}

TEST(Blocks, have_a_size) {
  for (const BlockFacts& facts : kBlockTypes) {
    const BlockType type = facts.type;
    const auto [elements, bytes] = facts.size;
    // The largest, over which files are cut, is a multiple of all others.
    EXPECT_TRUE(elements >= 32 && 256 % elements == 0) << name(type);
    // From 1.1 to 8.5 bits an element.
    EXPECT_GT(bytes * 8, elements) << name(type);
    EXPECT_LT(bytes * 8, elements * 9) << name(type);
  }
  for (const int none : {-1, 0, 1, 4, 5, 9, 15, 33, 38, 40, 43, 1 << 20}) {
    EXPECT_EQ(block_size(static_cast<BlockType>(none)).elements, 0u);
    EXPECT_EQ(block_size(static_cast<BlockType>(none)).bytes, 0u);
  }
}

TEST(Blocks, refuse_other_types_and_sizes) {
  const Floats x(512);
  for (const int none : {-1, 0, 9, 40}) {
    std::vector<std::byte> blocks(544);
    Floats y(512);
    EXPECT_EQ(quantize_blocks(x, static_cast<BlockType>(none), blocks), Status::kBadDType);
    EXPECT_EQ(dequantize_blocks(blocks, static_cast<BlockType>(none), y), Status::kBadDType);
  }
  for (const BlockFacts& facts : kBlockTypes) {
    const BlockType type = facts.type;
    const auto [elements, bytes] = facts.size;
    for (const auto& [n, count] : std::vector<std::pair<size_t, size_t>>{{elements, bytes - 1},
                                                                         {elements, bytes + 1},
                                                                         {elements, 0},
                                                                         {0, bytes},
                                                                         {elements - 1, bytes},
                                                                         {elements + 1, bytes},
                                                                         {elements, 2 * bytes},
                                                                         {2 * elements, bytes},
                                                                         {elements / 2, bytes / 2}}) {
      std::vector<std::byte> blocks(count);
      Floats y(n);
      EXPECT_EQ(quantize_blocks(y, type, blocks), Status::kSizeMismatch) << name(type) << ' ' << n << ' ' << count;
      EXPECT_EQ(dequantize_blocks(blocks, type, y), Status::kSizeMismatch) << name(type) << ' ' << n << ' ' << count;
    }
    EXPECT_EQ(quantize_blocks({}, type, {}), Status::kOk);
    EXPECT_EQ(dequantize_blocks({}, type, {}), Status::kOk);
  }
}

/// Up to 20 blocks of which one has values, and its place. The search for the others, whose elements are all 0, takes no time.
std::pair<Floats, size_t> one_block_of_many(Random& random, size_t elements) {
  Floats x(elements * (1 + random.below(20)));
  const size_t first = random.below(x.size() / elements) * elements;
  for (size_t i = first; i < first + elements; i++) x[i] = random.uniform(-1, 1);
  return {x, first};
}

TEST(Blocks, refuse_what_is_not_finite) {
  Random random(11);
  for (const BlockFacts& facts : kBlockTypes) {
    const BlockType type = facts.type;
    const size_t elements = facts.size.elements;
    for (const float bad : kNonFinites) {
      for (int i = 0; i < 40; i++) {
        auto [x, first] = one_block_of_many(random, elements);
        x[first + random.below(elements)] = bad;
        quantize_all(type, x, Status::kNonFinite);
      }
      quantize_all(type, Floats(elements * 5, bad), Status::kNonFinite);
    }
  }
}

TEST(Blocks, refuse_scales_beyond_float16) {
  Random random(12);
  for (const BlockFacts& facts : kBlockTypes) {
    const BlockType type = facts.type;
    const size_t elements = facts.size.elements;
    for (int i = 0; i < 40; i++) {
      auto [x, first] = one_block_of_many(random, elements);
      // Beyond 65504 * 127 * 32, the largest scales and level of Q6_K; the other types reach less far.
      x[first + random.below(elements)] = random.coin() ? 0x1p30f : -0x1p30f;
      quantize_all(type, x, type == BlockType::kMXFP4 ? Status::kOk : Status::kOverflow);
    }
  }
}

}  // namespace
}  // namespace scalepoint::tests
