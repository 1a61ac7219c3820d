// Tiles of floats to the codes that ONNX's operators take. The oracles are the formulas of onnxruntime's tools, one value at a time.
#include <cmath>
#include <cstring>

#include "codecs/cast.h"
#include "codecs/dequantize_linear.h"
#include "codecs/matmul_bnb4.h"
#include "codecs/matmul_nbits.h"
#include "codecs_helpers.h"

namespace scalepoint::tests {
namespace {

using codecs::DequantizeLinear;
using codecs::MatMulBnb4;
using codecs::MatMulNBits;
using codecs::Sharing;
using codecs::Stored;
using codecs::ValueRange;

template <class Codes>
std::vector<float> decoded(size_t rows, size_t columns, const StoredParts& parts, const Codes& codes) {
  const Stored stored = {static_cast<uint32_t>(rows), static_cast<uint32_t>(columns), part_of(parts.data), part_of(parts.scale),
                         part_of(parts.zero_point)};
  std::vector<float> result(rows * columns);
  const float* x = nullptr;
  const auto memory = run_in_memory([&](Arena& arena) { return decode(stored, codes, arena, x); });
  std::copy_n(x, result.size(), result.begin());
  return result;
}

uint32_t roles(bool zero_point) { return zero_point ? kAllRoles : 3; }

template <class T>
std::vector<uint8_t> bytes_of_values(const std::vector<T>& values) {
  return byte_values(std::as_bytes(std::span(values)));
}

/// Elements of less than a byte, side by side.
std::vector<uint8_t> packed(const std::vector<int32_t>& codes, int32_t bits) {
  std::vector<uint8_t> bytes((codes.size() * static_cast<size_t>(bits) + 7) / 8);
  for (size_t i = 0; i < codes.size(); i++) {
    const size_t bit = i * static_cast<size_t>(bits);
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] | (codes[i] & ((1 << bits) - 1)) << bit % 8);
  }
  return bytes;
}

// --------------------------------------------------------------------------------------------------------- DequantizeLinear

/// The set that an element belongs to.
size_t set_of(const DequantizeLinear& codes, size_t row, size_t column, size_t columns) {
  const size_t block = std::max<size_t>(1, codes.block_size);
  switch (codes.sharing) {
    case Sharing::kTile:
      return 0;
    case Sharing::kRows:
      return row;
    case Sharing::kColumns:
      return column;
    case Sharing::kRowBlocks:
      return row * ((columns + block - 1) / block) + column / block;
    default:
      return row / block * columns + column;
  }
}

struct Expected {
  std::vector<float> scale, restored;
  std::vector<int32_t> zero_point, codes;
};

/// compute_scale_zp and QuantizeLinear, as onnxruntime's quant_utils.py has them.
Expected expected_linear(const std::vector<float>& x, size_t rows, size_t columns, const DequantizeLinear& codes) {
  const bool blocks = codes.sharing == Sharing::kRowBlocks || codes.sharing == Sharing::kColumnBlocks;
  Expected result;
  const size_t sets = set_of(codes, rows - 1, columns - 1, columns) + 1;
  std::vector<float> low(sets, HUGE_VALF), high(sets, -HUGE_VALF);
  for (size_t i = 0; i < x.size(); i++) {
    const size_t set = set_of(codes, i / columns, i % columns, columns);
    low[set] = std::min(low[set], x[i]);
    high[set] = std::max(high[set], x[i]);
  }
  const int32_t bits = codes.reduced ? 7 : codes.bits;
  const int32_t qmin = codes.is_signed ? -(1 << (bits - 1)) : 0, qmax = qmin + (1 << bits) - 1;
  const int32_t middle = 1 << (bits - 1);
  std::vector<float> reciprocal(sets);
  for (size_t set = 0; set < sets; set++) {
    if (blocks) {
      // MLAS: range2scale and range2scalezp.
      const float largest = std::fabs(high[set]) > std::fabs(low[set]) ? high[set] : low[set];
      const float min = std::min(low[set], 0.0f), max = std::max(high[set], 0.0f);
      const auto levels = static_cast<float>(qmax - qmin);
      const float scale = codes.symmetric ? largest / static_cast<float>(-middle) : (max - min) / levels;
      float zero = static_cast<float>(middle);
      if (!codes.symmetric) zero = std::round(std::min(std::max(scale != 0 ? 0.0f - min / scale : min, 0.0f), levels));
      reciprocal[set] = scale != 0 ? 1.0f / scale : 0.0f;
      // Where MLAS would multiply by an infinity, blocks count as zeros.
      const bool vanishes = scale == 0 || std::isinf(reciprocal[set]);
      if (vanishes) reciprocal[set] = 0;
      if (vanishes && !codes.symmetric) zero = std::round(std::min(std::max(min, 0.0f), levels));
      result.scale.push_back(vanishes ? 0.0f : scale);
      result.zero_point.push_back(static_cast<int32_t>(zero) + qmin);
      continue;
    }
    double min = std::min(low[set], 0.0f), max = std::max(high[set], 0.0f);
    if (codes.symmetric) max = std::max(-min, max), min = -max;
    const double scale = (max - min) / (codes.symmetric ? qmax - qmin - 1 : qmax - qmin);
    const bool tiny = scale < std::numeric_limits<float>::min();
    result.scale.push_back(tiny ? 1.0f : static_cast<float>(scale));
    const double zero = codes.symmetric ? (codes.is_signed ? 0 : middle) : tiny ? 0 : std::nearbyint(qmin - min / scale);
    result.zero_point.push_back(static_cast<int32_t>(zero));
  }
  for (size_t i = 0; i < x.size(); i++) {
    const size_t set = set_of(codes, i / columns, i % columns, columns);
    const float scale = result.scale[set];
    const auto zero = static_cast<float>(result.zero_point[set]);
    const float rounded = blocks
                              ? std::round(x[i] * reciprocal[set] + (zero - static_cast<float>(qmin))) + static_cast<float>(qmin)
                              : std::nearbyintf(x[i] / scale) + zero;
    const float code = std::min(std::max(rounded, static_cast<float>(qmin)), static_cast<float>(qmax));
    result.codes.push_back(static_cast<int32_t>(code));
    result.restored.push_back((code - zero) * scale);
  }
  return result;
}

