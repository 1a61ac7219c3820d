#include "codecs/compressed_tensors.h"

#include <cassert>
#include <cmath>
#include <cstring>
#include <numeric>

#include "arrays/linear.h"
#include "arrays/metrics.h"
#include "arrays/metrics_loops.h"
#include "arrays/min_max.h"
#include "arrays/minifloat.h"
#include "arrays/pack_bits.h"
#include "arrays/pack_bits_loops.h"
#include "codecs/gptq_loops.h"
#include "codecs/input_codes.h"
#include "codecs/scales.h"

namespace scalepoint::codecs {
namespace {

constexpr Minifloat kFloat8 = Minifloat::kFloat8E4M3FN;
constexpr double kLargestFloat8 = 448;
constexpr loops::CodeForm kOffsetBinary = loops::CodeForm::kOffsetBinary;

// -------------------------------------------------------------------------------------------------------------------- forms

/// Scales as they are stored. Those of 16 bits have to be converted.
struct ScaleType {
  ElementType type;
  uint32_t bytes;
  float epsilon;   ///< from 1 to the next number
  float smallest;  ///< above 0

  [[nodiscard]] bool converts() const { return bytes == 2; }
};
constexpr ScaleType kScaleTypes[] = {{ElementType::kF32, 4, 0x1p-23f, 0x1p-149f},
                                     {ElementType::kF16, 2, 0x1p-10f, 0x1p-24f},
                                     {ElementType::kBF16, 2, 0x1p-7f, 0x1p-133f}};

/// Numbers that follow from the size of a tile and from its codes.
struct Form {
  const CompressedTensors& codes;
  ScaleType scale = {};
  uint64_t size = 0, rows = 0, columns = 0;
  uint64_t run_size = 0, runs_per_row = 0;
  uint64_t codes_per_word = 1;  ///< codes after which the next one begins a word; 1 if they are not packed
  uint64_t step = 0;            ///< elements

  Status init(uint32_t rows_of_tile, uint32_t columns_of_tile) {
    for (const ScaleType& type : kScaleTypes) {
      if (type.type == codes.scale) scale = type;
    }
    const bool is_float8 = codes.bits == 8 && codes.symmetric && codes.group_size == 0 && !codes.packed && !codes.search;
    const bool is_plain_width = codes.bits == 2 || codes.bits == 3 || codes.bits == 4 || codes.bits == 8;
    const bool is_width = codes.packed ? codes.bits >= 2 && codes.bits <= 8 : is_plain_width;
    if (!is_width || (!codes.packed && (codes.whole_words || codes.grouped))) return Status::kBadDType;
    if ((codes.float8 && !is_float8) || scale.bytes == 0) return Status::kBadDType;
    rows = rows_of_tile;
    columns = columns_of_tile;
    size = rows * columns;
    run_size = codes.group_size == 0 ? columns : codes.group_size;
    if (size == 0 || columns % run_size != 0) return Status::kBadLayout;
    runs_per_row = columns / run_size;
    const auto bits = static_cast<uint32_t>(codes.bits);
    if (codes.packed) codes_per_word = codes.whole_words ? 32 / bits : 32 / std::gcd(32u, bits);
    // Steps hold whole runs and whole words, or whole rows if rows end within a word.
    step = step_over(fills_words() ? run_size : columns, size);
    return Status::kOk;
  }

