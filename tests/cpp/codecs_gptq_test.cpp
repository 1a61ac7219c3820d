// Tiles of floats to codes as GPTQ and AWQ store them, and back. The oracle finds each code by its bit in the stored matrix.
#include "codecs/gptq.h"
#include "codecs_helpers.h"

namespace scalepoint::tests {
namespace {

using codecs::CompressedTensors;
using codecs::Gptq;
using codecs::Stored;

/// A matrix of words, row by row.
struct Words {
  size_t width;
  std::vector<uint32_t> words;

  Words(size_t rows, size_t columns) : width(columns), words(rows * columns, 0) {}
  /// Puts one bit of a code that runs down a column of words: bit `bit` of all bits of the column.
  void put_down(size_t column, size_t bit, uint32_t value) { words[bit / 32 * width + column] |= value << (bit % 32); }
  /// The same along a row.
  void put_along(size_t row, size_t bit, uint32_t value) { words[row * width + bit / 32] |= value << (bit % 32); }
  [[nodiscard]] std::vector<uint8_t> bytes() const {
    std::vector<uint8_t> all;
    for (const uint32_t word : words) {
      for (int shift = 0; shift < 32; shift += 8) all.push_back(static_cast<uint8_t>(word >> shift));
    }
    return all;
  }
};

/// The row of eight that each nibble of AWQ's words holds, the lowest first.
constexpr size_t kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};

struct Parts {
  std::vector<uint8_t> data, scale, zero_point, group;
};

/// Stores codes [rows, columns], scales and zero points [rows, groups].
Parts store(const std::vector<uint32_t>& values, const std::vector<double>& scales, const std::vector<uint32_t>& zeros,
            size_t rows, size_t columns, const Gptq& codes) {
  const size_t groups = scales.size() / rows, bits = static_cast<size_t>(codes.bits);
  Words data = codes.outputs ? Words(columns, rows / 8) : Words(columns * bits / 32, rows);
  Words zero_points(groups, rows * bits / 32);
  for (size_t row = 0; row < rows; row++) {
    const size_t nibble = static_cast<size_t>(std::find(kOrder, kOrder + 8, row % 8) - kOrder);
    for (size_t bit = 0; bit < bits; bit++) {
      for (size_t column = 0; column < columns; column++) {
        const uint32_t value = values[row * columns + column] >> bit & 1;
        if (codes.outputs) {
          data.put_along(column, row / 8 * 32 + nibble * 4 + bit, value);
        } else {
          data.put_down(row, column * bits + bit, value);
        }
      }
      for (size_t group = 0; group < groups; group++) {
        const uint32_t zero = (zeros[row * groups + group] - (codes.less_one ? 1 : 0)) >> bit & 1;
        zero_points.put_along(group, codes.outputs ? row / 8 * 32 + nibble * 4 + bit : row * bits + bit, zero);
      }
    }
  }
  std::vector<double> turned;
  for (size_t group = 0; group < groups; group++) {
    for (size_t row = 0; row < rows; row++) turned.push_back(scales[row * groups + group]);
  }
  return {data.bytes(), reference::store_elements(turned, codes.scale), zero_points.bytes(), {}};
}

Status decoded(const Parts& parts, size_t rows, size_t columns, const Gptq& codes, std::vector<float>& x) {
  const Stored stored = {.rows = static_cast<uint32_t>(rows),
                         .columns = static_cast<uint32_t>(columns),
                         .data = part_of(parts.data),
                         .scale = part_of(parts.scale),
                         .zero_point = part_of(parts.zero_point),
                         .group = part_of(parts.group),
                         .outer_scale = {},
                         .table = {}};
  const float* out = nullptr;
  Arena arena(kEachPiece);
  const Status status = decode(stored, codes, arena, out);
  if (status == Status::kOk) x.assign(out, out + rows * columns);
  return status;
}

std::vector<Gptq> all_forms() {
  std::vector<Gptq> forms;
  for (const uint32_t group : {0, 32, 48, 128}) {
    for (const ElementType scale : {ElementType::kF16, ElementType::kBF16, ElementType::kF32}) {
      for (const int32_t bits : {2, 3, 4, 8}) {
        for (const bool less_one : {true, false}) {
          forms.push_back({.bits = bits, .group_size = group, .less_one = less_one, .scale = scale});
        }
      }
      forms.push_back({.bits = 4, .group_size = group, .outputs = true, .less_one = false, .scale = scale});
    }
  }
  return forms;
}

constexpr Shape kShapes[] = {{32, 32}, {64, 128}, {96, 160}, {32, 1024}};

TEST(DecodeGptq, restores_what_the_layouts_say) {
  Random random(11);
  for (const auto& [rows, columns] : kShapes) {
    for (const Gptq& form : all_forms()) {
      for (const bool grouped : {false, true}) {
        Gptq codes = form;
        codes.grouped = grouped;
        const size_t size = codes.group_size == 0 ? columns : codes.group_size, groups = (columns + size - 1) / size;
        const int levels = (1 << codes.bits) - 1;
        std::vector<uint32_t> values(rows * columns), zeros(rows * groups), index(columns);
        std::vector<double> scales(rows * groups);
        for (auto& value : values) value = static_cast<uint32_t>(random.integer(0, levels));
        // The first version holds 1 to levels + 1.
        for (auto& zero : zeros) zero = static_cast<uint32_t>(random.integer(0, levels) + (codes.less_one ? 1 : 0));
        for (auto& scale : scales) scale = random.uniform(0, 0.1f);
        for (size_t i = 0; i < columns; i++) {
          index[i] =
              static_cast<uint32_t>(grouped ? static_cast<size_t>(random.integer(0, static_cast<int>(groups) - 1)) : i / size);
        }
        Parts parts = store(values, scales, zeros, rows, columns, codes);
        for (const uint32_t i : index) {
          for (int shift = 0; grouped && shift < 32; shift += 8) parts.group.push_back(static_cast<uint8_t>(i >> shift));
        }
        std::vector<double> stored = reference::load_elements(reference::store_elements(scales, codes.scale), codes.scale);
        std::vector<float> expected;
        for (size_t row = 0; row < rows; row++) {
          for (size_t i = 0; i < columns; i++) {
            const size_t set = row * groups + index[i];
            const double steps = static_cast<double>(values[row * columns + i]) - zeros[set];
            // Exact in double, rounded once.
            expected.push_back(static_cast<float>(stored[set] * steps));
          }
        }
        std::vector<float> x;
        ASSERT_EQ(decoded(parts, rows, columns, codes, x), Status::kOk);
        EXPECT_TRUE(same(expected, x)) << codes.bits << " bits, groups of " << codes.group_size << ", outputs " << codes.outputs;
        if (HasFailure()) return;
      }
    }
  }
}

TEST(DecodeGptq, refuses_what_no_file_may_hold) {
  const Gptq codes = {.bits = 4, .group_size = 32, .grouped = true};
  Parts parts = store(std::vector<uint32_t>(32 * 64, 1), std::vector<double>(64, 1), std::vector<uint32_t>(64, 8), 32, 64, codes);
  parts.group.assign(64 * 4, 0);
  std::vector<float> x;
  EXPECT_EQ(decoded(parts, 32, 64, codes, x), Status::kOk);
  Parts wrong = parts;
  wrong.group[4] = 2;
  EXPECT_EQ(decoded(wrong, 32, 64, codes, x), Status::kBadRange);
  wrong.group[4] = 0;
  wrong.group[7] = 0x80;
  EXPECT_EQ(decoded(wrong, 32, 64, codes, x), Status::kBadRange);
  wrong = parts;
  wrong.scale[1] = 0x7C;
  EXPECT_EQ(decoded(wrong, 32, 64, codes, x), Status::kBadScale);
  for (auto part : {&Parts::data, &Parts::zero_point, &Parts::group}) {
    wrong = parts;
    (wrong.*part).pop_back();
    EXPECT_EQ(decoded(wrong, 32, 64, codes, x), Status::kSizeMismatch);
  }
  EXPECT_EQ(decoded(parts, 32, 64, {.bits = 5}, x), Status::kBadDType);
  EXPECT_EQ(decoded(parts, 32, 64, {.bits = 8, .outputs = true}, x), Status::kBadDType);
  EXPECT_EQ(decoded(parts, 31, 64, codes, x), Status::kBadLayout);
  EXPECT_EQ(decoded(parts, 32, 63, codes, x), Status::kBadLayout);
}

TEST(EncodeGptq, lays_out_the_codes_of_compressed_tensors) {
  Random random(12);
  for (const auto& [rows, columns] : kShapes) {
    for (const Gptq& form : all_forms()) {
      if (form.scale != ElementType::kF16 || (form.group_size != 0 && columns % form.group_size != 0)) continue;
      for (const bool symmetric : {true, false}) {
        Gptq codes = form;
        codes.symmetric = symmetric;
        const std::vector<double> values = hard_rows(random, rows, columns, codes.bits, 6e4);
        const std::vector<uint8_t> source = reference::store_elements(values, ElementType::kF16);
        const std::vector<float> x = floats_of(source, ElementType::kF16);
        Tile tile = tile_of(source, rows, columns, ElementType::kF16);
        tile.wanted = kAllRoles;
        Encoded encoded;
        if (codes.less_one && !symmetric) {
          Arena arena;
          EXPECT_EQ(encode(tile, codes, arena, encoded), Status::kBadLayout);
          continue;
        }
        const CompressedTensors plain = {
            .bits = codes.bits, .symmetric = symmetric, .group_size = codes.group_size, .scale = ElementType::kF16};
        reference::CompressedTile made = reference::compressed_parameters(x, rows, columns, plain);
        compress(x, rows, columns, plain, made);
        const int middle = 1 << (codes.bits - 1);
        std::vector<uint32_t> expected, zeros;
        for (const int32_t code : made.codes) expected.push_back(static_cast<uint32_t>(code + middle));
        for (const int32_t zero : made.zero_point) zeros.push_back(static_cast<uint32_t>(zero + middle));
        const Parts parts = store(expected, {made.scale.begin(), made.scale.end()}, zeros, rows, columns, codes);
        const auto memory = run_in_memory([&](Arena& arena) { return encode(tile, codes, arena, encoded); });
        EXPECT_TRUE(same(parts.scale, byte_values(encoded.scale)));
        EXPECT_TRUE(same(parts.zero_point, byte_values(encoded.zero_point)));
        EXPECT_TRUE(same(parts.data, byte_values(encoded.data))) << codes.bits << " bits, outputs " << codes.outputs;
        EXPECT_TRUE(same_sums(sums_of(x, made.restored), encoded.sums));
        if (HasFailure()) return;
      }
    }
  }
}

TEST(EncodeGptq, reports_problems) {
  std::vector<double> values(32 * 32, 1);
  values[40] = kNan;
  const std::vector<uint8_t> source = reference::store_elements(values, ElementType::kF32);
  Encoded encoded;
  Arena arena;
  EXPECT_EQ(encode(tile_of(source, 32, 32, ElementType::kF32), Gptq{.group_size = 0}, arena, encoded), Status::kOk);
  EXPECT_TRUE(same_problem({ProblemKind::kNonFinite, 40, kNan}, encoded.problem));
}

}  // namespace
}  // namespace scalepoint::tests
