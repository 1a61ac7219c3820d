#include "codecs/mlc.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "arrays/min_max.h"
#include "arrays/minifloat_loops.h"
#include "arrays/pack_bits_loops.h"
#include "codecs/fed_rows.h"
#include "codecs/mlc_loops.h"
#include "codecs/scales.h"
#include "ggml/ggml_blocks.h"
#include "lanes/float16.h"
#include "lanes/round.h"
#include "ranges/range_weighted.h"

namespace scalepoint::codecs {
namespace {

/// Neighbors in a row that share a scale.
constexpr size_t kGroup = 32;
/// The code of 0, the largest code of MLC's rule, and the largest code.
constexpr int32_t kMiddle = 7, kRuleTop = 14, kTop = 15;
/// Bytes of the codes of a group, and of a block of Q4_0, which begins with its scale.
constexpr size_t kGroupBytes = kGroup / 2, kBlockBytes = 18;
/// Rounds of least squares. Codes change little after the first ones.
constexpr int kFitRounds = 4;

/// Numbers that follow from the size of a tile and from its codes.
struct MlcForm {
  const Mlc& codes;
  uint64_t size = 0, step = 0;

  Status init(uint32_t rows, uint32_t columns) {
    if (codes.floats != ElementType::kF16 && codes.floats != ElementType::kF32) return Status::kBadDType;
    size = uint64_t{rows} * columns;
    if (size == 0 || columns % kGroup != 0) return Status::kBadLayout;
    step = step_over(kGroup, size);
    return Status::kOk;
  }

  [[nodiscard]] ElementType scale_type() const { return is_half() ? ElementType::kF16 : ElementType::kBF16; }
  [[nodiscard]] bool is_half() const { return codes.floats == ElementType::kF16; }
  [[nodiscard]] uint64_t groups() const { return size / kGroup; }

  /// Rounds floats to the type that MLC computes in. `halves` holds n numbers.
  void round(float* x, size_t n, uint16_t* halves) const {
    if (is_half()) loops::round_to_float16(x, n, halves, x);
  }
  /// Restores a group.
  void restore(const uint8_t* made, float scale, float* y) const {
    uint16_t halves[kGroup];
    loops::restore_around_seven(made, kGroup, scale, y);
    round(y, kGroup, halves);
  }
};

/// A scale as it is stored.
float as_half(float scale) { return stored_scale(scale, ElementType::kF16); }
float as_bfloat(float scale) { return stored_scale(scale, ElementType::kBF16); }

/// The stored scale of a group with the least weighted error: 0 for zeros alone.
float weighted_scale(const MlcForm& form, const float* x, const float* weights) {
  if (std::all_of(x, x + kGroup, [](float v) { return v == 0; })) return 0;
  const WeightedGrid grid = {
      .qmin = -kMiddle, .qmax = kTop - kMiddle, .negative = true, .store = form.is_half() ? as_half : as_bfloat};
  return search_weighted_scale(x, weights, kGroup, grid).scale;
}

/// The codes nearest to the elements of a group.
void nearest_codes(const float* x, float scale, uint8_t* codes) {
  for (size_t i = 0; i < kGroup; i++) {
    const float code = (scale == 0 ? 0 : round_half_even(x[i] / scale)) + static_cast<float>(kMiddle);
    codes[i] = static_cast<uint8_t>(std::min(std::max(code, 0.0f), static_cast<float>(kTop)));
  }
}

/// Finds the scale and the codes of a group with the least squared error.
class ScaleSearch {
 public:
  /// Begins with what the rule makes: codes, which a better result replaces, and the stored scale.
  ScaleSearch(const MlcForm& form, const float* x, uint8_t* codes, float scale)
      : form_(form), x_(x), codes_(codes), scale_(scale) {
    error_ = error_of(codes, scale);
  }

