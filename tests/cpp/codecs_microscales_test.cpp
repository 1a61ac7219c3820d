// Microscaled floats against rules for their scales. The oracle of small floats has their codes.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "codecs/microscaled.h"
#include "codecs/microscales.h"
#include "codecs/scaled_elements.h"
#include "codecs_helpers.h"

namespace scalepoint::tests {
namespace {

using codecs::GlobalScale;
using codecs::GlobalScaleForm;
using codecs::Microscaled;
using codecs::MicroscaleRule;
using codecs::Microscales;
using codecs::MicroscaleType;

float scale_value(const Microscales& form, uint8_t byte, const GlobalScale& global) {
  const auto value = static_cast<float>(form.scale == MicroscaleType::kFloat8 ? value_of(byte, Minifloat::kFloat8E4M3FN)
                                                                              : std::ldexp(1.0, byte - 127));
  return global.divides ? value / global.value : value * global.value;
}

uint8_t rule_byte(const Microscales& form, const GlobalScale& global, float amax) {
  const bool four = form.element == Minifloat::kFloat4E2M1;
  if (form.scale == MicroscaleType::kFloat8) {
    const float scale = amax / (four ? 6.0f : 448.0f);
    const uint8_t byte = nearest_code(global.divides ? global.value * scale : scale / global.value, Minifloat::kFloat8E4M3FN);
    return byte == 0 ? static_cast<uint8_t>(form.zero_scale) : byte;
  }
  if (amax == 0) return static_cast<uint8_t>(form.zero_scale);
  int exponent = 0;
  const double fraction = 2 * std::frexp(static_cast<double>(amax), &exponent);  // 1 <= fraction < 2
  int power = 0;
  switch (form.rule) {
    case MicroscaleRule::kNearFloor:
      power = exponent - 1 - (four ? 2 : 8) + (fraction >= 1.75 ? 1 : 0);
      break;
    case MicroscaleRule::kFloor:
      power = exponent - 1 - (four ? 2 : 8);
      break;
    case MicroscaleRule::kCeiling:
      while (std::ldexp(four ? 6 : 448, power) >= amax) power--;
      while (std::ldexp(four ? 6 : 448, power) < amax) power++;
      break;
    case MicroscaleRule::kNearest:
      power = static_cast<int>(std::lround(std::log2(amax / (four ? 6.0 : 448.0))));
      break;
  }
  return static_cast<uint8_t>(std::clamp(power + 127, 0, 254));
}

/// Blocks with ties, zeros, both signs, subnormals and the largest values.
std::vector<float> hard_values(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (size_t i = 0; i < n; i++) {
    const size_t kind = i / 32 % 9;
    const auto step = static_cast<float>(static_cast<int>(i % 25) - 12);
    x[i] = kind == 0   ? step / 4
           : kind == 1 ? 0.0f
           : kind == 2 ? std::ldexp(step, -149)
           : kind == 3 ? std::ldexp(normal(random), 120)
           : kind == 4 ? std::copysign(0.0f, step)
           : kind == 5 ? step * 0.0625f
           : kind == 6 ? std::ldexp(1.75f - (i % 2 == 0 ? 0x1p-20f : 0), static_cast<int>(i / 32 % 7) - 3)
           : kind == 7 ? std::ldexp(step, -126)
                       : normal(random);
  }
  return x;
}

std::vector<Microscales> forms() {
  std::vector<Microscales> all;
  for (const Minifloat element : {Minifloat::kFloat4E2M1, Minifloat::kFloat8E4M3FN}) {
    for (const uint32_t block : {16u, 32u}) {
      all.push_back({.element = element, .scale = MicroscaleType::kFloat8, .block = block, .zero_scale = 0x20});
      all.push_back({.element = element, .scale = MicroscaleType::kFloat8, .block = block});
      for (int rule = 0; rule < 4; rule++) {
        all.push_back({.element = element,
                       .scale = MicroscaleType::kPowerOfTwo,
                       .rule = static_cast<MicroscaleRule>(rule),
                       .block = block,
                       .zero_scale = rule == 3 ? 127u : 0u});
      }
    }
  }
  return all;
}

double error_of(const Microscales& form, const float* x, const float* w, float scale) {
  double sum = 0;
  for (uint32_t i = 0; i < form.block; i++) {
    const double value = double{value_of(nearest_code(x[i] / scale, form.element), form.element)} * scale;
    sum += (w == nullptr ? 1.0 : w[i]) * (x[i] - value) * (x[i] - value);
  }
  return sum;
}

TEST(Microscales, follow_their_rules) {
  const std::vector<float> x = hard_values(32 * 90, 7);
  for (const Microscales& form : forms()) {
    const size_t blocks = x.size() / form.block;
    for (const GlobalScale global : {GlobalScale{1, true}, GlobalScale{37.5f, true}, GlobalScale{0.0123f, false}}) {
      if (form.scale == MicroscaleType::kPowerOfTwo && global.value != 1) continue;
      std::vector<uint8_t> scales(blocks), codes(x.size());
      std::vector<float> restored(x.size()), again(x.size());
      make_microscales(form, global, x.data(), nullptr, blocks, scales.data(), codes.data(), restored.data());
      for (size_t b = 0; b < blocks; b++) {
        const float* from = x.data() + b * form.block;
        float amax = 0;
        for (uint32_t i = 0; i < form.block; i++) amax = std::max(amax, std::fabs(from[i]));
        ASSERT_EQ(scales[b], rule_byte(form, global, amax)) << amax;
        const float scale = scale_value(form, scales[b], global);
        for (uint32_t i = 0; i < form.block; i++) {
          const uint8_t code = scale > 0 ? nearest_code(from[i] / scale, form.element) : 0;
          ASSERT_EQ(codes[b * form.block + i], code) << from[i] << " / " << scale;
          const float value = value_of(code, form.element) * scale;
          ASSERT_EQ(restored[b * form.block + i], value);
        }
      }
      restore_microscales(form, global, scales.data(), codes.data(), blocks, again.data());
      EXPECT_EQ(again, restored);
    }
  }
}

TEST(Microscales, searched_scales_are_never_worse) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(8 * 512), weights(x.size());
  for (size_t i = 0; i < x.size(); i++) {
    x[i] = normal(random);
    weights[i] = i % 5 == 0 ? 30.0f : 0.5f;
  }
  for (Microscales form : forms()) {
    const GlobalScale global = form.scale == MicroscaleType::kFloat8 ? codecs::global_scale_of(5, true) : GlobalScale{};
    const size_t blocks = x.size() / form.block;
    for (const float* w : {static_cast<const float*>(nullptr), static_cast<const float*>(weights.data())}) {
      std::vector<uint8_t> plain(blocks), scales(blocks), codes(x.size());
      form.search = false;
      make_microscales(form, global, x.data(), w, blocks, plain.data(), codes.data(), nullptr);
      form.search = true;
      make_microscales(form, global, x.data(), w, blocks, scales.data(), codes.data(), nullptr);
      double before = 0, after = 0;
      const bool is_power = form.scale == MicroscaleType::kPowerOfTwo;
      for (size_t b = 0; b < blocks; b++) {
        const float* from = x.data() + b * form.block;
        const float* its = w == nullptr ? nullptr : w + b * form.block;
        const auto error = [&](int byte) {
          return error_of(form, from, its, scale_value(form, static_cast<uint8_t>(byte), global));
        };
        double least = error(plain[b]);
        for (int step = is_power ? -1 : -4; step <= (is_power ? 1 : 6); step++) {
          const int byte = plain[b] + step;
          if (byte >= (is_power ? 0 : 1) && byte <= (is_power ? 254 : 126)) least = std::min(least, error(byte));
        }
        // The sums are in float32: at most 32 terms with three roundings each, and the sum of 32 squares of differences that themselves have
        // a rounding of x.
        ASSERT_LE(error(scales[b]), least * (1 + 64 * 0x1p-24) + 1e-9);
        before += error(plain[b]);
        after += error(scales[b]);
      }
      EXPECT_LE(after, before);
      if (form.element == Minifloat::kFloat4E2M1) {
        EXPECT_LT(after, (is_power ? 1.0 : 0.95) * before);
      }
    }
  }
}

TEST(Microscaled, packs_and_restores_a_matrix) {
  const uint32_t rows = 5, columns = 96;
  std::vector<float> x = hard_values(rows * columns, 5);
  for (float& value : x) value = std::fabs(value) > 1e20f ? 3.0f : value;
  float amax = 0;
  for (const float value : x) amax = std::max(amax, std::fabs(value));
  const codecs::ValueRange range = {-amax, 0.5f};
  for (const GlobalScaleForm global : {GlobalScaleForm::kNone, GlobalScaleForm::kDivides, GlobalScaleForm::kMultiplies}) {
    for (const Microscales& form : forms()) {
      const Microscaled codes = {form, global};
      std::vector<uint8_t> source(x.size() * 4);
      std::memcpy(source.data(), x.data(), source.size());
      Tile tile = tile_of(source, rows, columns, static_cast<int32_t>(ElementType::kF32));
      tile.wanted = 1 | 2 | 8;
      tile.measure = true;
      tile.ranges = &range;
      Encoded encoded;
      const auto arena = run_in_memory([&](Arena& room) { return encode(tile, codes, room, encoded); });
      const bool nibbles = form.element == Minifloat::kFloat4E2M1;
      ASSERT_EQ(encoded.data.size, x.size() / (nibbles ? 2 : 1));
      ASSERT_EQ(encoded.scale.size, x.size() / form.block);
      GlobalScale whole = {1, global == GlobalScaleForm::kDivides};
      if (global == GlobalScaleForm::kDivides) whole.value = 1 / amax * 2688.0f;
      if (global == GlobalScaleForm::kMultiplies) whole.value = amax / 2688.0f;
      float stored_global = 0;
      std::memcpy(&stored_global, encoded.global_scale.data, 4);
      if (global != GlobalScaleForm::kNone) {
        ASSERT_EQ(stored_global, whole.value);
      }
      // The codes are those of the blocks, the first of a pair in the low bits.
      std::vector<uint8_t> scales(encoded.scale.size), made(x.size());
      make_microscales(form, whole, x.data(), nullptr, scales.size(), scales.data(), made.data(), nullptr);
      EXPECT_EQ(byte_values(encoded.scale), scales);
      const std::vector<uint8_t> data = byte_values(encoded.data);
      for (size_t i = 0; i < x.size(); i++) ASSERT_EQ(nibbles ? data[i / 2] >> i % 2 * 4 & 15 : data[i], made[i]);
      // Decoding gives their values.
      const codecs::Stored stored = {rows, columns, part_of(data), part_of(scales), {}, encoded.global_scale};
      Arena other(kEachPiece);
      const float* y = nullptr;
      ASSERT_EQ(decode(stored, codes, other, y), Status::kOk);
      double squared = 0;
      for (size_t i = 0; i < x.size(); i++) {
        const float value = value_of(made[i], form.element) * scale_value(form, scales[i / form.block], whole);
        ASSERT_EQ(y[i], value);
        squared += (static_cast<double>(x[i]) - value) * (static_cast<double>(x[i]) - value);
      }
      EXPECT_NEAR(encoded.sums.squared_error, squared, squared * 1e-5);
      // Wrong sizes and scales are found.
      codecs::Stored wrong = stored;
      wrong.scale.size--;
      EXPECT_EQ(decode(wrong, codes, other, y), Status::kSizeMismatch);
      scales[1] = 255;
      EXPECT_EQ(decode(stored, codes, other, y), Status::kBadScale);
    }
  }
}

TEST(Microscaled, finds_values_that_are_not_finite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x(64, 1.0f);
    x[37] = bad;
    std::vector<uint8_t> source(x.size() * 4);
    std::memcpy(source.data(), x.data(), source.size());
    Tile tile = tile_of(source, 2, 32, static_cast<int32_t>(ElementType::kF32));
    tile.wanted = 3;
    Encoded encoded;
    Arena arena(kEachPiece);
    const Microscales form = {.scale = MicroscaleType::kPowerOfTwo, .block = 32};
    ASSERT_EQ(encode(tile, Microscaled{form, GlobalScaleForm::kNone}, arena, encoded), Status::kOk);
    EXPECT_EQ(encoded.problem.kind, ProblemKind::kNonFinite);
    EXPECT_EQ(encoded.problem.index, 37u);
    EXPECT_EQ(encode(tile, Microscaled{form, GlobalScaleForm::kDivides}, arena, encoded), Status::kBadLayout);
    tile.columns = 16;
    tile.rows = 4;
    EXPECT_EQ(encode(tile, Microscaled{form, GlobalScaleForm::kNone}, arena, encoded), Status::kBadLayout);
  }
}