  [[nodiscard]] uint64_t runs() const { return rows * runs_per_row; }
  [[nodiscard]] bool fills_words() const { return columns % codes_per_word == 0; }
  /// True for codes that are written, too.
  [[nodiscard]] bool is_written() const {
    return !codes.whole_words && !codes.grouped && (!codes.packed || codes.bits == 4 || codes.bits == 8);
  }
  /// Words of n codes.
  [[nodiscard]] uint64_t words_of(uint64_t n) const {
    return codes.whole_words ? (n + codes_per_word - 1) / codes_per_word : (n * static_cast<uint32_t>(codes.bits) + 31) / 32;
  }
  /// Addend of signed codes that are stored without a sign.
  [[nodiscard]] int32_t middle() const { return 1 << (codes.bits - 1); }
  /// Bytes of n codes in a row.
  [[nodiscard]] uint64_t row_bytes(uint64_t n) const { return codes.packed ? words_of(n) * 4 : n; }
  /// Bytes of all codes before element `at`, the first of a step, or of all codes there are.
  [[nodiscard]] uint64_t data_bytes(uint64_t at) const {
    return fills_words() ? row_bytes(at) : at / columns * row_bytes(columns);
  }
  [[nodiscard]] uint64_t zero_point_bytes() const { return codes.packed ? words_of(rows) * runs_per_row * 4 : runs(); }
  /// Position of the zero point of a run among packed ones: its word and its first bit.
  [[nodiscard]] uint64_t word_of(uint64_t run) const {
    return run / runs_per_row / codes_per_word * runs_per_row + run % runs_per_row;
  }
  [[nodiscard]] uint32_t shift_of(uint64_t run) const {
    return static_cast<uint32_t>(run / runs_per_row % codes_per_word) * static_cast<uint32_t>(codes.bits);
  }

  /// The layout of a step of n elements: one parameter for each of its runs.
  [[nodiscard]] Layout layout(uint64_t n) const { return {Granularity::kPerChannel, n / run_size, run_size, 1}; }

  /// torch.round(x / scale + zero point).
  [[nodiscard]] QuantizationSpec spec() const {
    return {.dtype = {codes.bits, true},
            .scheme = codes.symmetric ? Scheme::kSymmetric : Scheme::kAsymmetric,
            .symmetric_range = SymmetricRange::kFull,
            .rounding = Rounding::kFused};
  }

  /// Calls f(codes, bytes, first code, first byte) for each stretch of a step's n elements that is packed at once.
  template <class F>
  void for_each_line(size_t n, F f) const {
    const auto line = fills_words() ? n : static_cast<size_t>(columns), bytes = static_cast<size_t>(row_bytes(line));
    for (size_t i = 0, byte = 0; i < n; i += line, byte += bytes) f(line, bytes, i, byte);
  }
};

// ------------------------------------------------------------------------------------------------------------------- encode

/// Goes through a tile step by step.
class Encoder {
 public:
  Encoder(const Tile& tile, const Form& form, Arena& arena, Encoded& result)
      : tile_(tile), form_(form), codes_(form.codes), result_(result), floats_(tile, reads() ? form.step : 0, arena) {
    const uint64_t step = form.step, runs = step / form.run_size, others = searches() ? runs : 0;
    tries_ = form.scale.converts() && codes_.method == RangeMethod::kMse ? 3 : 1;
    const bool data = tile.wants(Role::kData);
    min_ = arena.take<float>(runs);
    max_ = arena.take<float>(runs);
    scale_ = arena.take<float>(runs);
    zero_point_ = arena.take<int32_t>(runs);
    stored_ = arena.take<uint16_t>(form.scale.converts() ? runs : 0);
    other_scale_ = arena.take<float>(tries_ * others);
    other_zero_point_ = arena.take<int32_t>(others);
    scratch_bytes_ = searches() ? search_scratch_bytes(step, form.layout(step)) : 0;
    scratch_ = arena.take<std::byte>(scratch_bytes_);
    restored_ = arena.take<float>(data && tile.measure && codes_.float8 ? step : 0);
    made_ = arena.take<std::byte>(data && codes_.packed ? step : 0);
    data_ = take_part(tile, Role::kData, form.data_bytes(form.size), arena, result.data);
    scales_ = take_part(tile, Role::kScale, form.runs() * form.scale.bytes, arena, result.scale);
    zero_points_ = take_part(tile, Role::kZeroPoint, form.zero_point_bytes(), arena, result.zero_point);
  }

  Status run() {
    if (zero_points_ != nullptr) std::memset(zero_points_, 0, result_.zero_point.size);
    for (; at_ < form_.size; at_ += form_.step) {
      n_ = static_cast<size_t>(std::min(form_.step, form_.size - at_));
      runs_ = static_cast<size_t>(n_ / form_.run_size);
      if (reads()) x_ = floats_.read(at_, n_);
      Status status = choose();
      if (status != Status::kOk || has_problem()) return status;
      store_parameters();
      if (tile_.wants(Role::kData)) status = store_codes();
      if (status != Status::kOk || has_problem()) return status;
    }
    return Status::kOk;
  }

