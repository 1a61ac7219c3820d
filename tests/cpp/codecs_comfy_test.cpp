// Tiles of floats to codes as ComfyUI stores them, and back. The oracle here orders the scales of groups by the reshapes and transposes of comfy-kitchen's to_blocked (float_utils.py at 7d86acf6), element by element.
#include <limits>

#include "codecs/comfy.h"
#include "codecs_helpers.h"

namespace scalepoint::tests {
namespace {

using codecs::Comfy;
using codecs::ComfyKind;
using codecs::Stored;
using codecs::ValueRange;

constexpr Minifloat kFloat8 = Minifloat::kFloat8E4M3FN, kFloat4 = Minifloat::kFloat4E2M1;

constexpr ComfyKind kWritten[] = {ComfyKind::kFloat8, ComfyKind::kInt8, ComfyKind::kMxFloat8, ComfyKind::kNvFloat4};

struct Parts {
  std::vector<uint8_t> data, scale, global_scale;
  std::vector<float> restored;
};

// ------------------------------------------------------------------------------------------------------------------ the oracle

void append(std::vector<uint8_t>& to, float value) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof(float));
}

float largest_magnitude(const std::vector<float>& x, size_t begin, size_t n) {
  float largest = 0;
  for (size_t i = begin; i < begin + n; i++) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

float expected_scale(float largest, float most) {
  if (largest == 0) return 1;
  const float scale = largest / most;
  if (scale == 0) return std::numeric_limits<float>::denorm_min();
  return std::isinf(scale * most) ? std::nextafter(scale, 0.0f) : scale;
}

/// Scales of groups, row by row, in the order of cuBLAS: padded; as [row tiles, 128, column tiles, 4]; the middle dimensions exchanged; as
/// [all, 4, 32, 4]; its middle dimensions exchanged.
std::vector<uint8_t> blocked(const std::vector<uint8_t>& scales, size_t rows, size_t groups) {
  const size_t row_tiles = (rows + 127) / 128, column_tiles = (groups + 3) / 4;
  std::vector<uint8_t> padded(row_tiles * 128 * column_tiles * 4);
  for (size_t r = 0; r < rows; r++) {
    for (size_t g = 0; g < groups; g++) padded[r * column_tiles * 4 + g] = scales[r * groups + g];
  }
  std::vector<uint8_t> moved;
  for (size_t tile = 0; tile < row_tiles; tile++) {
    for (size_t column = 0; column < column_tiles; column++) {
      for (size_t r = 0; r < 128; r++) {
        for (size_t g = 0; g < 4; g++) moved.push_back(padded[((tile * 128 + r) * column_tiles + column) * 4 + g]);
      }
    }
  }
  std::vector<uint8_t> result;
  for (size_t all = 0; all < row_tiles * column_tiles; all++) {
    for (size_t r = 0; r < 32; r++) {
      for (size_t four = 0; four < 4; four++) {
        for (size_t g = 0; g < 4; g++) result.push_back(moved[all * 512 + four * 128 + r * 4 + g]);
      }
    }
  }
  return result;
}

Parts expected_parts(const std::vector<float>& x, size_t rows, size_t columns, ComfyKind kind) {
  Parts parts;
  const float whole = largest_magnitude(x, 0, x.size());
  std::vector<uint8_t> codes, scales;
  if (kind == ComfyKind::kFloat8) {
    const float scale = expected_scale(whole, 448);
    append(parts.scale, scale);
    for (const float value : x) {
      parts.data.push_back(nearest_code(value / scale, kFloat8));
      parts.restored.push_back(value_of(parts.data.back(), kFloat8) * scale);
    }
    return parts;
  }
  if (kind == ComfyKind::kInt8) {
    for (size_t row = 0; row < rows; row++) {
      const float scale = expected_scale(largest_magnitude(x, row * columns, columns), 127);
      append(parts.scale, scale);
      for (size_t i = row * columns; i < (row + 1) * columns; i++) {
        const auto code = static_cast<int8_t>(std::clamp(std::nearbyint(x[i] / scale), -128.0f, 127.0f));
        parts.data.push_back(static_cast<uint8_t>(code));
        parts.restored.push_back(static_cast<float>(code) * scale);
      }
    }
    return parts;
  }
  const bool is_float4 = kind == ComfyKind::kNvFloat4;
  const size_t group = is_float4 ? 16 : 32;
  const float tensor_scale = expected_scale(whole, 2688);
  for (size_t begin = 0; begin < x.size(); begin += group) {
    const float largest = largest_magnitude(x, begin, group);
    float scale = 0;
    if (is_float4) {
      scales.push_back(nearest_code(largest / 6 / tensor_scale, kFloat8));
      scale = value_of(scales.back(), kFloat8) * tensor_scale;
    } else {
      int power = -126;
      while (std::ldexp(448.0, power) < largest) power++;
      scales.push_back(largest == 0 ? 0 : static_cast<uint8_t>(power + 127));
      scale = largest == 0 ? 0 : static_cast<float>(std::ldexp(1.0, power));
    }
    for (size_t i = begin; i < begin + group; i++) {
      const float quotient = scale == 0 ? 0 : x[i] / scale;
      codes.push_back(nearest_code(quotient, is_float4 ? kFloat4 : kFloat8));
      parts.restored.push_back(value_of(codes.back(), is_float4 ? kFloat4 : kFloat8) * scale);
    }
  }
  parts.scale = blocked(scales, rows, columns / group);
  if (!is_float4) {
    parts.data = codes;
    return parts;
  }
  append(parts.global_scale, tensor_scale);
  for (size_t i = 0; i < codes.size(); i += 2) parts.data.push_back(static_cast<uint8_t>(codes[i] * 16 + codes[i + 1]));
  return parts;
}

// ------------------------------------------------------------------------------------------------------------------- the calls

StoredParts comfy(const Tile& tile, const Comfy& codes) { return encoded_parts(tile, codes); }

Decoded restored(const StoredParts& parts, size_t rows, size_t columns, const Comfy& codes) {
  return decoded_parts(parts, rows, columns, codes);
}

/// Rows of one group, of groups that do not fill a tile of scales, of several steps.
constexpr Shape kShapes[] = {{1, 32}, {3, 64}, {21, 96}, {33, 160}, {128, 128}, {130, 96}, {257, 64}, {3, 32800}, {300, 512}};

uint32_t all_roles_of(ComfyKind kind) { return kind == ComfyKind::kNvFloat4 ? 0b1011 : 0b0011; }

TEST(EncodeComfy, makes_codes_and_scales) {
  Random random(11);
  for (const auto& [rows, columns] : kShapes) {
    for (const ElementType from : kElementTypes) {
      for (const ComfyKind kind : kWritten) {
        // Of large tiles a third, each time others.
        if (rows * columns > 50000 && random.below(3) != 0) continue;
        const std::vector<double> values = hard_rows(random, rows, columns, 8, from == ElementType::kF16 ? 6e4 : 3e38);
        const std::vector<uint8_t> source = reference::store_elements(values, from);
        const std::vector<float> x = floats_of(source, from);
        const Parts expected = expected_parts(x, rows, columns, kind);
        Tile tile = tile_of(source, rows, columns, from);
        tile.wanted = all_roles_of(kind);
        const StoredParts result = comfy(tile, {.kind = kind});
        const auto shown = [&, rows = rows, columns = columns] {
          return "kind " + std::to_string(static_cast<int>(kind)) + " from " + std::to_string(static_cast<int>(from)) + " " +
                 std::to_string(rows) + " x " + std::to_string(columns);
        };
        EXPECT_TRUE(same_problem({}, result.encoded.problem)) << shown();
        EXPECT_TRUE(same(expected.scale, result.scale)) << shown();
        EXPECT_TRUE(same(expected.global_scale, result.global_scale)) << shown();
        EXPECT_TRUE(same(expected.data, result.data)) << shown();
        EXPECT_TRUE(same_sums(sums_of(x, expected.restored), result.encoded.sums)) << shown();
        const Decoded back = restored(result, rows, columns, {.kind = kind});
        EXPECT_EQ(back.status, Status::kOk) << shown();
        EXPECT_TRUE(same(expected.restored, back.x)) << shown();
        if (HasFailure()) return;
      }
    }
  }
}

TEST(EncodeComfy, rounds_ties_to_even_codes) {
  // 6 and 448 make scales of 1; the others lie in the middle between two codes.
  std::vector<double> values(32, 0.0);
  const double ties[] = {448, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.75, -5, 6};
  std::copy(std::begin(ties), std::end(ties), values.begin());
  const std::vector<uint8_t> source = reference::store_elements(values, ElementType::kF32);
  Tile tile = tile_of(source, 1, 32, ElementType::kF32);
  const ValueRange range = {-2688, 2688};
  tile.ranges = &range;
  tile.wanted = 0b1011;
  const StoredParts result = comfy(tile, {.kind = ComfyKind::kNvFloat4});
  // The first group has a scale of 72, and all but its largest value become 0, with their signs. The second one is empty.
  EXPECT_EQ(result.data[0], 0x70);
  EXPECT_EQ(result.data[4], 0x88);
  EXPECT_EQ(result.scale[1], 0);
  values[0] = 6;
  const std::vector<uint8_t> other = reference::store_elements(values, ElementType::kF32);
  Tile small = tile_of(other, 1, 32, ElementType::kF32);
  small.ranges = &range;
  small.wanted = 1;
  const std::vector<uint8_t> expected = {0x70, 0x22, 0x44, 0x66, 0xAE, 0x70, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_TRUE(same(expected, comfy(small, {.kind = ComfyKind::kNvFloat4}).data));
}

TEST(EncodeComfy, stores_zeros_with_a_scale_of_one) {
  const std::vector<uint8_t> source(4 * 64 * sizeof(float));
  for (const ComfyKind kind : kWritten) {
    Tile tile = tile_of(source, 4, 64, ElementType::kF32);
    tile.wanted = all_roles_of(kind);
    for (const bool searches : {false, true}) {
      const StoredParts result = comfy(tile, {.kind = kind, .search = searches});
      EXPECT_TRUE(same(std::vector<uint8_t>(result.data.size()), result.data));
      std::vector<uint8_t> one;
      append(one, 1);
      const bool has_groups = kind == ComfyKind::kMxFloat8 || kind == ComfyKind::kNvFloat4;
      if (has_groups) {
        EXPECT_TRUE(same(std::vector<uint8_t>(512), result.scale));
      } else {
        EXPECT_TRUE(same(one, std::vector<uint8_t>(result.scale.end() - 4, result.scale.end())));
      }
      EXPECT_TRUE(same(kind == ComfyKind::kNvFloat4 ? one : std::vector<uint8_t>(), result.global_scale));
    }
  }
}

TEST(EncodeComfy, restores_the_largest_floats_as_finite_ones) {
  float largest = std::numeric_limits<float>::max();
  for (int i = 0; i < 64; i++, largest = std::nextafter(largest, 0.0f)) {
    std::vector<double> values(64);
    values[3] = i % 2 == 0 ? largest : -largest;
    const std::vector<uint8_t> source = reference::store_elements(values, ElementType::kF32);
    for (const ComfyKind kind : {ComfyKind::kFloat8, ComfyKind::kInt8, ComfyKind::kNvFloat4}) {
      Tile tile = tile_of(source, 1, 64, ElementType::kF32);
      tile.wanted = all_roles_of(kind);
      for (const bool searches : {false, true}) {
        const std::vector<float> x = restored(comfy(tile, {.kind = kind, .search = searches}), 1, 64, {.kind = kind}).x;
        EXPECT_LE(std::fabs(x[3] - values[3]), largest * 0x1p-6) << exact(largest) << " kind " << static_cast<int>(kind);
      }
    }
  }
}

TEST(EncodeComfy, gives_tiles_with_a_range_the_bytes_of_the_whole) {
  Random random(12);
  constexpr size_t kRows = 300, kColumns = 256;
  const std::vector<uint8_t> source = reference::store_elements(hard_rows(random, kRows, kColumns, 8, 2), ElementType::kF32);
  const std::vector<float> x = floats_of(source, ElementType::kF32);
  const float largest = largest_magnitude(x, 0, x.size());
  const ValueRange range = {-largest, largest / 2};
  for (const ComfyKind kind : {ComfyKind::kFloat8, ComfyKind::kNvFloat4}) {
    for (const bool searches : {false, true}) {
      Tile tile = tile_of(source, kRows, kColumns, ElementType::kF32);
      tile.wanted = all_roles_of(kind);
      const StoredParts whole = comfy(tile, {.kind = kind, .search = searches});
      StoredParts joined;
      for (size_t row = 0; row < kRows; row += 128) {
        const size_t rows = std::min<size_t>(128, kRows - row), begin = row * kColumns * 4;
        const std::vector<uint8_t> own(source.begin() + static_cast<ptrdiff_t>(begin),
                                       source.begin() + static_cast<ptrdiff_t>(begin + rows * kColumns * 4));
        Tile some = tile_of(own, rows, kColumns, ElementType::kF32);
        some.ranges = &range;
        some.wanted = all_roles_of(kind);
        const StoredParts result = comfy(some, {.kind = kind, .search = searches});
        joined.data.insert(joined.data.end(), result.data.begin(), result.data.end());
        joined.scale.insert(joined.scale.end(), result.scale.begin(), result.scale.end());
        EXPECT_TRUE(same(whole.global_scale, result.global_scale));
      }
      EXPECT_TRUE(same(whole.data, joined.data));
      EXPECT_TRUE(kind == ComfyKind::kFloat8 || same(whole.scale, joined.scale));
      // A scale of the tensor alone needs no elements.
      Tile none = tile_of({}, 1, 1, ElementType::kF32);
      none.columns = 16;
      none.ranges = &range;
      none.wanted = kind == ComfyKind::kFloat8 ? 2 : 8;
      const StoredParts scale = comfy(none, {.kind = kind});
      EXPECT_TRUE(kind == ComfyKind::kFloat8 ? same(whole.scale, scale.scale) : same(whole.global_scale, scale.global_scale));
    }
  }
}

TEST(EncodeComfy, lowers_errors_by_searching) {
  Random random(13);
  for (const ComfyKind kind : {ComfyKind::kInt8, ComfyKind::kNvFloat4}) {
    for (const auto& [rows, columns] : kShapes) {
      const std::vector<uint8_t> source = reference::store_elements(hard_rows(random, rows, columns, 4, 3), ElementType::kF32);
      const std::vector<float> x = floats_of(source, ElementType::kF32);
      Tile tile = tile_of(source, rows, columns, ElementType::kF32);
      tile.wanted = all_roles_of(kind);
      const StoredParts usual = comfy(tile, {.kind = kind}), searched = comfy(tile, {.kind = kind, .search = true});
      const std::vector<float> a = restored(usual, rows, columns, {.kind = kind}).x,
                               b = restored(searched, rows, columns, {.kind = kind}).x;
      EXPECT_TRUE(same_sums(sums_of(x, b), searched.encoded.sums));
      const size_t run = kind == ComfyKind::kInt8 ? columns : 16;
      for (size_t begin = 0; begin < x.size(); begin += run) {
        double before = 0, after = 0;
        for (size_t i = begin; i < begin + run; i++) {
          before += std::pow(static_cast<double>(a[i]) - x[i], 2);
          after += std::pow(static_cast<double>(b[i]) - x[i], 2);
        }
        // The search compares float32 sums of at most 2^15 squares, each within 2^-21 of itself.
        EXPECT_LE(after, before * (1 + 1e-5)) << rows << " x " << columns << " run " << begin / run;
        if (HasFailure()) return;
      }
      EXPECT_LT(searched.encoded.sums.squared_error, usual.encoded.sums.squared_error);
    }
  }
}

TEST(EncodeComfy, reports_values_that_are_not_finite) {
  for (const ComfyKind kind : kWritten) {
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      for (const bool has_range : {false, true}) {
        std::vector<double> values(64 * 1024, 0.5);
        values[40000] = bad;
        const std::vector<uint8_t> source = reference::store_elements(values, ElementType::kF32);
        Tile tile = tile_of(source, 64, 1024, ElementType::kF32);
        const ValueRange range = {-1, 1};
        const bool has_scale = kind == ComfyKind::kFloat8 || kind == ComfyKind::kNvFloat4;
        if (has_range && has_scale) tile.ranges = &range;
        tile.wanted = 3;
        EXPECT_TRUE(same_problem({ProblemKind::kNonFinite, 40000, bad}, comfy(tile, {.kind = kind}).encoded.problem));
      }
    }
  }
}

TEST(EncodeComfy, refuses_what_it_cannot_store) {
  const std::vector<uint8_t> source(4 * 24 * sizeof(float));
  Arena arena;
  Encoded encoded;
  Tile tile = tile_of(source, 4, 24, ElementType::kF32);
  EXPECT_EQ(encode(tile, Comfy{.kind = ComfyKind::kMxFloat8}, arena, encoded), Status::kBadLayout);
  EXPECT_EQ(encode(tile, Comfy{.kind = ComfyKind::kNvFloat4}, arena, encoded), Status::kBadLayout);
  EXPECT_EQ(encode(tile, Comfy{.kind = ComfyKind::kFloat8E5M2}, arena, encoded), Status::kBadDType);
  EXPECT_EQ(encode(tile, Comfy{.kind = static_cast<ComfyKind>(9)}, arena, encoded), Status::kBadDType);
  const ValueRange range = {-1, 1};
  tile.ranges = &range;
  EXPECT_EQ(encode(tile, Comfy{.kind = ComfyKind::kInt8}, arena, encoded), Status::kBadLayout);
}

TEST(DecodeComfy, refuses_scales_that_are_no_scales) {
  for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    StoredParts parts;
    parts.data.resize(64);
    append(parts.scale, bad);
    EXPECT_EQ(restored(parts, 1, 64, {.kind = ComfyKind::kFloat8}).status, Status::kBadScale);
    EXPECT_EQ(restored(parts, 1, 64, {.kind = ComfyKind::kInt8}).status, Status::kBadScale);
    parts.data.resize(32);
    parts.scale.assign(512, 0x38);
    append(parts.global_scale, bad);
    EXPECT_EQ(restored(parts, 1, 64, {.kind = ComfyKind::kNvFloat4}).status, Status::kBadScale);
  }
  StoredParts parts;
  parts.data.resize(64);
  parts.scale.assign(512, 0xFF);
  EXPECT_EQ(restored(parts, 1, 64, {.kind = ComfyKind::kMxFloat8}).status, Status::kBadScale);
  parts.scale.pop_back();
  EXPECT_EQ(restored(parts, 1, 64, {.kind = ComfyKind::kMxFloat8}).status, Status::kSizeMismatch);
  // NaN and negative scales of groups.
  parts.data.resize(32);
  append(parts.global_scale, 1);
  for (const uint8_t code : {0x7F, 0x80, 0xB8, 0xFF}) {
    parts.scale.assign(512, code);
    EXPECT_EQ(restored(parts, 1, 64, {.kind = ComfyKind::kNvFloat4}).status, Status::kBadScale);
  }
}

