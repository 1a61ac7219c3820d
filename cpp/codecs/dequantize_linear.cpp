#include "codecs/dequantize_linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "arrays/linear.h"
#include "arrays/linear_loops.h"
#include "arrays/metrics_loops.h"
#include "arrays/min_max.h"
#include "arrays/min_max_loops.h"
#include "arrays/pack_bits_loops.h"
#include "codecs/block_codes_loops.h"
#include "codecs/block_fit.h"
#include "codecs/input_codes.h"

namespace scalepoint::codecs {
namespace {

/// Columns of a row whose scales and values stay in the nearest cache from their codes to their errors.
constexpr size_t kPiece = loops::kErrorBlock;

bool is_zero(std::span<const float> x) {
  return std::all_of(x.begin(), x.end(), [](float value) { return value == 0; });
}

/// Numbers that follow from the size of a tile and from its codes.
struct Form {
  const DequantizeLinear& codes;
  uint64_t rows = 0, columns = 0, size = 0, sets = 0;
  Layout layout;

  Status init(uint32_t rows_of_tile, uint32_t columns_of_tile) {
    const int32_t bits = codes.bits;
    if ((bits != 2 && bits != 4 && bits != 8) || (codes.reduced && (bits != 8 || has_blocks())) ||
        (codes.scale != ElementType::kF32 && codes.scale != ElementType::kF16) ||
        (codes.least_scale != 0 && (!codes.symmetric || has_blocks()))) {
      return Status::kBadDType;
    }
    rows = rows_of_tile;
    columns = columns_of_tile;
    size = rows * columns;
    const uint64_t block = codes.block_size;
    if (size == 0 || (has_blocks() && block == 0)) return Status::kBadLayout;
    const auto blocks_of = [&](uint64_t n) { return n / block + (n % block != 0); };
    switch (codes.sharing) {
      case Sharing::kTile:
        sets = 1;
        break;
      case Sharing::kRows:
        layout = {Granularity::kPerChannel, rows, columns, 1}, sets = rows;
        break;
      case Sharing::kColumns:
        layout = {Granularity::kPerChannel, columns, 1, 1}, sets = columns;
        break;
      case Sharing::kRowBlocks:
        layout = {Granularity::kPerGroup, columns, 1, block}, sets = rows * blocks_of(columns);
        break;
      case Sharing::kColumnBlocks:
        layout = {Granularity::kPerGroup, rows, columns, block}, sets = columns * blocks_of(rows);
        break;
      default:
        return Status::kBadLayout;
    }
    return Status::kOk;
  }

  [[nodiscard]] bool has_blocks() const {
    return codes.sharing == Sharing::kRowBlocks || codes.sharing == Sharing::kColumnBlocks;
  }
  [[nodiscard]] uint64_t scale_bytes() const { return codes.scale == ElementType::kF16 ? 2 : 4; }
  [[nodiscard]] uint64_t packed(uint64_t n) const { return packed_bytes(n, codes.bits); }
  /// Bits of the range of codes.
  [[nodiscard]] int32_t range_bits() const { return codes.reduced ? 7 : codes.bits; }
  [[nodiscard]] DType dtype() const { return {range_bits(), codes.is_signed}; }
  [[nodiscard]] QuantizationSpec spec() const {
    return {.dtype = dtype(),
            .scheme = codes.symmetric ? Scheme::kSymmetric : Scheme::kAsymmetric,
            .symmetric_range = codes.bits < 8 ? SymmetricRange::kFull : SymmetricRange::kRestricted};
  }