TEST(EncodeDequantizeLinear, makes_what_the_formulas_of_onnxruntime_say) {
  Random random(1);
  for (const Sharing sharing : {Sharing::kTile, Sharing::kRows, Sharing::kColumns, Sharing::kRowBlocks, Sharing::kColumnBlocks}) {
    const bool blocks = sharing == Sharing::kRowBlocks || sharing == Sharing::kColumnBlocks;
    // 7 stands for reduced codes of 8 bits.
    for (const int32_t range_bits : {2, 4, 7, 8}) {
      const int32_t bits = range_bits == 7 ? 8 : range_bits;
      if (blocks && bits != range_bits) continue;
      for (const bool is_signed : {true, false}) {
        for (const bool symmetric : {true, false}) {
          for (const auto& [rows, columns] : {std::pair<size_t, size_t>{1, 1}, {10, 37}, {64, 48}, {33, 512}, {3, 1536}}) {
            DequantizeLinear codes = {
                .bits = bits, .is_signed = is_signed, .symmetric = symmetric, .reduced = bits != range_bits, .sharing = sharing};
            if (blocks) codes.block_size = 16;
            const std::vector<uint8_t> source =
                reference::store_elements(hard_rows(random, rows, columns, range_bits, 1e30), ElementType::kF32);
            const std::vector<float> x = floats_of(source, ElementType::kF32);
            Tile tile = tile_of(source, rows, columns, ElementType::kF32);
            tile.wanted = roles(true);
            const Expected expected = expected_linear(x, rows, columns, codes);
            const StoredParts parts = encoded_parts(tile, codes);
            ASSERT_TRUE(same_problem({}, parts.encoded.problem));
            EXPECT_TRUE(same(bytes_of_values(expected.scale), parts.scale));
            EXPECT_TRUE(same(packed(expected.zero_point, bits), parts.zero_point));
            EXPECT_TRUE(same(packed(expected.codes, bits), parts.data))
                << static_cast<int>(sharing) << " " << range_bits << " " << is_signed << symmetric << " " << rows;
            EXPECT_TRUE(same_sums(sums_of(x, expected.restored), parts.encoded.sums));
            EXPECT_EQ(decoded(rows, columns, parts, codes), expected.restored);
          }
        }
      }
    }
  }
}

