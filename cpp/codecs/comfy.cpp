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
#include "ranges/range_search.h"

namespace scalepoint::codecs {
namespace {

constexpr Minifloat kFloat8 = Minifloat::kFloat8E4M3FN;
constexpr float kLargestFloat8 = 448, kLargestFloat4 = 6, kLargestInt8 = 127;
constexpr uint8_t kLargestFloat8Code = 0x7E;
/// Most columns that are rotated together. Sums of as many codes are exact in float32.
constexpr uint32_t kMostRotated = 1 << 16;
constexpr QuantizationSpec kInt8Spec = {
    .dtype = {8, true}, .scheme = Scheme::kSymmetric, .symmetric_range = SymmetricRange::kFull, .rounding = Rounding::kFused};
/// Searched scales of groups, as distances from the code of the usual one.
constexpr int32_t kNearby[] = {0, 1, -1, 2, -2, 3, -3, 4, 5, 6};

const uint8_t* uint8s(const std::byte* bytes) { return reinterpret_cast<const uint8_t*>(bytes); }
uint8_t* uint8s(std::byte* bytes) { return reinterpret_cast<uint8_t*>(bytes); }

/// The largest scale by which `largest` stands for absmax without exceeding the floats. `factor` is multiplied first.
float scale_of(float absmax, float largest, float factor = 1) {
  if (absmax == 0) return 1;
  const float scale = absmax / (largest * factor);
  if (scale == 0) return 0x1p-149f;
  return std::isfinite(scale * factor * largest) ? scale : std::nextafter(scale, 0.0f);
}

/// The byte of the smallest power of two, 2^(byte - 127), by which absmax comes down to 448.
uint8_t power_of(float absmax) {
  if (absmax == 0) return 0;
  int exponent = 0;
  const float fraction = std::frexp(absmax, &exponent);
  // 448 is 0.875 * 2^9.
  const int power = exponent - 9 + (fraction > 0.875f ? 1 : 0);
  return static_cast<uint8_t>(std::max(power + 127, 1));
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
    group = codes.kind == ComfyKind::kMxFloat8 ? 32 : codes.kind == ComfyKind::kNvFloat4 ? 16 : 0;
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
  [[nodiscard]] bool has_tensor_scale() const { return is_whole() || codes.kind == ComfyKind::kNvFloat4; }
  [[nodiscard]] Minifloat minifloat() const {
    return codes.kind == ComfyKind::kNvFloat4     ? Minifloat::kFloat4E2M1
           : codes.kind == ComfyKind::kFloat8E5M2 ? Minifloat::kFloat8E5M2
                                                  : kFloat8;
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
  [[nodiscard]] Layout group_layout(uint64_t n) const { return {Granularity::kPerChannel, n / group, group, 1}; }
};

/// Goes through a tile step by step.
class Encoder {
 public:
  Encoder(const Tile& tile, const Form& form, Arena& arena, Encoded& result)
      : tile_(tile), form_(form), result_(result), floats_(tile, form.step, arena) {
    const uint64_t step = form.step, lines = form.is_whole() ? 1 : step / form.columns;
    const uint64_t runs = form.group == 0 ? lines : lines * form.groups;
    const bool searches_rows = form.codes.search && form.codes.kind == ComfyKind::kInt8;
    min_ = arena.take<float>(runs);
    max_ = arena.take<float>(runs);
    scale_ = arena.take<float>(runs);
    zero_point_ = arena.take<int32_t>(runs);
    code_ = arena.take<uint8_t>(runs);
    tried_ = arena.take<uint8_t>(runs);
    best_ = arena.take<uint8_t>(runs);
    other_scale_ = arena.take<float>(runs);
    other_zero_point_ = arena.take<int32_t>(searches_rows ? runs : 0);
    error_ = arena.take<float>(runs);
    best_error_ = arena.take<float>(runs);
    scratch_bytes_ = searches_rows ? search_scratch_bytes(step, form.row_layout(step)) : 0;
    scratch_ = arena.take<std::byte>(scratch_bytes_);
    quotient_ = arena.take<float>(form.group == 0 ? 0 : step);
    made_ = arena.take<uint8_t>(step);
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

  /// Finds a problem of the step where the range of the tensor is known. Returns true if there is one.
  bool finds_problem() {
    if (tile_.ranges != nullptr) result_.problem = floats_.first_problem(at_);
    return has_problem();
  }

  Status store_floats() {
    if (first_non_finite({x_, n_}) < n_ && finds_problem()) return Status::kOk;
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

  /// Chooses the codes of the scales of float4 groups with the least errors.
  void search_groups(size_t runs) {
    for (size_t nearby = 0; nearby < std::size(kNearby); nearby++) {
      for (size_t i = 0; i < runs; i++) {
        tried_[i] = static_cast<uint8_t>(std::clamp<int32_t>(code_[i] + kNearby[nearby], 1, kLargestFloat8Code));
      }
      loops::minifloat_to_float32(tried_, runs, kFloat8, other_scale_);
      loops::multiply_by_scale(other_scale_, runs, &tensor_scale_, true);
      // A product of 0 would divide by 0.
      for (size_t i = 0; i < runs; i++) {
        if (other_scale_[i] == 0) other_scale_[i] = 0x1p-149f;
      }
      loops::float4_group_errors(x_, runs, other_scale_, error_);
      for (size_t i = 0; i < runs; i++) {
        if (nearby > 0 && !(error_[i] < best_error_[i])) continue;
        best_error_[i] = error_[i];
        best_[i] = tried_[i];
      }
    }
    for (size_t i = 0; i < runs; i++) {
      if (absmax(i) != 0) code_[i] = best_[i];
    }
  }

  Status store_groups() {
    const auto runs = static_cast<size_t>(n_ / form_.group);
    const auto group = static_cast<size_t>(form_.group);
    const bool is_float4 = form_.codes.kind == ComfyKind::kNvFloat4;
    const Layout layout = form_.group_layout(n_);
    if (const Status status = observe(layout, runs); status != Status::kOk || has_problem()) return status;
    // Choose the scales, as they are stored.
    if (is_float4) {
      for (size_t i = 0; i < runs; i++) scale_[i] = std::min(absmax(i) / kLargestFloat4 / tensor_scale_, kLargestFloat8);
      loops::float32_to_minifloat(scale_, runs, kFloat8, Overflow::kSaturate, code_);
      if (form_.codes.search) search_groups(runs);
      loops::minifloat_to_float32(code_, runs, kFloat8, scale_);
      loops::multiply_by_scale(scale_, runs, &tensor_scale_, true);
    } else {
      for (size_t i = 0; i < runs; i++) {
        code_[i] = power_of(absmax(i));
        scale_[i] = code_[i] == 0 ? 0 : std::ldexp(1.0f, code_[i] - 127);
      }
    }
    for (size_t i = 0; scales_ != nullptr && i < runs; i++) {
      const uint64_t run = at_ / form_.group + i;
      uint8s(scales_)[group_scale_index(run / form_.groups, run % form_.groups, form_.groups)] = code_[i];
    }
    // Make the codes. Those of a group without a scale are 0.
    if (data_ == nullptr) return Status::kOk;
    for (size_t i = 0; i < runs; i++) {
      if (scale_[i] > 0) {
        loops::divide_by_scale(x_ + i * group, group, scale_ + i, true, quotient_ + i * group);
      } else {
        std::memset(quotient_ + i * group, 0, group * sizeof(float));
      }
    }
    uint8_t* const made = is_float4 ? made_ : uint8s(data_) + at_;
    loops::float32_to_minifloat(quotient_, n_, form_.minifloat(), Overflow::kSaturate, made);
    if (tile_.measure) {
      loops::minifloat_to_float32(made, n_, form_.minifloat(), restored_);
      for (size_t i = 0; i < runs; i++) loops::multiply_by_scale(restored_ + i * group, group, scale_ + i, true);
      measure(tile_, at_, x_, restored_, n_, result_.sums);
    }
    uint8_t* const pairs = uint8s(data_) + at_ / 2;
    for (size_t i = 0; is_float4 && i < n_ / 2; i++) pairs[i] = static_cast<uint8_t>(made[2 * i] << 4 | made[2 * i + 1]);
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
  float *min_, *max_, *scale_, *other_scale_, *error_, *best_error_;
  int32_t *zero_point_, *other_zero_point_;
  uint8_t *code_, *tried_, *best_;
  uint64_t scratch_bytes_;
  std::byte* scratch_;
  float *quotient_, *restored_;
  uint8_t* made_;
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
  const uint64_t runs = is_int8 ? form.rows : form.group == 0 ? 1 : form.rows * form.groups;
  auto* const out = arena.take<float>(form.size);
  auto* const scale = arena.take<float>(runs);
  auto* const code = arena.take<uint8_t>(form.group == 0 ? 0 : runs);
  auto* const unpacked = arena.take<uint8_t>(is_float4 ? form.step : 0);
  auto* const zeros = arena.take<int32_t>(is_int8 ? runs : 0);
  auto* const ones = arena.take<float>(codes.rotation == 0 ? 0 : runs);
  if (arena.status() != Status::kOk) return arena.status();
  x = out;

  // Read the scales.
  if (form.group == 0) {
    for (uint64_t i = 0; i < runs; i++) {
      scale[i] = checked_scale(stored.scale.data + (codes.one_scale ? 0 : i * sizeof(float)));
      if (!(scale[i] > 0)) return Status::kBadScale;
    }
  } else {
    for (uint64_t row = 0; row < form.rows; row++) {
      for (uint64_t group = 0; group < form.groups; group++) {
        code[row * form.groups + group] = uint8s(stored.scale.data)[group_scale_index(row, group, form.groups)];
      }
    }
    if (is_float4) {
      const float tensor_scale = checked_scale(stored.global_scale.data);
      if (!(tensor_scale > 0)) return Status::kBadScale;
      for (uint64_t i = 0; i < runs; i++) {
        if (code[i] > kLargestFloat8Code) return Status::kBadScale;
      }
      loops::minifloat_to_float32(code, static_cast<size_t>(runs), kFloat8, scale);
      loops::multiply_by_scale(scale, static_cast<size_t>(runs), &tensor_scale, true);
    } else {
      for (uint64_t i = 0; i < runs; i++) {
        if (code[i] == 0xFF) return Status::kBadScale;
        scale[i] = code[i] == 0 ? 0 : std::ldexp(1.0f, code[i] - 127);
      }
    }
  }

  // Restore the floats.
  if (is_int8) {
    const auto n = static_cast<size_t>(form.size), rows = static_cast<size_t>(runs);
    std::memset(zeros, 0, rows * sizeof(int32_t));
    std::fill_n(ones, codes.rotation == 0 ? 0 : rows, 1.0f);
    const float* const factors = codes.rotation == 0 ? scale : ones;
    const Status status = dequantize_linear({stored.data.data, n}, kInt8Spec.dtype, form.row_layout(form.size), 0, {factors, rows},
                                            {zeros, rows}, {out, n});
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
    for (size_t i = 0; is_float4 && i < n / 2; i++) {
      unpacked[2 * i] = made[i] >> 4;
      unpacked[2 * i + 1] = made[i] & 15;
    }
    loops::minifloat_to_float32(is_float4 ? unpacked : made, n, form.minifloat(), out + at);
    if (form.group == 0) {
      loops::multiply_by_scale(out + at, n, scale, true);
      continue;
    }
    const auto group = static_cast<size_t>(form.group);
    for (size_t i = 0; i < n; i += group) loops::multiply_by_scale(out + at + i, group, scale + (at + i) / group, true);
  }
  return Status::kOk;
}

}  // namespace scalepoint::codecs
