// Rows that pass their errors on, in each codec with groups: the bytes of plain rounding where no error can be passed on, and smaller errors of
// outputs on other inputs.
#include <numeric>

#include "codecs/ggml.h"
#include "codecs/matmul_bnb4.h"
#include "codecs/microscaled.h"
#include "codecs/mlc.h"
#include "codecs/mlx.h"
#include "codecs/nvfp4_blocks.h"
#include "codecs_case.h"

namespace scalepoint::tests {
namespace {

using codecs::Ggml;
using codecs::GlobalScaleForm;
using codecs::MatMulBnb4;
using codecs::Microscaled;
using codecs::MicroscaleRule;
using codecs::MicroscaleType;
using codecs::Mlc;
using codecs::Mlx;
using codecs::Moments;
using codecs::Nvfp4Blocks;
using codecs::Stored;
using codecs::ValueRange;

/// Blocks of ggml are read as elements.
Status decode(const Stored& stored, const Ggml& codes, Arena& arena, const float*& y) {
  const size_t n = size_t{stored.rows} * stored.columns;
  auto* const restored = arena.take<float>(n);
  y = restored;
  return dequantize_blocks({stored.data.data, stored.data.size}, codes.to, {restored, n});
}

struct Result {
  std::vector<uint8_t> bytes;  ///< of all parts
  std::vector<float> rows;     ///< restored
  Encoded encoded;
};

/// Encodes the weights of a case. @param moments null: without feedback
template <class Codes>
Result made(const Case& given, const Codes& codes, const float* importance, const Moments* moments) {
  const std::vector<uint8_t> source = byte_values(std::as_bytes(std::span(given.w)));
  Tile tile = tile_of(source, given.outputs, given.inputs, ElementType::kF32);
  const auto [min, max] = std::minmax_element(given.w.begin(), given.w.end());
  const ValueRange range = {*min, *max};
  tile.wanted = kAllRoles | 1 << static_cast<int>(Role::kGlobalScale);
  tile.importance = importance;
  if constexpr (requires { codes.global; }) tile.ranges = codes.global == GlobalScaleForm::kNone ? nullptr : &range;
  if constexpr (std::is_same_v<Codes, Nvfp4Blocks>) tile.ranges = &range;
  Result result;
  const auto memory = run_in_memory([&](Arena& arena) {
    if (moments != nullptr) return encode_with_feedback(tile, codes, *moments, arena, result.encoded);
    return encode(tile, codes, arena, result.encoded);
  });
  EXPECT_EQ(result.encoded.problem.kind, ProblemKind::kNone);
  const auto& [data, scale, zero_point, global, sums, problem] = result.encoded;
  for (const Bytes part : {data, scale, zero_point, global}) {
    const std::vector<uint8_t> bytes = byte_values(part);
    result.bytes.insert(result.bytes.end(), bytes.begin(), bytes.end());
  }
  Arena arena;
  const float* y = nullptr;
  EXPECT_EQ(decode(Stored{tile.rows, tile.columns, data, scale, zero_point, global}, codes, arena, y), Status::kOk);
  result.rows.assign(y, y + given.w.size());
  return result;
}

/// The moments of independent inputs of variance 1, whose factor has no feedback.
struct Independent {
  std::vector<float> h, feedback, weights;
  Moments moments = {};