  /// Tries ggml's block, and returns the best scale.
  float run(const std::byte* block) {
    uint8_t made[kGroup];
    uint16_t half = 0;
    std::memcpy(&half, block, sizeof(half));
    // Levels of Q4_0 are -8 to 7 times its scale. With the negative scale they are -7 to 8.
    const float scale = -float16_value(half);
    const uint8_t* const nibbles = uint8s(block) + sizeof(half);
    for (size_t i = 0; i < kGroup; i++) {
      const int32_t code = i < kGroupBytes ? nibbles[i] & 15 : nibbles[i - kGroupBytes] >> 4;
      made[i] = static_cast<uint8_t>(kTop - code);
    }
    if (form_.is_half()) {
      take(made, scale);
      return scale_;
    }
    uint8_t first[kGroup];
    std::copy_n(codes_, kGroup, first);
    fit(made);
    fit(first);
    return scale_;
  }

 private:
  double error_of(const uint8_t* codes, float scale) {
    float y[kGroup];
    form_.restore(codes, scale, y);
    double sum = 0;
    for (size_t i = 0; i < kGroup; i++) {
      const double off = static_cast<double>(x_[i]) - y[i];
      sum += off * off;
    }
    return sum;
  }

  void take(const uint8_t* codes, float scale) {
    if (scale == 0 || !std::isfinite(scale)) return;
    const double error = error_of(codes, scale);
    if (!(error < error_)) return;
    error_ = error;
    scale_ = scale;
    std::copy_n(codes, kGroup, codes_);
  }

  /// Takes the nearest codes for a scale, and returns them in `codes`.
  void try_scale(float scale, uint8_t* codes) {
    nearest_codes(x_, scale, codes);
    take(codes, scale);
  }

  /// Fits scales and codes to each other, beginning with codes.
  void fit(uint8_t* codes) {
    float before = 0;
    for (int round = 0; round < kFitRounds; round++) {
      double x_code = 0, code_code = 0;
      for (size_t i = 0; i < kGroup; i++) {
        const double code = codes[i] - kMiddle;
        x_code += x_[i] * code;
        code_code += code * code;
      }
      if (code_code == 0) return;
      const float scale = stored_scale(static_cast<float>(x_code / code_code), form_.scale_type());
      if (scale == before || scale == 0 || !std::isfinite(scale)) return;
      before = scale;
      // Codes for a neighbor of the fitted scale may suit better.
      uint8_t others[kGroup];
      for (const int32_t steps : {-1, 1}) {
        const float other = neighbor_scale(scale, form_.scale_type(), steps);
        if (other != 0 && std::isfinite(other)) try_scale(other, others);
      }
      try_scale(scale, codes);
    }
  }

  const MlcForm& form_;
  const float* x_;
  uint8_t* codes_;
  float scale_;
  double error_ = 0;
};

/// Goes through a tile step by step.
class MlcEncoder {
 public:
  MlcEncoder(const Tile& tile, const MlcForm& form, Arena& arena, Encoded& result)
      : tile_(tile), form_(form), result_(result), floats_(tile, form.step, arena) {
    const uint64_t groups = form.step / kGroup;
    min_ = arena.take<float>(groups);
    max_ = arena.take<float>(groups);
    scale_ = arena.take<float>(groups);
    rounded_ = arena.take<float>(form.step);
    quotient_ = arena.take<float>(form.step);
    halves_ = arena.take<uint16_t>(form.step);
    made_ = arena.take<uint8_t>(form.step);
    blocks_ = arena.take<std::byte>(form.codes.search ? groups * kBlockBytes : 0);
    data_ = take_part(tile, Role::kData, form.size / 2, arena, result.data);
    scales_ = take_part(tile, Role::kScale, form.groups() * sizeof(uint16_t), arena, result.scale);
  }

  Status run() {
    for (uint64_t at = 0; at < form_.size; at += form_.step) {
      const auto n = static_cast<size_t>(std::min(form_.step, form_.size - at));
      const float* const x = floats_.read(at, n);
      std::copy_n(x, n, rounded_);
      form_.round(rounded_, n, halves_);
      const Status status = observe_groups(x, n, at);
      if (status != Status::kOk || result_.problem.kind != ProblemKind::kNone) return status;
      // Without codes, scales of the rule follow from the ranges.
      if (data_ != nullptr || form_.codes.search) make_codes(n);
      const size_t groups = n / kGroup;
      for (size_t i = 0; i < groups; i++) scale_[i] = stored_scale(scale_[i], form_.scale_type());
      if (tile_.importance != nullptr)
        weigh(x, n, at);
      else if (form_.codes.search)
        improve(x, n);
      if (!store(x, n, at)) return Status::kOk;
    }
    return Status::kOk;
  }

