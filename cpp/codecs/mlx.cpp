#include "codecs/mlx.h"

#include <algorithm>
#include <cmath>

#include "arrays/min_max.h"
#include "arrays/pack_bits_loops.h"
#include "codecs/fed_rows.h"
#include "codecs/mlx_loops.h"
#include "codecs/scales.h"
#include "lanes/round.h"

namespace scalepoint::codecs {
namespace {

/// Smallest scale before the edge is fitted.
constexpr float kSmallestScale = 1e-7f;
/// Shares of the range that a search starts from.
constexpr float kShares[] = {1.0f, 0.9f, 0.8f, 0.7f, 0.55f};
/// Rounds of least squares for each of them. Codes change little after the first ones.
constexpr int kRounds = 4;
/// Shares of the range that the best search cuts off at either end.
constexpr float kCuts[] = {0.0f, 0.03f, 0.06f, 0.1f, 0.14f, 0.19f, 0.25f};
/// Largest error of a start of the best search that is followed, as a multiple of the least one so far.
constexpr float kHopeful = 1.5f;
/// Distances to the neighbors that the best search ends with.
constexpr int32_t kNeighbors[] = {0, -1, 1, -2, 2};

/// A scale and a bias.
struct Line {
  float scale = 0, bias = 0;
};

/// Numbers that follow from the size of a tile and from its codes.
struct Form {
  const Mlx& codes;
  uint64_t size = 0, columns = 0, step = 0;
  uint32_t scale_bytes = 0;

  Status init(uint32_t rows, uint32_t columns_of_tile) {
    if (codes.bits < 2 || codes.bits > 8 || codes.bits == 7) return Status::kBadDType;
    scale_bytes = scale_bytes_of(codes.scale);
    if (scale_bytes == 0) return Status::kBadDType;
    const uint32_t group = codes.group_size;
    columns = columns_of_tile;
    size = uint64_t{rows} * columns;
    if ((group != 32 && group != 64 && group != 128) || size == 0 || columns % group != 0) return Status::kBadLayout;
    step = step_over(group, size);
    return Status::kOk;
  }

  [[nodiscard]] uint64_t groups() const { return size / codes.group_size; }
  /// Bytes of n codes: whole words, because groups hold multiples of 32.
  [[nodiscard]] uint64_t data_bytes(uint64_t n) const { return n * static_cast<uint32_t>(codes.bits) / 8; }
  [[nodiscard]] int32_t levels() const { return (1 << codes.bits) - 1; }
  [[nodiscard]] bool converts() const { return scale_bytes == 2; }

  /// Numbers as they are stored.
  [[nodiscard]] Line stored(Line line) const {
    return {stored_scale(line.scale, codes.scale), stored_scale(line.bias, codes.scale)};
  }
};

/// The line of MLX's rule for a range.
Line line_of(float min, float max, float levels) {
  Line line = {std::max((max - min) / levels, kSmallestScale), 0};
  const bool from_min = std::fabs(min) > std::fabs(max);
  if (!from_min) line.scale = -line.scale;
  const float edge = from_min ? min : max, first = round_half_even(edge / line.scale);
  if (first != 0) line = {edge / first, edge};
  return line;
}

/// Finds the line of a group with the least weighted error, as it is stored.
class LineSearch {
 public:
  LineSearch(const Form& form, const float* x, const float* weights)
      : form_(form), x_(x), weights_(weights), levels_(static_cast<float>(form.levels())) {}

  Line run(float min, float max) {
    measure(form_.stored(line_of(min, max, levels_)));
    for (const float share : kShares) {
      const float cut = (max - min) * (1 - share) / 2, low = min + cut, width = (max - min) * share;
      descend(start(low, width), kRounds);
    }
    if (form_.codes.best) try_more(min, max);
    // Without a line that can be stored, that of the rule says what overflows.
    return best_.scale == 0 ? line_of(min, max, levels_) : best_;
  }

 private:
  /// The line of a range that begins at `low`.
  [[nodiscard]] Line start(float low, float width) const { return form_.stored(Line{width / levels_, low}); }