  /// Calls f(set, first element, elements) for all elements, in order, as far as neighbors share a set.
  template <class F>
  void for_each_run(F f) const {
    const uint64_t block = codes.block_size;
    const bool whole = codes.sharing == Sharing::kTile || codes.sharing == Sharing::kRows;
    const uint64_t length = whole ? columns : codes.sharing == Sharing::kRowBlocks ? block : 1;
    uint64_t set = 0;
    for (uint64_t row = 0, at = 0; row < rows; row++) {
      if (codes.sharing == Sharing::kTile || codes.sharing == Sharing::kColumns) set = 0;
      if (codes.sharing == Sharing::kColumnBlocks) set = row / block * columns;
      for (uint64_t left = columns; left > 0; set++) {
        const uint64_t n = std::min(length, left);
        f(set, at, n);
        at += n;
        left -= n;
      }
    }
  }
};

/// Encodes a tile, or only observes it.
class Encoder {
 public:
  Encoder(const Tile& tile, const Form& form, Arena& arena, Encoded& result)
      : tile_(tile),
        form_(form),
        codes_(form.codes),
        result_(result),
        // Allocated first, so that they have the same address for all rows of a tile.
        min_(arena.take<float>(padded(form.sets))),
        max_(arena.take<float>(padded(form.sets))),
        floats_(tile, reads() ? form.size : 0, arena) {
    const uint64_t sets = padded(form.sets);
    scale_ = arena.take<float>(form.sets);
    zero_point_ = arena.take<int32_t>(form.sets);
    scratch_bytes_ = searches() ? search_scratch_bytes(form.size, form.layout) : 0;
    scratch_ = arena.take<std::byte>(scratch_bytes_);
    for (float** of_block : {&block_scale_, &reciprocal_, &zeros_}) *of_block = arena.take<float>(form.has_blocks() ? sets : 0);
    gain_ = arena.take<double>(form.has_blocks() && searches() ? form.sets : 0);
  }

  /// Takes memory for the parts.
  void take_parts(Arena& arena) {
    const bool data = tile_.wants(Role::kData);
    restored_ = arena.take<float>(restores() ? step() : 0);
    // Pieces may end in the next row.
    again_scale_ = arena.take<float>(restores() && !form_.has_blocks() ? form_.columns + kPiece : 0);
    made_ = arena.take<std::byte>(data && packs() ? form_.size : 0);
    for (float*& of_row : of_row_) of_row = arena.take<float>(codes_.sharing == Sharing::kRowBlocks ? form_.columns : 0);
    data_ = take_part(tile_, Role::kData, form_.packed(form_.size), arena, result_.data);
    scales_ = take_part(tile_, Role::kScale, form_.sets * form_.scale_bytes(), arena, result_.scale);
    codes_of_zero_ = arena.take<std::byte>(tile_.wants(Role::kZeroPoint) ? form_.sets : 0);
    zero_points_ = take_part(tile_, Role::kZeroPoint, form_.packed(form_.sets), arena, result_.zero_point);
  }

  Status run() {
    Status status = choose();
    if (status != Status::kOk || has_problem()) return status;
    if (tile_.wants(Role::kData)) status = store_codes();
    if (status == Status::kOk && !has_problem()) store_parameters();
    return status;
  }

  /// Sets min and max to the results of observe.
  Status look(float*& min, float*& max) {
    Status status = searches() ? search() : look_at_range();
    min = searches() ? scale_ : min_;
    max = max_;
    for (size_t i = 0; searches() && i < form_.sets; i++) max_[i] = static_cast<float>(zero_point_[i]);
    return status;
  }