 private:
  [[nodiscard]] bool searches() const { return codes_.search && tile_.ranges == nullptr; }
  [[nodiscard]] bool reads() const { return tile_.ranges == nullptr || tile_.wants(Role::kData); }
  [[nodiscard]] bool has_problem() const { return result_.problem.kind != ProblemKind::kNone; }

  /// Reports that element i of the step overflows. NaN and infinities have priority, wherever they are.
  void overflow(size_t i) {
    result_.problem = {ProblemKind::kOverflow, at_ + i, x_[i]};
    const Problem first = floats_.first_problem(at_);
    if (first.kind != ProblemKind::kNone) result_.problem = first;
  }

  /// Makes scales and zero points, or finds a problem.
  Status choose() {
    if (tile_.ranges == nullptr) {
      clear_range({min_, runs_}, {max_, runs_});
      const Status status = scalepoint::observe({x_, n_}, form_.layout(n_), 0, NonFinite::kError, {min_, runs_}, {max_, runs_});
      if (status == Status::kNonFinite) result_.problem = floats_.first_problem(at_);
      if (status != Status::kOk) return status == Status::kNonFinite ? Status::kOk : status;
    }
    for (size_t i = 0; tile_.ranges != nullptr && i < runs_; i++) {
      const ValueRange& range = tile_.ranges[at_ / form_.run_size + i];
      min_[i] = range.min;
      max_[i] = range.max;
    }
    choose_from_ranges();
    const auto run_size = static_cast<size_t>(form_.run_size);
    for (size_t i = 0; reads() && i < runs_; i++) {
      if (std::isfinite(scale_[i])) continue;
      size_t worst = i * run_size;
      for (size_t j = worst; j < (i + 1) * run_size; j++) {
        if (std::fabs(x_[j]) > std::fabs(x_[worst])) worst = j;
      }
      overflow(worst);
      return Status::kOk;
    }
    return searches() ? search() : Status::kOk;
  }

  /// Rounds scales to the type that they are stored in.
  void round_scales(float* scale) const {
    if (!form_.scale.converts()) return;
    auto* const bytes = reinterpret_cast<std::byte*>(stored_);
    store_scales(scale, runs_, form_.scale.type, bytes);
    load_scales(bytes, runs_, form_.scale.type, scale);
  }

  /// calculate_qparams of compressed-tensors. Its operations are in float32, and so are these: where one is in double, its result
  /// is rounded to float32.
  void choose_from_ranges() const {
    const double levels = codes_.float8 ? 2 * kLargestFloat8 : 2 * form_.middle() - 1, qmin = -form_.middle();
    for (size_t i = 0; i < runs_; i++) {
      const float low = std::min(min_[i], 0.0f), high = std::max(max_[i], 0.0f);
      // Keep the width in double if it exceeds float32.
      const double exact = static_cast<double>(high) - low;
      const auto rounded = static_cast<float>(exact);
      const double width = std::isfinite(rounded) ? rounded : exact;
      scale_[i] = static_cast<float>((codes_.symmetric ? std::max(-low, high) * 2.0 : width) / levels);
    }
    round_scales(scale_);
    for (size_t i = 0; i < runs_; i++) {
      const float low = std::min(min_[i], 0.0f);
      if (scale_[i] == 0) scale_[i] = low == 0 && max_[i] <= 0 ? form_.scale.epsilon : form_.scale.smallest;
      const auto steps = static_cast<float>(static_cast<double>(low) / scale_[i]);
      const double exact = static_cast<float>(qmin - steps);
      zero_point_[i] = codes_.symmetric ? 0 : static_cast<int32_t>(round_half_even(clamp(exact, qmin, qmin + levels)));
    }
  }