TEST(ScaledElements, multiply_blocks_of_rows_and_columns) {
  const uint32_t rows = 5, columns = 7;
  std::vector<uint8_t> data(rows * columns);
  for (size_t i = 0; i < data.size(); i++) data[i] = static_cast<uint8_t>(i * 7 % 120 + (i % 2) * 128);
  for (const uint32_t block_rows : {0u, 1u, 2u}) {
    for (const uint32_t block_columns : {0u, 3u}) {
      const uint32_t down = block_rows == 0 ? 1 : (rows + block_rows - 1) / block_rows;
      const uint32_t across = block_columns == 0 ? 1 : (columns + block_columns - 1) / block_columns;
      std::vector<float> scales(down * across);
      for (size_t i = 0; i < scales.size(); i++) scales[i] = 0.25f * static_cast<float>(i + 1);
      std::vector<uint8_t> bytes(scales.size() * 4);
      std::memcpy(bytes.data(), scales.data(), bytes.size());
      for (const codecs::ScaledType type : {codecs::ScaledType::kF8_E4M3, codecs::ScaledType::kI8}) {
        const codecs::ScaledElements form = {type, ElementType::kF32, block_rows, block_columns};
        const codecs::Stored stored = {rows, columns, part_of(data), part_of(bytes), {}, {}};
        const float* y = nullptr;
        const auto arena = run_in_memory([&](Arena& room) { return decode(stored, form, room, y); });
        for (uint32_t r = 0; r < rows; r++) {
          for (uint32_t c = 0; c < columns; c++) {
            const uint8_t code = data[r * columns + c];
            const double value =
                type == codecs::ScaledType::kI8 ? static_cast<int8_t>(code) : value_of(code, Minifloat::kFloat8E4M3FN);
            const float scale =
                scales[(block_rows == 0 ? 0 : r / block_rows) * across + (block_columns == 0 ? 0 : c / block_columns)];
            ASSERT_EQ(y[r * columns + c], static_cast<float>(value) * scale);
          }
        }
        scales[0] = -1;
        std::vector<uint8_t> negative(bytes);
        std::memcpy(negative.data(), scales.data(), 4);
        Arena other(kEachPiece);
        EXPECT_EQ(decode({rows, columns, part_of(data), part_of(negative), {}, {}}, form, other, y), Status::kBadScale);
        scales[0] = 0.25f;
      }
    }
  }
}

}  // namespace
}  // namespace scalepoint::tests
