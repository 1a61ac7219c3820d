#include "codecs/nvfp4_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "arrays/min_max.h"
#include "codecs/elements.h"
#include "codecs/fed_rows.h"
#include "codecs/microscales_loops.h"
#include "codecs/nvfp4_blocks_loops.h"
#include "lanes/round.h"

namespace scalepoint::codecs {
namespace {

/// Elements that share a scale, their scales in a block, and the bytes of their codes.
constexpr uint32_t kShared = 16, kScales = kNvfp4Elements / kShared, kCodeBytes = kShared / 2;
constexpr uint8_t kNaN = 127;

bool is_usable(float scale) { return scale > 0 && is_finite(scale); }

/// Restores n elements, whole blocks.
void restore(const uint8_t* blocks, size_t n, const GlobalScale& global, float* x) {
  for (size_t i = 0; i < n; i += kNvfp4Elements, blocks += kNvfp4Bytes) {
    for (size_t s = 0; s < kScales; s++, x += kShared) {
      const float scale = blocks[s] == kNaN ? 0 : microscale_value(MicroscaleType::kFloat8, blocks[s], global);
      loops::restore_nvfp4(blocks + kScales + s * kCodeBytes, scale, x);
    }
  }
}

/// Weights of n elements from `first` on, those of their columns.
void repeat_columns(const Tile& tile, uint64_t first, size_t n, float* weights) {
  for (size_t i = 0; i < n;) {
    const auto column = static_cast<size_t>((first + i) % tile.columns);
    const size_t some = std::min<size_t>(n - i, tile.columns - column);
    std::copy_n(tile.importance + column, some, weights + i);
    i += some;
  }
}

/// The scale of the matrix, of the range of a tile.
GlobalScale global_of(const Tile& tile) {
  return global_scale_of(std::max(std::fabs(tile.ranges[0].min), std::fabs(tile.ranges[0].max)), false);
}

/// Blocks for rows with feedback.
class FedBlocks final : public FedForm {
 public:
  FedBlocks(const Nvfp4Blocks& blocks, size_t columns, const uint8_t* scales)
      : blocks_(blocks), columns_(columns), scales_(scales) {}

  Status encode_plain(const Tile& tile, Arena& arena, Encoded& result) override { return encode(tile, blocks_, arena, result); }
  Status restore(const Stored& stored, Arena& arena, const float*& y) override { return decode(stored, blocks_, arena, y); }

  void write(size_t row, const uint8_t* places, std::byte* data, std::byte*, std::byte*) override {
    uint8_t* block = uint8s(data) + row * columns_ / kNvfp4Elements * kNvfp4Bytes;
    const uint8_t* scales = scales_ + row * columns_ / kShared;
    for (size_t i = 0; i < columns_; i += kNvfp4Elements, scales += kScales) {
      std::copy_n(scales, kScales, block);
      block += kScales;
      for (size_t s = 0; s < kScales; s++, places += kShared, block += kCodeBytes) {
        for (size_t j = 0; j < kCodeBytes; j++) {
          block[j] = static_cast<uint8_t>(e2m1_code(places[j]) | e2m1_code(places[j + kCodeBytes]) << 4);
        }
      }
    }
  }