TEST(EncodeDequantizeLinear, makes_the_same_of_pieces_with_known_ranges) {
  Random random(2);
  const size_t rows = 30, columns = 50;
  const std::vector<uint8_t> source = reference::store_elements(hard_rows(random, rows, columns, 8, 1e5), ElementType::kF32);
  for (const bool search : {false, true}) {
    for (const Sharing sharing : {Sharing::kTile, Sharing::kRows, Sharing::kColumns}) {
      const DequantizeLinear codes = {.symmetric = false, .sharing = sharing, .search = search};
      Tile tile = tile_of(source, rows, columns, ElementType::kF32);
      tile.wanted = roles(true);
      const StoredParts whole = encoded_parts(tile, codes);
      const ValueRange* ranges = nullptr;
      uint32_t count = 0;
      Problem problem;
      const auto memory = run_in_memory([&](Arena& arena) { return observe(tile, codes, arena, ranges, count, problem); });
      EXPECT_EQ(count, sharing == Sharing::kTile ? 1 : sharing == Sharing::kRows ? rows : columns);
      // Rows 20 and on, with what was known of all.
      Tile piece = tile_of(source, rows - 20, columns, ElementType::kF32);
      piece.source = {tile.source.data + 20 * columns * 4, (rows - 20) * columns * 4};
      piece.ranges = ranges + (sharing == Sharing::kRows ? 20 : 0);
      const StoredParts part = encoded_parts(piece, codes);
      EXPECT_TRUE(same({whole.data.begin() + 20 * columns, whole.data.end()}, part.data));
      // Scales alone, without a source.
      Tile parameters = tile;
      parameters.wanted = 6;
      parameters.ranges = ranges;
      parameters.source = {};
      const StoredParts alone = encoded_parts(parameters, codes);
      EXPECT_TRUE(same(whole.scale, alone.scale));
      EXPECT_TRUE(same(whole.zero_point, alone.zero_point));
    }
  }
}

TEST(ObserveDequantizeLinear, goes_on_from_rows_to_rows_in_the_same_memory) {
  Random random(6);
  const size_t rows = 30;
  for (const size_t columns : {3, 50}) {
    for (const ElementType type : {ElementType::kF32, ElementType::kF16, ElementType::kF64}) {
      const std::vector<uint8_t> source = reference::store_elements(hard_rows(random, rows, columns, 8, 1e4), type);
      const size_t row_bytes = source.size() / rows;
      DequantizeLinear codes = {.sharing = Sharing::kColumns};
      const auto observed = [&](size_t first, size_t some, Arena& arena) {
        Tile tile = tile_of(source, some, columns, type);
        tile.source = {part_of(source).data + first * row_bytes, some * row_bytes};
        const ValueRange* ranges = nullptr;
        uint32_t count = 0;
        Problem problem;
        EXPECT_EQ(observe(tile, codes, arena, ranges, count, problem), Status::kOk);
        EXPECT_EQ(problem.kind, ProblemKind::kNone);
        return std::vector<ValueRange>(ranges, ranges + count);
      };
      Arena all(kEachPiece);
      const std::vector<ValueRange> expected = observed(0, rows, all);
      Arena arena(kEachPiece);
      std::vector<ValueRange> found;
      for (const auto& [first, some] : {std::pair<size_t, size_t>{0, 16}, {16, 13}, {29, 1}}) {
        codes.goes_on = first > 0;
        arena.rewind();
        found = observed(first, some, arena);
      }
      ASSERT_EQ(found.size(), columns);
      for (size_t i = 0; i < columns; i++) {
        EXPECT_EQ(found[i].min, expected[i].min) << i;
        EXPECT_EQ(found[i].max, expected[i].max) << i;
      }
    }
  }
}

TEST(EncodeDequantizeLinear, loses_no_more_with_a_search) {
  Random random(3);
  std::vector<double> x(64 * 128);
  for (double& value : x) value = random.uniform(-1, 1) * random.uniform(0, 1) * random.uniform(0, 1);
  const std::vector<uint8_t> source = reference::store_elements(x, ElementType::kF32);
  for (const Sharing sharing : {Sharing::kTile, Sharing::kRows, Sharing::kColumns, Sharing::kColumnBlocks}) {
    DequantizeLinear codes = {.bits = 4, .sharing = sharing, .block_size = 32};
    const Tile tile = tile_of(source, 64, 128, ElementType::kF32);
    const double plain = encoded_parts(tile, codes).encoded.sums.squared_error;
    codes.search = true;
    EXPECT_LE(encoded_parts(tile, codes).encoded.sums.squared_error, plain);
  }
}

TEST(EncodeDequantizeLinear, raises_scales_to_the_least_one) {
  // Rows: usual, tiny, zeros.
  const std::vector<uint8_t> x = bytes_of_values(std::vector<float>{0.5f, -1.27f, 1e-9f, -2e-9f, 0, 0});
  const std::vector<float> importance = {1, 1};
  for (const bool search : {false, true}) {
    for (const bool weighed : {false, true}) {
      const DequantizeLinear codes = {.sharing = Sharing::kRows, .search = search, .least_scale = 1e-6f};
      Tile tile = tile_of(x, 3, 2, ElementType::kF32);
      tile.importance = weighed ? importance.data() : nullptr;
      tile.wanted = roles(false);
      const StoredParts parts = encoded_parts(tile, codes);
      std::vector<float> scales(3);
      std::memcpy(scales.data(), parts.scale.data(), 12);
      EXPECT_GT(scales[0], 0.005f);
      EXPECT_EQ(scales[1], 1e-6f);
      EXPECT_EQ(scales[2], 1e-6f);
      EXPECT_EQ(std::vector(parts.data.begin() + 2, parts.data.end()), std::vector<uint8_t>(4, 0));
    }
  }
}