TEST(DecodeComfy, reads_one_scale_for_all_rows_and_float8e5m2) {
  StoredParts parts;
  append(parts.scale, 0.5f);
  parts.data = {1, 255, 127, 128};
  const std::vector<float> expected = {0.5f, -0.5f, 63.5f, -64.0f};
  EXPECT_TRUE(same(expected, restored(parts, 2, 2, {.kind = ComfyKind::kInt8, .one_scale = true}).x));
  parts.data = {0x3C, 0xBC, 0x7B, 0x01};
  const std::vector<float> floats = {0.5f, -0.5f, 28672.0f, 0x1p-17f};
  EXPECT_TRUE(same(floats, restored(parts, 2, 2, {.kind = ComfyKind::kFloat8E5M2}).x));
}

TEST(DecodeComfy, undoes_rotations) {
  // The sign of an element of the matrix: each pair of digits of base 4 that add up to 3 turns it.
  const auto sign = [](size_t i, size_t j, size_t size) {
    int32_t product = 1;
    for (size_t unit = 1; unit < size; unit *= 4) {
      if (i / unit % 4 + j / unit % 4 == 3) product = -product;
    }
    return product;
  };
  for (const uint32_t size : {4u, 16u, 64u, 256u}) {
    const size_t rows = 3, columns = 3 * size;
    StoredParts parts;
    for (size_t i = 0; i < rows * columns; i++) parts.data.push_back(static_cast<uint8_t>(i * 71 + i / 7));
    const float scales[] = {0.5f, 0.3f, 7.0f};
    for (const float scale : scales) append(parts.scale, scale);
    std::vector<float> expected;
    for (size_t i = 0; i < rows * columns; i++) {
      int32_t sum = 0;
      for (size_t j = 0; j < size; j++) sum += sign(i % size, j, size) * static_cast<int8_t>(parts.data[i - i % size + j]);
      expected.push_back(
          static_cast<float>(sum * static_cast<double>(scales[i / columns]) / std::sqrt(static_cast<double>(size))));
    }
    EXPECT_TRUE(same(expected, restored(parts, rows, columns, {.kind = ComfyKind::kInt8, .rotation = size}).x)) << size;
    for (const uint32_t wrong : {1u, 2u, 8u, size * 4, 1u << 18}) {
      EXPECT_EQ(restored(parts, rows, columns, {.kind = ComfyKind::kInt8, .rotation = wrong}).status, Status::kBadLayout)
          << wrong;
    }
  }
}

}  // namespace
}  // namespace scalepoint::tests
