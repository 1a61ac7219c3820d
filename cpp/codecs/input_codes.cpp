#include "codecs/input_codes.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "arrays/minifloat_loops.h"
#include "calibration/feedback.h"
#include "calibration/output_error.h"
#include "codecs/block_codes.h"
#include "codecs/block_codes_loops.h"
#include "codecs/block_fit.h"
#include "codecs/output_judge.h"
#include "ranges/range_search.h"
#include "ranges/range_weighted.h"
#include "ranges/range_weighted_loops.h"

namespace scalepoint::codecs {
namespace {

float as_half(float x) { return stored_scale(x, ElementType::kF16); }
float as_brain(float x) {
  uint16_t bits = 0;
  loops::float32_to_bfloat16(&x, 1, &bits);
  loops::bfloat16_to_float32(&bits, 1, &x);
  return x;
}

/// Shares of the whole range that float zero points begin with.
constexpr float kShares[] = {1.0f, 0.9f, 0.8f, 0.7f};

/// Codes with a scale and a float zero point for each group.
class FloatZeroGrid final : public FeedbackGrid {
 public:
  FloatZeroGrid(const InputMatrix& matrix, float* scales, float* zero_points)
      : FeedbackGrid(matrix.group_size), matrix_(matrix), scales_(scales), zero_points_(zero_points) {}

  bool choose(size_t row, size_t group, const float* x, const float* weights, size_t n, RowGrid& grid) override {
    const auto levels = static_cast<float>((1 << matrix_.bits) - 1);
    const auto [min, max] = std::minmax_element(x, x + n);
    BlockScale best = {.scale = 1, .reciprocal = 1, .zero_point = 0};
    double least = INFINITY;
    const auto measure = [&](const BlockScale& block) {
      const float offset = block.scale * block.zero_point;
      if (block.scale == 0 || !std::isfinite(block.reciprocal) || !std::isfinite(offset)) return;
      for (size_t i = 0; i < n; i++) moved_[i] = x[i] + offset;
      const double error = loops::sum_weighted_codes(moved_, weights, n, block.scale, block.reciprocal, 0, levels).error;
      if (!(error < least)) return;
      least = error;
      best = block;
    };
    for (const float share : kShares) {
      const float cut = (*max - *min) * (1 - share) / 2;
      measure(choose_float_block(*min + cut, *max - cut, levels, matrix_.scale));
    }
    const WeightedLine line = search_weighted_line(x, weights, n, levels, false, nullptr);
    BlockScale fitted;
    set_scale(fitted, line.scale, matrix_.scale);
    fitted.zero_point = fitted.scale == 0 ? 0 : stored_scale(-line.low * fitted.reciprocal, matrix_.scale);
    measure(fitted);
    grid.scale = best.scale;
    grid.high = levels;
    grid.offset = best.scale * best.zero_point;
    scales_[row * matrix_.groups() + group] = best.scale;
    zero_points_[row * matrix_.groups() + group] = best.zero_point;
    return true;
  }

 private:
  const InputMatrix& matrix_;
  float *scales_, *zero_points_;
  float moved_[kMostLine];
};

/// Codes with given scales and zero points.
class GivenGrid final : public FeedbackGrid {
 public:
  GivenGrid(const InputMatrix& matrix, const InputCodes& made) : FeedbackGrid(matrix.group_size), matrix_(matrix), made_(made) {}

  bool choose(size_t row, size_t group, const float*, const float*, size_t, RowGrid& grid) override {
    const size_t set = row * matrix_.groups() + group;
    grid.scale = made_.scales[set] = matrix_.given_scales[set];
    const float zero_point = made_.zero_points[set] = matrix_.given_zero_points[set];
    grid.low = -zero_point;
    grid.high = static_cast<float>((1 << matrix_.bits) - 1) - zero_point;
    return true;
  }

 private:
  const InputMatrix& matrix_;
  const InputCodes made_;
};

/// Calls f with the grid of a matrix, which stores scales and zero points.
template <class F>
auto with_grid(const InputMatrix& matrix, const InputCodes& made, F f) {
  if (matrix.given_scales != nullptr) {
    GivenGrid grid(matrix, made);
    return f(grid);
  }
  if (matrix.float_zero_points) {
    FloatZeroGrid grid(matrix, made.scales, made.zero_points);
    return f(grid);
  }
  const WeightedGrid codes = {
      .qmin = 0,
      .qmax = static_cast<float>((1 << matrix.bits) - 1),
      .asymmetric = !matrix.symmetric,
      .zero_point = static_cast<float>(1 << (matrix.bits - 1)),
      .negative = matrix.symmetric && matrix.negative,
      .store = matrix.scale == ElementType::kF16    ? as_half
               : matrix.scale == ElementType::kBF16 ? as_brain
                                                    : nullptr,
  };
  LinearFeedbackGrid grid(codes, matrix.group_size, matrix.groups(), true, made.scales, made.zero_points);
  return f(grid);
}

/// Scales and zero points of the search for the least weighted error. It takes longer than that of a grid, and knows its bounds.
class ProvenSearch {
 public:
  ProvenSearch(const InputMatrix& matrix, Arena& arena)
      : matrix_(matrix),
        is_used_(!matrix.float_zero_points && matrix.given_scales == nullptr),
        layout_{Granularity::kPerGroup, matrix.columns, 1, matrix.group()} {
    const size_t sets = is_used_ ? matrix.sets() : 0;
    scales_ = arena.take<float>(sets);
    zero_points_ = arena.take<int32_t>(sets);
    const uint64_t bytes = is_used_ ? search_scratch_bytes(matrix.size(), layout_, true) : 0;
    scratch_ = {arena.take<std::byte>(bytes), static_cast<size_t>(bytes)};
  }