TEST(EncodeDequantizeLinear, names_what_cannot_be_stored) {
  for (const Sharing sharing : {Sharing::kTile, Sharing::kRows, Sharing::kColumns, Sharing::kColumnBlocks}) {
    std::vector<double> x(40 * 40, 0.5);
    x[700] = -HUGE_VAL;
    x[900] = std::nan("");
    const std::vector<uint8_t> source = reference::store_elements(x, ElementType::kF32);
    DequantizeLinear codes = {.sharing = sharing, .block_size = 16};
    const Tile tile = tile_of(source, 40, 40, ElementType::kF32);
    EXPECT_TRUE(same_problem({ProblemKind::kNonFinite, 700, -HUGE_VAL}, encoded_parts(tile, codes).encoded.problem));
    x[700] = 0;
    x[900] = 1e8;
    x[901] = -1e9;
    codes.scale = ElementType::kF16;
    const std::vector<uint8_t> large = reference::store_elements(x, ElementType::kF32);
    const size_t worst = sharing == Sharing::kColumns || sharing == Sharing::kColumnBlocks ? 900 : 901;
    const Problem problem = encoded_parts(tile_of(large, 40, 40, ElementType::kF32), codes).encoded.problem;
    EXPECT_TRUE(same_problem({ProblemKind::kOverflow, worst, worst == 901 ? -1e9f : 1e8f}, problem));
  }
}

TEST(EncodeDequantizeLinear, refuses_codes_that_there_are_not) {
  const std::vector<uint8_t> source(64);
  const Tile tile = tile_of(source, 4, 4, ElementType::kF32);
  Arena arena;
  Encoded result;
  EXPECT_EQ(encode(tile, DequantizeLinear{.bits = 3}, arena, result), Status::kBadDType);
  EXPECT_EQ(encode(tile, DequantizeLinear{.scale = ElementType::kBF16}, arena, result), Status::kBadDType);
  EXPECT_EQ(encode(tile, DequantizeLinear{.bits = 4, .reduced = true}, arena, result), Status::kBadDType);
  EXPECT_EQ(encode(tile, DequantizeLinear{.reduced = true, .sharing = Sharing::kRowBlocks, .block_size = 16}, arena, result),
            Status::kBadDType);
  EXPECT_EQ(encode(tile, DequantizeLinear{.symmetric = false, .least_scale = 1}, arena, result), Status::kBadDType);
  EXPECT_EQ(encode(tile, DequantizeLinear{.sharing = Sharing::kRowBlocks}, arena, result), Status::kBadLayout);
  EXPECT_EQ(encode(tile_of(source, 0, 4, ElementType::kF32), DequantizeLinear{}, arena, result), Status::kBadLayout);
}

// -------------------------------------------------------------------------------------------------------------- MatMulNBits

TEST(EncodeMatMulNBits, makes_what_mlas_makes) {
  Random random(4);
  for (const int32_t bits : {2, 4, 8}) {
    for (const bool symmetric : {true, false}) {
      for (const bool transposed : {true, false}) {
        for (const auto& [k, n] : {std::pair<size_t, size_t>{1, 1}, {16, 3}, {75, 17}, {256, 33}, {90, 150}}) {
          const MatMulNBits codes = {.bits = bits, .block_size = 16, .symmetric = symmetric, .transposed = transposed};
          const size_t rows = transposed ? n : k, columns = transposed ? k : n, blocks = (k + 15) / 16;
          const std::vector<uint8_t> source =
              reference::store_elements(hard_rows(random, rows, columns, bits, 1e20), ElementType::kF32);
          const std::vector<float> x = floats_of(source, ElementType::kF32);
          // Columns of B as rows, in blocks along them: the same codes without a sign, padded with zeros.
          std::vector<float> b(n * k);
          for (size_t i = 0; i < k * n; i++) b[i] = transposed ? x[i] : x[i % k * n + i / k];
          const DequantizeLinear as_rows = {
              .bits = bits, .is_signed = false, .symmetric = symmetric, .sharing = Sharing::kRowBlocks, .block_size = 16};
          const Expected expected = expected_linear(b, n, k, as_rows);
          std::vector<uint8_t> data, zeros;
          for (size_t column = 0; column < n; column++) {
            std::vector<int32_t> padded(blocks * 16);
            std::copy_n(expected.codes.begin() + static_cast<ptrdiff_t>(column * k), k, padded.begin());
            for (const uint8_t byte : packed(padded, bits)) data.push_back(byte);
            const auto* const first = expected.zero_point.data() + column * blocks;
            for (const uint8_t byte : packed({first, first + blocks}, bits)) zeros.push_back(byte);
          }
          Tile tile = tile_of(source, rows, columns, ElementType::kF32);
          tile.wanted = roles(!symmetric);
          const StoredParts parts = encoded_parts(tile, codes);
          ASSERT_TRUE(same_problem({}, parts.encoded.problem));
          EXPECT_TRUE(same(bytes_of_values(expected.scale), parts.scale)) << bits << symmetric << transposed << k;
          EXPECT_TRUE(same(data, parts.data)) << bits << symmetric << transposed << k;
          if (!symmetric) {
            EXPECT_TRUE(same(zeros, parts.zero_point));
          }
          std::vector<float> restored(k * n);
          for (size_t i = 0; i < k * n; i++) restored[transposed ? i : i % k * n + i / k] = expected.restored[i];
          EXPECT_EQ(decoded(rows, columns, parts, codes), restored);
        }
      }
    }
  }
}

