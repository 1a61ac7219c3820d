#include "codecs/microscaled.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "arrays/min_max.h"
#include "codecs/fed_rows.h"
#include "codecs/microscales_loops.h"
#include "lanes/round.h"

namespace scalepoint::codecs {
namespace {

/// Numbers that follow from the size of a tile and from its form.
struct Form {
  uint64_t size = 0, blocks = 0, step = 0;
  bool has_nibbles = false;

  Status init(const Microscaled& codes, uint32_t rows, uint32_t columns) {
    if (!is_valid(codes.form)) return Status::kBadDType;
    size = uint64_t{rows} * columns;
    if (size == 0 || columns % codes.form.block != 0) return Status::kBadLayout;
    blocks = size / codes.form.block;
    has_nibbles = codes.form.element == Minifloat::kFloat4E2M1;
    step = std::min(size, kStepSize);
    return Status::kOk;
  }
  [[nodiscard]] uint64_t bytes_of(uint64_t elements) const { return has_nibbles ? elements / 2 : elements; }
};

/// The scale of the whole tensor, of the range of a tile.
GlobalScale global_of(const Tile& tile, const Microscaled& codes) {
  if (codes.global == GlobalScaleForm::kNone) return {};
  const float amax = std::max(std::fabs(tile.ranges[0].min), std::fabs(tile.ranges[0].max));
  return global_scale_of(amax, codes.global == GlobalScaleForm::kDivides);
}

/// Codes of 4 bits for rows with feedback.
class FedCodes final : public FedForm {
 public:
  FedCodes(const Microscaled& codes, size_t columns, const uint8_t* scales)
      : codes_(codes), columns_(columns), blocks_(columns / codes.form.block), scales_(scales) {}

  Status encode_plain(const Tile& tile, Arena& arena, Encoded& result) override { return encode(tile, codes_, arena, result); }
  Status restore(const Stored& stored, Arena& arena, const float*& y) override { return decode(stored, codes_, arena, y); }

  void write(size_t row, const uint8_t* places, std::byte* data, std::byte* scale, std::byte*) override {
    std::memcpy(scale + row * blocks_, scales_ + row * blocks_, blocks_);
    uint8_t* const to = uint8s(data) + row * columns_ / 2;
    for (size_t i = 0; i < columns_ / 2; i++) {
      to[i] = static_cast<uint8_t>(e2m1_code(places[2 * i]) | e2m1_code(places[2 * i + 1]) << 4);
    }
  }

