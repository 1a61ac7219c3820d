#include "codecs/comfy.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "arrays/linear.h"
#include "arrays/metrics.h"
#include "arrays/min_max.h"
#include "arrays/minifloat.h"
#include "arrays/minifloat_loops.h"
#include "codecs/comfy_loops.h"
#include "codecs/elements.h"
#include "codecs/microscales.h"
#include "codecs/microscales_loops.h"
#include "ranges/range_search.h"

namespace scalepoint::codecs {
namespace {

constexpr Minifloat kFloat8 = Minifloat::kFloat8E4M3FN;
constexpr float kLargestFloat8 = 448, kLargestFloat4 = 6, kLargestInt8 = 127;
/// Most columns that are rotated together. Sums of as many codes are exact in float32.
constexpr uint32_t kMostRotated = 1 << 16;
constexpr QuantizationSpec kInt8Spec = {
    .dtype = {8, true}, .scheme = Scheme::kSymmetric, .symmetric_range = SymmetricRange::kFull, .rounding = Rounding::kFused};
constexpr Microscales kMxFloat8Form = {
    .element = kFloat8, .scale = MicroscaleType::kPowerOfTwoOrZero, .rule = MicroscaleRule::kCeiling, .block = 32};
constexpr Microscales kNvFloat4Form = {.element = Minifloat::kFloat4E2M1, .scale = MicroscaleType::kFloat8, .block = 16};

/// The largest scale by which `largest` stands for absmax without exceeding the floats. `factor` is multiplied first.
float scale_of(float absmax, float largest, float factor = 1) {
  if (absmax == 0) return 1;
  const float scale = absmax / (largest * factor);
  if (scale == 0) return 0x1p-149f;
  return std::isfinite(scale * factor * largest) ? scale : std::nextafter(scale, 0.0f);
}

/// Numbers that follow from the size of a tile and from its codes.
struct Form {
  const Comfy& codes;
  uint64_t rows = 0, columns = 0, size = 0;
  uint64_t group = 0;  ///< elements that share a scale; 0: all of a row, or of the tensor
  uint64_t groups = 0;
  uint64_t step = 0;  ///< elements

  Status init(uint32_t rows_of_tile, uint32_t columns_of_tile) {
    if (codes.kind < ComfyKind::kFloat8 || codes.kind > ComfyKind::kNvFloat4) return Status::kBadDType;
    rows = rows_of_tile;
    columns = columns_of_tile;
    size = rows * columns;
    group = has_groups() ? microscales().block : 0;
    if (size == 0 || (group != 0 && columns % group != 0)) return Status::kBadLayout;
    if (codes.rotation != 0 && !rotates()) return Status::kBadLayout;
    groups = group == 0 ? 0 : columns / group;
    step = is_whole() ? std::min(size, kStepSize) : step_over(columns, size);
    return Status::kOk;
  }

  /// True for columns that are rotated in groups of a size that is allowed.
  [[nodiscard]] bool rotates() const {
    const uint32_t n = codes.rotation;
    const bool is_power_of_4 = n >= 4 && n <= kMostRotated && (n & (n - 1)) == 0 && (n & 0x55555555u) != 0;
    return codes.kind == ComfyKind::kInt8 && is_power_of_4 && columns % n == 0;
  }
  /// True for one scale that all elements share.
  [[nodiscard]] bool is_whole() const { return codes.kind == ComfyKind::kFloat8 || codes.kind == ComfyKind::kFloat8E5M2; }
  [[nodiscard]] bool has_groups() const { return codes.kind == ComfyKind::kMxFloat8 || codes.kind == ComfyKind::kNvFloat4; }
  [[nodiscard]] bool has_tensor_scale() const { return is_whole() || codes.kind == ComfyKind::kNvFloat4; }
  /// The form of the kinds with groups.
  [[nodiscard]] Microscales microscales() const {
    if (codes.kind == ComfyKind::kMxFloat8) return kMxFloat8Form;
    Microscales form = kNvFloat4Form;
    form.search = codes.search;
    return form;
  }
  [[nodiscard]] uint64_t data_bytes(uint64_t elements) const {
    return codes.kind == ComfyKind::kNvFloat4 ? elements / 2 : elements;
  }
  [[nodiscard]] uint64_t scale_bytes() const {
    if (is_whole() || (codes.kind == ComfyKind::kInt8 && codes.one_scale)) return sizeof(float);
    return codes.kind == ComfyKind::kInt8 ? rows * sizeof(float) : group_scale_bytes(rows, groups);
  }
  [[nodiscard]] uint64_t global_bytes() const { return codes.kind == ComfyKind::kNvFloat4 ? sizeof(float) : 0; }
  [[nodiscard]] Layout row_layout(uint64_t n) const { return {Granularity::kPerChannel, n / columns, columns, 1}; }
};

/// Goes through a tile step by step.
class Encoder {
 public:
  Encoder(const Tile& tile, const Form& form, Arena& arena, Encoded& result)
      : tile_(tile), form_(form), result_(result), floats_(tile, form.step, arena) {
    const uint64_t step = form.step, lines = form.is_whole() ? 1 : step / form.columns;
    const uint64_t rows = form.codes.kind == ComfyKind::kInt8 ? lines : 0, searched = form.codes.search ? rows : 0;
    min_ = arena.take<float>(lines);
    max_ = arena.take<float>(lines);
    scale_ = arena.take<float>(rows);
    zero_point_ = arena.take<int32_t>(rows);
    other_scale_ = arena.take<float>(searched);
    other_zero_point_ = arena.take<int32_t>(searched);
    scratch_bytes_ = searched > 0 ? search_scratch_bytes(step, form.row_layout(step)) : 0;
    scratch_ = arena.take<std::byte>(scratch_bytes_);
    code_ = arena.take<uint8_t>(lines * form.groups);
    made_ = arena.take<uint8_t>(form.has_groups() ? step : 0);
    restored_ = arena.take<float>(step);
    data_ = take_part(tile, Role::kData, form.data_bytes(form.size), arena, result.data);
    scales_ = take_part(tile, Role::kScale, form.scale_bytes(), arena, result.scale);
    if (form.codes.kind == ComfyKind::kNvFloat4) {
      global_ = take_part(tile, Role::kGlobalScale, form.global_bytes(), arena, result.global_scale);
    }
  }

