// Stored tiles of bitsandbytes to floats, held to its own formulas for one element at a time.
#include "codecs/bitsandbytes.h"
#include "codecs_helpers.h"

namespace scalepoint::tests {
namespace {

using codecs::BitsAndBytes;
using codecs::Stored;

/// Values by code. Source: github.com/bitsandbytes-foundation/bitsandbytes 95f9af30, csrc/kernels.cu.
constexpr float kNf4[16] = {-1.0f,
                            -0.6961928009986877f,
                            -0.5250730514526367f,
                            -0.39491748809814453f,
                            -0.28444138169288635f,
                            -0.18477343022823334f,
                            -0.09105003625154495f,
                            0.0f,
                            0.07958029955625534f,
                            0.16093020141124725f,
                            0.24611230194568634f,
                            0.33791524171829224f,
                            0.44070982933044434f,
                            0.5626170039176941f,
                            0.7229568362236023f,
                            1.0f};
constexpr float kFp4[8] = {0.0f, 0.005208333333f, 0.66666667f, 1.0f, 0.33333333f, 0.5f, 0.16666667f, 0.25f};

std::vector<uint8_t> float_bytes(const std::vector<float>& x) {
  return reference::store_elements({x.begin(), x.end()}, ElementType::kF32);
}

struct Parts {
  std::vector<uint8_t> data, scale, outer, table;
};

Status decoded(const Parts& parts, size_t rows, size_t columns, const BitsAndBytes& codes, std::vector<float>& x) {
  const Stored stored = {.rows = static_cast<uint32_t>(rows),
                         .columns = static_cast<uint32_t>(columns),
                         .data = part_of(parts.data),
                         .scale = part_of(parts.scale),
                         .zero_point = {},
                         .group = {},
                         .outer_scale = part_of(parts.outer),
                         .table = part_of(parts.table)};
  const float* out = nullptr;
  Arena arena(kEachPiece);
  const Status status = decode(stored, codes, arena, out);
  if (status == Status::kOk) x.assign(out, out + rows * columns);
  return status;
}

TEST(DecodeBitsAndBytes, restores_blocks) {
  Random random(31);
  struct Shape {
    size_t rows, columns;
  };
  for (const auto& [rows, columns] : {Shape{1, 1}, Shape{3, 5}, Shape{8, 96}, Shape{64, 1024}, Shape{5, 3000}}) {
    const size_t size = rows * columns;
    for (const PublishedCodebook book : {PublishedCodebook::kNf4, PublishedCodebook::kFp4}) {
      for (const uint32_t block : {32, 64, 4096}) {
        for (const uint32_t outer : {0, 4, 256}) {
          for (const ElementType to : {ElementType::kF32, ElementType::kF16, ElementType::kBF16}) {
            const size_t blocks = (size + block - 1) / block, outers = outer == 0 ? 0 : (blocks + outer - 1) / outer;
            const BitsAndBytes codes = {.book = book, .block_size = block, .outer_size = outer, .offset = 0.375f, .to = to};
            Parts parts;
            for (size_t i = 0; i < (size + 1) / 2; i++) parts.data.push_back(static_cast<uint8_t>(random.below(256)));
            std::vector<float> scales(blocks), outer_scales(outers), table(outer == 0 ? 0 : 256);
            for (float& scale : scales) scale = random.uniform(0, 2);
            for (float& scale : outer_scales) scale = random.uniform(0, 1);
            for (float& value : table) value = random.uniform(-1, 1);
            std::vector<uint8_t> scale_codes;
            for (size_t i = 0; i < blocks; i++) scale_codes.push_back(static_cast<uint8_t>(random.below(256)));
            parts.scale = outer == 0 ? float_bytes(scales) : scale_codes;
            parts.outer = float_bytes(outer_scales);
            parts.table = float_bytes(table);
            std::vector<float> expected;
            for (size_t i = 0; i < size; i++) {
              float scale = scales[i / block];
              if (outer != 0) {
                const float product = table[scale_codes[i / block]] * outer_scales[i / block / outer];
                scale = product + 0.375f;
              }
              const uint8_t pair = parts.data[i / 2];
              const int code = i % 2 == 0 ? pair / 16 : pair % 16;
              const float value = book == PublishedCodebook::kNf4 ? kNf4[code] : code <= 8 ? kFp4[code % 8] : -kFp4[code - 8];
              expected.push_back(value * scale);
            }
            expected = floats_of(reference::store_elements({expected.begin(), expected.end()}, to), to);
            std::vector<float> x;
            ASSERT_EQ(decoded(parts, rows, columns, codes, x), Status::kOk);
            EXPECT_TRUE(same(expected, x)) << size << " elements in blocks of " << block << " and " << outer;
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(DecodeBitsAndBytes, restores_int8) {
  Random random(32);
  const size_t rows = 7, columns = 33;
  Parts parts;
  std::vector<float> scales, expected;
  for (size_t row = 0; row < rows; row++) scales.push_back(random.uniform(0, 3));
  for (size_t i = 0; i < rows * columns; i++) {
    parts.data.push_back(static_cast<uint8_t>(random.below(256)));
    const float product = static_cast<float>(static_cast<int8_t>(parts.data.back())) * scales[i / columns];
    expected.push_back(product * 7.874015718698502e-3f);
  }
  parts.scale = float_bytes(scales);
  std::vector<float> x;
  ASSERT_EQ(decoded(parts, rows, columns, {.int8 = true}, x), Status::kOk);
  EXPECT_TRUE(same(expected, x));
}

TEST(DecodeBitsAndBytes, refuses_what_no_file_may_hold) {
  const Parts good = {std::vector<uint8_t>(64), float_bytes({1, 1}), {}, {}};
  std::vector<float> x;
  EXPECT_EQ(decoded(good, 2, 64, {}, x), Status::kOk);
  Parts wrong = good;
  wrong.scale = float_bytes({1, kInfinity});
  EXPECT_EQ(decoded(wrong, 2, 64, {}, x), Status::kBadScale);
  EXPECT_EQ(decoded(good, 2, 64, {.outer_size = 256}, x), Status::kSizeMismatch);
  EXPECT_EQ(decoded(good, 2, 62, {}, x), Status::kSizeMismatch);
  EXPECT_EQ(decoded(good, 2, 64, {.block_size = 0}, x), Status::kBadLayout);
  EXPECT_EQ(decoded(good, 2, 64, {.to = ElementType::kF64}, x), Status::kBadDType);
  wrong = {std::vector<uint8_t>(128), float_bytes({1, kNan}), {}, {}};
  EXPECT_EQ(decoded(wrong, 2, 64, {.int8 = true}, x), Status::kBadScale);
}

}  // namespace
}  // namespace scalepoint::tests
