// Layers on quantized weights.
#include "helpers.h"

namespace scalepoint::tests {
namespace {

/// A matrix of codes, its parameters and a bias.
struct Matrix {
  uint32_t rows, columns, group_size;
  DType dtype;
  std::vector<int32_t> codes;
  std::vector<float> scale;
  std::vector<int32_t> zero_point;
  std::vector<float> bias;

  size_t groups() const { return (columns + group_size - 1) / group_size; }
  size_t parameter(size_t row, size_t column) const { return row * groups() + column / group_size; }
  int32_t level(size_t row, size_t column) const { return codes[row * columns + column] - zero_point[parameter(row, column)]; }
  long double weight(size_t row, size_t column) const {
    return static_cast<long double>(scale[parameter(row, column)]) * level(row, column);
  }
};

enum class Zeros { kNone, kSame, kEach, kFar };

Matrix random_matrix(Random& random, uint32_t rows, uint32_t columns, uint32_t group_size, DType dtype, Zeros zeros) {
  Matrix m = {rows, columns, group_size, dtype, random.codes(size_t{rows} * columns, dtype), {}, {}, {}};
  const int32_t same = zeros == Zeros::kNone ? 0 : random.code(dtype);
  for (size_t i = 0; i < rows * m.groups(); i++) {
    m.scale.push_back(random.power(-12, -4));
    m.zero_point.push_back(zeros == Zeros::kFar    ? random.integer(-kMaxZeroPoint, kMaxZeroPoint)
                           : zeros == Zeros::kEach ? random.code(dtype)
                                                   : same);
  }
  m.bias = random.uniform_values(rows, -1, 1);
  return m;
}

LayerSpec spec_of(const Matrix& m, ActivationType activations) {
  bool same = true;
  for (const int32_t zero : m.zero_point) same = same && zero == m.zero_point[0];
  return {.rows = m.rows,
          .columns = m.columns,
          .group_size = m.group_size,
          .bits = m.dtype.bits <= 4 ? 4u : 8u,
          .zero_points = !same,
          .activations = activations};
}

/// A packed layer. Its memory lies at a multiple of 16.
struct Packed {
  LayerSpec spec;
  std::vector<std::max_align_t> memory;
  size_t size;

  explicit Packed(const LayerSpec& s, int32_t zero_point = 0)
      : spec(s), memory(layer_bytes(s) / sizeof(std::max_align_t) + 1), size(layer_bytes(s)) {
    EXPECT_EQ(make_layer(spec, zero_point, bytes()), Status::kOk);
  }
  std::span<std::byte> bytes() { return {reinterpret_cast<std::byte*>(memory.data()), size}; }