  Status run() {
    if (form_.has_tensor_scale()) {
      choose_tensor_scale();
      if (has_problem()) return Status::kOk;
      std::byte* const to = form_.is_whole() ? scales_ : global_;
      if (to != nullptr) std::memcpy(to, &tensor_scale_, sizeof(float));
    }
    if (form_.group != 0 && scales_ != nullptr) std::memset(scales_, 0, result_.scale.size);
    if (!reads()) return Status::kOk;
    for (at_ = 0; at_ < form_.size; at_ += form_.step) {
      n_ = static_cast<size_t>(std::min(form_.step, form_.size - at_));
      x_ = floats_.read(at_, n_);
      const Status status = form_.is_whole()                       ? store_floats()
                            : form_.codes.kind == ComfyKind::kInt8 ? store_rows()
                                                                   : store_groups();
      if (status != Status::kOk || has_problem()) return status;
    }
    return Status::kOk;
  }

 private:
  [[nodiscard]] bool has_problem() const { return result_.problem.kind != ProblemKind::kNone; }
  [[nodiscard]] bool reads() const { return tile_.wants(Role::kData) || (!form_.is_whole() && tile_.wants(Role::kScale)); }

  /// Makes the ranges of runs of the step, or finds a problem.
  Status observe(const Layout& layout, size_t runs) {
    clear_range({min_, runs}, {max_, runs});
    const Status status = scalepoint::observe({x_, n_}, layout, 0, NonFinite::kError, {min_, runs}, {max_, runs});
    if (status != Status::kNonFinite) return status;
    result_.problem = floats_.first_problem(at_);
    return Status::kOk;
  }
  [[nodiscard]] float absmax(size_t run) const { return std::max(std::fabs(min_[run]), std::fabs(max_[run])); }

  /// Chooses the scale of the tensor from its range, or from this tile if it is all there is.
  void choose_tensor_scale() {
    float largest = 0;
    if (tile_.ranges != nullptr) {
      largest = std::max(std::fabs(tile_.ranges->min), std::fabs(tile_.ranges->max));
    } else {
      for (at_ = 0; at_ < form_.size; at_ += form_.step) {
        n_ = static_cast<size_t>(std::min(form_.step, form_.size - at_));
        x_ = floats_.read(at_, n_);
        // The layout is that of one run, so that the status can only be that of a problem.
        static_cast<void>(observe({}, 1));
        if (has_problem()) return;
        largest = std::max(largest, absmax(0));
      }
    }
    tensor_scale_ = form_.is_whole() ? scale_of(largest, kLargestFloat8) : scale_of(largest, kLargestFloat4, kLargestFloat8);
  }

  /// Finds a value of the step that cannot be stored. Returns true if there is one.
  bool finds_problem() {
    if (first_non_finite({x_, n_}) == n_) return false;
    result_.problem = floats_.first_problem(at_);
    return true;
  }

