// Shared by the tests of the codecs: memory that ends where it should, and values that are hard to store.
#pragma once

#include "arrays/metrics.h"
#include "codecs/elements.h"
#include "codecs_reference.h"
#include "helpers.h"

namespace scalepoint::tests {

using codecs::Arena;
using codecs::ElementType;
using codecs::Encoded;
using codecs::Problem;
using codecs::ProblemKind;
using codecs::Role;
using codecs::Tile;

inline constexpr ElementType kElementTypes[] = {ElementType::kF32, ElementType::kF16, ElementType::kBF16, ElementType::kF64};
inline constexpr uint32_t kAllRoles = 7;

using codecs::Bytes;

inline std::vector<uint8_t> byte_values(std::span<const std::byte> bytes) {
  const auto* first = reinterpret_cast<const uint8_t*>(bytes.data());
  return {first, first + bytes.size()};
}

inline std::vector<uint8_t> byte_values(Bytes part) { return byte_values(std::span(part.data, part.size)); }

inline std::span<const std::byte> bytes_of(const std::vector<uint8_t>& bytes) { return std::as_bytes(std::span(bytes)); }
inline Bytes part_of(const std::vector<uint8_t>& bytes) { return {bytes_of(bytes).data(), bytes.size()}; }

/// Bytes for a block of its own around each piece, so that a sanitizer sees every access beside it.
inline constexpr size_t kEachPiece = 1;

/// Runs a call with an arena that has just the memory that it needs, and again with the same memory, and holds it to that: with less there is
/// a status. Returns the arena with the results.
template <class Call>
std::unique_ptr<Arena> run_in_memory(Call call) {
  auto arena = std::make_unique<Arena>(kEachPiece);
  EXPECT_EQ(call(*arena), Status::kOk);
  const size_t bytes = arena->capacity();
  for (const size_t less : {bytes / 2, bytes - std::min<size_t>(bytes, 16), bytes - 1}) {
    if (less == 0 || less >= bytes) continue;
    Arena small(kEachPiece, less);
    EXPECT_EQ(call(small), Status::kOutOfMemory) << less << " of " << bytes << " bytes";
  }
  arena->rewind();
  EXPECT_EQ(call(*arena), Status::kOk);
  EXPECT_EQ(arena->capacity(), bytes);
  return arena;
}

inline Tile tile_of(const std::vector<uint8_t>& source, size_t rows, size_t columns, int32_t type) {
  Tile tile;
  tile.rows = static_cast<uint32_t>(rows);
  tile.columns = static_cast<uint32_t>(columns);
  tile.type = type;
  tile.source = part_of(source);
  tile.measure = true;
  return tile;
}

inline Tile tile_of(const std::vector<uint8_t>& source, size_t rows, size_t columns, ElementType type) {
  return tile_of(source, rows, columns, static_cast<int32_t>(type));
}

/// The sums over a whole tile at once. The metrics' own tests hold them to the oracle.
inline ErrorSums sums_of(const std::vector<float>& x, const std::vector<float>& y) {
  ErrorSums sums;
  EXPECT_EQ(accumulate_error(x, y, sums), Status::kOk);
  return sums;
}

inline testing::AssertionResult same_sums(const ErrorSums& expected, const ErrorSums& actual) {
  if (std::memcmp(&expected, &actual, sizeof(ErrorSums)) == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "sums differ: squared error " << expected.squared_error << " and " << actual.squared_error
                                     << ", not finite " << expected.non_finite << " and " << actual.non_finite;
}

inline testing::AssertionResult same_problem(const Problem& expected, const Problem& actual) {
  const bool same_value = expected.value == actual.value || (std::isnan(expected.value) && std::isnan(actual.value));
  if (expected.kind == actual.kind && expected.index == actual.index && same_value) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "expected problem " << static_cast<int>(expected.kind) << " at " << expected.index << ": "
                                     << expected.value << ", got " << static_cast<int>(actual.kind) << " at " << actual.index
                                     << ": " << actual.value;
}

/// Values as a type holds them, as floats.
inline std::vector<float> floats_of(const std::vector<uint8_t>& source, ElementType type) {
  const std::vector<double> values = reference::load_elements(source, type);
  return {values.begin(), values.end()};
}

struct Shape {
  size_t rows, columns;
};

/// The floats that the parts of a result restore.
template <class Codes>
std::vector<float> restored(const Encoded& encoded, const Shape& shape, const Codes& codes) {
  const codecs::Stored stored = {.rows = static_cast<uint32_t>(shape.rows),
                                 .columns = static_cast<uint32_t>(shape.columns),
                                 .data = encoded.data,
                                 .scale = encoded.scale,
                                 .zero_point = encoded.zero_point,
                                 .group = {},
                                 .outer_scale = {},
                                 .table = {}};
  const float* x = nullptr;
  Arena arena(kEachPiece);
  EXPECT_EQ(decode(stored, codes, arena, x), Status::kOk);
  return {x, x + shape.rows * shape.columns};
}

/// A result, with copies of its parts.
struct StoredParts {
  Encoded encoded;
  std::vector<uint8_t> data, scale, zero_point, global_scale;
};

template <class Codes>
StoredParts encoded_parts(const Tile& tile, const Codes& codes) {
  StoredParts parts;
  const auto memory = run_in_memory([&](Arena& arena) { return encode(tile, codes, arena, parts.encoded); });
  parts.data = byte_values(parts.encoded.data);
  parts.scale = byte_values(parts.encoded.scale);
  parts.zero_point = byte_values(parts.encoded.zero_point);
  parts.global_scale = byte_values(parts.encoded.global_scale);
  return parts;
}

struct Decoded {
  Status status;
  std::vector<float> x;
};

template <class Codes>
Decoded decoded_parts(const StoredParts& parts, size_t rows, size_t columns, const Codes& codes) {
  const codecs::Stored stored = {.rows = static_cast<uint32_t>(rows),
                                 .columns = static_cast<uint32_t>(columns),
                                 .data = part_of(parts.data),
                                 .scale = part_of(parts.scale),
                                 .zero_point = part_of(parts.zero_point),
                                 .global_scale = part_of(parts.global_scale)};
  const float* x = nullptr;
  Arena arena(kEachPiece);
  const Status status = decode(stored, codes, arena, x);
  return {status, status == Status::kOk ? std::vector<float>(x, x + rows * columns) : std::vector<float>()};
}

/// The code of the nearest value of a small float, of two equally near ones the even code.
inline uint8_t nearest_code(float x, Minifloat format) { return reference::encode_minifloat(x, format, Overflow::kSaturate); }
inline float value_of(uint8_t code, Minifloat format) { return static_cast<float>(reference::minifloat_value(code, format)); }

inline double squared_error(std::span<const float> x, std::span<const float> y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); i++) sum += (double{x[i]} - y[i]) * (double{x[i]} - y[i]);
  return sum;
}