TEST(EncodeMatMulNBits, loses_less_with_a_search) {
  Random random(5);
  std::vector<double> x(256 * 24);
  for (double& value : x) value = random.uniform(-1, 1) * random.uniform(0, 1) * random.uniform(0, 1);
  const std::vector<uint8_t> source = reference::store_elements(x, ElementType::kF32);
  for (const bool symmetric : {true, false}) {
    MatMulNBits codes = {.symmetric = symmetric};
    Tile tile = tile_of(source, 256, 24, ElementType::kF32);
    tile.wanted = roles(!symmetric);
    const double plain = encoded_parts(tile, codes).encoded.sums.squared_error;
    codes.search = true;
    EXPECT_LT(encoded_parts(tile, codes).encoded.sums.squared_error, 0.95 * plain);
  }
}

/// The error of a block's best scale and zero point for the codes that were made is no less than that of those that were.
TEST(EncodeMatMulNBits, fits_scales_and_zero_points_to_the_codes) {
  Random random(7);
  constexpr size_t kColumns = 24, kBlock = 32;
  std::vector<double> values(kBlock * kColumns);
  for (double& value : values) value = random.uniform(-1, 1) * random.uniform(0, 1) + 0.1;
  const std::vector<uint8_t> source = reference::store_elements(values, ElementType::kF32);
  const std::vector<float> x = floats_of(source, ElementType::kF32);
  Tile tile = tile_of(source, kColumns, kBlock, ElementType::kF32);
  tile.wanted = roles(true);
  for (const bool floats : {false, true}) {
    const MatMulNBits codes = {.symmetric = false, .transposed = true, .search = true, .float_zero_points = floats};
    const StoredParts parts = encoded_parts(tile, codes);
    ASSERT_TRUE(same_problem({}, parts.encoded.problem));
    const std::vector<float> y = decoded(kColumns, kBlock, parts, codes);
    // Sums of 512 squares in float32, in another order.
    const double squared = sums_of(x, y).squared_error;
    EXPECT_NEAR(parts.encoded.sums.squared_error, squared, squared * std::ldexp(512, -24));
    ASSERT_EQ(parts.zero_point.size(), floats ? kColumns * 4 : kColumns);
    const std::vector<double> scales = reference::load_elements(parts.scale, ElementType::kF32);
    for (size_t column = 0; column < kColumns; column++) {
      // Least squares in double: x = slope * y + offset has its least error at slope 1 and offset 0 if the block fits.
      double sx = 0, sy = 0, sxy = 0, syy = 0, error = 0;
      for (size_t i = 0; i < kBlock; i++) {
        const double a = x[column * kBlock + i], b = y[column * kBlock + i];
        sx += a, sy += b, sxy += a * b, syy += b * b, error += (a - b) * (a - b);
      }
      const double n = kBlock, slope = (sxy - sx * sy / n) / (syy - sy * sy / n), offset = (sx - slope * sy) / n;
      if (floats) {
        // Rounds that stop before the codes do leave a part of what there is to gain: the offset lies within a step.
        EXPECT_NEAR(slope, 1, 0.1);
        EXPECT_LT(std::fabs(offset), std::fabs(scales[column]));
      }
      EXPECT_LE(error, n * scales[column] * scales[column]);
    }
  }
}