  Status store_floats() {
    if (finds_problem()) return Status::kOk;
    const std::span<uint8_t> codes = {uint8s(data_) + at_, n_};
    const Status status = quantize_minifloat({x_, n_}, {}, 0, {&tensor_scale_, 1}, kFloat8, codes);
    if (status != Status::kOk || !tile_.measure) return status;
    const Status restored = dequantize_minifloat(codes, {}, 0, {&tensor_scale_, 1}, kFloat8, {restored_, n_});
    measure(tile_, at_, x_, restored_, n_, result_.sums);
    return restored;
  }

  Status store_rows() {
    const auto runs = static_cast<size_t>(n_ / form_.columns);
    const Layout layout = form_.row_layout(n_);
    if (const Status status = observe(layout, runs); status != Status::kOk || has_problem()) return status;
    for (size_t i = 0; i < runs; i++) {
      scale_[i] = scale_of(absmax(i), kLargestInt8);
      zero_point_[i] = 0;
    }
    // Search for better scales.
    if (form_.codes.search) {
      const std::span<float> other = {other_scale_, runs};
      const std::span<int32_t> other_zero = {other_zero_point_, runs};
      Status status = search_qparams({x_, n_}, layout, kInt8Spec, RangeMethod::kMse, 100,
                                     {scratch_, static_cast<size_t>(scratch_bytes_)}, other, other_zero);
      for (size_t i = 0; i < runs; i++) {
        if (absmax(i) == 0 || !std::isfinite(other_scale_[i] * 128)) other_scale_[i] = scale_[i];
      }
      if (status == Status::kOk) {
        status = take_better({x_, n_}, static_cast<size_t>(form_.columns), kInt8Spec.dtype, {scale_, runs}, {zero_point_, runs},
                             other, other_zero);
      }
      if (status != Status::kOk) return status;
    }
    if (scales_ != nullptr) std::memcpy(scales_ + at_ / form_.columns * sizeof(float), scale_, runs * sizeof(float));
    // Make the codes.
    if (data_ == nullptr) return Status::kOk;
    const std::span<std::byte> codes = {data_ + at_, n_};
    return tile_.measure ? quantize_linear_measured({x_, n_}, layout, 0, {scale_, runs}, {zero_point_, runs}, kInt8Spec, codes,
                                                    result_.sums)
                         : quantize_linear({x_, n_}, layout, 0, {scale_, runs}, {zero_point_, runs}, kInt8Spec, codes);
  }

  Status store_groups() {
    if (finds_problem()) return Status::kOk;
    const auto groups = static_cast<size_t>(n_ / form_.group);
    const bool is_float4 = form_.codes.kind == ComfyKind::kNvFloat4, is_measured = tile_.measure && data_ != nullptr;
    uint8_t* const made = is_float4 || data_ == nullptr ? made_ : uint8s(data_) + at_;
    make_microscales(form_.microscales(), {.value = tensor_scale_}, x_, nullptr, groups, code_, made,
                     is_measured ? restored_ : nullptr);
    for (size_t i = 0; scales_ != nullptr && i < groups; i++) {
      const uint64_t group = at_ / form_.group + i;
      uint8s(scales_)[group_scale_index(group / form_.groups, group % form_.groups, form_.groups)] = code_[i];
    }
    if (is_float4 && data_ != nullptr) loops::pack_nibbles(made, n_, true, uint8s(data_) + at_ / 2);
    if (!is_measured) return Status::kOk;
    measure(tile_, at_, x_, restored_, n_, result_.sums);
    // Rounding the largest numbers up can leave float32.
    if (result_.sums.non_finite > 0) {
      const size_t worst = first_non_finite({restored_, n_});
      result_.problem = {ProblemKind::kOverflow, at_ + worst, x_[worst]};
    }
    return Status::kOk;
  }