  Status run(std::span<const float> w) {
    if (!is_used_ || w.empty()) return Status::kOk;
    const QuantizationSpec spec = {.dtype = {matrix_.bits, false},
                                   .scheme = matrix_.symmetric ? Scheme::kSymmetric : Scheme::kAsymmetric,
                                   .symmetric_range = SymmetricRange::kFull};
    return search_qparams(w, layout_, spec, RangeMethod::kMse, 100, scratch_, {scales_, matrix_.sets()},
                          {zero_points_, matrix_.sets()}, {matrix_.importance, matrix_.columns});
  }

  /// Takes the result for a set, as it is stored, if it has a smaller error than that of the grid.
  void take_better(size_t set, const float* x, const float* weights, size_t n, RowGrid& grid, const InputCodes& made) const {
    if (!is_used_) return;
    const float scale = stored(scales_[set]), inverse = 1 / scale, highest = grid.high - grid.low;
    const auto zero_point = static_cast<float>(zero_points_[set]);
    if (!(scale > 0) || !std::isfinite(scale) || !std::isfinite(inverse)) return;
    const auto error_of = [&](float s, float low) {
      return loops::sum_weighted_codes(x, weights, n, s, 1 / s, low, low + highest).error;
    };
    if (!(error_of(scale, -zero_point) < error_of(grid.scale, grid.low))) return;
    grid.scale = scale;
    grid.low = -zero_point;
    grid.high = highest - zero_point;
    made.scales[set] = scale;
    made.zero_points[set] = zero_point;
  }

 private:
  [[nodiscard]] float stored(float scale) const {
    if (matrix_.scale == ElementType::kF16) return as_half(scale);
    return matrix_.scale == ElementType::kBF16 ? as_brain(scale) : scale;
  }

  const InputMatrix& matrix_;
  bool is_used_;
  Layout layout_;
  float* scales_;
  int32_t* zero_points_;
  std::span<std::byte> scratch_;
};

/// Rounds each weight to the nearest.
void round_matrix(const float* w, const InputMatrix& matrix, const ProvenSearch& proven, const InputCodes& made) {
  with_grid(matrix, made, [&](FeedbackGrid& grid) {
    const float* x = w;
    uint8_t* codes = made.codes;
    for (size_t row = 0; row < matrix.rows; row++) {
      for (size_t first = 0, group = 0; first < matrix.columns; first += matrix.group(), group++) {
        const size_t n = std::min(matrix.group(), matrix.columns - first);
        RowGrid chosen;
        (void)grid.choose(row, group, x, matrix.importance + first, n, chosen);
        proven.take_better(row * matrix.groups() + group, x, matrix.importance + first, n, chosen, made);
        const float inverse = 1 / chosen.scale;
        for (size_t i = 0; i < n; i++) {
          const float code = std::nearbyint((x[i] + chosen.offset) * inverse);
          codes[i] = static_cast<uint8_t>(std::min(std::max(code, chosen.low), chosen.high) - chosen.low);
        }
        x += n;
        codes += n;
      }
    }
  });
}

/// The values of codes.
void restore(const InputMatrix& matrix, const InputCodes& made, float* y) {
  for (size_t row = 0, at = 0; row < matrix.rows; row++) {
    for (size_t i = 0; i < matrix.columns; i++, at++) {
      const size_t set = row * matrix.groups() + i / matrix.group();
      y[at] = (static_cast<float>(made.codes[at]) - made.zero_points[set]) * made.scales[set];
    }
  }
}

InputCodes take_codes(const InputMatrix& matrix, Arena& arena) {
  return {arena.take<uint8_t>(matrix.size()), arena.take<float>(matrix.sets()), arena.take<float>(matrix.sets())};
}

/// Adds up the errors of the weights.
void measure_weights(const float* w, const float* y, const InputMatrix& matrix, ErrorSums& sums) {
  Tile tile;
  tile.columns = static_cast<uint32_t>(matrix.columns);
  tile.importance = matrix.importance;
  const uint64_t step = step_over(matrix.columns, matrix.size());
  for (uint64_t at = 0; at < matrix.size(); at += step) {
    measure(tile, at, w + at, y + at, static_cast<size_t>(std::min<uint64_t>(step, matrix.size() - at)), sums);
  }
}

/// Memory of the codes with feedback.
struct FeedbackRoom {
  InputCodes made;
  OutputJudge judge;
  std::span<float> scratch;