TEST(EncodeMatMulNBits, loses_less_with_float_zero_points) {
  Random random(8);
  // Blocks far from 0: whole zero points spend codes on numbers that are not there.
  std::vector<double> x(256 * 24);
  for (double& value : x) value = 3 + random.uniform(-1, 1);
  const std::vector<uint8_t> source = reference::store_elements(x, ElementType::kF32);
  Tile tile = tile_of(source, 256, 24, ElementType::kF32);
  tile.wanted = roles(true);
  const auto error = [&](bool search, bool floats) {
    const MatMulNBits codes = {.symmetric = false, .search = search, .float_zero_points = floats};
    return encoded_parts(tile, codes).encoded.sums.squared_error;
  };
  // A step of 2/15 in place of 4/15, and its square.
  EXPECT_LT(error(false, true), 0.35 * error(false, false));
  EXPECT_LT(error(true, true), error(false, true));
  EXPECT_LE(error(true, false), error(false, false));
}

TEST(EncodeMatMulNBits, stores_blocks_of_one_value_with_float_zero_points) {
  for (const double value : {0.0, 2.5, -1.25}) {
    const std::vector<uint8_t> source = reference::store_elements(std::vector<double>(64, value), ElementType::kF32);
    Tile tile = tile_of(source, 2, 32, ElementType::kF32);
    tile.wanted = roles(true);
    for (const bool search : {false, true}) {
      const MatMulNBits codes = {.symmetric = false, .transposed = true, .search = search, .float_zero_points = true};
      EXPECT_EQ(decoded(2, 32, encoded_parts(tile, codes), codes), std::vector<float>(64, static_cast<float>(value)));
    }
  }
}

TEST(EncodeMatMulNBits, rounds_scales_to_float16_before_it_makes_codes) {
  Random random(6);
  const std::vector<uint8_t> source = reference::store_elements(hard_rows(random, 8, 512, 4, 100), ElementType::kF32);
  const std::vector<float> x = floats_of(source, ElementType::kF32);
  const Tile tile = [&] {
    Tile all = tile_of(source, 8, 512, ElementType::kF32);
    all.wanted = roles(false);
    return all;
  }();
  MatMulNBits codes = {.transposed = true};
  const StoredParts wide = encoded_parts(tile, codes);
  codes.scale = ElementType::kF16;
  const StoredParts narrow = encoded_parts(tile, codes);
  const std::vector<double> scales = reference::load_elements(wide.scale, ElementType::kF32);
  std::vector<uint8_t> expected = reference::store_elements(scales, ElementType::kF16);
  // A scale without a finite reciprocal is 0, and so is one below float16.
  for (size_t i = 0; i < expected.size(); i += 2) {
    if ((expected[i + 1] & 0x7F) == 0 && expected[i] == 0) expected[i + 1] = 0;
  }
  EXPECT_TRUE(same(expected, narrow.scale));
  // Sums of 512 squares in float32, in another order.
  const double squared = sums_of(x, decoded(8, 512, narrow, codes)).squared_error;
  EXPECT_NEAR(narrow.encoded.sums.squared_error, squared, squared * std::ldexp(512, -24));
}

/// Encodes pieces of `step` rows into the memory of one tile.
StoredParts encoded_in_pieces(const std::vector<float>& x, size_t rows, size_t step, ElementType type, MatMulNBits codes) {
  const size_t columns = x.size() / rows;
  codes.all_rows = static_cast<uint32_t>(rows);
  StoredParts parts;
  Arena arena(kEachPiece);
  for (size_t row = 0; row < rows; row += step) {
    const size_t some = std::min(step, rows - row);
    const std::vector<double> values(x.begin() + static_cast<ptrdiff_t>(row * columns),
                                     x.begin() + static_cast<ptrdiff_t>((row + some) * columns));
    const std::vector<uint8_t> source = reference::store_elements(values, type);
    Tile tile = tile_of(source, some, columns, type);
    tile.wanted = roles(!codes.symmetric);
    codes.row = static_cast<uint32_t>(row);
    const auto call = [&](Arena& arena) { return encode(tile, codes, arena, parts.encoded); };
    arena.rewind();
    EXPECT_EQ(call(arena), Status::kOk);
    if (parts.encoded.problem.kind != ProblemKind::kNone) return parts;
  }
  parts.data = byte_values(parts.encoded.data);
  parts.scale = byte_values(parts.encoded.scale);
  parts.zero_point = byte_values(parts.encoded.zero_point);
  return parts;
}