  /// Fits a line to its codes, several times.
  void descend(Line line, int rounds) {
    for (int round = 0; round < rounds; round++) {
      const loops::BiasedSums sums = measure(line);
      const double spread = double{sums.weight} * sums.code_code - double{sums.code} * sums.code;
      if (!(spread > 0)) break;
      const double slope = (double{sums.weight} * sums.x_code - double{sums.x} * sums.code) / spread;
      const Line fitted = through(sums, stored_scale(static_cast<float>(slope), form_.codes.scale));
      if (fitted.scale == line.scale && fitted.bias == line.bias) break;
      line = fitted;
      // A rounded scale may be worse than the one beside it.
      if (round > 0 || !form_.converts()) continue;
      for (const int32_t steps : {-1, 1}) measure(through(sums, neighbor_scale(line.scale, form_.codes.scale, steps)));
    }
    measure(line);
  }

  /// Follows more starts where they are hopeful, then tries neighbors of the best line.
  void try_more(float min, float max) {
    const float width = max - min;
    for (const float low : kCuts) {
      for (const float high : kCuts) {
        const Line line = start(min + width * low, width * (1 - low - high));
        if (measure(line).error < kHopeful * least_) descend(line, 2 * kRounds);
      }
    }
    if (!form_.converts()) return;
    const Line found = best_;
    const loops::BiasedSums sums = measure(found);
    for (const int32_t steps : kNeighbors) {
      const Line line = through(sums, neighbor_scale(found.scale, form_.codes.scale, steps));
      for (const int32_t more : kNeighbors) measure({line.scale, neighbor_scale(line.bias, form_.codes.scale, more)});
    }
  }

  /// The line with a scale through the center of the codes.
  [[nodiscard]] Line through(const loops::BiasedSums& sums, float scale) const {
    return {scale, stored_scale((sums.x - scale * sums.code) / sums.weight, form_.codes.scale)};
  }

  loops::BiasedSums measure(const Line& line) {
    if (line.scale == 0 || !std::isfinite(line.scale) || !std::isfinite(line.bias)) return {};
    const loops::BiasedSums sums = loops::sum_biased_codes(x_, weights_, form_.codes.group_size, line.scale, line.bias, levels_);
    if (sums.error < least_ || best_.scale == 0) {
      least_ = sums.error;
      best_ = line;
    }
    return sums;
  }

  const Form& form_;
  const float *x_, *weights_;
  float levels_;
  float least_ = INFINITY;
  Line best_;
};

/// Goes through a tile step by step.
class Encoder {
 public:
  Encoder(const Tile& tile, const Form& form, Arena& arena, Encoded& result)
      : tile_(tile), form_(form), result_(result), floats_(tile, form.step, arena) {
    const uint64_t groups = form.step / form.codes.group_size;
    const bool data = tile.wants(Role::kData);
    min_ = arena.take<float>(groups);
    max_ = arena.take<float>(groups);
    scale_ = arena.take<float>(groups);
    bias_ = arena.take<float>(groups);
    rounded_ = arena.take<float>(rounds() ? form.step : 0);
    halves_ = arena.take<std::byte>(rounds() ? form.step * 2 : 0);
    weights_ = arena.take<float>(form.codes.search ? form.codes.group_size : 0);
    made_ = arena.take<uint8_t>(data ? form.step : 0);
    restored_ = arena.take<float>(data && tile.measure ? form.step : 0);
    data_ = take_part(tile, Role::kData, form.data_bytes(form.size), arena, result.data);
    scales_ = take_part(tile, Role::kScale, form.groups() * form.scale_bytes, arena, result.scale);
    biases_ = take_part(tile, Role::kZeroPoint, form.groups() * form.scale_bytes, arena, result.zero_point);
  }

  Status run() {
    const size_t group = form_.codes.group_size;
    for (; at_ < form_.size; at_ += form_.step) {
      n_ = static_cast<size_t>(std::min(form_.step, form_.size - at_));
      x_ = floats_.read(at_, n_);
      const size_t groups = n_ / group;
      const Status status = observe_groups(groups);
      if (status != Status::kOk || has_problem()) return status;
      const float* const from = rounds() ? rounded_ : x_;
      for (size_t i = 0; i < groups; i++) {
        const Line line = choose(i, from + i * group);
        const Line stored = form_.stored(line);
        if (!std::isfinite(stored.scale) || !std::isfinite(stored.bias)) {
          overflow(i);
          return Status::kOk;
        }
        scale_[i] = stored.scale;
        bias_[i] = stored.bias;
        if (data_ != nullptr) {
          loops::make_biased_codes(from + i * group, group, line.scale, line.bias, form_.levels(), made_ + i * group);
        }
      }
      store(groups);
      if (has_problem()) return Status::kOk;
    }
    return Status::kOk;
  }