/// Expects each part made alone to equal the part made with the others.
template <class Codes>
void expect_parts_alone(Random& random, const Codes& codes) {
  std::vector<double> values(64 * 32);
  for (double& value : values) value = random.uniform(-1, 1);
  const std::vector<uint8_t> source = reference::store_elements(values, ElementType::kBF16);
  Tile tile = tile_of(source, 32, 64, ElementType::kBF16);
  tile.wanted = kAllRoles;
  Encoded all;
  const auto kept = run_in_memory([&](Arena& arena) { return encode(tile, codes, arena, all); });
  for (const auto& [role, part] : {std::pair(Role::kData, &Encoded::data), std::pair(Role::kScale, &Encoded::scale),
                                   std::pair(Role::kZeroPoint, &Encoded::zero_point)}) {
    tile.wanted = 1u << static_cast<int32_t>(role);
    Encoded one;
    const auto memory = run_in_memory([&](Arena& arena) { return encode(tile, codes, arena, one); });
    EXPECT_TRUE(same(byte_values(all.*part), byte_values(one.*part)));
  }
}

/// Values like weights, and what codes by the rule and codes by a search restore.
struct RuleAndSearch {
  std::vector<float> x, by_rule, by_search;

  double share_of_error() const { return squared_error(x, by_search) / squared_error(x, by_rule); }
};