  explicit Independent(size_t n) : h(n * n), feedback(n * n), weights(n) {
    std::vector<double> sums(n * n), scratch(factor_scratch_size(n));
    for (size_t i = 0; i < n; i++) sums[i * n + i] = h[i * n + i] = 1;
    EXPECT_EQ(factor_moments(sums, n, 0, scratch, feedback, weights, moments.damping), Status::kOk);
    moments.moments = h.data();
    moments.feedback = feedback.data();
    moments.weights = weights.data();
  }
};

/// Checks a form whose plain codes are searched for.
template <class Codes>
void check_form(const Codes& codes) {
  static const Case given(6, 256, 5);
  static const Independent independent(given.inputs);
  // With the moments 1, columns take no errors over, and D is 1: each group has the elements and the weights that it has without feedback, so
  // the same search finds its scale. OutputJudge then finds no row better, and all keep the bytes without feedback. Blocks of IQ4_XS have
  // other grids, with room for growth, and the lines of MLX are searched for in fewer steps than refinement takes; a row takes them only if
  // its squared error gets smaller.
  const std::vector<float> alike(given.inputs, 1);
  const Result plain = made(given, codes, alike.data(), nullptr),
               unchanged = made(given, codes, alike.data(), &independent.moments);
  if constexpr (std::is_same_v<Codes, Ggml>) {
    if (codes.to == BlockType::kIQ4_XS)
      EXPECT_LE(unchanged.encoded.sums.squared_error, plain.encoded.sums.squared_error);
    else
      EXPECT_TRUE(same(plain.bytes, unchanged.bytes));
  } else {
    constexpr bool is_mlx = std::is_same_v<Codes, Mlx>;
    const double squares = plain.encoded.sums.squared_error;
    if constexpr (is_mlx)
      EXPECT_LE(unchanged.encoded.sums.squared_error, squares);
    else
      EXPECT_TRUE(same(plain.bytes, unchanged.bytes));
    // Where codes without feedback follow a rule, whose errors are larger in each row, those with feedback restore what the search makes. An
    // element within 2^-22 of the middle between two levels might go to either, as x / scale and x * (1 / scale) may differ in the last bit;
    // there are none here.
    Codes by_rule = codes;
    if constexpr (requires { by_rule.form; })
      by_rule.form.search = false;
    else if constexpr (requires { by_rule.search; })
      by_rule.search = false;
    const Result others = made(given, by_rule, nullptr, &independent.moments);
    if constexpr (is_mlx)
      EXPECT_LE(others.encoded.sums.squared_error, squares);
    else
      EXPECT_EQ(plain.rows, others.rows);
  }
  // Rounding errors of one variance, each independent of the others, have the output error tr(H) of it without feedback, and the sum of D with
  // it. The grids of later groups become a little wider, by the errors that they take over, and inputs that D was not fitted to gain less: at
  // least half of the gain is left.
  const Result nearest = made(given, codes, given.importance.data(), nullptr),
               fed = made(given, codes, given.importance.data(), &given.moments);
  const double trace = std::accumulate(given.importance.begin(), given.importance.end(), 0.0);
  const double least = std::accumulate(given.factor_weights.begin(), given.factor_weights.end(), 0.0) / trace;
  const double before = given.output_error(nearest.rows, &given.held_out), after = given.output_error(fed.rows, &given.held_out);
  EXPECT_LT(after, (1 + least) / 2 * before) << "of " << least;
  for (size_t output = 0; output < given.outputs; output++) {
    EXPECT_LE(given.output_error(fed.rows, output), given.output_error(nearest.rows, output) * (1 + 1e-4)) << output;
  }
  // Sums of products in float32.
  const double fitted = given.output_error(fed.rows);
  EXPECT_NEAR(fed.encoded.sums.output_error, fitted, fitted * 1e-3);
  EXPECT_TRUE(std::memcmp(&fed.encoded.sums.weighted_error, &nearest.encoded.sums.weighted_error, sizeof(double)) != 0);
}

TEST(FedRows, lose_less_of_outputs_in_mlx) {
  for (const int32_t bits : {2, 3, 4, 5, 6, 8}) {
    for (const ElementType scale : {ElementType::kBF16, ElementType::kF16, ElementType::kF32}) {
      SCOPED_TRACE(testing::Message() << bits << " bits, scale " << static_cast<int>(scale));
      check_form(Mlx{.bits = bits, .group_size = bits == 2 ? 32u : bits == 3 ? 128u : 64u, .scale = scale, .search = true});
    }
  }
}

TEST(FedRows, lose_less_of_outputs_in_mlc) {
  for (const ElementType floats : {ElementType::kF16, ElementType::kF32}) check_form(Mlc{.floats = floats, .search = true});
}

TEST(FedRows, lose_less_of_outputs_in_microscaled_floats) {
  for (const GlobalScaleForm global : {GlobalScaleForm::kNone, GlobalScaleForm::kDivides, GlobalScaleForm::kMultiplies}) {
    SCOPED_TRACE(static_cast<int>(global));
    check_form(Microscaled{.form = {.block = 16, .search = true}, .global = global});
  }
  for (const MicroscaleRule rule : {MicroscaleRule::kNearFloor, MicroscaleRule::kCeiling}) {
    SCOPED_TRACE(static_cast<int>(rule));
    check_form(Microscaled{.form = {.scale = MicroscaleType::kPowerOfTwo, .rule = rule, .block = 32, .search = true}});
  }
}

TEST(FedRows, lose_less_of_outputs_in_columns_of_bnb4) {
  // The same weights down the columns of a tile give the same parts.
  const Case given(6, 256, 5);
  Case turned(given.outputs, given.inputs, 5);
  turned.w = given.as_tile(true);
  std::swap(turned.outputs, turned.inputs);
  for (const uint32_t block : {16u, 64u, 256u}) {
    const MatMulBnb4 codes = {.block_size = block, .transposed = true};
    check_form(codes);
    const Result rows = made(given, codes, given.importance.data(), &given.moments),
                 columns = made(turned, MatMulBnb4{.block_size = block}, given.importance.data(), &given.moments);
    EXPECT_TRUE(same(rows.bytes, columns.bytes));
  }
}

TEST(FedRows, lose_less_of_outputs_in_blocks) {
  check_form(Nvfp4Blocks{.search = true});
  for (const BlockType type : {BlockType::kIQ4_NL, BlockType::kIQ4_XS, BlockType::kMXFP4}) {
    SCOPED_TRACE(static_cast<int>(type));
    check_form(Ggml{.to = type, .search = BlockSearch::kBest});
  }
}

}  // namespace
}  // namespace scalepoint::tests