 private:
  const Microscaled& codes_;
  size_t columns_, blocks_;
  const uint8_t* scales_;
};

}  // namespace

Status encode_with_feedback(const Tile& tile, const Microscaled& codes, const Moments& moments, Arena& arena,
                            Encoded& result) noexcept {
  Form form;
  if (const Status status = form.init(codes, tile.rows, tile.columns); status != Status::kOk) return status;
  if (!form.has_nibbles) return Status::kBadDType;
  if (codes.global != GlobalScaleForm::kNone && tile.ranges == nullptr) return Status::kBadLayout;
  auto* const scales = arena.take<uint8_t>(form.blocks);
  if (arena.status() != Status::kOk) return arena.status();
  MicroscaleGrid grid(codes.form, global_of(tile, codes), tile.columns / codes.form.block, scales);
  FedCodes fed(codes, tile.columns, scales);
  return encode_fed_rows(tile, fed, grid, moments, arena, result);
}

Status encode(const Tile& tile, const Microscaled& codes, Arena& arena, Encoded& result) noexcept {
  Form form;
  if (const Status status = form.init(codes, tile.rows, tile.columns); status != Status::kOk) return status;
  const bool has_global = codes.global != GlobalScaleForm::kNone;
  const bool reads = tile.wants(Role::kData) || tile.wants(Role::kScale);
  if (has_global && tile.ranges == nullptr) return Status::kBadLayout;
  if (reads) {
    if (const Status status = check(tile); status != Status::kOk) return status;
  }
  result = {};
  // Take all memory from the arena.
  const uint32_t block = codes.form.block;
  const uint64_t step = reads ? form.step : 0;
  Floats floats(tile, step, arena);
  auto* const made = arena.take<uint8_t>(step);
  auto* const scales = arena.take<uint8_t>(step / block);
  auto* const restored = arena.take<float>(tile.measure ? step : 0);
  auto* const weights = arena.take<float>(tile.importance != nullptr ? step : 0);
  std::byte* const data = take_part(tile, Role::kData, form.bytes_of(form.size), arena, result.data);
  std::byte* const scale = take_part(tile, Role::kScale, form.blocks, arena, result.scale);
  std::byte* const whole = take_part(tile, Role::kGlobalScale, sizeof(float), arena, result.global_scale);
  if (arena.status() != Status::kOk) return arena.status();

  const GlobalScale global = global_of(tile, codes);
  if (whole != nullptr) std::memcpy(whole, &global.value, sizeof(float));

  for (uint64_t at = 0; reads && at < form.size; at += step) {
    const auto n = static_cast<size_t>(std::min(step, form.size - at));
    const float* const x = floats.read(at, n);
    if (first_non_finite({x, n}) < n) {
      result.problem = floats.first_problem(at);
      return Status::kOk;
    }
    if (tile.importance != nullptr) {
      for (size_t i = 0; i < n;) {
        const auto column = static_cast<size_t>((at + i) % tile.columns);
        const size_t some = std::min<size_t>(n - i, tile.columns - column);
        std::copy_n(tile.importance + column, some, weights + i);
        i += some;
      }
    }
    const size_t blocks = n / block;
    make_microscales(codes.form, global, x, tile.importance != nullptr ? weights : nullptr, blocks, scales, made,
                     tile.measure ? restored : nullptr);
    if (tile.measure && data != nullptr) {
      measure(tile, at, x, restored, n, result.sums);
      // Rounding the largest numbers up can leave float32.
      if (result.sums.non_finite > 0) {
        const size_t worst = first_non_finite({restored, n});
        result.problem = {ProblemKind::kOverflow, at + worst, x[worst]};
        return Status::kOk;
      }
    }
    if (scale != nullptr) std::memcpy(scale + at / block, scales, blocks);
    if (data == nullptr) continue;
    if (form.has_nibbles) {
      loops::pack_nibbles(made, n, false, uint8s(data) + at / 2);
    } else {
      std::memcpy(data + at, made, n);
    }
  }
  return Status::kOk;
}

Status decode(const Stored& stored, const Microscaled& codes, Arena& arena, const float*& x) noexcept {
  Form form;
  if (const Status status = form.init(codes, stored.rows, stored.columns); status != Status::kOk) return status;
  if (stored.data.size != form.bytes_of(form.size) || stored.scale.size != form.blocks) return Status::kSizeMismatch;
  GlobalScale global;
  if (codes.global != GlobalScaleForm::kNone) {
    if (stored.global_scale.size != sizeof(float)) return Status::kSizeMismatch;
    std::memcpy(&global.value, stored.global_scale.data, sizeof(float));
    global.divides = codes.global == GlobalScaleForm::kDivides;
    if (!(global.value > 0) || !is_finite(global.value)) return Status::kBadScale;
  }
  const uint8_t* const scales = uint8s(stored.scale.data);
  const uint8_t wrong = codes.form.scale == MicroscaleType::kFloat8 ? 127 : 255;
  for (uint64_t i = 0; i < form.blocks; i++) {
    if (scales[i] >= wrong) return Status::kBadScale;
  }
  auto* const out = arena.take<float>(form.size);
  auto* const unpacked = arena.take<uint8_t>(form.has_nibbles ? form.step : 0);
  if (arena.status() != Status::kOk) return arena.status();
  for (uint64_t at = 0; at < form.size; at += form.step) {
    const auto n = static_cast<size_t>(std::min(form.step, form.size - at));
    const uint8_t* from = uint8s(stored.data.data) + form.bytes_of(at);
    if (form.has_nibbles) {
      loops::unpack_nibbles(from, n, false, unpacked);
      from = unpacked;
    }
    restore_microscales(codes.form, global, scales + at / codes.form.block, from, n / codes.form.block, out + at);
  }
  x = out;
  return Status::kOk;
}

}  // namespace scalepoint::codecs