 private:
  /// choose_blocks works on four sets at a time.
  static uint64_t padded(uint64_t sets) { return (sets + 3) / 4 * 4; }
  [[nodiscard]] bool searches() const { return codes_.search && tile_.ranges == nullptr; }
  [[nodiscard]] bool reads() const { return tile_.ranges == nullptr || tile_.wants(Role::kData); }
  /// True if neighbors may have different scales. Codes are then made row by row, and measured afterwards.
  [[nodiscard]] bool goes_by_rows() const { return form_.has_blocks() || codes_.sharing == Sharing::kColumns; }
  [[nodiscard]] bool restores() const { return tile_.measure && tile_.wants(Role::kData) && goes_by_rows(); }
  /// Elements of the rows that are measured at once.
  [[nodiscard]] uint64_t step() const { return step_over(form_.columns, form_.size); }
  /// True if codes are stored in another form than made. Those of blocks are made without a sign.
  [[nodiscard]] bool packs() const { return codes_.bits < 8 || (form_.has_blocks() && codes_.is_signed); }
  [[nodiscard]] bool has_problem() const { return result_.problem.kind != ProblemKind::kNone; }
  [[nodiscard]] size_t sets() const { return static_cast<size_t>(form_.sets); }
  [[nodiscard]] size_t size() const { return static_cast<size_t>(form_.size); }

  Status look_at_range() {
    x_ = floats_.read(0, size());
    bool finite = false;
    if (codes_.sharing == Sharing::kColumns && form_.columns >= 4) {
      // choose_from_range always widens ranges to include 0.
      if (!codes_.goes_on) {
        std::fill_n(min_, sets(), 0.0f);
        std::fill_n(max_, sets(), 0.0f);
      }
      const auto rows = static_cast<size_t>(form_.rows), columns = static_cast<size_t>(form_.columns);
      finite = loops::range_columns(x_, rows, columns, min_, max_) < kInfinityBits;
    } else {
      if (!codes_.goes_on) clear_range({min_, sets()}, {max_, sets()});
      const Status status = scalepoint::observe({x_, size()}, form_.layout, 0, NonFinite::kError, {min_, sets()}, {max_, sets()});
      if (status != Status::kOk && status != Status::kNonFinite) return status;
      finite = status == Status::kOk;
    }
    if (!finite) result_.problem = floats_.first_problem(0);
    return Status::kOk;
  }

  /// Searches for scales and zero points.
  Status search() {
    x_ = floats_.read(0, size());
    const Status status =
        search_qparams({x_, size()}, form_.layout, form_.spec(), codes_.method, codes_.percentile,
                       {scratch_, static_cast<size_t>(scratch_bytes_)}, {scale_, sets()}, {zero_point_, sets()});
    if (status != Status::kNonFinite) return status;
    result_.problem = floats_.first_problem(0);
    return Status::kOk;
  }

  Status choose() {
    if (tile_.ranges != nullptr) {
      if (reads()) x_ = floats_.read(0, size());
      // With a scale for each column, store_row finds NaN and infinities.
      if (reads() && codes_.sharing != Sharing::kColumns) {
        result_.problem = floats_.first_problem(0);
        if (has_problem()) return Status::kOk;
      }
      for (size_t i = 0; i < sets(); i++) {
        min_[i] = tile_.ranges[i].min;
        max_[i] = tile_.ranges[i].max;
      }
      for (size_t i = 0; codes_.search && i < sets(); i++) {
        scale_[i] = min_[i];
        zero_point_[i] = static_cast<int32_t>(max_[i]);
      }
    } else {
      Status status = searches() ? search() : Status::kOk;
      if (status == Status::kOk && !has_problem() && (!searches() || form_.has_blocks())) status = look_at_range();
      if (status != Status::kOk || has_problem()) return status;
    }
    if (form_.has_blocks()) {
      choose_in_blocks();
    } else if (!codes_.search) {
      for (size_t i = 0; i < sets(); i++) choose_from_range(i);
    }
    if (codes_.least_scale > 0) raise_scales();
    for (size_t i = 0; i < sets(); i++) scale_[i] = stored_scale(scale_[i], codes_.scale);
    for (size_t i = 0; reads() && i < sets(); i++) {
      if (!std::isfinite(scale_[i])) find_overflow(i);
    }
    // Avoid scales that float16 rounds to 0.
    for (size_t i = 0; !form_.has_blocks() && i < sets(); i++) {
      if (scale_[i] == 0) scale_[i] = 0x1p-24f;
    }
    return Status::kOk;
  }

