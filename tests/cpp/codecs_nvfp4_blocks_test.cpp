// NVFP4 in blocks of ggml against an oracle that enumerates the values of its types, in double.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "codecs/nvfp4_blocks.h"
#include "codecs_helpers.h"

namespace scalepoint::tests {
namespace {

using codecs::GlobalScaleForm;
using codecs::Microscaled;
using codecs::Nvfp4Blocks;
using codecs::Stored;
using codecs::ValueRange;

constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

constexpr Minifloat kScale = Minifloat::kFloat8E4M3FN;

/// The nearest value, of two equally near ones the smaller.
uint8_t nearest_smaller(double x) {
  size_t best = 0;
  for (size_t i = 1; i < std::size(kMagnitudes); i++) {
    if (std::fabs(std::fabs(x) - kMagnitudes[i]) < std::fabs(std::fabs(x) - kMagnitudes[best])) best = i;
  }
  return static_cast<uint8_t>(best | (x < 0 && best > 0 ? 8u : 0u));
}

/// Blocks of ggml: four scales, then the codes of each 16 elements, the first eight in the low bits.
std::vector<uint8_t> oracle(const std::vector<float>& x, float global) {
  std::vector<uint8_t> blocks;
  for (size_t i = 0; i < x.size(); i += 64) {
    std::vector<uint8_t> scales, codes;
    for (size_t s = 0; s < 4; s++) {
      const float* from = x.data() + i + 16 * s;
      float amax = 0;
      for (size_t j = 0; j < 16; j++) amax = std::max(amax, std::fabs(from[j]));
      scales.push_back(nearest_code(amax / 6.0f / global, kScale));
      const auto scale = value_of(scales.back(), kScale) * global;
      const auto code = [&](size_t j) { return scale > 0 ? nearest_smaller(from[j] / scale) : uint8_t{0}; };
      for (size_t j = 0; j < 8; j++) codes.push_back(static_cast<uint8_t>(code(j) | code(j + 8) << 4));
    }
    blocks.insert(blocks.end(), scales.begin(), scales.end());
    blocks.insert(blocks.end(), codes.begin(), codes.end());
  }
  return blocks;
}

std::vector<float> restored(const std::vector<uint8_t>& blocks, float global) {
  std::vector<float> x;
  for (size_t at = 0; at < blocks.size(); at += 36) {
    for (size_t s = 0; s < 4; s++) {
      const auto scale = blocks[at + s] == 127 ? 0.0f : value_of(blocks[at + s], kScale) * global;
      for (size_t j = 0; j < 16; j++) {
        const uint8_t code = blocks[at + 4 + 8 * s + j % 8] >> (j < 8 ? 0 : 4) & 15;
        x.push_back(static_cast<float>((code & 8) != 0 ? -kMagnitudes[code & 7] : kMagnitudes[code]) * scale);
      }
    }
  }
  return x;
}

/// Values with ties, zeros of both signs and rows of very different sizes.
std::vector<float> values(size_t n) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (size_t i = 0; i < n; i++) {
    const auto step = static_cast<float>(static_cast<int>(i % 49) - 24);
    const size_t kind = i / 16 % 5;
    x[i] = kind == 0 ? step / 4 : kind == 1 ? (i % 2 == 0 ? 0.0f : -0.0f) : kind == 2 ? normal(random) * 0.001f : normal(random);
  }
  return x;
}

std::vector<uint8_t> stored_floats(const std::vector<float>& x) {
  std::vector<uint8_t> bytes(4 * x.size());
  std::memcpy(bytes.data(), x.data(), bytes.size());
  return bytes;
}

TEST(Nvfp4Blocks, are_those_of_the_rule) {
  const std::vector<float> x = values(64 * 300);
  const std::vector<uint8_t> source = stored_floats(x);
  float amax = 0;
  for (const float v : x) amax = std::max(amax, std::fabs(v));
  const ValueRange range = {-amax, amax / 2};
  Tile tile = tile_of(source, 300, 64, ElementType::kF32);
  tile.ranges = &range;
  tile.wanted = 1u << static_cast<int>(Role::kData) | 1u << static_cast<int>(Role::kGlobalScale);
  Encoded result;
  const auto arena = run_in_memory([&](Arena& memory) { return encode(tile, Nvfp4Blocks{}, memory, result); });
  float global = 0;
  ASSERT_EQ(result.global_scale.size, sizeof(float));
  std::memcpy(&global, result.global_scale.data, sizeof(float));
  EXPECT_EQ(global, amax / 2688);
  const std::vector<uint8_t> blocks = byte_values(result.data);
  EXPECT_EQ(blocks, oracle(x, global));
  EXPECT_TRUE(same_sums(sums_of(x, restored(blocks, global)), result.sums));

  // Restores them, and reads a scale of 127 as 0, as ggml does.
  std::vector<uint8_t> changed = blocks;
  changed[1] = 127;
  const std::vector<uint8_t> scale = byte_values(result.global_scale);
  const Stored stored = {
      .rows = 300, .columns = 64, .data = part_of(changed), .scale = {}, .zero_point = {}, .global_scale = part_of(scale)};
  const float* again = nullptr;
  const auto memory = run_in_memory([&](Arena& one) { return decode(stored, Nvfp4Blocks{}, one, again); });
  EXPECT_EQ(std::vector<float>(again, again + x.size()), restored(changed, global));
}

TEST(Nvfp4Blocks, search_lowers_the_error) {
  const std::vector<float> x = values(64 * 64);
  const std::vector<uint8_t> source = stored_floats(x);
  const ValueRange range = {-6, 6};
  std::vector<float> importance(64, 1.0f);
  double errors[3];
  for (int i = 0; i < 3; i++) {
    Tile tile = tile_of(source, 64, 64, ElementType::kF32);
    tile.ranges = &range;
    tile.importance = i == 2 ? importance.data() : nullptr;
    Encoded result;
    const auto arena = run_in_memory([&](Arena& memory) { return encode(tile, Nvfp4Blocks{i > 0}, memory, result); });
    errors[i] = result.sums.squared_error;
  }
  EXPECT_LT(errors[1], 0.9 * errors[0]);
  EXPECT_EQ(errors[2], errors[1]);
}

TEST(Nvfp4Blocks, take_over_codes) {
  constexpr size_t kRows = 5, kColumns = 192;
  std::mt19937 random(9);
  std::vector<uint8_t> codes(kRows * kColumns / 2), scales(kRows * kColumns / 16), blocks;
  for (uint8_t& byte : codes) byte = static_cast<uint8_t>(random());
  for (uint8_t& byte : scales) byte = static_cast<uint8_t>(random() % 127);
  const auto code = [&](size_t i) {
    const auto one = static_cast<uint8_t>(codes[i / 2] >> (i % 2 == 0 ? 0 : 4) & 15);
    return one == 8 ? uint8_t{0} : one;
  };
  for (size_t i = 0; i < kRows * kColumns; i += 64) {
    for (size_t s = 0; s < 4; s++) blocks.push_back(scales[i / 16 + s]);
    for (size_t s = 0; s < 4; s++) {
      for (size_t j = 0; j < 8; j++) blocks.push_back(static_cast<uint8_t>(code(i + 16 * s + j) | code(i + 16 * s + j + 8) << 4));
    }
  }
  for (const GlobalScaleForm form : {GlobalScaleForm::kMultiplies, GlobalScaleForm::kDivides}) {
    const std::vector<uint8_t> global = stored_floats({0.75f});
    const Microscaled from = {{}, form};
    const Stored stored = {.rows = kRows,
                           .columns = kColumns,
                           .data = part_of(codes),
                           .scale = part_of(scales),
                           .zero_point = {},
                           .global_scale = part_of(global)};
    Encoded result;
    const auto arena = run_in_memory([&](Arena& memory) { return recode(stored, from, true, memory, result); });
    EXPECT_EQ(byte_values(result.data), blocks);
    float made = 0;
    std::memcpy(&made, result.global_scale.data, sizeof(float));
    EXPECT_EQ(made, form == GlobalScaleForm::kDivides ? 1 / 0.75f : 0.75f);
    // A scale that multiplies is that of the source; a reciprocal is rounded once, and each value twice more.
    const double most = form == GlobalScaleForm::kDivides ? 448 * 6 / 0.75 * 3 * 0x1p-24 : 0;
    EXPECT_LE(result.sums.max_absolute_error, most);
  }
}

TEST(Nvfp4Blocks, refuse_what_does_not_fit) {
  const std::vector<float> x(128, 1.0f);
  const std::vector<uint8_t> source = stored_floats(x);
  const ValueRange range = {-1, 1};
  Encoded result;
  Arena arena(kEachPiece);
  Tile tile = tile_of(source, 1, 128, ElementType::kF32);
  EXPECT_EQ(encode(tile, Nvfp4Blocks{}, arena, result), Status::kBadLayout);
  tile.ranges = &range;
  tile.rows = 4;
  tile.columns = 32;
  EXPECT_EQ(encode(tile, Nvfp4Blocks{}, arena, result), Status::kBadLayout);
  std::vector<float> bad = x;
  bad[70] = std::numeric_limits<float>::infinity();
  const std::vector<uint8_t> infinite = stored_floats(bad);
  Tile wrong = tile_of(infinite, 1, 128, ElementType::kF32);
  wrong.ranges = &range;
  EXPECT_EQ(encode(wrong, Nvfp4Blocks{}, arena, result), Status::kOk);
  EXPECT_EQ(result.problem.kind, ProblemKind::kNonFinite);
  EXPECT_EQ(result.problem.index, 70u);

  std::vector<uint8_t> codes(32), scales(4, 56);
  std::vector<uint8_t> global = stored_floats({1.0f});
  Stored stored = {.rows = 1,
                   .columns = 64,
                   .data = part_of(codes),
                   .scale = part_of(scales),
                   .zero_point = {},
                   .global_scale = part_of(global)};
  const Microscaled from = {{}, GlobalScaleForm::kMultiplies};
  EXPECT_EQ(recode(stored, {{}, GlobalScaleForm::kNone}, false, arena, result), Status::kBadDType);
  EXPECT_EQ(recode(stored, {{.block = 32}, GlobalScaleForm::kMultiplies}, false, arena, result), Status::kBadDType);
  stored.columns = 32;
  EXPECT_EQ(recode(stored, from, false, arena, result), Status::kBadLayout);
  stored.columns = 64;
  EXPECT_EQ(recode(stored, from, false, arena, result), Status::kOk);
  scales[2] = 127;
  EXPECT_EQ(recode(stored, from, false, arena, result), Status::kBadScale);
  scales[2] = 0;
  global = stored_floats({0x1p-149f});
  stored.global_scale = part_of(global);
  EXPECT_EQ(recode(stored, {{}, GlobalScaleForm::kDivides}, false, arena, result), Status::kBadScale);
  const float* restored_x = nullptr;
  EXPECT_EQ(decode(stored, Nvfp4Blocks{}, arena, restored_x), Status::kSizeMismatch);

  // A block alone, without a scale of the matrix: scales of 1, and codes of 1.
  std::vector<uint8_t> block(36, 0x22);
  std::fill_n(block.begin(), 4, uint8_t{56});
  stored.data = part_of(block);
  stored.global_scale = {};
  ASSERT_EQ(decode(stored, Nvfp4Blocks{}, arena, restored_x), Status::kOk);
  for (size_t i = 0; i < 64; i++) EXPECT_EQ(restored_x[i], 1.0f);
  stored.global_scale = {part_of(global).data, 2};
  EXPECT_EQ(decode(stored, Nvfp4Blocks{}, arena, restored_x), Status::kSizeMismatch);
}

}  // namespace
}  // namespace scalepoint::tests
