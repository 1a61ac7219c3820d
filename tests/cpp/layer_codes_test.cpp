// Codes come back out of a layer as they went in.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "layers/layer.h"
#include "layers/layer_memory.h"

namespace scalepoint {
namespace {

TEST(LayerCodes, come_back_as_they_went_in) {
  for (const uint32_t columns : {1u, 2u, 15u, 33u}) {
    const uint32_t rows = 19;
    const LayerSpec spec{.rows = rows, .columns = columns, .group_size = columns, .bits = 8};
    std::vector<std::byte> memory(layer_bytes(spec));
    ASSERT_EQ(make_layer(spec, 0, memory), Status::kOk);
    std::vector<std::byte> codes(rows * columns), back(codes.size());
    for (size_t i = 0; i < codes.size(); i++) codes[i] = static_cast<std::byte>(i * 37 + 128);
    const std::vector<float> scale(rows, 1.0f);
    const std::vector<int32_t> zero(rows, 0);
    ASSERT_EQ(set_layer_codes(memory, 0, codes, {.bits = 8, .is_signed = true}, scale, zero), Status::kOk);
    ASSERT_EQ(get_layer_codes(memory, 0, back), Status::kOk);
    EXPECT_EQ(back, codes);
    // Some rows in the middle.
    back.assign(3 * columns, std::byte{});
    ASSERT_EQ(get_layer_codes(memory, 7, back), Status::kOk);
    EXPECT_TRUE(std::equal(back.begin(), back.end(), codes.begin() + 7 * columns));
    EXPECT_EQ(get_layer_codes(memory, rows - 2, back), Status::kSizeMismatch);
  }
}

TEST(LayerCodes, come_back_from_rows_that_were_filled_in_any_pieces) {
  for (const uint32_t columns : {1u, 7u, 16u, 40u, 100u}) {
    const uint32_t rows = 45;
    const LayerSpec spec{.rows = rows, .columns = columns, .group_size = columns, .bits = 8};
    std::vector<std::byte> codes(size_t{rows} * columns);
    for (size_t i = 0; i < codes.size(); i++) codes[i] = static_cast<std::byte>(i * 91 + 5);
    const std::vector<float> scale(rows, 1.0f);
    const std::vector<int32_t> zero(rows, 0);
    for (const uint32_t step : {1u, 3u, 8u, 11u, 16u, 45u}) {
      std::vector<std::byte> memory(layer_bytes(spec), std::byte{0xAB}), back(codes.size());
      ASSERT_EQ(make_layer(spec, 0, memory), Status::kOk);
      for (uint32_t row = 0; row < rows; row += step) {
        const uint32_t n = std::min(step, rows - row);
        const std::span<const std::byte> some = {codes.data() + row * columns, n * columns};
        ASSERT_EQ(set_layer_codes(memory, row, some, {.bits = 8}, {scale.data(), n}, {zero.data(), n}), Status::kOk);
      }
      for (uint32_t row = 0; row < rows; row += step) {
        const uint32_t n = std::min(step, rows - row);
        ASSERT_EQ(get_layer_codes(memory, row, {back.data() + row * columns, n * columns}), Status::kOk);
      }
      EXPECT_EQ(back, codes) << columns << " " << step;
    }
  }
}

TEST(LayerCodes, are_of_eight_bits_only) {
  const LayerSpec spec{.rows = 1, .columns = 4, .group_size = 4, .bits = 4};
  std::vector<std::byte> memory(layer_bytes(spec)), codes(4);
  ASSERT_EQ(make_layer(spec, 0, memory), Status::kOk);
  EXPECT_EQ(get_layer_codes(memory, 0, codes), Status::kBadDType);
}

}  // namespace
}  // namespace scalepoint