template <class Codes>
RuleAndSearch rule_and_search(Random& random, const Codes& rule) {
  const Shape shape = {6, 1024};
  std::vector<double> values(shape.rows * shape.columns);
  for (double& value : values) value = (random.uniform(-1, 1) + random.uniform(-1, 1) + random.uniform(-1, 1)) * 0.02;
  const std::vector<uint8_t> source = reference::store_elements(values, ElementType::kBF16);
  Tile tile = tile_of(source, shape.rows, shape.columns, ElementType::kBF16);
  tile.wanted = kAllRoles;
  Codes search = rule;
  search.search = true;
  Encoded plain, searched;
  Arena first, second;
  EXPECT_EQ(encode(tile, rule, first, plain), Status::kOk);
  EXPECT_EQ(encode(tile, search, second, searched), Status::kOk);
  RuleAndSearch all = {floats_of(source, ElementType::kBF16), restored(plain, shape, rule), restored(searched, shape, search)};
  EXPECT_EQ(searched.sums.squared_error, sums_of(all.x, all.by_search).squared_error);
  return all;
}

/// The problem reported for 2 rows of 64 values of 0.5, of which value i is another.
template <class Codes>
Problem problem_of(size_t i, float value, const Codes& codes) {
  std::vector<double> values(128, 0.5);
  values[i] = value;
  const std::vector<uint8_t> source = reference::store_elements(values, ElementType::kF32);
  Encoded encoded;
  Arena arena;
  EXPECT_EQ(encode(tile_of(source, 2, 64, ElementType::kF32), codes, arena, encoded), Status::kOk);
  return encoded.problem;
}

/// Rows of all kinds, one after the other: weights, ties of `bits` bits, zeros, one sign alone, constants, subnormal numbers, and
/// values of all sizes up to `largest`.
inline std::vector<double> hard_rows(Random& random, size_t rows, size_t columns, int bits, double largest) {
  std::vector<double> x(rows * columns);
  const double levels = (1 << bits) - 1;
  for (size_t row = 0; row < rows; row++) {
    const size_t kind = row % 10;
    // A scale of few bits: half steps then lie on ties in every type.
    const double scale = std::ldexp(1.0, random.integer(-9, -3));
    for (size_t column = 0; column < columns; column++) {
      double& value = x[row * columns + column];
      const double weight = random.uniform(-1, 1) * random.uniform(0, 1);
      if (kind == 0) value = weight;
      if (kind == 1) value = scale * (column == 0 ? levels / 2 : random.integer(-(1 << (bits - 1)), (1 << (bits - 1)) - 1) + 0.5);
      if (kind == 2) value = scale * (column == 0 ? -levels / 4 : column == 1 ? levels * 3 / 4 : random.integer(-3, 3) + 0.5);
      if (kind == 3) value = column % 3 == 0 ? -0.0 : 0.0;
      if (kind == 4) value = std::fabs(weight) + 0.25;
      if (kind == 5) value = -std::fabs(weight);
      if (kind == 6) value = 0.75;
      if (kind == 7) value = std::ldexp(random.integer(-3, 3), -149);
      if (kind == 8) value = std::ldexp(weight, -130);
      if (kind == 9) value = column % 7 == 0 ? largest * (weight < 0 ? -1 : 1) : weight * largest * 0x1p-20;
    }
  }
  return x;
}

}  // namespace scalepoint::tests