 private:
  /// Finds the scales of the rule, or a problem.
  Status observe_groups(const float* x, size_t n, uint64_t at) {
    const size_t groups = n / kGroup;
    const Layout layout = {Granularity::kPerChannel, groups, kGroup, 1};
    clear_range({min_, groups}, {max_, groups});
    const Status status = scalepoint::observe({rounded_, n}, layout, 0, NonFinite::kError, {min_, groups}, {max_, groups});
    if (status == Status::kNonFinite) {
      result_.problem = floats_.first_problem(at);
      if (result_.problem.kind != ProblemKind::kNone) return Status::kOk;
      // A finite element is beyond the type.
      const size_t worst = first_non_finite({rounded_, n});
      result_.problem = {ProblemKind::kOverflow, at + worst, x[worst]};
      return Status::kOk;
    }
    if (status != Status::kOk) return status;
    for (size_t i = 0; i < groups; i++) {
      const float scale = std::max(std::fabs(min_[i]), std::fabs(max_[i])) / static_cast<float>(kMiddle);
      scale_[i] = form_.is_half() ? float16_value(float16_of(scale)) : scale;
    }
    return Status::kOk;
  }

  /// Makes the codes of the rule. Each operation is rounded.
  void make_codes(size_t n) {
    for (size_t i = 0; i < n; i += kGroup) loops::divide_by_scale(rounded_ + i, kGroup, &scale_[i / kGroup], true, quotient_ + i);
    form_.round(quotient_, n, halves_);
    loops::add_seven(quotient_, n);
    form_.round(quotient_, n, halves_);
    loops::round_to_codes(quotient_, n, kRuleTop, made_);
  }

  /// Replaces scales and codes by those with the least weighted errors. Columns without inputs all weigh alike.
  void weigh(const float* x, size_t n, uint64_t at) {
    for (size_t i = 0; i < n; i += kGroup) {
      const float* const weights = tile_.importance + (at + i) % tile_.columns;
      const bool is_seen = std::any_of(weights, weights + kGroup, [](float weight) { return weight > 0; });
      scale_[i / kGroup] = weighted_scale(form_, x + i, is_seen ? weights : nullptr);
      nearest_codes(x + i, scale_[i / kGroup], made_ + i);
    }
  }

  /// Replaces scales and codes where the error becomes smaller.
  void improve(const float* x, size_t n) {
    const size_t bytes = n / kGroup * kBlockBytes;
    // Elements that ggml's blocks cannot hold keep what the rule made.
    if (quantize_blocks({x, n}, BlockType::kQ4_0, {blocks_, bytes}, {}, BlockSearch::kBest) != Status::kOk) return;
    for (size_t i = 0; i < n / kGroup; i++) {
      ScaleSearch search(form_, x + i * kGroup, made_ + i * kGroup, scale_[i]);
      scale_[i] = search.run(blocks_ + i * kBlockBytes);
    }
  }

  /// Stores a step, and adds up its errors. False if a group cannot be restored.
  bool store(const float* x, size_t n, uint64_t at) {
    const size_t groups = n / kGroup;
    if (scales_ != nullptr) store_scales(scale_, groups, form_.scale_type(), scales_ + at / kGroup * sizeof(uint16_t));
    if (data_ == nullptr) return true;
    loops::pack_codes(made_, n, 4, loops::CodeForm::kUnsigned, uint8s(data_ + at / 2));
    for (size_t i = 0; i < groups; i++) {
      float* const restored = quotient_ + i * kGroup;
      form_.restore(made_ + i * kGroup, scale_[i], restored);
      for (size_t j = 0; j < kGroup; j++) {
        if (std::isfinite(restored[j])) continue;
        result_.problem = {ProblemKind::kOverflow, at + i * kGroup + j, x[i * kGroup + j]};
        return false;
      }
    }
    if (tile_.measure) measure(tile_, at, x, quotient_, n, result_.sums);
    return true;
  }