  /// Replaces scales and zero points by searched ones.
  Status search() const {
    const QuantizationSpec spec = form_.spec();
    const std::span<float> scale = {scale_, runs_}, other_scale = {other_scale_, runs_};
    const std::span<int32_t> zero_point = {zero_point_, runs_}, other_zero_point = {other_zero_point_, runs_};
    const Status status = search_qparams({x_, n_}, form_.layout(n_), spec, codes_.method, codes_.percentile,
                                         {scratch_, static_cast<size_t>(scratch_bytes_)}, other_scale, other_zero_point);
    if (status != Status::kOk) return status;
    round_scales(other_scale_);
    if (codes_.method != RangeMethod::kMse) {
      for (size_t i = 0; i < runs_; i++) {
        // Runs of zeros keep their parameters. So do runs whose scale is beyond the type.
        if ((min_[i] == 0 && max_[i] == 0) || other_scale_[i] == 0 || !std::isfinite(other_scale_[i])) continue;
        scale_[i] = other_scale_[i];
        zero_point_[i] = other_zero_point_[i];
      }
      return Status::kOk;
    }
    // The bits of positive floats have the order of the floats. Try one up, then one down.
    for (size_t i = 1; i < tries_; i++) {
      for (size_t run = 0; run < runs_; run++) stored_[run] = static_cast<uint16_t>(stored_[run] + (i == 1 ? 1 : -2));
      load_scales(reinterpret_cast<std::byte*>(stored_), runs_, form_.scale.type, other_scale_ + i * runs_);
    }
    return take_better({x_, n_}, static_cast<size_t>(form_.run_size), spec.dtype, scale, zero_point,
                       {other_scale_, tries_ * runs_}, other_zero_point);
  }

  void store_parameters() const {
    const uint64_t first = at_ / form_.run_size;
    if (scales_ != nullptr) store_scales(scale_, runs_, form_.scale.type, scales_ + first * form_.scale.bytes);
    for (size_t i = 0; zero_points_ != nullptr && i < runs_; i++) {
      const uint64_t run = first + i;
      if (codes_.packed) {
        const auto code = static_cast<uint32_t>(zero_point_[i] + form_.middle());
        reinterpret_cast<uint32_t*>(zero_points_)[form_.word_of(run)] |= code << form_.shift_of(run);
      } else {
        zero_points_[run] = static_cast<std::byte>(zero_point_[i]);
      }
    }
  }

  /// Makes codes and adds up their errors, or finds a problem.
  Status store_codes() {
    std::byte* const data = data_ + form_.data_bytes(at_);
    std::byte* const made = codes_.packed ? made_ : data;
    const std::span<const float> x = {x_, n_}, scale = {scale_, runs_};
    const std::span<const int32_t> zero_point = {zero_point_, runs_};
    const Layout layout = form_.layout(n_);
    Status status;
    if (codes_.float8) {
      status = quantize_minifloat(x, layout, 0, scale, kFloat8, {uint8s(made), n_});
      if (status == Status::kOk && tile_.measure) {
        status = dequantize_minifloat({uint8s(made), n_}, layout, 0, scale, kFloat8, {restored_, n_});
        loops::accumulate_error(x_, restored_, n_, result_.sums);
      }
    } else if (tile_.measure) {
      status = quantize_linear_measured(x, layout, 0, scale, zero_point, form_.spec(), {made, n_}, result_.sums);
    } else {
      status = quantize_linear(x, layout, 0, scale, zero_point, form_.spec(), {made, n_});
    }
    if (status != Status::kOk) return status;
    // Codes reach half a step beyond the largest values, and may exceed the largest float.
    if (result_.sums.non_finite != 0) find_beyond(made);
    if (!codes_.packed || has_problem()) return Status::kOk;
    form_.for_each_line(n_, [&](size_t n, size_t bytes, size_t code, size_t byte) {
      const auto used = static_cast<size_t>(packed_bytes(n, codes_.bits));
      loops::pack_codes(uint8s(made + code), n, codes_.bits, kOffsetBinary, uint8s(data + byte));
      std::memset(data + byte + used, 0, bytes - used);
    });
    return Status::kOk;
  }