TEST(EncodeMatMulNBits, makes_the_same_of_a_tile_in_pieces) {
  Random random(9);
  constexpr size_t kRows = 200, kColumns = 21;
  for (const ElementType type : {ElementType::kF32, ElementType::kF16}) {
    for (const int32_t bits : {2, 4, 8}) {
      for (const auto& [symmetric, floats] : {std::pair{true, false}, {false, false}, {false, true}}) {
        const MatMulNBits codes = {.bits = bits, .block_size = 16, .symmetric = symmetric, .float_zero_points = floats};
        const std::vector<uint8_t> source = reference::store_elements(hard_rows(random, kRows, kColumns, bits, 100), type);
        Tile tile = tile_of(source, kRows, kColumns, type);
        tile.wanted = roles(!symmetric);
        const StoredParts whole = encoded_parts(tile, codes);
        // Steps of an odd number of blocks end within a byte of zero points.
        for (const size_t step : {16, 48, 112, 192}) {
          const StoredParts pieces = encoded_in_pieces(floats_of(source, type), kRows, step, type, codes);
          EXPECT_TRUE(same(whole.data, pieces.data)) << bits << " " << step;
          EXPECT_TRUE(same(whole.scale, pieces.scale)) << bits << " " << step;
          EXPECT_TRUE(same(whole.zero_point, pieces.zero_point)) << bits << " " << step;
        }
      }
    }
  }
}

TEST(EncodeMatMulNBits, names_elements_of_the_tile_that_pieces_are_of) {
  std::vector<float> x(64 * 5, 0.5f);
  x[203] = std::nanf("");
  const auto problem = [&](ElementType scale) {
    return encoded_in_pieces(x, 64, 32, ElementType::kF32, {.scale = scale}).encoded.problem;
  };
  EXPECT_TRUE(same_problem({ProblemKind::kNonFinite, 203, std::nan("")}, problem(ElementType::kF32)));
  x[203] = 1e7f;
  EXPECT_TRUE(same_problem({ProblemKind::kOverflow, 203, 1e7f}, problem(ElementType::kF16)));
}

TEST(EncodeMatMulNBits, refuses_pieces_that_are_none) {
  const std::vector<uint8_t> source(48 * 2 * 4);
  const auto status = [&](MatMulNBits codes) {
    Arena arena;
    Encoded result;
    return encode(tile_of(source, 48, 2, ElementType::kF32), codes, arena, result);
  };
  EXPECT_EQ(status({.block_size = 16, .row = 16, .all_rows = 64}), Status::kOk);
  EXPECT_EQ(status({.block_size = 16, .row = 8, .all_rows = 64}), Status::kBadLayout);   // within a block
  EXPECT_EQ(status({.block_size = 32, .row = 0, .all_rows = 64}), Status::kBadLayout);   // ends within one
  EXPECT_EQ(status({.block_size = 16, .row = 32, .all_rows = 64}), Status::kBadLayout);  // beyond the end
  EXPECT_EQ(status({.block_size = 16, .transposed = true, .row = 16, .all_rows = 64}), Status::kBadLayout);
}

TEST(EncodeMatMulNBits, names_nan_before_an_overflow) {
  std::vector<double> x(40 * 3, 0.5);
  x[0] = 1e7;
  x[119] = HUGE_VAL;
  const std::vector<uint8_t> source = reference::store_elements(x, ElementType::kF32);
  const MatMulNBits codes = {.scale = ElementType::kF16};
  EXPECT_TRUE(same_problem({ProblemKind::kNonFinite, 119, HUGE_VAL},
                           encoded_parts(tile_of(source, 40, 3, ElementType::kF32), codes).encoded.problem));
}

TEST(EncodeMatMulNBits, names_what_cannot_be_stored) {
  std::vector<double> x(40 * 3, 0.5);
  x[50] = std::nan("");
  std::vector<uint8_t> source = reference::store_elements(x, ElementType::kF32);
  EXPECT_TRUE(same_problem({ProblemKind::kNonFinite, 50, std::nan("")},
                           encoded_parts(tile_of(source, 40, 3, ElementType::kF32), MatMulNBits{}).encoded.problem));
  x[50] = 1e7;
  source = reference::store_elements(x, ElementType::kF32);
  EXPECT_TRUE(same_problem(
      {ProblemKind::kOverflow, 50, 1e7f},
      encoded_parts(tile_of(source, 40, 3, ElementType::kF32), MatMulNBits{.scale = ElementType::kF16}).encoded.problem));
  Arena arena;
  Encoded result;
  EXPECT_EQ(encode(tile_of(source, 40, 3, ElementType::kF32), MatMulNBits{.bits = 3}, arena, result), Status::kBadDType);
  EXPECT_EQ(encode(tile_of(source, 40, 3, ElementType::kF32), MatMulNBits{.block_size = 24}, arena, result), Status::kBadLayout);
}

// --------------------------------------------------------------------------------------------------------------- MatMulBnb4

