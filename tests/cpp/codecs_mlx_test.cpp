// Tiles of floats to codes as MLX's CPU build makes them, and back. The oracle follows the rule of mlx/backend/cpu/quantized.cpp at 846d1762,
// one group at a time.
#include "codecs/mlx.h"
#include "codecs_helpers.h"

namespace scalepoint::tests {
namespace {

using codecs::Mlx;
using codecs::Stored;

constexpr ElementType kScaleTypes[] = {ElementType::kF32, ElementType::kF16, ElementType::kBF16};

/// Floats as a type holds them.
std::vector<float> rounded(const std::vector<float>& x, ElementType type) {
  return floats_of(reference::store_elements({x.begin(), x.end()}, type), type);
}

struct Expected {
  std::vector<uint32_t> codes;
  std::vector<float> scale, bias, restored;
};

Expected quantized(const std::vector<float>& source, const Mlx& form) {
  Expected all;
  const std::vector<float> x = rounded(source, form.scale);
  const float bins = static_cast<float>((1 << form.bits) - 1);
  for (size_t first = 0; first < x.size(); first += form.group_size) {
    float low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < form.group_size; i++) {
      low = std::min(low, x[first + i]);
      high = std::max(high, x[first + i]);
    }
    float scale = std::max((high - low) / bins, 1e-7f), bias = 0;
    const bool side = std::abs(low) > std::abs(high);
    if (!side) scale = -scale;
    const float edge = side ? low : high;
    const float q0 = std::rint(edge / scale);
    if (q0 != 0) {
      scale = edge / q0;
      bias = edge;
    }
    for (size_t i = 0; i < form.group_size; i++) {
      const float q = std::rint((x[first + i] - bias) / scale);
      all.codes.push_back(static_cast<uint32_t>(std::min(std::max(q, 0.0f), bins)));
    }
    all.scale.push_back(scale);
    all.bias.push_back(bias);
  }
  all.scale = rounded(all.scale, form.scale);
  all.bias = rounded(all.bias, form.scale);
  for (size_t i = 0; i < x.size(); i++) {
    const float product = static_cast<float>(all.codes[i]) * all.scale[i / form.group_size];
    all.restored.push_back(product + all.bias[i / form.group_size]);
  }
  return all;
}

/// Codes, lowest bits first, without gaps.
std::vector<uint8_t> bit_stream(const std::vector<uint32_t>& codes, int32_t bits) {
  std::vector<uint8_t> bytes(codes.size() * static_cast<size_t>(bits) / 8, 0);
  for (size_t i = 0; i < codes.size() * static_cast<size_t>(bits); i++) {
    const uint32_t bit = codes[i / static_cast<size_t>(bits)] >> (i % static_cast<size_t>(bits)) & 1;
    bytes[i / 8] = static_cast<uint8_t>(bytes[i / 8] | bit << (i % 8));
  }
  return bytes;
}

std::vector<Mlx> all_forms() {
  std::vector<Mlx> forms;
  for (const int32_t bits : {2, 3, 4, 5, 6, 8}) {
    for (const uint32_t group : {32, 64, 128}) {
      for (const ElementType scale : kScaleTypes) forms.push_back({.bits = bits, .group_size = group, .scale = scale});
    }
  }
  return forms;
}

constexpr Shape kShapes[] = {{20, 128}, {10, 384}, {3, 16384}, {41, 640}};

TEST(EncodeMlx, makes_the_bytes_of_the_cpu_build) {
  Random random(21);
  for (const Shape& shape : kShapes) {
    const auto& [rows, columns] = shape;
    for (const ElementType from : kElementTypes) {
      for (const Mlx& codes : all_forms()) {
        if (random.below(rows * columns > 20000 ? 20 : 2) != 0) continue;
        // Scales of float16 hold 1e-7 only roughly, and no large range of bfloat16.
        const bool half = from == ElementType::kF16 || codes.scale == ElementType::kF16;
        const std::vector<double> values = hard_rows(random, rows, columns, codes.bits, half ? 3e4 : 1e37);
        const std::vector<uint8_t> source = reference::store_elements(values, from);
        const std::vector<float> x = floats_of(source, from);
        const Expected expected = quantized(x, codes);
        Tile tile = tile_of(source, rows, columns, from);
        tile.wanted = kAllRoles;
        Encoded encoded;
        const auto memory = run_in_memory([&](Arena& arena) { return encode(tile, codes, arena, encoded); });
        const auto shown = [&] {
          return std::to_string(codes.bits) + " bits, groups of " + std::to_string(codes.group_size) + ", scale type " +
                 std::to_string(static_cast<int>(codes.scale)) + " from " + std::to_string(static_cast<int>(from));
        };
        ASSERT_TRUE(same_problem({}, encoded.problem)) << shown();
        EXPECT_TRUE(same(reference::store_elements({expected.scale.begin(), expected.scale.end()}, codes.scale),
                         byte_values(encoded.scale)))
            << shown();
        EXPECT_TRUE(same(reference::store_elements({expected.bias.begin(), expected.bias.end()}, codes.scale),
                         byte_values(encoded.zero_point)))
            << shown();
        EXPECT_TRUE(same(bit_stream(expected.codes, codes.bits), byte_values(encoded.data))) << shown();
        EXPECT_TRUE(same_sums(sums_of(x, expected.restored), encoded.sums)) << shown();
        EXPECT_TRUE(same(expected.restored, restored(encoded, shape, codes))) << shown();
        if (HasFailure()) return;
      }
    }
  }
}

TEST(EncodeMlx, makes_what_is_wanted_and_no_more) {
  Random random(22);
  for (const bool search : {false, true}) expect_parts_alone(random, Mlx{.bits = 3, .group_size = 32, .search = search});
}

TEST(EncodeMlx, searches_lines_with_smaller_errors) {
  Random random(23);
  for (const Mlx& form : all_forms()) {
    // Wide codes leave little to find, and 2 bits much.
    const double most = form.bits == 2 ? 0.75 : form.bits == 3 ? 0.85 : form.bits == 4 ? 0.93 : 1.0;
    Random same = random;
    const double share = rule_and_search(random, form).share_of_error();
    EXPECT_LT(share, most) << form.bits;
    Mlx best = form;
    best.best = true;
    if (form.scale == ElementType::kBF16) {
      EXPECT_LT(rule_and_search(same, best).share_of_error(), share) << form.bits;
    }
    if (HasFailure()) return;
  }
}

TEST(EncodeMlx, weighs_errors_by_the_inputs) {
  Random random(24);
  const size_t rows = 8, columns = 256;
  std::vector<double> values(rows * columns);
  std::vector<float> importance(columns);
  for (double& value : values) value = random.uniform(-1, 1) + random.uniform(-1, 1) + random.uniform(-1, 1);
  for (float& weight : importance) weight = random.below(8) == 0 ? 100.0f : 0.1f;
  const std::vector<uint8_t> source = reference::store_elements(values, ElementType::kF32);
  const std::vector<float> x = floats_of(source, ElementType::kF32);
  const Mlx codes = {.bits = 2, .group_size = 32, .search = true};
  double sums[2];
  for (const bool weighed : {false, true}) {
    Tile tile = tile_of(source, rows, columns, ElementType::kF32);
    tile.wanted = kAllRoles;
    if (weighed) tile.importance = importance.data();
    Encoded encoded;
    Arena arena;
    EXPECT_EQ(encode(tile, codes, arena, encoded), Status::kOk);
    const std::vector<float> y = restored(encoded, {rows, columns}, codes);
    sums[weighed] = 0;
    for (size_t i = 0; i < x.size(); i++) sums[weighed] += importance[i % columns] * (x[i] - y[i]) * (x[i] - y[i]);
    if (!weighed) continue;
    // Rounding of at most 2048 float32 products and sums, of 2^-24 each.
    EXPECT_NEAR(encoded.sums.weighted_error, sums[1], 1.3e-4 * sums[1]);
  }
  EXPECT_LT(sums[1], 0.8 * sums[0]);
}

TEST(EncodeMlx, reports_problems) {
  for (const bool search : {false, true}) {
    for (const ElementType scale : kScaleTypes) {
      const Mlx codes = {.scale = scale, .search = search};
      EXPECT_TRUE(same_problem({ProblemKind::kNonFinite, 70, kNan}, problem_of(70, kNan, codes)));
      EXPECT_TRUE(same_problem({ProblemKind::kNonFinite, 3, -kInfinity}, problem_of(3, -kInfinity, codes)));
    }
    // A search may find a line that ends below the largest value.
    const float large = search ? 1e9f : 1e6f;
    EXPECT_TRUE(same_problem({ProblemKind::kOverflow, 65, large},
                             problem_of(65, large, Mlx{.scale = ElementType::kF16, .search = search})));
  }
}

TEST(Mlx, refuses_other_forms) {
  const std::vector<uint8_t> source(4 * 128, 0);
  Encoded encoded;
  Arena arena;
  const Tile tile = tile_of(source, 2, 64, ElementType::kF32);
  for (const int32_t bits : {0, 1, 7, 9}) EXPECT_EQ(encode(tile, Mlx{.bits = bits}, arena, encoded), Status::kBadDType);
  for (const uint32_t group : {0, 16, 96, 128}) {
    EXPECT_EQ(encode(tile, Mlx{.group_size = group}, arena, encoded), Status::kBadLayout);
  }
  EXPECT_EQ(encode(tile, Mlx{.scale = ElementType::kF64}, arena, encoded), Status::kBadDType);
  const float* x = nullptr;
  const std::vector<uint8_t> data(64), scale(4), bias(4);
  Stored stored;
  stored.rows = 2;
  stored.columns = 64;
  stored.data = part_of(data);
  stored.scale = part_of(scale);
  stored.zero_point = part_of(bias);
  EXPECT_EQ(decode(stored, Mlx{}, arena, x), Status::kOk);
  stored.zero_point.size = 2;
  EXPECT_EQ(decode(stored, Mlx{}, arena, x), Status::kSizeMismatch);
  const std::vector<uint8_t> infinite = {0x80, 0x7F, 0, 0};
  stored.zero_point = part_of(infinite);
  EXPECT_EQ(decode(stored, Mlx{}, arena, x), Status::kBadScale);
}

}  // namespace
}  // namespace scalepoint::tests
