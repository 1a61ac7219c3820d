// Tiles of floats to codes with scales as compressed-tensors stores them, and back.
#include "codecs/compressed_tensors.h"
#include "codecs_helpers.h"

namespace scalepoint::tests {
namespace {

using codecs::CompressedTensors;
using codecs::Stored;
using codecs::ValueRange;
using reference::CompressedTile;

constexpr ElementType kScaleTypes[] = {ElementType::kF32, ElementType::kF16, ElementType::kBF16};

StoredParts compressed(const Tile& tile, const CompressedTensors& codes) { return encoded_parts(tile, codes); }

Decoded decompressed(const std::vector<uint8_t>& data, const std::vector<uint8_t>& scale, const std::vector<uint8_t>& zero_point,
                     size_t rows, size_t columns, const CompressedTensors& codes) {
  return decoded_parts({{}, data, scale, zero_point, {}}, rows, columns, codes);
}

std::string name(const CompressedTensors& codes) {
  return (codes.float8 ? std::string("float8") : "int" + std::to_string(codes.bits)) + (codes.symmetric ? "" : " asymmetric") +
         (codes.packed ? " packed" : "") + " groups of " + std::to_string(codes.group_size) + " scale type " +
         std::to_string(static_cast<int>(codes.scale));
}

/// All forms, for rows of a number of columns.
std::vector<CompressedTensors> all_forms(size_t columns) {
  std::vector<CompressedTensors> forms;
  for (const ElementType scale : kScaleTypes) {
    forms.push_back({.float8 = true, .scale = scale});
    for (const int32_t bits : {2, 3, 4, 8}) {
      for (const bool symmetric : {true, false}) {
        for (const bool packed : {true, false}) {
          // Words of these widths belong to other layouts.
          if (packed && bits < 4) continue;
          for (const uint32_t group : {0, 1, 3, 8, 12, 32, 128, 520}) {
            if (group != 0 && columns % group != 0) continue;
            forms.push_back({.bits = bits, .symmetric = symmetric, .group_size = group, .packed = packed, .scale = scale});
          }
        }
      }
    }
  }
  return forms;
}

/// Rows that fill words and rows that do not; tiles of one step, of several, and of steps that hold many rows.
constexpr Shape kShapes[] = {{1, 1},    {3, 1},    {20, 3},   {9, 7},     {8, 8},     {11, 24},  {10, 33},   {21, 96},
                             {10, 128}, {30, 520}, {4, 5000}, {33, 1040}, {130, 300}, {600, 65}, {20, 1536}, {3, 16384}};

TEST(EncodeCompressedTensors, makes_codes_scales_and_zero_points) {
  Random random(1);
  for (const auto& [rows, columns] : kShapes) {
    for (const ElementType from : kElementTypes) {
      for (const CompressedTensors& codes : all_forms(columns)) {
        // All of it would take many minutes: of large tiles some forms, each time others.
        if (random.below(rows * columns > 20000 ? 120 : rows * columns > 600 ? 20 : 3) != 0) continue;
        const bool half = from == ElementType::kF16 || codes.scale == ElementType::kF16;
        const std::vector<double> values = hard_rows(random, rows, columns, codes.bits, half ? 6e4 : 1e38);
        const std::vector<uint8_t> source = reference::store_elements(values, from);
        const std::vector<float> x = floats_of(source, from);
        CompressedTile expected = reference::compressed_parameters(x, rows, columns, codes);
        compress(x, rows, columns, codes, expected);
        Tile tile = tile_of(source, rows, columns, from);
        tile.wanted = kAllRoles;
        const StoredParts result = compressed(tile, codes);
        const auto shown = [&, rows = rows, columns = columns] {
          return name(codes) + " from " + std::to_string(static_cast<int>(from)) + " " + std::to_string(rows) + " x " +
                 std::to_string(columns);
        };
        EXPECT_TRUE(same_problem({}, result.encoded.problem)) << shown();
        EXPECT_TRUE(same(expected.scale_bytes, result.scale)) << shown();
        EXPECT_TRUE(same(expected.zero_point_bytes, result.zero_point)) << shown();
        EXPECT_TRUE(same(expected.data_bytes, result.data)) << shown();
        EXPECT_TRUE(same_sums(sums_of(x, expected.restored), result.encoded.sums)) << shown();

        const Decoded back = decompressed(result.data, result.scale, result.zero_point, rows, columns, codes);
        EXPECT_EQ(back.status, Status::kOk);
        EXPECT_TRUE(same(expected.restored, back.x)) << shown();
        if (HasFailure()) return;
      }
    }
  }
}

TEST(EncodeCompressedTensors, makes_what_is_wanted_and_no_more) {
  Random random(2);
  for (const bool searches : {false, true}) {
    for (const CompressedTensors& form : all_forms(96)) {
      if (form.float8 && searches) continue;
      if (form.scale != ElementType::kBF16 || (searches && form.group_size != 32)) continue;
      CompressedTensors codes = form;
      codes.search = searches;
      const std::vector<uint8_t> source = reference::store_elements(hard_rows(random, 21, 96, 8, 6e4), ElementType::kF32);
      Tile tile = tile_of(source, 21, 96, ElementType::kF32);
      tile.wanted = kAllRoles;
      const StoredParts all = compressed(tile, codes);
      for (uint32_t wanted = 0; wanted < 8; wanted++) {
        tile.wanted = wanted;
        for (const bool measure : {true, false}) {
          tile.measure = measure;
          const StoredParts result = compressed(tile, codes);
          EXPECT_TRUE(same((wanted & 1) != 0 ? all.data : std::vector<uint8_t>(), result.data));
          EXPECT_TRUE(same((wanted & 2) != 0 ? all.scale : std::vector<uint8_t>(), result.scale));
          EXPECT_TRUE(same((wanted & 4) != 0 ? all.zero_point : std::vector<uint8_t>(), result.zero_point));
          EXPECT_TRUE(same_sums(measure && (wanted & 1) != 0 ? all.encoded.sums : ErrorSums{}, result.encoded.sums));
        }
      }
    }
  }
}

TEST(EncodeCompressedTensors, rounds_half_to_even_with_the_scale_as_stored) {
  // absmax 127.5 steps: the scale is one step, and all halves are ties.
  const std::vector<double> values = {127.5, 0.5, 1.5, -0.5, -1.5, -127.5, 2.5, -2.5, 126.5};
  const std::vector<uint8_t> expected = {
      127, 0, 2, 0, static_cast<uint8_t>(-2), static_cast<uint8_t>(-128), 2, static_cast<uint8_t>(-2), 126};
  for (const ElementType type : kElementTypes) {
    for (const ElementType scale : kScaleTypes) {
      for (const double step : {1.0, 0.125, 0x1p-9}) {
        std::vector<double> scaled;
        for (const double value : values) scaled.push_back(value * step);
        const std::vector<uint8_t> source = reference::store_elements(scaled, type);
        EXPECT_TRUE(same(expected, compressed(tile_of(source, 1, 9, type), {.scale = scale}).data));
      }
    }
  }
  // With scales of bfloat16 100 / 127.5 becomes 0.78515625, and with it 99.8 is code 127 still, 99.2 is 126.
  const std::vector<uint8_t> source = reference::store_elements({100, 99.8, 99.2, -100}, ElementType::kF32);
  EXPECT_TRUE(same({127, 127, 126, static_cast<uint8_t>(-127)},
                   compressed(tile_of(source, 1, 4, ElementType::kF32), {.scale = ElementType::kBF16}).data));
}

TEST(EncodeCompressedTensors, packs_words_from_the_lowest_bits) {
  const std::vector<uint8_t> source =
      reference::store_elements({-8, 7, 0, 1, -1, 2, 3, 4, 5, /**/ 7, -8, 1, 1, 1, 1, 1, 1, -7}, ElementType::kF32);
  Tile tile = tile_of(source, 2, 9, ElementType::kF32);
  tile.wanted = kAllRoles;
  // min -8, max 7: scale 1, zero point 0.
  const StoredParts result = compressed(tile, {.bits = 4, .symmetric = false, .packed = true});
  EXPECT_TRUE(same({0xF0, 0x98, 0xA7, 0xCB, 0x0D, 0, 0, 0, 0x0F, 0x99, 0x99, 0x99, 0x01, 0, 0, 0}, result.data));
  EXPECT_TRUE(same({0x88, 0, 0, 0}, result.zero_point));
}

TEST(EncodeCompressedTensors, gives_runs_of_nothing_a_scale) {
  const struct {
    ElementType type;
    double epsilon, smallest;
  } kCases[] = {
      {ElementType::kF32, 0x1p-23, 0x1p-149}, {ElementType::kF16, 0x1p-10, 0x1p-24}, {ElementType::kBF16, 0x1p-7, 0x1p-133}};
  for (const auto& [type, epsilon, smallest] : kCases) {
    const std::vector<uint8_t> source = reference::store_elements({0, -0.0, 0x1p-149, 0, 0, -0x1p-149}, ElementType::kF32);
    Tile tile = tile_of(source, 3, 2, ElementType::kF32);
    tile.wanted = kAllRoles;
    for (const CompressedTensors& codes : {CompressedTensors{.scale = type}, CompressedTensors{.symmetric = false, .scale = type},
                                           CompressedTensors{.float8 = true, .scale = type}}) {
      EXPECT_TRUE(same(reference::store_elements({epsilon, smallest, smallest}, type), compressed(tile, codes).scale));
    }
  }
}

TEST(EncodeCompressedTensors, takes_ranges_of_longer_rows) {
  Random random(3);
  for (const CompressedTensors& form : all_forms(7)) {
    if (form.group_size != 0) continue;
    for (const bool searches : {false, true}) {
      if (form.float8 && searches) continue;
      // Rows whose ranges are given are not searched.
      CompressedTensors codes = form;
      codes.search = searches;
      for (const Shape shape : {Shape{1, 20000}, Shape{1, 16384}, Shape{5, 33}}) {
        const auto [rows, columns] = shape;
        std::vector<double> values(rows * columns);
        for (double& value : values) value = random.uniform(-1, 1);
        const std::vector<uint8_t> source = reference::store_elements(values, ElementType::kBF16);
        const std::vector<float> x = floats_of(source, ElementType::kBF16);
        std::vector<ValueRange> ranges;
        std::vector<reference::Range> same_ranges;
        for (size_t row = 0; row < rows; row++) {
          ranges.push_back({random.uniform(-9, 2), random.uniform(2, 5)});
          same_ranges.push_back({ranges.back().min, ranges.back().max});
        }
        CompressedTile expected = reference::compressed_parameters(same_ranges, codes);
        compress(x, rows, columns, codes, expected);
        Tile tile = tile_of(source, rows, columns, ElementType::kBF16);
        tile.wanted = kAllRoles;
        tile.ranges = ranges.data();
        const StoredParts result = compressed(tile, codes);
        EXPECT_TRUE(same(expected.data_bytes, result.data)) << name(codes);
        EXPECT_TRUE(same(expected.scale_bytes, result.scale)) << name(codes);
        EXPECT_TRUE(same(expected.zero_point_bytes, result.zero_point)) << name(codes);
        EXPECT_TRUE(same_sums(sums_of(x, expected.restored), result.encoded.sums)) << name(codes);

        // Parameters alone need no source.
        Tile parameters;
        parameters.rows = static_cast<uint32_t>(rows);
        parameters.columns = 1;
        parameters.wanted = 6;
        parameters.ranges = ranges.data();
        const StoredParts alone = compressed(parameters, codes);
        EXPECT_TRUE(same(expected.scale_bytes, alone.scale)) << name(codes);
        EXPECT_TRUE(same(expected.zero_point_bytes, alone.zero_point)) << name(codes);
      }
    }
  }
}

TEST(EncodeCompressedTensors, names_the_first_element_that_is_not_finite) {
  for (const ElementType from : kElementTypes) {
    for (const CompressedTensors& codes : {CompressedTensors{}, CompressedTensors{.float8 = true},
                                           CompressedTensors{.bits = 4, .symmetric = false, .group_size = 32, .packed = true}}) {
      for (const bool searches : {false, true}) {
        if (codes.float8 && searches) continue;
        // A search comes after the reading, and sees floats.
        if (searches && from != ElementType::kF64) continue;
        for (const size_t index : {31, 16384, 20000}) {
          for (const double value : {std::nan(""), -HUGE_VAL, 1e300}) {
            if (value == 1e300 && from != ElementType::kF64) continue;
            std::vector<double> values(27 * 1536, 0.5);
            values[27 * 1536 - 1] = std::nan("");
            values[index] = value;
            const std::vector<uint8_t> source = reference::store_elements(values, from);
            CompressedTensors searched = codes;
            searched.search = searches;
            const ProblemKind kind = value == 1e300 ? ProblemKind::kBeyondFloat32 : ProblemKind::kNonFinite;
            for (const uint32_t wanted : {1u, 4u}) {
              Tile tile = tile_of(source, 27, 1536, from);
              tile.wanted = wanted;
              EXPECT_TRUE(same_problem({kind, index, value}, compressed(tile, searched).encoded.problem)) << name(codes);
            }
          }
        }
      }
    }
  }
}

TEST(EncodeCompressedTensors, names_the_element_whose_code_would_stand_for_an_infinity) {
  for (const CompressedTensors& codes :
       {CompressedTensors{}, CompressedTensors{.packed = true}, CompressedTensors{.bits = 4, .packed = true},
        CompressedTensors{.bits = 4, .group_size = 32, .packed = true}}) {
    for (const size_t index : {0, 100, 16384, 20000}) {
      std::vector<double> values(27 * 1536, 0.5);
      values[27 * 1536 - 1] = -kLargest;
      values[index] = -kLargest;
      const auto problem_of = [&] {
        const std::vector<uint8_t> source = reference::store_elements(values, ElementType::kF32);
        return compressed(tile_of(source, 27, 1536, ElementType::kF32), codes).encoded.problem;
      };
      EXPECT_TRUE(same_problem({ProblemKind::kOverflow, index, -kLargest}, problem_of())) << name(codes);
      // Values that are not finite come first.
      values[30000] = kInfinity;
      EXPECT_TRUE(same_problem({ProblemKind::kNonFinite, 30000, kInfinity}, problem_of())) << name(codes);
      values[30000] = 0;
      values[index] = values[27 * 1536 - 1] = kLargest;
      EXPECT_TRUE(same_problem({}, problem_of())) << name(codes);
    }
  }
  // float8 codes never do: the largest stands for the largest value.
  const std::vector<uint8_t> source = reference::store_elements({kLargest, -kLargest, 1}, ElementType::kF32);
  EXPECT_TRUE(same_problem({}, compressed(tile_of(source, 1, 3, ElementType::kF32), {.float8 = true}).encoded.problem));
}

TEST(EncodeCompressedTensors, names_the_element_whose_scale_is_beyond_its_type) {
  for (const CompressedTensors& codes :
       {CompressedTensors{.scale = ElementType::kF16}, CompressedTensors{.float8 = true, .scale = ElementType::kF16},
        CompressedTensors{.symmetric = false, .group_size = 32, .packed = true, .scale = ElementType::kF16}}) {
    for (const size_t index : {0, 100, 16384, 20000}) {
      std::vector<double> values(27 * 1536, 0.5);
      values[27 * 1536 - 1] = 1e30f;
      values[index] = -1e30f;
      values[index + 1] = 1e30f;
      const std::vector<uint8_t> source = reference::store_elements(values, ElementType::kF32);
      for (const uint32_t wanted : {1u, 2u, 7u}) {
        Tile tile = tile_of(source, 27, 1536, ElementType::kF32);
        tile.wanted = wanted;
        EXPECT_TRUE(same_problem({ProblemKind::kOverflow, index, -1e30f}, compressed(tile, codes).encoded.problem))
            << name(codes);
      }
    }
  }
}

// ------------------------------------------------------------------------------------------------------------------- search

/// Scales and zero points that a search gives for all runs at once, in the type that they are stored in.
void search_all(const std::vector<float>& x, size_t runs, const CompressedTensors& codes, CompressedTile& tile) {
  const QuantizationSpec spec = {.dtype = {codes.bits, true},
                                 .scheme = codes.symmetric ? Scheme::kSymmetric : Scheme::kAsymmetric,
                                 .symmetric_range = SymmetricRange::kFull,
                                 .rounding = Rounding::kFused};
  const Layout layout = {Granularity::kPerChannel, runs, x.size() / runs, 1};
  std::vector<double> scratch(search_scratch_bytes(x.size(), layout) / 8 + 1);
  std::vector<float> scale(runs);
  std::vector<int32_t> zero_point(runs);
  ASSERT_EQ(search_qparams(x, layout, spec, codes.method, codes.percentile, std::as_writable_bytes(std::span(scratch)), scale,
                           zero_point),
            Status::kOk);
  const std::vector<uint8_t> bits = reference::store_elements({scale.begin(), scale.end()}, codes.scale);
  const std::vector<float> stored = floats_of(bits, codes.scale);
  if (codes.method != RangeMethod::kMse) {
    for (size_t run = 0; run < runs; run++) {
      bool zeros = true;
      for (size_t i = 0; i < x.size() / runs; i++) zeros = zeros && x[run * (x.size() / runs) + i] == 0;
      if (zeros || stored[run] == 0 || std::isinf(stored[run])) continue;
      tile.scale[run] = stored[run];
      tile.zero_point[run] = zero_point[run];
    }
    return;
  }
  // The searched scale, then the numbers above and below it.
  for (const int step : {0, 1, -1}) {
    if (step != 0 && codes.scale == ElementType::kF32) break;
    std::vector<uint8_t> moved;
    for (size_t i = 0; i < bits.size(); i++) {
      const bool low = i % 2 == 0 && step != 0;
      if (!low) continue;
      const auto value = static_cast<uint16_t>(bits[i] + bits[i + 1] * 256 + step);
      moved.push_back(static_cast<uint8_t>(value % 256));
      moved.push_back(static_cast<uint8_t>(value / 256));
    }
    const std::vector<float> other = step == 0 ? stored : floats_of(moved, codes.scale);
    ASSERT_EQ(take_better(x, x.size() / runs, spec.dtype, tile.scale, tile.zero_point, other, zero_point), Status::kOk);
  }
}

TEST(EncodeCompressedTensors, searches_for_ranges) {
  Random random(4);
  size_t turn = 0;
  // Small tiles in every form. Larger ones, of which random forms are enough, have rows shorter than a step of 16384 elements, and
  // rows of which a step holds only one.
  for (const auto& [rows, columns] : {Shape{9, 7}, Shape{21, 96}, Shape{30, 520}, Shape{2, 8320}, Shape{60, 300}}) {
    for (const CompressedTensors& form : all_forms(columns)) {
      if (form.float8 || (form.group_size < 8 && form.group_size != 0)) continue;
      if (random.below(rows * columns > 10000 ? 40 : rows * columns > 1000 ? 8 : 1) != 0) continue;
      // Percentile and entropy go the same way, and the search itself has tests of its own: they take turns.
      for (const RangeMethod method : {RangeMethod::kMse, turn++ % 2 == 0 ? RangeMethod::kPercentile : RangeMethod::kEntropy}) {
        CompressedTensors codes = form;
        codes.search = true;
        codes.method = method;
        codes.percentile = method == RangeMethod::kPercentile ? 99 : 100;
        // float16 has subnormal scales for small rows here, whose neighbours are far apart.
        const std::vector<uint8_t> source =
            reference::store_elements(hard_rows(random, rows, columns, codes.bits, 6e4), ElementType::kF16);
        const std::vector<float> x = floats_of(source, ElementType::kF16);
        CompressedTile expected = reference::compressed_parameters(x, rows, columns, codes);
        search_all(x, expected.scale.size(), codes, expected);
        compress(x, rows, columns, codes, expected);
        Tile tile = tile_of(source, rows, columns, ElementType::kF16);
        tile.wanted = kAllRoles;
        const StoredParts result = compressed(tile, codes);
        EXPECT_TRUE(same(expected.scale_bytes, result.scale)) << name(codes) << " " << rows << " x " << columns;
        EXPECT_TRUE(same(expected.zero_point_bytes, result.zero_point)) << name(codes);
        EXPECT_TRUE(same(expected.data_bytes, result.data)) << name(codes);
        EXPECT_TRUE(same_sums(sums_of(x, expected.restored), result.encoded.sums)) << name(codes);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(EncodeCompressedTensors, never_searches_for_something_worse) {
  Random random(5);
  for (const ElementType scale : kScaleTypes) {
    for (const bool symmetric : {true, false}) {
      CompressedTensors codes = {.bits = 4, .symmetric = symmetric, .group_size = 32, .packed = true, .scale = scale};
      std::vector<double> values(40 * 256);
      for (double& value : values) value = random.uniform(-1, 1) * random.uniform(0, 1) * random.uniform(0, 1);
      const std::vector<uint8_t> source = reference::store_elements(values, ElementType::kF32);
      const Tile tile = tile_of(source, 40, 256, ElementType::kF32);
      const double plain = compressed(tile, codes).encoded.sums.squared_error;
      codes.search = true;
      const double searched = compressed(tile, codes).encoded.sums.squared_error;
      EXPECT_LT(searched, plain);
    }
  }
}

TEST(EncodeCompressedTensors, passes_on_what_the_search_refuses) {
  const std::vector<uint8_t> source(64);
  Encoded result;
  const CompressedTensors codes = {.search = true, .method = RangeMethod::kPercentile, .percentile = 50};
  const auto call = [&](Arena& arena) { return encode(tile_of(source, 1, 16, ElementType::kF32), codes, arena, result); };
  Arena arena(kEachPiece);
  EXPECT_EQ(call(arena), Status::kBadRange);
}

// ----------------------------------------------------------------------------------------------------------------- refusals

TEST(EncodeCompressedTensors, refuses_forms_that_do_not_exist) {
  const std::vector<uint8_t> source(4 * 64);
  const auto status = [&](const CompressedTensors& codes, size_t rows = 2, size_t columns = 32) {
    Arena arena;
    Encoded result;
    return encode(tile_of(source, rows, columns, ElementType::kF32), codes, arena, result);
  };
  EXPECT_EQ(status({}), Status::kOk);
  for (const int32_t bits : {-1, 0, 1, 5, 7, 9, 16, 32}) EXPECT_EQ(status({.bits = bits}), Status::kBadDType);
  for (const int32_t bits : {1, 2, 3, 5, 6, 7, 9}) EXPECT_EQ(status({.bits = bits, .packed = true}), Status::kBadDType);
  EXPECT_EQ(status({.bits = 4, .packed = true, .whole_words = true}), Status::kBadDType);
  EXPECT_EQ(status({.bits = 4, .packed = true, .grouped = true}), Status::kBadDType);
  for (const int32_t type : {28, 2, 8, -1}) EXPECT_EQ(status({.scale = static_cast<ElementType>(type)}), Status::kBadDType);
  EXPECT_EQ(status({.float8 = true}), Status::kOk);
  EXPECT_EQ(status({.float8 = true, .bits = 4}), Status::kBadDType);
  EXPECT_EQ(status({.float8 = true, .symmetric = false}), Status::kBadDType);
  EXPECT_EQ(status({.float8 = true, .group_size = 8}), Status::kBadDType);
  EXPECT_EQ(status({.float8 = true, .packed = true}), Status::kBadDType);
  EXPECT_EQ(status({.float8 = true, .search = true}), Status::kBadDType);
  EXPECT_EQ(status({.group_size = 8}), Status::kOk);
  EXPECT_EQ(status({.group_size = 7}), Status::kBadLayout);
  EXPECT_EQ(status({.group_size = 64}), Status::kBadLayout);
  EXPECT_EQ(status({}, 0, 32), Status::kBadLayout);
  EXPECT_EQ(status({}, 32, 0), Status::kBadLayout);
  EXPECT_EQ(status({}, 2, 31), Status::kSizeMismatch);
}

TEST(EncodeCompressedTensors, takes_ranges_of_whole_rows_alone) {
  const std::vector<uint8_t> source(4 * 64);
  const std::vector<ValueRange> ranges(2);
  Arena arena;
  Encoded result;
  Tile tile = tile_of(source, 2, 32, ElementType::kF32);
  tile.ranges = ranges.data();
  EXPECT_EQ(encode(tile, CompressedTensors{}, arena, result), Status::kOk);
  EXPECT_EQ(encode(tile, CompressedTensors{.group_size = 8}, arena, result), Status::kBadLayout);
  EXPECT_EQ(encode(tile, CompressedTensors{.group_size = 32}, arena, result), Status::kOk);
  // Codes need a source; parameters alone do not.
  tile.source = {};
  EXPECT_EQ(encode(tile, CompressedTensors{}, arena, result), Status::kSizeMismatch);
  tile.wanted = 6;
  EXPECT_EQ(encode(tile, CompressedTensors{}, arena, result), Status::kOk);
}

TEST(DecodeCompressedTensors, reads_all_codes) {
  std::vector<uint8_t> data;
  for (int byte = 0; byte < 256; byte++) data.push_back(static_cast<uint8_t>(byte));
  const std::vector<uint8_t> scale = reference::store_elements({0.5, 3}, ElementType::kF16),
                             zero_point = {3, static_cast<uint8_t>(-128)};
  for (const CompressedTensors& codes :
       {CompressedTensors{.symmetric = false, .scale = ElementType::kF16}, CompressedTensors{.scale = ElementType::kF16}}) {
    const Decoded back = decompressed(data, scale, zero_point, 2, 128, codes);
    for (int i = 0; i < 256; i++) {
      const int zero = codes.symmetric ? 0 : i < 128 ? 3 : -128;
      EXPECT_EQ(back.x[i], (static_cast<int8_t>(i) - zero) * (i < 128 ? 0.5f : 3.0f)) << i;
    }
  }
  const Decoded floats = decompressed(data, scale, {}, 2, 128, {.float8 = true, .scale = ElementType::kF16});
  for (int i = 0; i < 256; i++) {
    const auto value = static_cast<float>(reference::minifloat_value(static_cast<uint8_t>(i), Minifloat::kFloat8E4M3FN));
    if (i % 128 == 127) {
      EXPECT_TRUE(std::isnan(floats.x[i]));
    } else {
      EXPECT_EQ(floats.x[i], value * (i < 128 ? 0.5f : 3.0f)) << i;
    }
  }
}

TEST(DecodeCompressedTensors, does_not_mind_what_padding_holds) {
  // Three codes of a word of eight.
  const std::vector<uint8_t> data = {0xF0, 0xF8, 0xFF, 0xFF}, scale = reference::store_elements({2}, ElementType::kF32);
  const std::vector<uint8_t> zero_point = {0xF7, 0xFF, 0xFF, 0xFF};
  EXPECT_TRUE(same({-14, 16, 2}, decompressed(data, scale, zero_point, 1, 3, {.bits = 4, .symmetric = false, .packed = true}).x));
}

TEST(DecodeCompressedTensors, refuses_parts_that_do_not_fit) {
  const std::vector<uint8_t> data(64), scale = reference::store_elements({1, 1, 1, 1}, ElementType::kF32), zero_point(16);
  const CompressedTensors codes = {.symmetric = false, .group_size = 16};
  const auto cut = [](const std::vector<uint8_t>& bytes, size_t n) {
    return std::vector<uint8_t>(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
  };
  EXPECT_EQ(decompressed(data, scale, cut(zero_point, 4), 2, 32, codes).status, Status::kOk);
  EXPECT_EQ(decompressed(cut(data, 63), scale, cut(zero_point, 4), 2, 32, codes).status, Status::kSizeMismatch);
  EXPECT_EQ(decompressed(data, cut(scale, 15), cut(zero_point, 4), 2, 32, codes).status, Status::kSizeMismatch);
  EXPECT_EQ(decompressed(data, scale, cut(zero_point, 3), 2, 32, codes).status, Status::kSizeMismatch);
  EXPECT_EQ(decompressed(data, scale, cut(zero_point, 4), 2, 33, codes).status, Status::kBadLayout);
  EXPECT_EQ(decompressed(data, scale, zero_point, 0, 32, codes).status, Status::kBadLayout);
  for (const double bad : {0.0, -1.0, HUGE_VAL, std::nan("")}) {
    const std::vector<uint8_t> scales = reference::store_elements({1, 1, 1, bad}, ElementType::kF32);
    EXPECT_EQ(decompressed(data, scales, cut(zero_point, 4), 2, 32, codes).status, Status::kBadScale);
  }
}

/// Puts the lowest bits of a code into bytes.
void put(std::vector<uint8_t>& bytes, size_t bit, int32_t bits, uint32_t code) {
  for (int32_t i = 0; i < bits; i++) {
    bytes[(bit + i) / 8] = static_cast<uint8_t>(bytes[(bit + i) / 8] | (code >> i & 1) << (bit + i) % 8);
  }
}

TEST(DecodeCompressedTensors, reads_packed_codes_of_all_widths) {
  Random random(7);
  const size_t rows = 37, columns = 60, groups = 3;
  for (int32_t bits = 2; bits <= 8; bits++) {
    for (const bool whole_words : {false, true}) {
      const size_t per_word = 32 / static_cast<size_t>(bits);
      const auto bit_of = [&](size_t i) {
        return whole_words ? i / per_word * 32 + i % per_word * static_cast<size_t>(bits) : i * static_cast<size_t>(bits);
      };
      const auto words = [&](size_t n) { return (bit_of(n - 1) + static_cast<size_t>(bits) + 31) / 32; };
      for (const bool grouped : {false, true}) {
        const CompressedTensors codes = {
            .bits = bits, .symmetric = grouped, .group_size = 20, .packed = true, .whole_words = whole_words, .grouped = grouped};
        std::vector<uint8_t> data(rows * words(columns) * 4), zero_point(words(rows) * groups * 4);
        std::vector<double> scales(rows * groups);
        std::vector<uint32_t> zeros(rows * groups, 1u << (bits - 1)), group(columns);
        for (size_t i = 0; i < columns; i++) group[i] = static_cast<uint32_t>(grouped ? i % groups : i / 20);
        for (size_t i = 0; i < rows * groups; i++) {
          scales[i] = random.uniform(0.1f, 1);
          if (!grouped) zeros[i] = static_cast<uint32_t>(random.below(size_t{1} << bits));
          const size_t bit = bit_of(i / groups);
          for (int32_t j = 0; j < bits; j++) {
            const size_t at = bit + static_cast<size_t>(j);
            put(zero_point, (at / 32 * groups + i % groups) * 32 + at % 32, 1, zeros[i] >> j);
          }
        }
        std::vector<float> expected(rows * columns);
        for (size_t i = 0; i < rows * columns; i++) {
          const auto code = static_cast<uint32_t>(random.below(size_t{1} << bits));
          put(data, i / columns * words(columns) * 32 + bit_of(i % columns), bits, code);
          const size_t set = i / columns * groups + group[i % columns];
          expected[i] =
              static_cast<float>(scales[set]) * static_cast<float>(static_cast<int32_t>(code) - static_cast<int32_t>(zeros[set]));
        }
        const std::vector<uint8_t> scale = reference::store_elements(scales, ElementType::kF32);
        std::vector<uint8_t> index(columns * 4);
        std::memcpy(index.data(), group.data(), index.size());
        const Stored stored = {.rows = rows,
                               .columns = columns,
                               .data = part_of(data),
                               .scale = part_of(scale),
                               .zero_point = part_of(zero_point),
                               .group = grouped ? part_of(index) : Bytes{}};
        const float* x = nullptr;
        const auto memory = run_in_memory([&](Arena& arena) { return decode(stored, codes, arena, x); });
        EXPECT_TRUE(same(expected, std::vector<float>(x, x + rows * columns))) << name(codes) << whole_words << grouped;
        if (HasFailure()) return;
      }
    }
  }
}

TEST(DecodeCompressedTensors, refuses_groups_that_do_not_exist) {
  const std::vector<uint8_t> data(12), scale = reference::store_elements({1, 2}, ElementType::kF32);
  const CompressedTensors codes = {.bits = 3, .group_size = 16, .packed = true, .grouped = true};
  const auto status = [&](uint32_t last, size_t bytes) {
    std::vector<uint8_t> index(32 * 4);
    std::memcpy(index.data() + 31 * 4, &last, 4);
    index.resize(bytes);
    const Stored stored = {
        .rows = 1, .columns = 32, .data = part_of(data), .scale = part_of(scale), .zero_point = {}, .group = part_of(index)};
    Arena arena(kEachPiece);
    const float* x = nullptr;
    return decode(stored, codes, arena, x);
  };
  EXPECT_EQ(status(1, 128), Status::kOk);
  EXPECT_EQ(status(2, 128), Status::kBadRange);
  EXPECT_EQ(status(0xFFFFFFFF, 128), Status::kBadRange);
  EXPECT_EQ(status(1, 127), Status::kSizeMismatch);
}

}  // namespace
}  // namespace scalepoint::tests