  const Tile& tile_;
  const Form& form_;
  Encoded& result_;
  Floats floats_;
  /// The current step: its first element, the number of its elements, its floats, and the numbers of its rows or groups.
  uint64_t at_ = 0;
  size_t n_ = 0;
  const float* x_ = nullptr;
  float tensor_scale_ = 1;
  float *min_, *max_, *scale_, *other_scale_;
  int32_t *zero_point_, *other_zero_point_;
  uint64_t scratch_bytes_;
  std::byte* scratch_;
  uint8_t *code_, *made_;
  float* restored_;
  std::byte *data_, *scales_, *global_ = nullptr;
};

/// The scale of a tensor, or NaN unless it is finite and positive.
float checked_scale(const std::byte* from) {
  float scale = 0;
  std::memcpy(&scale, from, sizeof(float));
  return scale > 0 && std::isfinite(scale) ? scale : std::nanf("");
}

}  // namespace

Status encode(const Tile& tile, const Comfy& codes, Arena& arena, Encoded& result) noexcept {
  Form form = {.codes = codes};
  if (const Status status = form.init(tile.rows, tile.columns); status != Status::kOk) return status;
  if (codes.kind == ComfyKind::kFloat8E5M2 || codes.rotation != 0) return Status::kBadDType;
  if (tile.ranges != nullptr && !form.has_tensor_scale()) return Status::kBadLayout;
  const bool reads = tile.ranges == nullptr || tile.wants(Role::kData) || (!form.is_whole() && tile.wants(Role::kScale));
  if (reads) {
    if (const Status status = check(tile); status != Status::kOk) return status;
  }
  result = {};
  Encoder encoder(tile, form, arena, result);
  return arena.status() == Status::kOk ? encoder.run() : arena.status();
}

Status decode(const Stored& stored, const Comfy& codes, Arena& arena, const float*& x) noexcept {
  Form form = {.codes = codes};
  if (const Status status = form.init(stored.rows, stored.columns); status != Status::kOk) return status;
  if (stored.data.size != form.data_bytes(form.size) || stored.scale.size != form.scale_bytes() ||
      stored.global_scale.size != form.global_bytes()) {
    return Status::kSizeMismatch;
  }
  const bool is_float4 = codes.kind == ComfyKind::kNvFloat4, is_int8 = codes.kind == ComfyKind::kInt8;
  const uint64_t scales = is_int8 ? form.rows : form.has_groups() ? 0 : 1, groups = form.rows * form.groups;
  auto* const out = arena.take<float>(form.size);
  auto* const scale = arena.take<float>(scales);
  auto* const code = arena.take<uint8_t>(groups);
  auto* const unpacked = arena.take<uint8_t>(is_float4 ? form.step : 0);
  auto* const zeros = arena.take<int32_t>(is_int8 ? scales : 0);
  auto* const ones = arena.take<float>(codes.rotation == 0 ? 0 : scales);
  if (arena.status() != Status::kOk) return arena.status();
  x = out;

  // Read the scales.
  for (uint64_t i = 0; i < scales; i++) {
    scale[i] = checked_scale(stored.scale.data + (codes.one_scale ? 0 : i * sizeof(float)));
    if (!(scale[i] > 0)) return Status::kBadScale;
  }
  const uint8_t not_a_scale = is_float4 ? 0x7F : 0xFF;
  for (uint64_t i = 0; i < groups; i++) {
    code[i] = uint8s(stored.scale.data)[group_scale_index(i / form.groups, i % form.groups, form.groups)];
    if (code[i] >= not_a_scale) return Status::kBadScale;
  }
  GlobalScale global;
  if (is_float4) {
    global.value = checked_scale(stored.global_scale.data);
    if (!(global.value > 0)) return Status::kBadScale;
  }

  // Restore the floats.
  if (is_int8) {
    const auto n = static_cast<size_t>(form.size), rows = static_cast<size_t>(scales);
    std::memset(zeros, 0, rows * sizeof(int32_t));
    std::fill_n(ones, codes.rotation == 0 ? 0 : rows, 1.0f);
    const float* const factors = codes.rotation == 0 ? scale : ones;
    const Status status = dequantize_linear({stored.data.data, n}, kInt8Spec.dtype, form.row_layout(form.size), 0,
                                            {factors, rows}, {zeros, rows}, {out, n});
    if (status != Status::kOk || codes.rotation == 0) return status;
    const float root = std::sqrt(static_cast<float>(codes.rotation));
    const auto columns = static_cast<size_t>(form.columns);
    for (size_t row = 0; row < rows; row++) {
      loops::unrotate(out + row * columns, columns, codes.rotation);
      scale[row] /= root;
      loops::multiply_by_scale(out + row * columns, columns, scale + row, true);
    }
    return Status::kOk;
  }
  for (uint64_t at = 0; at < form.size; at += form.step) {
    const auto n = static_cast<size_t>(std::min(form.step, form.size - at));
    const uint8_t* made = uint8s(stored.data.data) + form.data_bytes(at);
    if (form.has_groups()) {
      if (is_float4) {
        loops::unpack_nibbles(made, n, true, unpacked);
        made = unpacked;
      }
      restore_microscales(form.microscales(), global, code + at / form.group, made, static_cast<size_t>(n / form.group),
                          out + at);
    } else {
      loops::minifloat_to_float32(made, n, codes.kind == ComfyKind::kFloat8E5M2 ? Minifloat::kFloat8E5M2 : kFloat8, out + at);
      loops::multiply_by_scale(out + at, n, scale, true);
    }
  }
  return Status::kOk;
}

}  // namespace scalepoint::codecs