  FeedbackRoom(std::span<const float> w, const InputMatrix& matrix, Arena& arena)
      : made(take_codes(matrix, arena)), judge(w, matrix.columns, *matrix.moments, arena) {
    const size_t size = with_grid(
        matrix, made, [&](const FeedbackGrid& grid) { return feedback_scratch_size(matrix.rows, matrix.columns, grid); });
    scratch = {arena.take<float>(size), size};
  }
};

/// Replaces the codes of the rows whose outputs get better by passing errors on.
/// @param y memory for restored values, which holds those of `plain`
Status pass_errors_on(std::span<const float> w, const InputMatrix& matrix, FeedbackRoom& room, const InputCodes& plain,
                      float* y) {
  const Moments& moments = *matrix.moments;
  const size_t columns = matrix.columns, groups = matrix.groups();
  room.judge.judge_plain(y);
  const Status status = with_grid(matrix, room.made, [&](FeedbackGrid& grid) {
    const std::span<uint8_t> codes = {room.made.codes, w.size()};
    const Status fed = quantize_with_feedback(w, columns, grid, {moments.feedback, columns * columns}, {moments.weights, columns},
                                              room.scratch, codes, {moments.order, moments.order == nullptr ? 0 : columns});
    if (fed != Status::kOk) return fed;
    for (const bool refined : {false, true}) {
      if (refined) {
        const Status done =
            refine_codes(w, columns, grid, {moments.moments, columns * columns}, moments.damping, room.scratch, codes);
        if (done != Status::kOk) return done;
      }
      restore(matrix, room.made, y);
      room.judge.judge_fed(y);
      for (size_t row = 0; row < matrix.rows; row++) {
        if (!room.judge.is_fed(row)) continue;
        std::copy_n(room.made.codes + row * columns, columns, plain.codes + row * columns);
        std::copy_n(room.made.scales + row * groups, groups, plain.scales + row * groups);
        std::copy_n(room.made.zero_points + row * groups, groups, plain.zero_points + row * groups);
      }
    }
    return Status::kOk;
  });
  // Weights that leave float32 on the way keep their codes.
  if (status != Status::kOk) return status == Status::kOverflow ? Status::kOk : status;
  restore(matrix, plain, y);
  return Status::kOk;
}

}  // namespace

Status make_input_codes(std::span<const float> w, const InputMatrix& matrix, Arena& arena, InputCodes& result,
                        ErrorSums* sums) noexcept {
  if (matrix.float_zero_points && matrix.group() > kMostLine) return Status::kBadLayout;
  result = take_codes(matrix, arena);
  auto* const y = arena.take<float>(matrix.size());
  ProvenSearch proven(matrix, arena);
  if (matrix.moments == nullptr) {
    if (arena.status() != Status::kOk) return arena.status();
    if (const Status status = proven.run(w); status != Status::kOk) return status;
    round_matrix(w.data(), matrix, proven, result);
    if (sums == nullptr) return Status::kOk;
    restore(matrix, result, y);
    measure_weights(w.data(), y, matrix, *sums);
    return Status::kOk;
  }
  FeedbackRoom room(w, matrix, arena);
  if (arena.status() != Status::kOk) return arena.status();
  if (const Status status = proven.run(w); status != Status::kOk) return status;
  round_matrix(w.data(), matrix, proven, result);
  restore(matrix, result, y);
  if (const Status status = pass_errors_on(w, matrix, room, result, y); status != Status::kOk) return status;
  ErrorSums found;
  if (!room.judge.put(found)) return Status::kNonFinite;
  if (sums == nullptr) return Status::kOk;
  measure_weights(w.data(), y, matrix, found);
  *sums = found;
  return Status::kOk;
}

Status sum_output_errors(std::span<const float> w, const float* y, size_t columns, const float* moments, Arena& arena,
                         ErrorSums& sums) noexcept {
  if (columns == 0 || w.size() % columns != 0) return Status::kBadLayout;
  const size_t rows = w.size() / columns, size = output_error_scratch_size(columns);
  const std::span<double> errors(arena.take<double>(rows), rows);
  const std::span<float> scratch(arena.take<float>(size), size);
  if (arena.status() != Status::kOk) return arena.status();
  const auto sum_of = [&](const float* values) {
    output_errors(w, values, columns, {moments, columns * columns}, scratch, errors);
    return std::accumulate(errors.begin(), errors.end(), 0.0);
  };
  const double error = sum_of(y);
  sums.output_x += sum_of(nullptr);
  sums.output_before += error;
  sums.output_error += error;
  return Status::kOk;
}

Status take_input_rows(const Tile& tile, bool turned, Arena& arena, const float*& w) noexcept {
  const float* x = nullptr;
  const Status status = decode(tile, arena, x);
  w = x;
  if (status != Status::kOk || !turned) return status;
  auto* const columns = arena.take<float>(tile.size());
  if (arena.status() != Status::kOk) return arena.status();
  loops::gather_columns(x, tile.rows, tile.columns, tile.columns, columns, tile.rows);
  w = columns;
  return Status::kOk;
}

}  // namespace scalepoint::codecs