  /// Takes the better of the parameters from choose_blocks and from the search.
  void choose_in_blocks() const {
    const int32_t flip = codes_.is_signed ? 1 << (codes_.bits - 1) : 0;
    const bool half = codes_.scale == ElementType::kF16;
    loops::choose_blocks(min_, max_, sets(), codes_.bits, codes_.symmetric, half, block_scale_, reciprocal_, zeros_);
    if (searches()) {
      std::fill_n(gain_, sets(), 0.0);
      form_.for_each_run([&](uint64_t set, uint64_t first, uint64_t n) {
        const std::span<const float> x = {x_ + first, static_cast<size_t>(n)};
        const BlockScale block = {block_scale_[set], reciprocal_[set], zeros_[set]}, other = searched(static_cast<size_t>(set));
        gain_[set] += block_error(x, block, levels()) - block_error(x, other, levels());
      });
      for (size_t i = 0; i < sets(); i++) {
        const BlockScale other = searched(i);
        if (!(gain_[i] > 0) || other.scale == 0 || !std::isfinite(other.scale)) continue;
        block_scale_[i] = other.scale;
        reciprocal_[i] = other.reciprocal;
        zeros_[i] = other.zero_point;
      }
    }
    for (size_t i = 0; i < sets(); i++) {
      scale_[i] = block_scale_[i];
      zero_point_[i] = static_cast<int32_t>(zeros_[i]) - flip;
    }
  }

  [[nodiscard, gnu::noinline]] BlockScale searched(size_t i) const {
    BlockScale block;
    set_scale(block, scale_[i], codes_.scale);
    block.zero_point = static_cast<float>(zero_point_[i] + (codes_.is_signed ? 1 << (codes_.bits - 1) : 0));
    return block;
  }

  /// The largest code without a sign.
  [[nodiscard]] float levels() const { return static_cast<float>((1 << codes_.bits) - 1); }

  /// compute_scale_zp of onnxruntime.
  void choose_from_range(size_t i) const {
    const DType type = form_.dtype();
    const double low = std::min(min_[i], 0.0f), high = std::max(max_[i], 0.0f);
    const double magnitude = std::max(-low, high);
    const double scale =
        codes_.symmetric ? 2 * magnitude / (type.qmax() - type.qmin() - 1) : (high - low) / (type.qmax() - type.qmin());
    zero_point_[i] = type.middle();
    if (scale < std::numeric_limits<float>::min()) {
      scale_[i] = 1;
      if (!codes_.symmetric) zero_point_[i] = 0;
      return;
    }
    scale_[i] = static_cast<float>(scale);
    if (!codes_.symmetric) zero_point_[i] = static_cast<int32_t>(round_half_even(type.qmin() - low / scale));
  }

  /// Raises scales to the least one. Sets of zeros have a scale of 1, from a range or a search.
  void raise_scales() const {
    if (codes_.search) {
      // A search leaves the memory of ranges unused.
      std::fill_n(min_, sets(), 0.0f);
      std::fill_n(max_, sets(), x_ == nullptr ? 1.0f : 0.0f);
      if (x_ != nullptr) {
        form_.for_each_run([&](uint64_t set, uint64_t first, uint64_t n) {
          if (!is_zero({x_ + first, static_cast<size_t>(n)})) max_[set] = 1;
        });
      }
    }
    for (size_t i = 0; i < sets(); i++) {
      if (scale_[i] < codes_.least_scale || (scale_[i] == 1 && min_[i] == 0 && max_[i] == 0)) scale_[i] = codes_.least_scale;
    }
  }