 private:
  /// True if elements are rounded to the type of the scales first.
  [[nodiscard]] bool rounds() const {
    return !form_.codes.search && form_.converts() && tile_.type != static_cast<int32_t>(form_.codes.scale);
  }
  [[nodiscard]] bool has_problem() const { return result_.problem.kind != ProblemKind::kNone; }

  /// Finds the ranges of groups, or a problem.
  Status observe_groups(size_t groups) {
    const float* from = x_;
    if (rounds()) {
      store_scales(x_, n_, form_.codes.scale, halves_);
      load_scales(halves_, n_, form_.codes.scale, rounded_);
      from = rounded_;
    }
    const Layout layout = {Granularity::kPerChannel, groups, form_.codes.group_size, 1};
    clear_range({min_, groups}, {max_, groups});
    const Status status = scalepoint::observe({from, n_}, layout, 0, NonFinite::kError, {min_, groups}, {max_, groups});
    if (status != Status::kNonFinite) return status;
    result_.problem = floats_.first_problem(at_);
    if (has_problem()) return Status::kOk;
    // A finite element is beyond the type of the scales.
    const size_t worst = first_non_finite({from, n_});
    result_.problem = {ProblemKind::kOverflow, at_ + worst, x_[worst]};
    return Status::kOk;
  }

  /// The line that makes the codes of a group.
  Line choose(size_t i, const float* x) {
    const size_t group = form_.codes.group_size;
    if (!form_.codes.search) return line_of(min_[i], max_[i], static_cast<float>(form_.levels()));
    float total = 0;
    const size_t column = static_cast<size_t>((at_ + i * group) % form_.columns);
    for (size_t j = 0; tile_.importance != nullptr && j < group; j++) total += weights_[j] = tile_.importance[column + j];
    // Weigh all elements alike without inputs, so that restored values stay close.
    if (!(total > 0)) std::fill_n(weights_, group, 1.0f);
    return LineSearch(form_, x, weights_).run(min_[i], max_[i]);
  }

  /// Reports that the scale or the bias of a group is beyond its type.
  void overflow(size_t i) {
    const size_t group = form_.codes.group_size;
    size_t worst = i * group;
    for (size_t j = worst; j < (i + 1) * group; j++) {
      if (std::fabs(x_[j]) > std::fabs(x_[worst])) worst = j;
    }
    result_.problem = {ProblemKind::kOverflow, at_ + worst, x_[worst]};
    const Problem first = floats_.first_problem(at_);
    if (first.kind != ProblemKind::kNone) result_.problem = first;
  }

  /// Stores parameters and codes of a step, and adds up their errors.
  void store(size_t groups) {
    const size_t group = form_.codes.group_size;
    const uint64_t first = at_ / group * form_.scale_bytes;
    if (scales_ != nullptr) store_scales(scale_, groups, form_.codes.scale, scales_ + first);
    if (biases_ != nullptr) store_scales(bias_, groups, form_.codes.scale, biases_ + first);
    if (data_ == nullptr) return;
    loops::pack_codes(made_, n_, form_.codes.bits, loops::CodeForm::kUnsigned, uint8s(data_ + form_.data_bytes(at_)));
    if (!tile_.measure) return;
    for (size_t i = 0; i < groups; i++) {
      loops::restore_biased_codes(made_ + i * group, group, scale_[i], bias_[i], restored_ + i * group);
      for (size_t j = i * group; j < (i + 1) * group; j++) {
        if (std::isfinite(restored_[j])) continue;
        overflow(i);
        return;
      }
    }
    measure(tile_, at_, x_, restored_, n_, result_.sums);
  }

  const Tile& tile_;
  const Form& form_;
  Encoded& result_;
  Floats floats_;
  /// The current step: its first element, the number of its elements, and its floats.
  uint64_t at_ = 0;
  size_t n_ = 0;
  const float* x_ = nullptr;
  float *min_, *max_, *scale_, *bias_, *rounded_, *weights_, *restored_;
  std::byte* halves_;
  uint8_t* made_;
  std::byte *data_, *scales_, *biases_;
};

/// Codes of rows with feedback, and their lines.
class FedCodes final : public FeedbackGrid, public FedForm {
 public:
  FedCodes(const Form& form, Line* lines) : FeedbackGrid(form.codes.group_size), form_(form), lines_(lines) {}