  std::vector<float> forward(const std::vector<float>& x, uint32_t batch) {
    std::vector<std::max_align_t> workspace(layer_workspace_bytes(spec, batch) / sizeof(std::max_align_t) + 1);
    Buffer<float> y(size_t{batch} * spec.rows);
    EXPECT_EQ(
        layer_forward(bytes(), Buffer<float>(x), batch, y,
                      {reinterpret_cast<std::byte*>(workspace.data()), static_cast<size_t>(layer_workspace_bytes(spec, batch))}),
        Status::kOk);
    return y.values();
  }
};

Packed pack(const Matrix& m, ActivationType activations, Random& random) {
  Packed packed(spec_of(m, activations), m.zero_point[0]);
  uint32_t row = 0;
  for (const size_t rows : random.pieces(m.rows, 9)) {
    const auto codes = store_codes({m.codes.begin() + row * m.columns, m.codes.begin() + (row + rows) * m.columns}, m.dtype);
    const size_t first = row * m.groups(), count = rows * m.groups();
    EXPECT_EQ(set_layer_codes(packed.bytes(), row, Buffer<std::byte>(codes), m.dtype, piece(m.scale, first, count),
                              piece(m.zero_point, first, count)),
              Status::kOk);
    row += static_cast<uint32_t>(rows);
  }
  EXPECT_EQ(set_layer_bias(packed.bytes(), m.bias), Status::kOk);
  return packed;
}

/// A row of x in int8, by the oracle.
struct Int8Row {
  float scale;
  int32_t zero_point;
  std::vector<int32_t> codes;
};

Int8Row int8_row(const std::vector<float>& x, Scheme scheme) {
  const QuantizationSpec spec = {.dtype = kInt8, .scheme = scheme};
  const auto range = reference::observe(x, {.shape = {x.size()}})[0];
  const auto parameters = reference::choose_qparams(range.min, range.max, spec);
  Int8Row row = {static_cast<float>(parameters.scale), static_cast<int32_t>(parameters.zero_point), {}};
  for (const float value : x) {
    row.codes.push_back(reference::quantize_value(value, row.scale, row.zero_point, kInt8, Rounding::kOnnx));
  }
  return row;
}

std::vector<float> row_of(const std::vector<float>& x, size_t row, size_t columns) {
  return {x.begin() + static_cast<ptrdiff_t>(row * columns), x.begin() + static_cast<ptrdiff_t>((row + 1) * columns)};
}

/// Integers of a group in 64 bits, groups in 80, one rounding.
float int8_answer(const Matrix& m, const Int8Row& x, size_t row) {
  long double sum = 0;
  for (size_t first = 0; first < m.columns; first += m.group_size) {
    int64_t dot = 0;
    for (size_t i = first; i < std::min<size_t>(first + m.group_size, m.columns); i++) {
      dot += int64_t{m.level(row, i)} * (x.codes[i] - x.zero_point);
    }
    sum += static_cast<long double>(m.scale[m.parameter(row, first)]) * static_cast<long double>(dot);
  }
  return static_cast<float>(sum * x.scale + m.bias[row]);
}

void expect_int8(const Matrix& m, const std::vector<float>& x, uint32_t batch, ActivationType activations, Random& random) {
  const Scheme scheme = activations == ActivationType::kInt8Symmetric ? Scheme::kSymmetric : Scheme::kAsymmetric;
  const std::vector<float> y = pack(m, activations, random).forward(x, batch);
  std::vector<float> expected;
  for (size_t b = 0; b < batch; b++) {
    const Int8Row row = int8_row(row_of(x, b, m.columns), scheme);
    for (size_t r = 0; r < m.rows; r++) expected.push_back(int8_answer(m, row, r));
  }
  EXPECT_TRUE(same(expected, y));
}

/// The header's bound: the final rounding, and half a unit of 2^(e - 29) for each x of a block whose largest is at least 2^(e - 1).
/// `loop` is the bound of products rounded to float32, for blocks in which one x dwarfs the others. The additions in double
/// add 2^-53 of sums of at most sum |w x|; there are fewer than 2^13.
void expect_float32(const Matrix& m, const std::vector<float>& x, uint32_t batch, const std::vector<float>& y,
                    bool loop = false) {
  for (size_t b = 0; b < batch; b++) {
    const float* const row = x.data() + b * m.columns;
    for (size_t r = 0; r < m.rows; r++) {
      long double sum = m.bias[r], bound = 0, size = std::fabs(m.bias[r]);
      for (size_t group = 0; group < m.columns; group += m.group_size) {
        const size_t end = std::min<size_t>(group + m.group_size, m.columns);
        for (size_t block = group; block < end; block += 128) {
          long double largest = 0, weights = 0, products = 0;
          for (size_t i = block; i < std::min<size_t>(block + 128, end); i++) {
            const long double product = m.weight(r, i) * row[i];
            largest = std::max<long double>(largest, std::fabs(row[i]));
            weights += std::fabs(m.weight(r, i));
            products += std::fabs(product);
            sum += product;
            size += std::fabs(product);
          }
          bound += loop ? 0x1p-24L * products : 0x1p-29L * weights * largest;
        }
      }
      bound += 0x1p-24L * std::fabs(sum) + 0x1p-40L * size + 0x1p-150L;
      ASSERT_LE(std::fabs(y[b * m.rows + r] - sum), bound) << "x " << b << " output " << r << ": " << exact(y[b * m.rows + r]);
    }
  }
}

struct Size {
  uint32_t rows, columns, group_size;
};
constexpr Size kSizes[] = {{1, 1, 1},       {3, 5, 5},      {8, 8, 8},     {9, 16, 16},   {7, 33, 33},    {17, 130, 130},
                           {16, 256, 32},   {5, 200, 64},   {9, 300, 128}, {3, 100, 7},   {2, 40, 1},     {4, 77, 50},
                           {8, 1100, 1100}, {3, 2500, 700}, {10, 96, 32},  {1, 513, 257}, {33, 129, 128}, {6, 320, 160}};

TEST(Layer, int8_activations_equal_integers_of_64_bits_rounded_once) {
  Random random(401);
  SCOPED_TRACE("seed 401");
  for (const Size& s : kSizes) {
    for (const DType dtype : {kInt8, kUint8, kInt4, kUint4, kInt2, DType{3, false}, DType{5, true}, DType{7, false}}) {
      for (const Zeros zeros : {Zeros::kNone, Zeros::kSame, Zeros::kEach, Zeros::kFar}) {
        SCOPED_TRACE(name(dtype) + " " + std::to_string(s.rows) + "x" + std::to_string(s.columns) + " groups of " +
                     std::to_string(s.group_size) + " zeros " + std::to_string(static_cast<int>(zeros)));
        const Matrix m = random_matrix(random, s.rows, s.columns, s.group_size, dtype, zeros);
        const auto batch = static_cast<uint32_t>(1 + random.below(9));
        const std::vector<float> x = random.uniform_values(size_t{batch} * s.columns, -3, 4);
        expect_int8(m, x, batch, ActivationType::kInt8Symmetric, random);
        expect_int8(m, x, batch, ActivationType::kInt8Asymmetric, random);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(Layer, int8_sums_do_not_overflow_however_many_columns) {
  Random random(402);
  // Every product has the same sign and is as large as it gets: 255 * 255 with zero points at the far ends. 70,000 of them are
  // beyond 2^32, and so beyond every sum of 32 bits.
  constexpr uint32_t kColumns = 70000;
  for (const ActivationType activations : {ActivationType::kInt8Symmetric, ActivationType::kInt8Asymmetric}) {
    for (const int32_t zero : {0, 127, -128}) {
      for (const uint32_t group_size : {kColumns, 4096u}) {
        Matrix m = {2, kColumns, group_size, kInt8, std::vector<int32_t>(2 * kColumns, zero > 0 ? -128 : 127), {}, {}, {0, 0}};
        m.scale.assign(2 * m.groups(), 0.01f);
        m.zero_point.assign(2 * m.groups(), zero);
        std::vector<float> x(4 * kColumns, 1.0f);
        x[0] = -1.0f;
        expect_int8(m, x, 4, activations, random);
        x.resize(kColumns);
        expect_int8(m, x, 1, activations, random);
      }
    }
  }
}

TEST(Layer, float32_activations_stay_within_their_bound) {
  Random random(403);
  SCOPED_TRACE("seed 403");
  for (const Size& s : kSizes) {
    for (const DType dtype : {kInt8, kUint8, kInt4, kUint4, kUint2, DType{6, true}}) {
      for (const Zeros zeros : {Zeros::kNone, Zeros::kSame, Zeros::kEach, Zeros::kFar}) {
        SCOPED_TRACE(name(dtype) + " " + std::to_string(s.rows) + "x" + std::to_string(s.columns) + " groups of " +
                     std::to_string(s.group_size) + " zeros " + std::to_string(static_cast<int>(zeros)));
        const Matrix m = random_matrix(random, s.rows, s.columns, s.group_size, dtype, zeros);
        const auto batch = static_cast<uint32_t>(1 + random.below(5));
        std::vector<float> x = random.uniform_values(size_t{batch} * s.columns, -3, 3);
        expect_float32(m, x, batch, pack(m, ActivationType::kFloat32, random).forward(x, batch));
        for (float& value : x) value = std::ldexp(value, random.integer(-20, 0));
        expect_float32(m, x, batch, pack(m, ActivationType::kFloat32, random).forward(x, batch));
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(Layer, float32_activations_that_dwarf_the_rest_lose_no_more_than_a_float_loop) {
  Random random(404);
  SCOPED_TRACE("seed 404");
  for (const uint32_t columns : {2u, 5u, 128u, 300u}) {
    for (const DType dtype : {kInt8, kInt4}) {
      for (const float outlier : {1e4f, -1e8f, 1e15f, 1e30f, 3e37f}) {
        for (const float rest : {1.0f, 1e-10f, 1e-30f, 1e-42f}) {
          Matrix m = random_matrix(random, 9, columns, columns, dtype, Zeros::kNone);
          std::vector<float> x = random.uniform_values(columns, rest / 2, rest);
          const size_t place = random.below(columns);
          x[place] = outlier;
          // Where the weight of the outlier is 0, everything that the others add has to be right.
          for (size_t r = 0; r < m.rows; r += 2) m.codes[r * columns + place] = 0;
          m.bias.assign(m.rows, 0.0f);
          SCOPED_TRACE(std::to_string(columns) + " columns, outlier " + exact(outlier) + " among " + exact(rest));
          expect_float32(m, x, 1, pack(m, ActivationType::kFloat32, random).forward(x, 1), true);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(Layer, float32_activations_of_any_size_stay_within_their_bound) {
  Random random(405);
  SCOPED_TRACE("seed 405");
  for (int repeat = 0; repeat < 200; repeat++) {
    Matrix m = random_matrix(random, 3, 150, 150, kInt8, Zeros::kNone);
    std::vector<float> x(150);
    // Below 2^100, so that no sum overflows float32.
    for (float& value : x) {
      value = std::ldexp(random.uniform(-2, 2), random.integer(-148, 100));
    }
    expect_float32(m, x, 1, pack(m, ActivationType::kFloat32, random).forward(x, 1));
  }
  for (const float value : {0.0f, -0.0f, kDenormal, -kDenormal, kSmallestNormal, kLargest}) {
    Matrix m = random_matrix(random, 9, 40, 40, kInt8, Zeros::kNone);
    for (float& scale : m.scale) scale *= 0x1p-10f;
    m.bias.assign(m.rows, 0.0f);
    const std::vector<float> x(40, value);
    expect_float32(m, x, 1, pack(m, ActivationType::kFloat32, random).forward(x, 1));
  }
}

TEST(Layer, a_row_gives_the_same_bits_in_any_batch) {
  Random random(406);
  SCOPED_TRACE("seed 406");
  for (const ActivationType activations :
       {ActivationType::kFloat32, ActivationType::kInt8Symmetric, ActivationType::kInt8Asymmetric}) {
    for (const DType dtype : {kInt8, kUint4}) {
      for (const uint32_t group_size : {32u, 2100u}) {
        const Matrix m = random_matrix(random, 21, 2100, group_size, dtype, Zeros::kEach);
        Packed packed = pack(m, activations, random);
        for (uint32_t batch = 1; batch <= 11; batch++) {
          std::vector<float> x = random.uniform_values(size_t{batch} * m.columns, -1, 1);
          // Rows that need a second round, and rows that are not finite, among the others.
          for (size_t b = 0; b < batch; b++) {
            if (random.below(3) == 0) x[b * m.columns + random.below(m.columns)] = random.coin() ? 1e9f : kInfinity;
          }
          const std::vector<float> y = packed.forward(x, batch);
          for (size_t b = 0; b < batch; b++) {
            EXPECT_TRUE(same(packed.forward(row_of(x, b, m.columns), 1), row_of(y, b, m.rows)));
          }
        }
      }
    }
  }
}

TEST(Layer, nan_and_infinities_propagate_as_in_a_float_layer) {
  Random random(407);
  SCOPED_TRACE("seed 407");
  for (const ActivationType activations : {ActivationType::kFloat32, ActivationType::kInt8Symmetric}) {
    for (const DType dtype : {kInt8, kInt4, kUint8}) {
      for (int repeat = 0; repeat < 30; repeat++) {
        const auto batch = static_cast<uint32_t>(1 + random.below(6));
        const Matrix m = random_matrix(random, 20, 70, random.coin() ? 70 : 32, dtype, Zeros::kEach);
        std::vector<float> x = random.uniform_values(size_t{batch} * m.columns, -1, 1);
        for (size_t i = 1 + random.below(3); i > 0; i--) {
          x[random.below(x.size())] = kNonFinites[random.below(std::size(kNonFinites))];
        }
        const std::vector<float> y = pack(m, activations, random).forward(x, batch);
        for (size_t b = 0; b < batch; b++) {
          for (size_t r = 0; r < m.rows; r++) {
            float expected = m.bias[r];
            for (size_t i = 0; i < m.columns; i++) expected += x[b * m.columns + i] * static_cast<float>(m.weight(r, i));
            const float actual = y[b * m.rows + r];
            if (std::isfinite(expected))
              EXPECT_TRUE(std::isfinite(actual));
            else if (std::isnan(expected))
              EXPECT_TRUE(std::isnan(actual)) << exact(actual);
            else
              EXPECT_EQ(expected, actual);
          }
        }
      }
    }
  }
}

TEST(Layer, takes_blocks_of_q8_0_and_q4_0) {
  Random random(408);
  SCOPED_TRACE("seed 408");
  for (const BlockType type : {BlockType::kQ8_0, BlockType::kQ4_0}) {
    const std::vector<float> w = random.uniform_values(11 * 96, -1, 1);
    std::vector<std::byte> blocks(11 * 3 * block_size(type).bytes);
    ASSERT_EQ(quantize_blocks(w, type, blocks), Status::kOk);
    std::vector<float> restored(w.size());
    ASSERT_EQ(dequantize_blocks(blocks, type, restored), Status::kOk);
    // The restored weights as a matrix of codes: each is a whole number of steps of its block's scale, which float16 holds.
    const bool is_q8 = type == BlockType::kQ8_0;
    Matrix m = {11, 96, 32, is_q8 ? kInt8 : kInt4, {}, {}, std::vector<int32_t>(33, 0), std::vector<float>(11, 0.0f)};
    for (size_t block = 0; block < 33; block++) {
      uint16_t half;
      std::memcpy(&half, &blocks[block * block_size(type).bytes], 2);
      m.scale.push_back(static_cast<float>(reference::decode(half, reference::kFloat16)));
      for (size_t i = 0; i < 32; i++)
        m.codes.push_back(static_cast<int32_t>(std::lround(restored[block * 32 + i] / m.scale.back())));
    }
    const std::vector<float> x = random.uniform_values(5 * 96, -1, 1);
    for (const ActivationType activations : {ActivationType::kFloat32, ActivationType::kInt8Asymmetric}) {
      Packed packed({.rows = 11, .columns = 96, .group_size = 32, .bits = is_q8 ? 8u : 4u, .activations = activations});
      const size_t row_bytes = 3 * block_size(type).bytes;
      EXPECT_EQ(set_layer_blocks(packed.bytes(), 0, piece(blocks, 0, 4 * row_bytes), type), Status::kOk);
      EXPECT_EQ(set_layer_blocks(packed.bytes(), 4, piece(blocks, 4 * row_bytes, 7 * row_bytes), type), Status::kOk);
      EXPECT_TRUE(same(pack(m, activations, random).forward(x, 5), packed.forward(x, 5)));
    }
  }
}

TEST(Layer, float_weights_are_summed_in_float32) {
  Random random(409);
  SCOPED_TRACE("seed 409");
  for (const Size& s : kSizes) {
    for (const uint32_t batch : {1u, 3u, 4u, 9u}) {
      const std::vector<float> w = random.uniform_values(size_t{s.rows} * s.columns, -1, 1);
      const std::vector<float> x = random.uniform_values(size_t{batch} * s.columns, -1, 1);
      const std::vector<float> bias = random.uniform_values(s.rows, -1, 1);
      Packed packed({.rows = s.rows, .columns = s.columns, .group_size = s.columns, .bits = 32});
      ASSERT_EQ(set_layer_floats(packed.bytes(), 0, w), Status::kOk);
      ASSERT_EQ(set_layer_bias(packed.bytes(), bias), Status::kOk);
      const std::vector<float> y = packed.forward(x, batch);
      for (size_t b = 0; b < batch; b++) {
        for (size_t r = 0; r < s.rows; r++) {
          long double sum = bias[r], size = std::fabs(bias[r]);
          for (size_t i = 0; i < s.columns; i++) {
            const long double product = static_cast<long double>(w[r * s.columns + i]) * x[b * s.columns + i];
            sum += product;
            size += std::fabs(product);
          }
          // A product is rounded once, and added at most 256 times within its block and then once a block.
          const long double steps = 1 + 256 + static_cast<long double>(s.columns / 256 + 2);
          ASSERT_LE(std::fabs(y[b * s.rows + r] - sum), steps * 0x1p-24L * size);
        }
      }
    }
  }
}

TEST(Layer, refuses_what_does_not_fit) {
  const LayerSpec good = {.rows = 4, .columns = 10, .group_size = 5, .bits = 8};
  EXPECT_GT(layer_bytes(good), 0u);
  std::vector<LayerSpec> bad(7, good);
  bad[0].rows = 0;
  bad[1].columns = 0;
  bad[2].group_size = 0;
  bad[3].group_size = 11;
  bad[4].bits = 16;
  bad[5].bits = 32;
  bad[6].activations = static_cast<ActivationType>(3);
  Packed packed(good);
  for (const LayerSpec& spec : bad) {
    EXPECT_EQ(layer_bytes(spec), 0u);
    EXPECT_EQ(layer_workspace_bytes(spec, 1), 0u);
    EXPECT_EQ(make_layer(spec, 0, packed.bytes()), Status::kBadLayout);
  }
  EXPECT_EQ(make_layer(good, 0, packed.bytes().subspan(16)), Status::kSizeMismatch);
  EXPECT_EQ(make_layer(good, kMaxZeroPoint + 1, packed.bytes()), Status::kBadZeroPoint);

  const std::vector<std::byte> codes(20);
  const std::vector<float> scale(4, 1.0f);
  const std::vector<int32_t> zero_point(4, 0);
  const auto set = [&](uint32_t row, size_t n, DType dtype, size_t parameters) {
    return set_layer_codes(packed.bytes(), row, piece(codes, 0, n), dtype, piece(scale, 0, parameters),
                           piece(zero_point, 0, parameters));
  };
  EXPECT_EQ(set(0, 20, kInt8, 4), Status::kOk);
  EXPECT_EQ(set(2, 20, kInt8, 4), Status::kOk);
  EXPECT_EQ(set(3, 20, kInt8, 4), Status::kSizeMismatch);
  EXPECT_EQ(set(5, 0, kInt8, 0), Status::kSizeMismatch);
  EXPECT_EQ(set(0, 19, kInt8, 4), Status::kSizeMismatch);
  EXPECT_EQ(set(0, 20, kInt8, 3), Status::kSizeMismatch);
  EXPECT_EQ(set(0, 20, kInt4, 4), Status::kBadDType);
  EXPECT_EQ(set(0, 20, kInt16, 4), Status::kBadDType);
  EXPECT_EQ(set_layer_blocks(packed.bytes(), 0, codes, BlockType::kQ8_0), Status::kBadDType);
  EXPECT_EQ(set_layer_floats(packed.bytes(), 0, scale), Status::kBadDType);
  EXPECT_EQ(set_layer_bias(packed.bytes(), std::vector<float>(5)), Status::kSizeMismatch);

  const std::vector<float> x(10), short_x(9);
  std::vector<float> y(4);
  std::vector<std::max_align_t> workspace(layer_workspace_bytes(good, 1) / sizeof(std::max_align_t) + 1);
  const std::span<std::byte> work = {reinterpret_cast<std::byte*>(workspace.data()),
                                     static_cast<size_t>(layer_workspace_bytes(good, 1))};
  EXPECT_EQ(layer_forward(packed.bytes(), x, 1, y, work), Status::kOk);
  EXPECT_EQ(layer_forward(packed.bytes(), short_x, 1, y, work), Status::kSizeMismatch);
  EXPECT_EQ(layer_forward(packed.bytes(), x, 2, y, work), Status::kSizeMismatch);
  EXPECT_EQ(layer_forward(packed.bytes(), x, 1, y, work.subspan(16)), Status::kSizeMismatch);
}

}  // namespace
}  // namespace scalepoint::tests