  const Tile& tile_;
  const MlcForm& form_;
  Encoded& result_;
  Floats floats_;
  /// Of the current step: ranges and scales of groups; elements rounded to the type; quotients, then restored elements; codes; ggml's blocks.
  float *min_, *max_, *scale_, *rounded_, *quotient_;
  uint16_t* halves_;
  uint8_t* made_;
  std::byte *blocks_, *data_, *scales_;
};

/// Codes of rows with feedback, and their scales.
class FedCodes final : public FeedbackGrid, public FedForm {
 public:
  FedCodes(const MlcForm& form, size_t columns, float* scales)
      : FeedbackGrid(kGroup), form_(form), columns_(columns), scales_(scales) {}

  bool choose(size_t row, size_t group, const float* x, const float* weights, size_t, RowGrid& grid) override {
    const float scale = scales_[row * columns_ / kGroup + group] = weighted_scale(form_, x, weights);
    // With a scale of 0 all codes mean the same.
    if (scale != 0) grid = {.scale = scale, .low = -kMiddle, .high = kTop - kMiddle};
    return std::isfinite(scale);
  }

  float rescale(size_t row, size_t group, float scale) override {
    return scales_[row * columns_ / kGroup + group] = stored_scale(scale, form_.scale_type());
  }

  Status encode_plain(const Tile& tile, Arena& arena, Encoded& result) override {
    return encode(tile, form_.codes, arena, result);
  }
  Status restore(const Stored& stored, Arena& arena, const float*& y) override { return decode(stored, form_.codes, arena, y); }

  void write(size_t row, const uint8_t* codes, std::byte* data, std::byte* scale, std::byte*) override {
    const size_t groups = columns_ / kGroup;
    loops::pack_codes(codes, columns_, 4, loops::CodeForm::kUnsigned, uint8s(data + row * columns_ / 2));
    store_scales(scales_ + row * groups, groups, form_.scale_type(), scale + row * groups * sizeof(uint16_t));
  }

 private:
  const MlcForm& form_;
  size_t columns_;
  float* scales_;
};

}  // namespace

Status encode_with_feedback(const Tile& tile, const Mlc& codes, const Moments& moments, Arena& arena, Encoded& result) noexcept {
  MlcForm form = {.codes = codes};
  if (const Status status = form.init(tile.rows, tile.columns); status != Status::kOk) return status;
  auto* const scales = arena.take<float>(form.groups());
  if (arena.status() != Status::kOk) return arena.status();
  FedCodes fed(form, tile.columns, scales);
  return encode_fed_rows(tile, fed, fed, moments, arena, result);
}

Status encode(const Tile& tile, const Mlc& codes, Arena& arena, Encoded& result) noexcept {
  MlcForm form = {.codes = codes};
  if (const Status status = form.init(tile.rows, tile.columns); status != Status::kOk) return status;
  if (const Status status = check(tile); status != Status::kOk) return status;
  if (tile.ranges != nullptr) return Status::kBadLayout;
  result = {};
  MlcEncoder encoder(tile, form, arena, result);
  return arena.status() == Status::kOk ? encoder.run() : arena.status();
}

Status decode(const Stored& stored, const Mlc& codes, Arena& arena, const float*& x) noexcept {
  MlcForm form = {.codes = codes};
  if (const Status status = form.init(stored.rows, stored.columns); status != Status::kOk) return status;
  if (stored.data.size != form.size / 2 || stored.scale.size != form.groups() * sizeof(uint16_t)) return Status::kSizeMismatch;
  auto* const out = arena.take<float>(form.size);
  auto* const scale = arena.take<float>(form.groups());
  if (arena.status() != Status::kOk) return arena.status();
  x = out;
  const auto groups = static_cast<size_t>(form.groups());
  load_scales(stored.scale.data, groups, form.scale_type(), scale);
  for (size_t i = 0; i < groups; i++) {
    if (!std::isfinite(scale[i])) return Status::kBadScale;
    uint8_t unpacked[kGroup];
    loops::unpack_codes(uint8s(stored.data.data + i * kGroupBytes), kGroup, 4, loops::CodeForm::kUnsigned, unpacked);
    form.restore(unpacked, scale[i], out + i * kGroup);
  }
  return Status::kOk;
}

}  // namespace scalepoint::codecs