  /// Reports the element of largest magnitude in a set whose scale is beyond its type.
  void find_overflow(size_t wanted) {
    if (!has_problem()) result_.problem = floats_.first_problem(0);
    if (has_problem()) return;
    float largest = -1;
    form_.for_each_run([&](uint64_t set, uint64_t first, uint64_t n) {
      for (uint64_t i = first; set == wanted && i < first + n; i++) {
        if (std::fabs(x_[i]) <= largest) continue;
        largest = std::fabs(x_[i]);
        result_.problem = {ProblemKind::kOverflow, i, x_[i]};
      }
    });
  }

  Status store_codes() {
    std::byte* const made = packs() ? made_ : data_;
    const std::span<const float> x = {x_, size()}, scale = {scale_, sets()};
    const std::span<const int32_t> zero_point = {zero_point_, sets()};
    Status status = Status::kOk;
    if (goes_by_rows()) {
      store_rows(made);
    } else if (tile_.measure) {
      status = quantize_linear_measured(x, form_.layout, 0, scale, zero_point, form_.spec(), {made, size()}, result_.sums);
    } else {
      status = quantize_linear(x, form_.layout, 0, scale, zero_point, form_.spec(), {made, size()});
    }
    if (status != Status::kOk || !packs()) return status;
    const bool flips = form_.has_blocks() && codes_.is_signed;
    loops::pack_codes(uint8s(made_), size(), codes_.bits, flips ? loops::CodeForm::kOffsetBinary : loops::CodeForm::kUnsigned,
                      uint8s(data_));
    return status;
  }

  /// Makes and stores codes whose neighbors have different scales.
  void store_rows(std::byte* made) {
    if (restores() && !form_.has_blocks() && store_measured(made)) return;
    const auto columns = static_cast<size_t>(form_.columns), step = static_cast<size_t>(this->step());
    // Rows of whole error blocks have the sums of all elements in a row.
    const bool pieces = restores() && !form_.has_blocks() && columns % kPiece == 0;
    for (size_t first = 0, row = 0; first < size(); first += step) {
      const size_t end = std::min(size(), first + step);
      for (size_t at = first; at < end; at += columns, row++) {
        float* const restored = restores() ? restored_ + (at - first) : nullptr;
        if (form_.has_blocks()) {
          loops::make_block_codes(x_ + at, columns, blocks_of(row), uint8s(made + at), restored);
        } else if (!(pieces ? store_pieces(x_ + at, made + at) : store_row(0, columns, x_ + at, made + at, restored))) {
          result_.problem = floats_.first_problem(0);
          return;
        }
      }
      if (restores() && !pieces) loops::accumulate_error(x_ + first, restored_, end - first, result_.sums);
    }
  }

  /// Codes and their error sums in one pass, where each column has a scale and all have one zero point. Returns false, with the sums
  /// unchanged, if that is not possible.
  bool store_measured(std::byte* made) {
    const auto columns = static_cast<size_t>(form_.columns), step = static_cast<size_t>(this->step());
    if (std::any_of(zero_point_, zero_point_ + columns, [&](int32_t zero) { return zero != *zero_point_; })) return false;
    for (size_t i = 0; i < columns + kPiece; i += columns) {
      std::copy_n(scale_, std::min(columns, columns + kPiece - i), again_scale_ + i);
    }
    const ErrorSums before = result_.sums;
    for (size_t first = 0; first < size(); first += step) {
      const size_t end = std::min(size(), first + step);
      for (size_t at = first; at < end; at += kPiece) {
        const size_t n = std::min(kPiece, end - at);
        const float* const scale = again_scale_ + at % columns;
        if (loops::quantize_each_measured(x_ + at, n, scale, *zero_point_, form_.dtype(), made + at, result_.sums)) continue;
        result_.sums = before;
        return false;
      }
    }
    return true;
  }

  /// Codes of a row and their error sums, some columns at a time.
  bool store_pieces(const float* x, std::byte* made) {
    for (size_t column = 0; column < form_.columns; column += kPiece) {
      if (!store_row(column, kPiece, x + column, made + column, restored_)) return false;
      loops::accumulate_error(x + column, restored_, kPiece, result_.sums);
    }
    return true;
  }