  bool choose(size_t row, size_t group, const float* x, const float* weights, size_t n, RowGrid& grid) override {
    const auto [min, max] = std::minmax_element(x, x + n);
    Line& line = lines_[row * groups() + group] = form_.stored(LineSearch(form_, x, weights).run(*min, *max));
    grid.scale = line.scale;
    grid.high = static_cast<float>(form_.levels());
    grid.offset = -line.bias;
    return std::isfinite(line.scale) && std::isfinite(line.bias);
  }

  float rescale(size_t row, size_t group, float scale) override {
    return lines_[row * groups() + group].scale = stored_scale(scale, form_.codes.scale);
  }

  Status encode_plain(const Tile& tile, Arena& arena, Encoded& result) override {
    return encode(tile, form_.codes, arena, result);
  }
  Status restore(const Stored& stored, Arena& arena, const float*& y) override { return decode(stored, form_.codes, arena, y); }

  void write(size_t row, const uint8_t* codes, std::byte* data, std::byte* scale, std::byte* bias) override {
    loops::pack_codes(codes, form_.columns, form_.codes.bits, loops::CodeForm::kUnsigned,
                      uint8s(data + form_.data_bytes(row * form_.columns)));
    for (size_t i = row * groups(); i < (row + 1) * groups(); i++) {
      store_scales(&lines_[i].scale, 1, form_.codes.scale, scale + i * form_.scale_bytes);
      store_scales(&lines_[i].bias, 1, form_.codes.scale, bias + i * form_.scale_bytes);
    }
  }

 private:
  [[nodiscard]] size_t groups() const { return static_cast<size_t>(form_.columns / form_.codes.group_size); }

  const Form& form_;
  Line* lines_;
};

}  // namespace

Status encode_with_feedback(const Tile& tile, const Mlx& codes, const Moments& moments, Arena& arena, Encoded& result) noexcept {
  Form form = {.codes = codes};
  if (const Status status = form.init(tile.rows, tile.columns); status != Status::kOk) return status;
  auto* const lines = arena.take<Line>(form.groups());
  if (arena.status() != Status::kOk) return arena.status();
  FedCodes fed(form, lines);
  return encode_fed_rows(tile, fed, fed, moments, arena, result);
}

Status encode(const Tile& tile, const Mlx& codes, Arena& arena, Encoded& result) noexcept {
  Form form = {.codes = codes};
  if (const Status status = form.init(tile.rows, tile.columns); status != Status::kOk) return status;
  if (const Status status = check(tile); status != Status::kOk) return status;
  if (tile.ranges != nullptr) return Status::kBadLayout;
  result = {};
  Encoder encoder(tile, form, arena, result);
  return arena.status() == Status::kOk ? encoder.run() : arena.status();
}

Status decode(const Stored& stored, const Mlx& codes, Arena& arena, const float*& x) noexcept {
  Form form = {.codes = codes};
  if (const Status status = form.init(stored.rows, stored.columns); status != Status::kOk) return status;
  const uint64_t parameters = form.groups() * form.scale_bytes;
  if (stored.data.size != form.data_bytes(form.size) || stored.scale.size != parameters || stored.zero_point.size != parameters) {
    return Status::kSizeMismatch;
  }
  const size_t group = codes.group_size;
  const auto groups = static_cast<size_t>(form.groups());
  auto* const out = arena.take<float>(form.size);
  auto* const scale = arena.take<float>(groups);
  auto* const bias = arena.take<float>(groups);
  auto* const unpacked = arena.take<uint8_t>(group);
  if (arena.status() != Status::kOk) return arena.status();
  x = out;
  load_scales(stored.scale.data, groups, codes.scale, scale);
  load_scales(stored.zero_point.data, groups, codes.scale, bias);
  for (size_t i = 0; i < groups; i++) {
    if (!std::isfinite(scale[i]) || !std::isfinite(bias[i])) return Status::kBadScale;
    loops::unpack_codes(uint8s(stored.data.data + form.data_bytes(i * group)), group, codes.bits, loops::CodeForm::kUnsigned,
                        unpacked);
    loops::restore_biased_codes(unpacked, group, scale[i], bias[i], out + i * group);
  }
  return Status::kOk;
}

}  // namespace scalepoint::codecs