  /// Names the first element whose code stands for an infinity.
  void find_beyond(const std::byte* made) {
    for (size_t i = 0; i < n_; i++) {
      const auto run = static_cast<size_t>(i / form_.run_size);
      const float restored =
          codes_.float8 ? restored_[i] : scale_[run] * static_cast<float>(static_cast<int8_t>(made[i]) - zero_point_[run]);
      if (!std::isfinite(restored)) return overflow(i);
    }
  }

  const Tile& tile_;
  const Form& form_;
  const CompressedTensors& codes_;
  Encoded& result_;
  Floats floats_;
  /// The current step: its first element, the numbers of its elements and runs, its floats, and the parameters of its runs.
  uint64_t at_ = 0;
  size_t n_ = 0, runs_ = 0;
  const float* x_ = nullptr;
  float *min_, *max_, *scale_, *other_scale_, *restored_;
  int32_t *zero_point_, *other_zero_point_;
  uint16_t* stored_;  ///< scales of 16 bits
  size_t tries_;      ///< other scales for each run
  uint64_t scratch_bytes_;
  std::byte *scratch_, *made_, *data_, *scales_, *zero_points_;
};

// ------------------------------------------------------------------------------------------------------------------- decode

/// The parameters of `runs` runs from `first` on.
void read_parameters(const Stored& stored, const Form& form, uint64_t first, size_t runs, float* scale, int32_t* zero_point) {
  const std::byte* const scales = stored.scale.data + first * form.scale.bytes;
  load_scales(scales, runs, form.scale.type, scale);
  for (size_t i = 0; i < runs; i++) {
    const uint64_t run = first + i;
    if (form.codes.symmetric) {
      zero_point[i] = 0;
    } else if (form.codes.packed) {
      const uint32_t word = reinterpret_cast<const uint32_t*>(stored.zero_point.data)[form.word_of(run)];
      zero_point[i] = static_cast<int32_t>(word >> form.shift_of(run) & ((1u << form.codes.bits) - 1)) - form.middle();
    } else {
      zero_point[i] = static_cast<int8_t>(stored.zero_point.data[run]);
    }
  }
}

/// The codes of a row of packed codes, without their sign.
void unpack_row(const Form& form, const std::byte* from, uint8_t* codes) {
  const auto columns = static_cast<size_t>(form.columns);
  if (!form.codes.whole_words) {
    loops::unpack_codes(uint8s(from), columns, form.codes.bits, loops::CodeForm::kUnsigned, codes);
    return;
  }
  const auto per_word = static_cast<size_t>(form.codes_per_word);
  for (size_t i = 0; i < columns; i += per_word, from += 4) {
    loops::unpack_codes(uint8s(from), std::min(per_word, columns - i), form.codes.bits, loops::CodeForm::kUnsigned, codes + i);
  }
}

/// The packed zero point of a row and group, without its sign.
uint32_t zero_point_code(const Form& form, const std::byte* zero_points, uint64_t row, uint64_t group) {
  const auto bits = static_cast<uint32_t>(form.codes.bits);
  const uint64_t bit = form.codes.whole_words ? row / form.codes_per_word * 32 + row % form.codes_per_word * bits : row * bits;
  const auto* const words = reinterpret_cast<const uint32_t*>(zero_points);
  const uint64_t word = bit / 32, shift = bit % 32;
  uint64_t two = words[word * form.runs_per_row + group];
  if (shift + bits > 32) two |= uint64_t{words[(word + 1) * form.runs_per_row + group]} << 32;
  return static_cast<uint32_t>(two >> shift) & ((1u << bits) - 1);
}

/// Restores packed codes of any width row by row, in groups in any order.
Status decode_rows(const Stored& stored, const Form& form, Arena& arena, const float*& x) {
  const CompressedTensors& codes = form.codes;
  if (codes.grouped && stored.group.size != form.columns * sizeof(uint32_t)) return Status::kSizeMismatch;
  const auto columns = static_cast<size_t>(form.columns), groups = static_cast<size_t>(form.runs_per_row);
  auto* const out = arena.take<float>(form.size);
  auto* const unpacked = arena.take<uint8_t>(form.columns);
  auto* const group_of = arena.take<uint32_t>(form.columns);
  auto* const scale = arena.take<float>(form.runs_per_row);
  auto* const zero_point = arena.take<float>(form.runs_per_row);
  if (arena.status() != Status::kOk) return arena.status();
  x = out;

  for (size_t i = 0; i < columns; i++) group_of[i] = static_cast<uint32_t>(i / form.run_size);
  if (codes.grouped) std::memcpy(group_of, stored.group.data, columns * sizeof(uint32_t));
  for (size_t i = 0; i < columns; i++) {
    if (group_of[i] >= groups) return Status::kBadRange;
  }
  for (size_t row = 0; row < form.rows; row++) {
    load_scales(stored.scale.data + row * groups * form.scale.bytes, groups, form.scale.type, scale);
    for (size_t group = 0; group < groups; group++) {
      if (!(scale[group] > 0) || !std::isfinite(scale[group])) return Status::kBadScale;
      const int32_t code =
          codes.symmetric ? form.middle() : static_cast<int32_t>(zero_point_code(form, stored.zero_point.data, row, group));
      zero_point[group] = static_cast<float>(code);
    }
    unpack_row(form, stored.data.data + row * form.row_bytes(form.columns), unpacked);
    loops::restore_grouped(unpacked, group_of, columns, scale, zero_point, 1, out + row * columns);
  }
  return Status::kOk;
}

// ------------------------------------------------------------------------------------------------------------------- inputs

/// Stores the codes of a matrix in the parts that are wanted.
void store_input_codes(const Form& form, const InputCodes& made, std::byte* data, std::byte* scales, std::byte* zero_points) {
  const auto columns = static_cast<size_t>(form.columns), runs = static_cast<size_t>(form.runs());
  const auto row_bytes = static_cast<size_t>(form.row_bytes(columns)),
             used = static_cast<size_t>(packed_bytes(columns, form.codes.bits));
  for (size_t row = 0; data != nullptr && row < form.rows; row++) {
    const uint8_t* const codes = made.codes + row * columns;
    std::byte* const to = data + row * row_bytes;
    if (form.codes.packed) {
      loops::pack_codes(codes, columns, form.codes.bits, loops::CodeForm::kUnsigned, uint8s(to));
      std::memset(to + used, 0, row_bytes - used);
    } else {
      for (size_t i = 0; i < columns; i++) to[i] = static_cast<std::byte>(codes[i] - form.middle());
    }
  }
  if (scales != nullptr) store_scales(made.scales, runs, form.scale.type, scales);
  if (zero_points == nullptr) return;
  std::memset(zero_points, 0, static_cast<size_t>(form.zero_point_bytes()));
  for (size_t run = 0; run < runs; run++) {
    const auto code = static_cast<uint32_t>(made.zero_points[run]);
    if (form.codes.packed) {
      reinterpret_cast<uint32_t*>(zero_points)[form.word_of(run)] |= code << form.shift_of(run);
    } else {
      zero_points[run] = static_cast<std::byte>(static_cast<int32_t>(code) - form.middle());
    }
  }
}

/// Encodes a tile by data about the inputs, which all lie in it. @param moments null: rounding passes no errors on
Status encode_by_inputs(const Tile& tile, const CompressedTensors& codes, const Moments* moments, Arena& arena, Encoded& result) {
  Form form = {.codes = codes};
  if (const Status status = form.init(tile.rows, tile.columns); status != Status::kOk) return status;
  if (codes.float8 || !form.is_written()) return Status::kBadDType;
  if (tile.ranges != nullptr) return Status::kBadLayout;
  if (const Status status = check(tile); status != Status::kOk) return status;
  result = {};
  std::byte* const data = take_part(tile, Role::kData, form.data_bytes(form.size), arena, result.data);
  std::byte* const scales = take_part(tile, Role::kScale, form.runs() * form.scale.bytes, arena, result.scale);
  std::byte* const zero_points = take_part(tile, Role::kZeroPoint, form.zero_point_bytes(), arena, result.zero_point);
  // Encode from the smallest to the largest values, which finds problems.
  CompressedTensors plain = codes;
  plain.search = false;
  Tile whole = tile;
  whole.importance = nullptr;
  whole.wanted = 1;
  whole.measure = true;
  Encoded found;
  if (const Status status = encode(whole, plain, arena, found); status != Status::kOk) return status;
  result.problem = found.problem;
  if (result.problem.kind != ProblemKind::kNone) return Status::kOk;
  // Make the codes.
  const float* w = nullptr;
  if (const Status status = take_input_rows(tile, false, arena, w); status != Status::kOk) return status;
  const InputMatrix matrix = {.rows = static_cast<size_t>(form.rows),
                              .columns = static_cast<size_t>(form.columns),
                              .group_size = codes.group_size,
                              .bits = codes.bits,
                              .symmetric = codes.symmetric,
                              .scale = codes.scale,
                              .importance = tile.importance,
                              .moments = moments};
  InputCodes made;
  const Status status = make_input_codes({w, matrix.size()}, matrix, arena, made, tile.measure ? &result.sums : nullptr);
  if (status == Status::kOk) store_input_codes(form, made, data, scales, zero_points);
  return status;
}

}  // namespace

Status encode_with_feedback(const Tile& tile, const CompressedTensors& codes, const Moments& moments, Arena& arena,
                            Encoded& result) noexcept {
  return tile.importance == nullptr ? Status::kBadLayout : encode_by_inputs(tile, codes, &moments, arena, result);
}

Status encode(const Tile& tile, const CompressedTensors& codes, Arena& arena, Encoded& result) noexcept {
  if (tile.importance != nullptr) return encode_by_inputs(tile, codes, nullptr, arena, result);
  Form form = {.codes = codes};
  if (const Status status = form.init(tile.rows, tile.columns); status != Status::kOk) return status;
  if (!form.is_written()) return Status::kBadDType;
  if (tile.ranges == nullptr || tile.wants(Role::kData)) {
    if (const Status status = check(tile); status != Status::kOk) return status;
  }
  if (tile.ranges != nullptr && form.runs_per_row != 1) return Status::kBadLayout;
  result = {};
  Encoder encoder(tile, form, arena, result);
  return arena.status() == Status::kOk ? encoder.run() : arena.status();
}

Status decode(const Stored& stored, const CompressedTensors& codes, Arena& arena, const float*& x) noexcept {
  Form form = {.codes = codes};
  if (const Status status = form.init(stored.rows, stored.columns); status != Status::kOk) return status;
  if (stored.data.size != form.data_bytes(form.size) || stored.scale.size != form.runs() * form.scale.bytes ||
      (!codes.symmetric && stored.zero_point.size != form.zero_point_bytes())) {
    return Status::kSizeMismatch;
  }
  if (!form.is_written()) return decode_rows(stored, form, arena, x);
  const uint64_t runs_of_step = form.step / form.run_size;
  auto* const out = arena.take<float>(form.size);
  auto* const scale = arena.take<float>(runs_of_step);
  auto* const zero_point = arena.take<int32_t>(runs_of_step);
  auto* const unpacked = arena.take<std::byte>(codes.packed ? form.step : 0);
  if (arena.status() != Status::kOk) return arena.status();
  x = out;

  for (uint64_t at = 0; at < form.size; at += form.step) {
    const auto n = static_cast<size_t>(std::min(form.step, form.size - at)), runs = static_cast<size_t>(n / form.run_size);
    read_parameters(stored, form, at / form.run_size, runs, scale, zero_point);
    const std::byte* made = stored.data.data + form.data_bytes(at);
    if (codes.packed) {
      form.for_each_line(n, [&](size_t count, size_t, size_t code, size_t byte) {
        loops::unpack_codes(uint8s(made + byte), count, codes.bits, kOffsetBinary, uint8s(unpacked + code));
      });
      made = unpacked;
    }
    const Layout layout = form.layout(n);
    const Status status = codes.float8 ? dequantize_minifloat({uint8s(made), n}, layout, 0, {scale, runs}, kFloat8, {out + at, n})
                                       : dequantize_linear({made, n}, form.spec().dtype, layout, 0, {scale, runs},
                                                           {zero_point, runs}, {out + at, n});
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

}  // namespace scalepoint::codecs