  /// Codes of n columns of a row, where each column has a scale. Scales are valid, so that only values need a check. Returns false if one
  /// is not finite.
  bool store_row(size_t column, size_t n, const float* x, std::byte* made, float* restored) const {
    const loops::CodeFormat format = {form_.dtype(), Rounding::kOnnx};
    const float* const scale = scale_ + column;
    const int32_t* const zero_point = zero_point_ + column;
    if (!loops::quantize_each(x, n, scale, zero_point, format, made)) {
      for (size_t i = 0; i < n; i++) {
        if (!std::isfinite(x[i])) return false;
        const int32_t code =
            quantize_value(x[i], scale[i], zero_point[i], format.dtype.qmin(), format.dtype.qmax(), Rounding::kOnnx);
        made[i] = static_cast<std::byte>(code);
      }
    }
    if (restored != nullptr) loops::dequantize_each(made, format.dtype, n, scale, zero_point, restored);
    return true;
  }

  /// The blocks that the elements of a row are in.
  [[nodiscard]] loops::BlockCodes blocks_of(size_t row) const {
    const auto columns = static_cast<size_t>(form_.columns), size = static_cast<size_t>(codes_.block_size);
    if (codes_.sharing == Sharing::kColumnBlocks) {
      const size_t first = row / size * columns;
      return {block_scale_ + first, reciprocal_ + first, zeros_ + first, levels()};
    }
    const float* const of_block[] = {block_scale_, reciprocal_, zeros_};
    for (size_t j = 0; j < 3; j++) {
      const float* from = of_block[j] + row * ((columns + size - 1) / size);
      for (size_t i = 0; i < columns; i += size) std::fill_n(of_row_[j] + i, std::min(size, columns - i), *from++);
    }
    return {of_row_[0], of_row_[1], of_row_[2], levels()};
  }

  void store_parameters() const {
    if (scales_ != nullptr) store_scales(scale_, sets(), codes_.scale, scales_);
    if (zero_points_ == nullptr) return;
    for (size_t i = 0; i < sets(); i++) codes_of_zero_[i] = static_cast<std::byte>(zero_point_[i]);
    loops::pack_codes(uint8s(codes_of_zero_), sets(), codes_.bits, loops::CodeForm::kUnsigned, uint8s(zero_points_));
  }

