// Codes by data about the inputs of a weight: weighted scales, and rounding that passes errors on. Judged by what decoding restores,
// with sums in double.
#include <cmath>

#include "codecs/compressed_tensors.h"
#include "codecs/dequantize_linear.h"
#include "codecs/matmul_nbits.h"
#include "codecs_case.h"

namespace scalepoint::tests {
namespace {

using codecs::CompressedTensors;
using codecs::DequantizeLinear;
using codecs::MatMulNBits;
using codecs::Moments;
using codecs::Sharing;
using codecs::Stored;

struct Made {
  Encoded encoded;
  std::vector<uint8_t> data, scale, zero_point;
  std::vector<float> rows;  ///< restored, an output after the other
};

/// True if the tile of a form is [inputs, outputs].
bool is_turned(const CompressedTensors&) { return false; }
bool is_turned(const MatMulNBits& codes) { return !codes.transposed; }
bool is_turned(const DequantizeLinear& codes) {
  return codes.sharing == Sharing::kColumns || codes.sharing == Sharing::kColumnBlocks;
}

enum class How { kPlain, kWeighted, kFed };

Tile tile_of_case(const Case& given, const std::vector<uint8_t>& source, bool turned, How how) {
  Tile tile = turned ? tile_of(source, given.inputs, given.outputs, ElementType::kF32)
                     : tile_of(source, given.outputs, given.inputs, ElementType::kF32);
  tile.wanted = kAllRoles;
  if (how != How::kPlain) tile.importance = given.importance.data();
  return tile;
}

template <class Codes>
Made made(const Case& given, const Codes& codes, How how) {
  const bool turned = is_turned(codes);
  const std::vector<float> x = given.as_tile(turned);
  const std::vector<uint8_t> source = byte_values(std::as_bytes(std::span(x)));
  const Tile tile = tile_of_case(given, source, turned, how);
  Made result;
  const auto memory = run_in_memory([&](Arena& arena) {
    if (how == How::kFed) return encode_with_feedback(tile, codes, given.moments, arena, result.encoded);
    return encode(tile, codes, arena, result.encoded);
  });
  EXPECT_EQ(result.encoded.problem.kind, ProblemKind::kNone);
  result.data = byte_values(result.encoded.data);
  result.scale = byte_values(result.encoded.scale);
  result.zero_point = byte_values(result.encoded.zero_point);
  const Stored stored = {tile.rows, tile.columns, part_of(result.data), part_of(result.scale), part_of(result.zero_point)};
  Arena arena;
  const float* y = nullptr;
  EXPECT_EQ(decode(stored, codes, arena, y), Status::kOk);
  result.rows = given.from_tile({y, y + x.size()}, turned);
  return result;
}

std::vector<MatMulNBits> block_forms() {
  std::vector<MatMulNBits> forms;
  for (const int32_t bits : {2, 4, 8}) {
    for (const bool transposed : {false, true}) {
      for (const ElementType scale : {ElementType::kF32, ElementType::kF16}) {
        for (const int zeros : {0, 1, 2}) {
          if (zeros == 2 && bits == 8) continue;
          forms.push_back({.bits = bits,
                           .block_size = bits == 2 ? 16u : 32u,
                           .symmetric = zeros == 0,
                           .transposed = transposed,
                           .scale = scale,
                           .float_zero_points = zeros == 2});
        }
      }
    }
  }
  return forms;
}

std::vector<DequantizeLinear> linear_forms() {
  std::vector<DequantizeLinear> forms;
  for (const int32_t bits : {4, 8}) {
    for (const Sharing sharing : {Sharing::kRows, Sharing::kColumns, Sharing::kRowBlocks, Sharing::kColumnBlocks}) {
      for (const ElementType scale : {ElementType::kF32, ElementType::kF16}) {
        for (const bool is_signed : {true, false}) {
          for (const bool symmetric : {true, false}) {
            forms.push_back({.bits = bits,
                             .is_signed = is_signed,
                             .symmetric = symmetric,
                             .sharing = sharing,
                             .block_size = 32,
                             .scale = scale});
          }
        }
      }
    }
  }
  return forms;
}

std::vector<CompressedTensors> compressed_forms() {
  std::vector<CompressedTensors> forms;
  for (const int32_t bits : {4, 8}) {
    for (const uint32_t group_size : {0u, 24u}) {
      for (const ElementType scale : {ElementType::kF32, ElementType::kF16, ElementType::kBF16}) {
        for (const bool symmetric : {true, false}) {
          for (const bool packed : {true, false}) {
            if (packed || (bits == 8 && group_size == 0)) {
              forms.push_back({.bits = bits, .symmetric = symmetric, .group_size = group_size, .packed = packed, .scale = scale});
            }
          }
        }
      }
    }
  }
  return forms;
}

/// Checks the errors of a form.
template <class Codes>
void check_form(const Case& given, const Codes& codes) {
  const Made plain = made(given, codes, How::kPlain), weighted = made(given, codes, How::kWeighted),
             fed = made(given, codes, How::kFed);
  // Sums in float32 of 512 products at a time.
  const double least = given.weighted_error(plain.rows), found = given.weighted_error(weighted.rows);
  EXPECT_LE(found, least * (1 + 1e-4));
  EXPECT_NEAR(weighted.encoded.sums.weighted_error, found, found * std::ldexp(512, -24));
  EXPECT_EQ(weighted.encoded.sums.output_x, 0);
  const double before = given.output_error(weighted.rows), after = given.output_error(fed.rows);
  EXPECT_NEAR(fed.encoded.sums.output_before, before, before * 1e-3);
  EXPECT_NEAR(fed.encoded.sums.output_error, after, after * 1e-3);
  EXPECT_EQ(fed.encoded.sums.damping, given.moments.damping);
  // Codes with one scale for 72 weights leave more to gain than any; 15 % is less than all of them gain.
  EXPECT_LT(after, 0.85 * before);
  for (size_t output = 0; output < given.outputs; output++) {
    EXPECT_LE(given.output_error(fed.rows, output), given.output_error(weighted.rows, output) * (1 + 1e-4)) << output;
  }
}

TEST(InputCodes, lose_less_of_outputs_in_blocks) {
  const Case given(11, 72, 3);
  for (const MatMulNBits& codes : block_forms()) {
    SCOPED_TRACE(testing::Message() << codes.bits << codes.symmetric << codes.transposed << codes.float_zero_points);
    check_form(given, codes);
  }
}

TEST(InputCodes, lose_less_of_outputs_in_linear_codes) {
  const Case given(11, 72, 4);
  for (const DequantizeLinear& codes : linear_forms()) {
    SCOPED_TRACE(testing::Message() << codes.bits << codes.is_signed << codes.symmetric << static_cast<int>(codes.sharing));
    check_form(given, codes);
  }
}

TEST(InputCodes, lose_less_of_outputs_in_compressed_tensors) {
  const Case given(11, 72, 9);
  for (CompressedTensors codes : compressed_forms()) {
    SCOPED_TRACE(testing::Message() << codes.bits << codes.symmetric << codes.group_size << codes.packed
                                    << static_cast<int>(codes.scale));
    check_form(given, codes);
    // The search without importance has no smaller weighted error. Sums are in float32.
    codes.search = true;
    const double searched = given.weighted_error(made(given, codes, How::kPlain).rows);
    EXPECT_LE(given.weighted_error(made(given, codes, How::kWeighted).rows), searched * (1 + 1e-3));
  }
}

/// Rows of a tile that ends within a word of zero points, and rows that end within a word of codes.
TEST(InputCodes, are_the_same_in_tiles_of_compressed_tensors) {
  const Case given(13, 60, 10);
  const std::vector<float> x = given.as_tile(false);
  const std::vector<uint8_t> source = byte_values(std::as_bytes(std::span(x)));
  for (const bool symmetric : {true, false}) {
    const CompressedTensors codes = {
        .bits = 4, .symmetric = symmetric, .group_size = 20, .packed = true, .scale = ElementType::kBF16};
    for (const How how : {How::kWeighted, How::kFed}) {
      const Made whole = made(given, codes, how);
      std::vector<uint8_t> parts[3];
      for (size_t row = 0; row < 13; row += 8) {
        Tile tile = tile_of_case(given, source, false, how);
        tile.rows = static_cast<uint32_t>(std::min<size_t>(8, 13 - row));
        tile.source = {tile.source.data + row * 60 * 4, tile.rows * 60 * 4};
        Encoded result;
        const auto memory = run_in_memory([&](Arena& arena) {
          return how == How::kFed ? encode_with_feedback(tile, codes, given.moments, arena, result)
                                  : encode(tile, codes, arena, result);
        });
        for (const auto& [part, bytes] : {std::pair{0, result.data}, {1, result.scale}, {2, result.zero_point}}) {
          const std::vector<uint8_t> values = byte_values(bytes);
          parts[part].insert(parts[part].end(), values.begin(), values.end());
        }
      }
      EXPECT_EQ(parts[0], whole.data);
      EXPECT_EQ(parts[1], whole.scale);
      EXPECT_EQ(parts[2], whole.zero_point);
    }
  }
}

/// Every code is the nearest one of its grid.
TEST(InputCodes, are_the_nearest_of_stored_scales) {
  const Case given(5, 50, 8);
  for (const ElementType scale : {ElementType::kF32, ElementType::kF16}) {
    for (const bool symmetric : {true, false}) {
      const MatMulNBits codes = {.block_size = 16, .symmetric = symmetric, .scale = scale};
      const Made found = made(given, codes, How::kWeighted);
      const std::vector<double> scales = reference::load_elements(found.scale, scale);
      bool has_negative = false;
      for (size_t i = 0; i < given.w.size(); i++) {
        const size_t output = i / 50, block = i % 50 / 16;
        const double step = scales[output * 4 + block];
        has_negative = has_negative || step < 0;
        const double zero = symmetric ? 8 : found.zero_point[output * 2 + block / 2] >> 4 * (block % 2) & 15;
        double least = HUGE_VAL;
        for (int code = 0; code < 16; code++) least = std::min(least, std::fabs((code - zero) * step - given.w[i]));
        EXPECT_LE(std::fabs(static_cast<double>(found.rows[i]) - given.w[i]), least + std::fabs(step) * 1e-5);
      }
      EXPECT_EQ(has_negative, symmetric);
    }
  }
}

/// A matrix and its transpose have the same codes, and so have the two layouts of blocks.
TEST(InputCodes, do_not_depend_on_the_layout) {
  for (const auto& [outputs, inputs] : {std::pair<size_t, size_t>{1, 1}, {1, 40}, {7, 33}, {16, 64}, {33, 100}}) {
    const Case given(outputs, inputs, 5);
    for (const How how : {How::kWeighted, How::kFed}) {
      for (const bool symmetric : {true, false}) {
        const MatMulNBits turned = {.symmetric = symmetric}, straight = {.symmetric = symmetric, .transposed = true};
        const Made a = made(given, turned, how), b = made(given, straight, how);
        EXPECT_EQ(a.data, b.data);
        EXPECT_EQ(a.scale, b.scale);
        EXPECT_EQ(a.zero_point, b.zero_point);
        for (const bool blocks : {false, true}) {
          DequantizeLinear rows = {.bits = 4,
                                   .is_signed = false,
                                   .symmetric = symmetric,
                                   .sharing = blocks ? Sharing::kRowBlocks : Sharing::kRows,
                                   .block_size = 32};
          DequantizeLinear columns = rows;
          columns.sharing = blocks ? Sharing::kColumnBlocks : Sharing::kColumns;
          const Made c = made(given, rows, how), d = made(given, columns, how);
          EXPECT_EQ(c.rows, d.rows);
          if (blocks) {
            EXPECT_EQ(a.rows, c.rows);
          }
          // Codes with a sign are the same moved.
          rows.is_signed = true;
          EXPECT_EQ(made(given, rows, how).rows, c.rows);
        }
      }
    }
  }
}

/// Some outputs, and some parts, are what they are in the whole.
TEST(InputCodes, are_the_same_in_tiles_and_in_single_parts) {
  const Case given(9, 64, 6);
  const std::vector<float> x = given.as_tile(false);
  const std::vector<uint8_t> source = byte_values(std::as_bytes(std::span(x)));
  const MatMulNBits codes = {.symmetric = false, .transposed = true};
  const Made whole = made(given, codes, How::kFed);
  for (size_t output = 0; output < given.outputs; output += 2) {
    Tile tile = tile_of_case(given, source, false, How::kFed);
    tile.rows = 1;
    tile.source = {tile.source.data + output * 64 * 4, 64 * 4};
    std::vector<uint8_t> parts[3];
    for (const uint32_t role : {0u, 1u, 2u}) {
      tile.wanted = 1u << role;
      tile.measure = role == 0;
      Encoded result;
      const auto memory =
          run_in_memory([&](Arena& arena) { return encode_with_feedback(tile, codes, given.moments, arena, result); });
      parts[role] = byte_values(role == 0 ? result.data : role == 1 ? result.scale : result.zero_point);
    }
    const auto is_at = [&](const std::vector<uint8_t>& part, const std::vector<uint8_t>& all) {
      return std::equal(part.begin(), part.end(), all.begin() + static_cast<ptrdiff_t>(output * part.size()));
    };
    EXPECT_TRUE(is_at(parts[0], whole.data));
    EXPECT_TRUE(is_at(parts[1], whole.scale));
    EXPECT_TRUE(is_at(parts[2], whole.zero_point));
  }
}

TEST(InputCodes, store_zeros_and_columns_of_no_importance) {
  Case given(3, 32, 7);
  for (size_t i = 0; i < 32; i++) given.w[i] = 0;
  std::fill(given.importance.begin(), given.importance.end(), 0.0f);
  for (const bool floats : {false, true}) {
    for (const bool symmetric : {true, false}) {
      if (floats && symmetric) continue;
      const MatMulNBits codes = {.symmetric = symmetric, .float_zero_points = floats};
      const Made found = made(given, codes, How::kWeighted);
      for (size_t i = 0; i < 32; i++) EXPECT_EQ(found.rows[i], 0);
      // A range of 2, in 15 steps.
      for (size_t i = 32; i < 96; i++) EXPECT_NEAR(found.rows[i], given.w[i], 0.1f);
    }
  }
}

TEST(InputCodes, name_what_cannot_be_stored) {
  const Case given(40, 40, 9);
  std::vector<float> x = given.w;
  for (const auto& [value, kind] : {std::pair<float, ProblemKind>{kNan, ProblemKind::kNonFinite},
                                    {-kInfinity, ProblemKind::kNonFinite},
                                    {1e9f, ProblemKind::kOverflow}}) {
    x[700] = value;
    const std::vector<uint8_t> source = byte_values(std::as_bytes(std::span(x)));
    for (const How how : {How::kWeighted, How::kFed}) {
      const auto problem_of = [&](const auto& codes) {
        const Tile tile = tile_of_case(given, source, is_turned(codes), how);
        Encoded result;
        const auto memory = run_in_memory([&](Arena& arena) {
          if (how == How::kFed) return encode_with_feedback(tile, codes, given.moments, arena, result);
          return encode(tile, codes, arena, result);
        });
        return result.problem;
      };
      for (const bool transposed : {false, true}) {
        const Problem problem = problem_of(MatMulNBits{.transposed = transposed, .scale = ElementType::kF16});
        EXPECT_EQ(problem.kind, kind);
        EXPECT_EQ(problem.index, 700u);
      }
      for (const Sharing sharing : {Sharing::kRows, Sharing::kColumnBlocks}) {
        const Problem problem = problem_of(DequantizeLinear{.sharing = sharing, .block_size = 32, .scale = ElementType::kF16});
        EXPECT_EQ(problem.kind, kind);
        EXPECT_EQ(problem.index, 700u);
      }
    }
  }
}

TEST(InputCodes, refuse_layouts_without_inputs) {
  const Case given(32, 32, 2);
  const std::vector<uint8_t> source = byte_values(std::as_bytes(std::span(given.w)));
  const Tile tile = tile_of_case(given, source, true, How::kWeighted);
  Tile plain = tile;
  plain.importance = nullptr;
  const codecs::ValueRange ranges[32] = {};
  Tile known = tile;
  known.ranges = ranges;
  Arena arena;
  Encoded result;
  EXPECT_EQ(encode(tile, DequantizeLinear{}, arena, result), Status::kBadLayout);
  EXPECT_EQ(encode(known, DequantizeLinear{.sharing = Sharing::kColumns}, arena, result), Status::kBadLayout);
  EXPECT_EQ(encode(tile, MatMulNBits{.all_rows = 64}, arena, result), Status::kBadLayout);
  EXPECT_EQ(encode(tile, MatMulNBits{.bits = 3}, arena, result), Status::kBadDType);
  EXPECT_EQ(encode_with_feedback(plain, MatMulNBits{}, given.moments, arena, result), Status::kBadLayout);
  EXPECT_EQ(encode_with_feedback(plain, DequantizeLinear{.sharing = Sharing::kColumns}, given.moments, arena, result),
            Status::kBadLayout);
  EXPECT_EQ(encode_with_feedback(tile, MatMulNBits{}, given.moments, arena, result), Status::kOk);
}

}  // namespace
}  // namespace scalepoint::tests
