#include "codecs/gptq.h"

#include <cmath>
#include <cstring>

#include "arrays/pack_bits_loops.h"
#include "codecs/compressed_tensors.h"
#include "codecs/gptq_loops.h"
#include "codecs/scales.h"

namespace scalepoint::codecs {
namespace {

const uint32_t* words(const std::byte* bytes) { return reinterpret_cast<const uint32_t*>(bytes); }
uint32_t* words(std::byte* bytes) { return reinterpret_cast<uint32_t*>(bytes); }

/// Numbers that follow from the size of a tile and from its codes.
struct Form {
  const Gptq& codes;
  uint64_t rows = 0, columns = 0, groups = 0;
  uint32_t scale_bytes = 0;

  Status init(uint32_t rows_of_tile, uint32_t columns_of_tile) {
    const bool is_width = codes.bits == 2 || codes.bits == 3 || codes.bits == 4 || codes.bits == 8;
    if (!is_width || (codes.outputs && codes.bits != 4)) return Status::kBadDType;
    if (codes.scale == ElementType::kF32) scale_bytes = 4;
    if (codes.scale == ElementType::kF16 || codes.scale == ElementType::kBF16) scale_bytes = 2;
    if (scale_bytes == 0) return Status::kBadDType;
    rows = rows_of_tile;
    columns = columns_of_tile;
    const uint64_t row_unit = codes.outputs ? 8 : codes.bits == 3 ? 32 : 32 / static_cast<uint32_t>(codes.bits);
    if (rows == 0 || columns == 0 || rows % row_unit != 0 || (!codes.outputs && columns % 32 != 0)) return Status::kBadLayout;
    const uint64_t size = codes.group_size == 0 ? columns : codes.group_size;
    groups = (columns + size - 1) / size;
    return Status::kOk;
  }