  const Tile& tile_;
  const Form& form_;
  const DequantizeLinear& codes_;
  Encoded& result_;
  float *min_, *max_;
  Floats floats_;
  const float* x_ = nullptr;
  float *scale_, *restored_ = nullptr, *again_scale_ = nullptr;
  int32_t* zero_point_;
  float *block_scale_ = nullptr, *reciprocal_ = nullptr, *zeros_ = nullptr;  ///< of blocks, among codes without a sign
  float* of_row_[3] = {};                                                    ///< of the elements of a row of row blocks
  double* gain_ = nullptr;                                                   ///< decrease of the error by the search
  uint64_t scratch_bytes_;
  std::byte *scratch_, *made_ = nullptr, *data_ = nullptr, *scales_ = nullptr, *codes_of_zero_ = nullptr, *zero_points_ = nullptr;
};

/// Checks a tile and its codes.
Status init(const Tile& tile, bool reads, Form& form) {
  if (const Status status = form.init(tile.rows, tile.columns); status != Status::kOk) return status;
  return reads ? check(tile) : Status::kOk;
}

/// Encodes a tile by data about the inputs, which all lie in it. @param moments null: rounding passes no errors on
Status encode_by_inputs(const Tile& tile, const DequantizeLinear& codes, const Moments* moments, Arena& arena, Encoded& result) {
  Form form = {.codes = codes, .layout = {}};
  if (const Status status = init(tile, true, form); status != Status::kOk) return status;
  if (codes.sharing == Sharing::kTile || tile.ranges != nullptr) return Status::kBadLayout;
  result = {};
  const auto size = static_cast<size_t>(form.size), sets = static_cast<size_t>(form.sets);
  std::byte* const data = take_part(tile, Role::kData, form.packed(size), arena, result.data);
  std::byte* const scales = take_part(tile, Role::kScale, sets * form.scale_bytes(), arena, result.scale);
  std::byte* const zero_points = take_part(tile, Role::kZeroPoint, form.packed(sets), arena, result.zero_point);
  auto* const ordered = arena.take<uint8_t>(size);
  auto* const set_scales = arena.take<float>(sets);
  auto* const set_zeros = arena.take<uint8_t>(sets);
  // Encode from the smallest to the largest values, which finds problems.
  DequantizeLinear plain = codes;
  plain.search = false;
  Tile whole = tile;
  whole.importance = nullptr;
  whole.measure = false;
  Encoded found;
  if (const Status status = encode(whole, plain, arena, found); status != Status::kOk) return status;
  result.problem = found.problem;
  if (result.problem.kind != ProblemKind::kNone) return Status::kOk;
  // Make the codes.
  const bool turned = codes.sharing == Sharing::kColumns || codes.sharing == Sharing::kColumnBlocks;
  const float* w = nullptr;
  if (const Status status = take_input_rows(tile, turned, arena, w); status != Status::kOk) return status;
  const size_t rows = turned ? tile.columns : tile.rows, columns = turned ? tile.rows : tile.columns;
  const InputMatrix matrix = {.rows = rows,
                              .columns = columns,
                              .group_size = form.has_blocks() ? codes.block_size : 0,
                              .bits = form.range_bits(),
                              .symmetric = codes.symmetric,
                              .negative = form.has_blocks(),
                              .scale = codes.scale,
                              .importance = tile.importance,
                              .moments = moments};
  InputCodes made;
  const Status status = make_input_codes({w, size}, matrix, arena, made, tile.measure ? &result.sums : nullptr);
  if (status != Status::kOk) return status;
  // Store them in the order of the tile.
  const size_t groups = matrix.groups();
  const int32_t flip = codes.is_signed ? 1 << (matrix.bits - 1) : 0;
  // Codes of int8 are stored minus 128, reduced ones minus 64.
  const auto shift = static_cast<uint8_t>(codes.is_signed ? (1 << (codes.bits - 1)) - flip : 0);
  for (size_t row = 0; row < rows; row++) {
    uint8_t* const from = made.codes + row * columns;
    const std::span<const float> x = {w + row * columns, columns};
    if (codes.least_scale > 0 && (made.scales[row] < codes.least_scale || is_zero(x))) {
      made.scales[row] = codes.least_scale;
      const int32_t middle = 1 << (matrix.bits - 1), most = 2 * middle - 1;
      for (size_t i = 0; i < columns; i++) {
        from[i] = static_cast<uint8_t>(quantize_value(x[i], codes.least_scale, middle, 0, most, Rounding::kOnnx));
      }
    }
    for (size_t i = 0; i < columns; i++) {
      ordered[turned ? i * rows + row : row * columns + i] = static_cast<uint8_t>(from[i] + shift);
    }
    for (size_t group = 0; group < groups; group++) {
      const size_t set = row * groups + group, to = turned ? group * rows + row : set;
      set_scales[to] = made.scales[set];
      set_zeros[to] = static_cast<uint8_t>(static_cast<int32_t>(made.zero_points[set]) - flip);
    }
  }
  const auto form_of = codes.is_signed ? loops::CodeForm::kOffsetBinary : loops::CodeForm::kUnsigned;
  if (data != nullptr) loops::pack_codes(ordered, size, codes.bits, form_of, uint8s(data));
  if (scales != nullptr) store_scales(set_scales, sets, codes.scale, scales);
  if (zero_points != nullptr) loops::pack_codes(set_zeros, sets, codes.bits, loops::CodeForm::kUnsigned, uint8s(zero_points));
  return Status::kOk;
}

}  // namespace

Status encode_with_feedback(const Tile& tile, const DequantizeLinear& codes, const Moments& moments, Arena& arena,
                            Encoded& result) noexcept {
  return tile.importance == nullptr ? Status::kBadLayout : encode_by_inputs(tile, codes, &moments, arena, result);
}

Status encode(const Tile& tile, const DequantizeLinear& codes, Arena& arena, Encoded& result) noexcept {
  if (tile.importance != nullptr) return encode_by_inputs(tile, codes, nullptr, arena, result);
  Form form = {.codes = codes, .layout = {}};
  if (const Status status = init(tile, tile.ranges == nullptr || tile.wants(Role::kData), form); status != Status::kOk)
    return status;
  result = {};
  Encoder encoder(tile, form, arena, result);
  encoder.take_parts(arena);
  return arena.status() == Status::kOk ? encoder.run() : arena.status();
}

Status observe(const Tile& tile, const DequantizeLinear& codes, Arena& arena, const ValueRange*& ranges, uint32_t& count,
               Problem& problem) noexcept {
  Form form = {.codes = codes, .layout = {}};
  if (const Status status = init(tile, true, form); status != Status::kOk) return status;
  Encoded result;
  Encoder encoder(tile, form, arena, result);
  auto* const found = arena.take<ValueRange>(form.sets);
  count = static_cast<uint32_t>(form.sets);
  if (arena.status() != Status::kOk) return arena.status();
  float *min = nullptr, *max = nullptr;
  const Status status = encoder.look(min, max);
  for (size_t i = 0; status == Status::kOk && i < form.sets; i++) found[i] = {min[i], max[i]};
  ranges = found;
  problem = result.problem;
  return status;
}

Status decode(const Stored& stored, const DequantizeLinear& codes, Arena& arena, const float*& x) noexcept {
  Form form = {.codes = codes, .layout = {}};
  if (const Status status = form.init(stored.rows, stored.columns); status != Status::kOk) return status;
  const bool has_zero_points = stored.zero_point.size != 0;
  if (stored.data.size != form.packed(form.size) || stored.scale.size != form.sets * form.scale_bytes() ||
      (has_zero_points && stored.zero_point.size != form.packed(form.sets))) {
    return Status::kSizeMismatch;
  }
  auto* const out = arena.take<float>(form.size);
  auto* const made = arena.take<uint8_t>(form.size);
  auto* const scale = arena.take<float>(form.sets);
  auto* const zero_point = arena.take<uint8_t>(form.sets);
  if (arena.status() != Status::kOk) return arena.status();
  const auto sets = static_cast<size_t>(form.sets);
  const auto form_of = codes.is_signed ? loops::CodeForm::kTwosComplement : loops::CodeForm::kUnsigned;
  loops::unpack_codes(uint8s(stored.data.data), static_cast<size_t>(form.size), codes.bits, form_of, made);
  load_scales(stored.scale.data, sets, codes.scale, scale);
  if (has_zero_points) {
    loops::unpack_codes(uint8s(stored.zero_point.data), sets, codes.bits, form_of, zero_point);
  } else {
    std::memset(zero_point, codes.symmetric ? form.dtype().middle() : 0, sets);
  }
  const auto value = [&](uint8_t code) {
    return codes.is_signed ? static_cast<int32_t>(static_cast<int8_t>(code)) : static_cast<int32_t>(code);
  };
  form.for_each_run([&](uint64_t set, uint64_t first, uint64_t n) {
    const int32_t zero = value(zero_point[set]);
    for (uint64_t i = first; i < first + n; i++) out[i] = static_cast<float>(value(made[i]) - zero) * scale[set];
  });
  x = out;
  return Status::kOk;
}

}  // namespace scalepoint::codecs