 private:
  const Nvfp4Blocks& blocks_;
  size_t columns_;
  const uint8_t* scales_;
};

}  // namespace

Status encode_with_feedback(const Tile& tile, const Nvfp4Blocks& blocks, const Moments& moments, Arena& arena,
                            Encoded& result) noexcept {
  if (tile.ranges == nullptr || tile.columns % kNvfp4Elements != 0) return Status::kBadLayout;
  auto* const scales = arena.take<uint8_t>(tile.size() / kShared);
  if (arena.status() != Status::kOk) return arena.status();
  MicroscaleGrid grid({.block = kShared}, global_of(tile), tile.columns / kShared, scales);
  FedBlocks form(blocks, tile.columns, scales);
  return encode_fed_rows(tile, form, grid, moments, arena, result);
}

Status encode(const Tile& tile, const Nvfp4Blocks& blocks, Arena& arena, Encoded& result) noexcept {
  const uint64_t size = tile.size();
  const bool reads = tile.wants(Role::kData);
  if (size == 0 || tile.ranges == nullptr || (reads && tile.columns % kNvfp4Elements != 0)) return Status::kBadLayout;
  if (reads) {
    if (const Status status = check(tile); status != Status::kOk) return status;
  }
  result = {};
  // Take all memory from the arena.
  const uint64_t step = reads ? std::min(size, kStepSize) : 0;
  Floats floats(tile, step, arena);
  auto* const restored = arena.take<float>(tile.measure ? step : 0);
  auto* const weights = arena.take<float>(tile.importance != nullptr ? step : 0);
  std::byte* const data = take_part(tile, Role::kData, size / kNvfp4Elements * kNvfp4Bytes, arena, result.data);
  std::byte* const whole = take_part(tile, Role::kGlobalScale, sizeof(float), arena, result.global_scale);
  if (arena.status() != Status::kOk) return arena.status();

  const GlobalScale global = global_of(tile);
  if (whole != nullptr) std::memcpy(whole, &global.value, sizeof(float));
  const Microscales form = {.block = kShared, .search = blocks.search};
  for (uint64_t at = 0; reads && at < size; at += step) {
    const auto n = static_cast<size_t>(std::min(step, size - at));
    const float* const x = floats.read(at, n);
    if (first_non_finite({x, n}) < n) {
      result.problem = floats.first_problem(at);
      return Status::kOk;
    }
    if (tile.importance != nullptr) repeat_columns(tile, at, n, weights);
    uint8_t* const made = uint8s(data) + at / kNvfp4Elements * kNvfp4Bytes;
    uint8_t* block = made;
    for (size_t i = 0; i < n; i += kNvfp4Elements, block += kNvfp4Bytes) {
      for (size_t s = 0; s < kScales; s++) {
        const float* const from = x + i + s * kShared;
        const float* const own = tile.importance != nullptr ? weights + i + s * kShared : nullptr;
        block[s] = choose_microscale(form, global, from, own);
        const float scale = microscale_value(MicroscaleType::kFloat8, block[s], global);
        uint8_t* const codes = block + kScales + s * kCodeBytes;
        if (is_usable(scale)) {
          loops::nvfp4_codes(from, scale, codes);
        } else {
          std::fill_n(codes, kCodeBytes, uint8_t{0});
        }
      }
    }
    if (!tile.measure) continue;
    restore(made, n, global, restored);
    measure(tile, at, x, restored, n, result.sums);
  }
  return Status::kOk;
}

Status recode(const Stored& stored, const Microscaled& codes, bool measures, Arena& arena, Encoded& result) noexcept {
  const Microscales& form = codes.form;
  const bool is_nvfp4 = form.element == Minifloat::kFloat4E2M1 && form.scale == MicroscaleType::kFloat8 && form.block == kShared;
  if (!is_nvfp4 || codes.global == GlobalScaleForm::kNone) return Status::kBadDType;
  const uint64_t size = uint64_t{stored.rows} * stored.columns;
  if (size == 0 || stored.columns % kNvfp4Elements != 0) return Status::kBadLayout;
  // Restoring checks the sizes and the scales.
  const float* x = nullptr;
  if (const Status status = decode(stored, codes, arena, x); status != Status::kOk) return status;
  GlobalScale global;
  std::memcpy(&global.value, stored.global_scale.data, sizeof(float));
  if (codes.global == GlobalScaleForm::kDivides) global.value = 1 / global.value;
  if (!is_usable(global.value)) return Status::kBadScale;
  result = {};
  Tile tile;
  tile.rows = stored.rows;
  tile.columns = stored.columns;
  const uint64_t bytes = size / kNvfp4Elements * kNvfp4Bytes;
  auto* const made = arena.take<std::byte>(bytes);
  auto* const whole = arena.take<std::byte>(sizeof(float));
  auto* const restored = arena.take<float>(measures ? size : 0);
  if (arena.status() != Status::kOk) return arena.status();
  std::memcpy(whole, &global.value, sizeof(float));
  result.data = {made, static_cast<size_t>(bytes)};
  result.global_scale = {whole, sizeof(float)};
  const uint8_t *scales = uint8s(stored.scale.data), *from = uint8s(stored.data.data);
  uint8_t* block = uint8s(made);
  for (uint64_t i = 0; i < size; i += kNvfp4Elements, block += kNvfp4Bytes) {
    std::copy_n(scales, kScales, block);
    scales += kScales;
    uint8_t* to = block + kScales;
    for (size_t s = 0; s < kScales; s++, from += kCodeBytes, to += kCodeBytes) {
      uint8_t code[kShared];
      loops::unpack_nibbles(from, kShared, false, code);
      for (uint8_t& one : code) one = one == 8 ? 0 : one;
      for (size_t j = 0; j < kCodeBytes; j++) to[j] = static_cast<uint8_t>(code[j] | code[j + kCodeBytes] << 4);
    }
  }
  if (!measures) return Status::kOk;
  restore(uint8s(made), size, global, restored);
  for (uint64_t at = 0; at < size; at += kStepSize) {
    measure(tile, at, x + at, restored + at, static_cast<size_t>(std::min(kStepSize, size - at)), result.sums);
  }
  return Status::kOk;
}

Status decode(const Stored& stored, const Nvfp4Blocks& /*blocks*/, Arena& arena, const float*& x) noexcept {
  const uint64_t size = uint64_t{stored.rows} * stored.columns;
  if (size == 0 || size % kNvfp4Elements != 0) return Status::kBadLayout;
  // Some converters write no scale of the matrix.
  const bool has_scale = stored.global_scale.size != 0;
  if (stored.data.size != size / kNvfp4Elements * kNvfp4Bytes || (has_scale && stored.global_scale.size != sizeof(float)))
    return Status::kSizeMismatch;
  GlobalScale global;
  if (has_scale) std::memcpy(&global.value, stored.global_scale.data, sizeof(float));
  if (!is_usable(global.value)) return Status::kBadScale;
  auto* const out = arena.take<float>(size);
  if (arena.status() != Status::kOk) return arena.status();
  restore(uint8s(stored.data.data), size, global, out);
  x = out;
  return Status::kOk;
}

}  // namespace scalepoint::codecs