TEST(EncodeMatMulBnb4, takes_the_nearest_value_of_the_codebook) {
  Random random(7);
  const std::span<const float> book = published_codebook(PublishedCodebook::kNf4);
  for (const bool transposed : {true, false}) {
    for (const auto& [k, n] : {std::pair<size_t, size_t>{16, 1}, {64, 19}, {256, 33}, {32, 131}, {4112, 19}}) {
      const MatMulBnb4 codes = {.block_size = 16, .transposed = transposed};
      const size_t rows = transposed ? n : k, columns = transposed ? k : n;
      std::vector<double> values(k * n);
      for (double& value : values) value = random.uniform(-1, 1) * random.uniform(0, 1);
      for (size_t i = 0; i < 16; i++) values[transposed ? i : i * n] = 0;
      const std::vector<uint8_t> source = reference::store_elements(values, ElementType::kF32);
      const std::vector<float> x = floats_of(source, ElementType::kF32);
      Tile tile = tile_of(source, rows, columns, ElementType::kF32);
      tile.wanted = roles(false);
      const StoredParts parts = encoded_parts(tile, codes);
      ASSERT_TRUE(same_problem({}, parts.encoded.problem));
      ASSERT_EQ(parts.data.size(), k * n / 2);
      std::vector<float> absmax(k * n / 16);
      std::memcpy(absmax.data(), parts.scale.data(), parts.scale.size());
      const std::vector<float> restored = decoded(rows, columns, parts, codes);
      for (size_t i = 0; i < k * n; i++) {
        const size_t at = transposed ? i : i % k * n + i / k;
        float largest = 0;
        for (size_t j = i / 16 * 16; j < i / 16 * 16 + 16; j++) {
          largest = std::max(largest, std::fabs(x[transposed ? j : j % k * n + j / k]));
        }
        EXPECT_EQ(absmax[i / 16], largest);
        const uint32_t code = i % 2 == 0 ? parts.data[i / 2] >> 4 : parts.data[i / 2] & 15;
        EXPECT_EQ(restored[at], book[code] * largest);
        // bitsandbytes' bounds between values are rounded to about 1e-7 of the largest.
        float nearest = HUGE_VALF;
        for (const float value : book) nearest = std::min(nearest, std::fabs(value * largest - x[at]));
        EXPECT_LE(std::fabs(restored[at] - x[at]), nearest + 1e-6f * largest);
      }
      EXPECT_NEAR(sums_of(x, restored).squared_error, parts.encoded.sums.squared_error, 1e-4 * parts.encoded.sums.squared_error);
    }
  }
  const std::vector<uint8_t> source(24 * 4);
  Arena arena;
  Encoded result;
  EXPECT_EQ(encode(tile_of(source, 24, 1, ElementType::kF32), MatMulBnb4{.block_size = 16}, arena, result), Status::kBadLayout);
}

// --------------------------------------------------------------------------------------------------------------------- Cast

TEST(EncodeCast, saturates_if_that_is_wanted) {
  const double smallest = std::ldexp(1.0, -24);
  const std::vector<double> x = {65504, 65519, 65520, -1e30, HUGE_VAL, -HUGE_VAL, 1, 0, -0.0, smallest / 2, -1e-30};
  const std::vector<uint8_t> source = reference::store_elements(x, ElementType::kF32);
  const StoredParts parts = encoded_parts(tile_of(source, 1, x.size(), ElementType::kF32), codecs::Cast{ElementType::kF16, true});
  const std::vector<double> expected = {65504, 65504, 65504, -65504, HUGE_VAL, -HUGE_VAL, 1, 0, 0, smallest, -smallest};
  EXPECT_TRUE(same_problem({}, parts.encoded.problem));
  EXPECT_EQ(reference::load_elements(parts.data, ElementType::kF16), expected);
  EXPECT_EQ(parts.encoded.sums.saturated, 2);
}

TEST(EncodeCast, saturates_wherever_a_value_stands) {
  // Whole blocks have nothing that saturates, others one value.
  for (const size_t at : {0, 511, 512, 1000, 1535, 1536, 1539}) {
    std::vector<double> x(1540, 0.25);
    x[at] = 1e30;
    x[(at + 700) % x.size()] = 1e-30;
    const std::vector<uint8_t> source = reference::store_elements(x, ElementType::kF32);
    const StoredParts parts =
        encoded_parts(tile_of(source, 1, x.size(), ElementType::kF32), codecs::Cast{ElementType::kF16, true});
    x[at] = 65504;
    x[(at + 700) % x.size()] = std::ldexp(1.0, -24);
    EXPECT_EQ(reference::load_elements(parts.data, ElementType::kF16), x) << at;
    EXPECT_EQ(parts.encoded.sums.saturated, 1) << at;
  }
}

}  // namespace
}  // namespace scalepoint::tests