  [[nodiscard]] uint64_t size() const { return rows * columns; }
  [[nodiscard]] uint64_t data_bytes() const { return size() * static_cast<uint32_t>(codes.bits) / 8; }
  /// Bytes of the zero points of a group.
  [[nodiscard]] uint64_t group_bytes() const { return rows * static_cast<uint32_t>(codes.bits) / 8; }
};

/// The codes of one group of rows.
void unpack_group(const Form& form, const std::byte* from, uint8_t* codes) {
  const auto rows = static_cast<size_t>(form.rows);
  if (form.codes.outputs) {
    loops::unpack_across(words(from), rows, 1, codes);
  } else {
    loops::unpack_codes(uint8s(from), rows, form.codes.bits, loops::CodeForm::kUnsigned, codes);
  }
}

void pack_group(const Form& form, const uint8_t* codes, std::byte* to) {
  const auto rows = static_cast<size_t>(form.rows);
  if (form.codes.outputs) {
    loops::pack_across(codes, rows, 1, words(to));
  } else {
    loops::pack_codes(codes, rows, form.codes.bits, loops::CodeForm::kUnsigned, uint8s(to));
  }
}

/// Makes codes as CompressedTensors does, and lays them out. @param moments null: rounding passes no errors on
Status encode_all(const Tile& tile, const Gptq& codes, const Moments* moments, Arena& arena, Encoded& result) {
  Form form = {.codes = codes};
  if (const Status status = form.init(tile.rows, tile.columns); status != Status::kOk) return status;
  if (codes.scale != ElementType::kF16) return Status::kBadDType;
  if (codes.grouped || tile.ranges != nullptr || (codes.less_one && !codes.symmetric)) return Status::kBadLayout;
  if (codes.group_size != 0 && form.columns % codes.group_size != 0) return Status::kBadLayout;
  result = {};
  const auto rows = static_cast<size_t>(form.rows), columns = static_cast<size_t>(form.columns),
             groups = static_cast<size_t>(form.groups);
  std::byte* const data = take_part(tile, Role::kData, form.data_bytes(), arena, result.data);
  std::byte* const scales = take_part(tile, Role::kScale, form.groups * form.rows * 2, arena, result.scale);
  std::byte* const zero_points = take_part(tile, Role::kZeroPoint, form.groups * form.group_bytes(), arena, result.zero_point);
  auto* const unsigned_codes = arena.take<uint8_t>(data == nullptr ? 0 : form.size());
  auto* const of_group = arena.take<uint8_t>(zero_points == nullptr ? 0 : form.rows);
  if (arena.status() != Status::kOk) return arena.status();

  // Make the codes, one for each byte.
  const CompressedTensors plain = {.bits = codes.bits,
                                   .symmetric = codes.symmetric,
                                   .group_size = codes.group_size,
                                   .packed = false,
                                   .scale = ElementType::kF16,
                                   .search = codes.search};
  Tile whole = tile;
  whole.wanted = 1 << static_cast<int32_t>(Role::kData) | 1 << static_cast<int32_t>(Role::kScale) |
                 1 << static_cast<int32_t>(Role::kZeroPoint);
  Encoded made;
  const Status status =
      moments == nullptr ? encode(whole, plain, arena, made) : encode_with_feedback(whole, plain, *moments, arena, made);
  if (status != Status::kOk) return status;
  result.sums = made.sums;
  result.problem = made.problem;
  if (made.problem.kind != ProblemKind::kNone) return Status::kOk;

  // Lay them out.
  const int32_t middle = 1 << (codes.bits - 1);
  if (data != nullptr) {
    for (size_t i = 0; i < rows * columns; i++) {
      unsigned_codes[i] = static_cast<uint8_t>(static_cast<int8_t>(made.data.data[i]) + middle);
    }
    if (codes.outputs) {
      loops::pack_across(unsigned_codes, rows, columns, words(data));
    } else {
      loops::pack_down(unsigned_codes, rows, columns, codes.bits, words(data));
    }
  }
  for (size_t group = 0; group < groups; group++) {
    for (size_t row = 0; scales != nullptr && row < rows; row++) {
      std::memcpy(scales + (group * rows + row) * 2, made.scale.data + (row * groups + group) * 2, 2);
    }
    if (zero_points == nullptr) continue;
    for (size_t row = 0; row < rows; row++) {
      const int32_t zero_point = static_cast<int8_t>(made.zero_point.data[row * groups + group]) + middle;
      of_group[row] = static_cast<uint8_t>(zero_point - (codes.less_one ? 1 : 0));
    }
    pack_group(form, of_group, zero_points + group * form.group_bytes());
  }
  return Status::kOk;
}

}  // namespace

Status encode(const Tile& tile, const Gptq& codes, Arena& arena, Encoded& result) noexcept {
  return encode_all(tile, codes, nullptr, arena, result);
}

Status encode_with_feedback(const Tile& tile, const Gptq& codes, const Moments& moments, Arena& arena, Encoded& result) noexcept {
  return encode_all(tile, codes, &moments, arena, result);
}

Status decode(const Stored& stored, const Gptq& codes, Arena& arena, const float*& x) noexcept {
  Form form = {.codes = codes};
  if (const Status status = form.init(stored.rows, stored.columns); status != Status::kOk) return status;
  // With indices, the scales tell how many groups there are.
  const uint64_t line = form.rows * form.scale_bytes;
  if (codes.grouped) form.groups = stored.scale.size / line;
  if (form.groups == 0 || stored.data.size != form.data_bytes() || stored.scale.size != form.groups * line ||
      stored.zero_point.size != form.groups * form.group_bytes() ||
      (codes.grouped && stored.group.size != form.columns * sizeof(uint32_t))) {
    return Status::kSizeMismatch;
  }
  const auto rows = static_cast<size_t>(form.rows), columns = static_cast<size_t>(form.columns);
  const auto sets = static_cast<size_t>(form.groups * form.rows);
  auto* const out = arena.take<float>(form.size());
  auto* const unpacked = arena.take<uint8_t>(form.size());
  auto* const scale = arena.take<float>(sets);
  auto* const zero_point = arena.take<float>(sets);
  auto* const of_group = arena.take<uint8_t>(form.rows);
  auto* const groups = arena.take<uint32_t>(form.columns);
  if (arena.status() != Status::kOk) return arena.status();
  x = out;

  // Find the group of each column.
  if (codes.grouped) {
    std::memcpy(groups, stored.group.data, columns * sizeof(uint32_t));
  } else {
    const uint64_t size = codes.group_size == 0 ? form.columns : codes.group_size;
    for (size_t i = 0; i < columns; i++) groups[i] = static_cast<uint32_t>(i / size);
  }
  for (size_t i = 0; i < columns; i++) {
    if (groups[i] >= form.groups) return Status::kBadRange;
  }
  // Read scales and zero points.
  load_scales(stored.scale.data, sets, codes.scale, scale);
  for (size_t i = 0; i < sets; i++) {
    if (!std::isfinite(scale[i])) return Status::kBadScale;
  }
  for (size_t group = 0; group < form.groups; group++) {
    unpack_group(form, stored.zero_point.data + group * form.group_bytes(), of_group);
    for (size_t row = 0; row < rows; row++) {
      zero_point[group * rows + row] = static_cast<float>(of_group[row] + (codes.less_one ? 1 : 0));
    }
  }
  // Restore the codes.
  if (codes.outputs) {
    loops::unpack_across(words(stored.data.data), rows, columns, unpacked);
  } else {
    loops::unpack_down(words(stored.data.data), rows, columns, codes.bits, unpacked);
  }
  for (size_t row = 0; row < rows; row++) {
    loops::restore_grouped(unpacked + row * columns, groups, columns, scale + row, zero_point + row, rows, out + row * columns);
  }
  return Status::kOk;
}

}  // namespace scalepoint::codecs
