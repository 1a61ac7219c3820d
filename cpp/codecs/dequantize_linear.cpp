#include "dequantize_linear.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "../kernels/linear.h"
#include "../kernels/metrics.h"
#include "../kernels/pack.h"
#include "../linear.h"
#include "../range.h"
#include "block_codes.h"

namespace scalepoint::codecs {
namespace {

const uint8_t* uint8s(const std::byte* bytes) { return reinterpret_cast<const uint8_t*>(bytes); }
uint8_t* uint8s(std::byte* bytes) { return reinterpret_cast<uint8_t*>(bytes); }

/// What follows from the size of a tile and from its codes.
struct Form {
  const DequantizeLinear& codes;
  uint64_t rows = 0, columns = 0, size = 0, sets = 0;
  Layout layout;

  Status init(uint32_t rows_of_tile, uint32_t columns_of_tile) {
    const int32_t bits = codes.bits;
    if ((bits != 2 && bits != 4 && bits != 8) || (codes.scale != ElementType::kF32 && codes.scale != ElementType::kF16)) {
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
  [[nodiscard]] DType dtype() const { return {codes.bits, codes.is_signed}; }
  [[nodiscard]] QuantizationSpec spec() const {
    return {.dtype = dtype(),
            .scheme = codes.symmetric ? Scheme::kSymmetric : Scheme::kAsymmetric,
            .symmetric_range = codes.bits < 8 ? SymmetricRange::kFull : SymmetricRange::kRestricted};
  }

  /// Calls f(set, first element, elements) for all elements, in order, as far as neighbors share a set.
  template <class F>
  void for_each_run(F f) const {
    const uint64_t block = codes.block_size;
    for (uint64_t row = 0, at = 0; row < rows; row++) {
      if (codes.sharing == Sharing::kTile || codes.sharing == Sharing::kRows) {
        f(codes.sharing == Sharing::kRows ? row : 0, at, columns);
        at += columns;
      } else if (codes.sharing == Sharing::kRowBlocks) {
        const uint64_t first = row * ((columns + block - 1) / block);
        for (uint64_t column = 0; column < columns; column += block) {
          f(first + column / block, at + column, std::min(block, columns - column));
        }
        at += columns;
      } else {
        const uint64_t first = codes.sharing == Sharing::kColumnBlocks ? row / block * columns : 0;
        for (uint64_t column = 0; column < columns; column++, at++) f(first + column, at, 1);
      }
    }
  }
};

/// Encodes a tile, or only looks at it.
class Encoder {
 public:
  Encoder(const Tile& tile, const Form& form, Arena& arena, Encoded& result)
      : tile_(tile), form_(form), codes_(form.codes), result_(result), floats_(tile, reads() ? form.size : 0, arena) {
    min_ = arena.take<float>(form.sets);
    max_ = arena.take<float>(form.sets);
    scale_ = arena.take<float>(form.sets);
    zero_point_ = arena.take<int32_t>(form.sets);
    scratch_bytes_ = searches() ? search_scratch_bytes(form.size, form.layout) : 0;
    scratch_ = arena.take<std::byte>(scratch_bytes_);
    blocks_ = arena.take<BlockScale>(form.has_blocks() ? form.sets : 0);
    gain_ = arena.take<double>(form.has_blocks() && searches() ? form.sets : 0);
  }

  /// Takes memory for the parts.
  void take_parts(Arena& arena) {
    const bool data = tile_.wants(Role::kData);
    restored_ = arena.take<float>(restores() ? form_.size : 0);
    made_ = arena.take<std::byte>(data && codes_.bits < 8 ? form_.size : 0);
    data_ = take_part(arena, Role::kData, form_.packed(form_.size), result_.data);
    scales_ = take_part(arena, Role::kScale, form_.sets * form_.scale_bytes(), result_.scale);
    codes_of_zero_ = arena.take<std::byte>(tile_.wants(Role::kZeroPoint) ? form_.sets : 0);
    zero_points_ = take_part(arena, Role::kZeroPoint, form_.packed(form_.sets), result_.zero_point);
  }

  Status run() {
    Status status = choose();
    if (status != Status::kOk || has_problem()) return status;
    if (tile_.wants(Role::kData)) status = form_.has_blocks() ? store_blocks() : store_codes();
    if (status == Status::kOk && !has_problem()) store_parameters();
    return status;
  }

  /// Leaves in min and max what observe says.
  Status look(float*& min, float*& max) {
    Status status = searches() ? search() : look_at_range();
    min = searches() ? scale_ : min_;
    max = max_;
    for (size_t i = 0; searches() && i < form_.sets; i++) max_[i] = static_cast<float>(zero_point_[i]);
    return status;
  }

 private:
  [[nodiscard]] bool searches() const { return codes_.search && tile_.ranges == nullptr; }
  [[nodiscard]] bool reads() const { return tile_.ranges == nullptr || tile_.wants(Role::kData); }
  /// Whether errors are those of restored floats. Where neighbors have different scales, codes are not measured as they are made.
  [[nodiscard]] bool restores() const {
    return tile_.measure && tile_.wants(Role::kData) && (form_.has_blocks() || codes_.sharing == Sharing::kColumns);
  }
  [[nodiscard]] bool has_problem() const { return result_.problem.kind != ProblemKind::kNone; }
  [[nodiscard]] size_t sets() const { return static_cast<size_t>(form_.sets); }
  [[nodiscard]] size_t size() const { return static_cast<size_t>(form_.size); }

  std::byte* take_part(Arena& arena, Role role, uint64_t bytes, Bytes& part) const {
    if (!tile_.wants(role)) return nullptr;
    auto* const at = arena.take<std::byte>(bytes);
    part = {at, static_cast<size_t>(bytes)};
    return at;
  }

  Status look_at_range() {
    x_ = floats_.read(0, size());
    clear_range({min_, sets()}, {max_, sets()});
    const Status status = scalepoint::observe({x_, size()}, form_.layout, 0, NonFinite::kError, {min_, sets()}, {max_, sets()});
    if (status != Status::kNonFinite) return status;
    result_.problem = floats_.first_problem(0);
    return Status::kOk;
  }

  /// Scales and zero points that are searched for.
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
      if (reads()) {
        x_ = floats_.read(0, size());
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
    for (size_t i = 0; i < sets(); i++) scale_[i] = stored_scale(scale_[i], codes_.scale);
    for (size_t i = 0; reads() && i < sets(); i++) {
      if (!std::isfinite(scale_[i])) find_overflow(i);
    }
    // A scale that float16 rounds to 0 would make no codes.
    for (size_t i = 0; !form_.has_blocks() && i < sets(); i++) {
      if (scale_[i] == 0) scale_[i] = 0x1p-24f;
    }
    return Status::kOk;
  }

  /// The better of what choose_block says and of what the search has found.
  void choose_in_blocks() const {
    const int32_t flip = codes_.is_signed ? 1 << (codes_.bits - 1) : 0;
    for (size_t i = 0; i < sets(); i++) blocks_[i] = choose_block(min_[i], max_[i], codes_.bits, codes_.symmetric, codes_.scale);
    if (searches()) {
      std::fill_n(gain_, sets(), 0.0);
      form_.for_each_run([&](uint64_t set, uint64_t first, uint64_t n) {
        const BlockScale other = searched(static_cast<size_t>(set));
        for (uint64_t i = first; i < first + n; i++) gain_[set] += error_of(x_[i], blocks_[set]) - error_of(x_[i], other);
      });
      for (size_t i = 0; i < sets(); i++) {
        const BlockScale other = searched(i);
        if (gain_[i] > 0 && other.scale != 0 && std::isfinite(other.scale)) blocks_[i] = other;
      }
    }
    for (size_t i = 0; i < sets(); i++) {
      scale_[i] = blocks_[i].scale;
      zero_point_[i] = static_cast<int32_t>(blocks_[i].zero_point) - flip;
    }
  }

  [[nodiscard]] BlockScale searched(size_t i) const {
    BlockScale block;
    set_scale(block, scale_[i], codes_.scale);
    block.zero_point = static_cast<float>(zero_point_[i] + (codes_.is_signed ? 1 << (codes_.bits - 1) : 0));
    return block;
  }

  [[nodiscard]] double error_of(float x, const BlockScale& block) const {
    const auto levels = static_cast<float>((1 << codes_.bits) - 1);
    const double error = static_cast<double>(x) - block_value(block_code(x, block, levels), block);
    return error * error;
  }

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

  /// The scale of a set is beyond its type.
  void find_overflow(size_t wanted) {
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
    std::byte* const made = codes_.bits < 8 ? made_ : data_;
    const std::span<const float> x = {x_, size()}, scale = {scale_, sets()};
    const std::span<const int32_t> zero_point = {zero_point_, sets()};
    Status status = Status::kOk;
    if (codes_.sharing == Sharing::kColumns) {
      store_rows(made);
    } else if (tile_.measure) {
      status = quantize_linear_measured(x, form_.layout, 0, scale, zero_point, form_.spec(), {made, size()}, result_.sums);
    } else {
      status = quantize_linear(x, form_.layout, 0, scale, zero_point, form_.spec(), {made, size()});
    }
    if (status == Status::kOk) pack_data();
    return status;
  }

  /// Codes where each column has a scale. Scales and values are good, so that nothing is left to check.
  void store_rows(std::byte* made) {
    const kernels::CodeFormat format = {form_.dtype(), Rounding::kOnnx};
    const auto columns = static_cast<size_t>(form_.columns);
    for (size_t at = 0; at < size(); at += columns) {
      if (!kernels::quantize_each(x_ + at, columns, scale_, zero_point_, format, made + at)) {
        for (size_t i = 0; i < columns; i++) {
          const int32_t code =
              quantize_value(x_[at + i], scale_[i], zero_point_[i], format.dtype.qmin(), format.dtype.qmax(), Rounding::kOnnx);
          made[at + i] = static_cast<std::byte>(code);
        }
      }
      if (restores()) kernels::dequantize_each(made + at, format.dtype, columns, scale_, zero_point_, restored_ + at);
    }
    if (restores()) kernels::accumulate_error(x_, restored_, size(), result_.sums);
  }

  Status store_blocks() {
    std::byte* const made = codes_.bits < 8 ? made_ : data_;
    const auto levels = static_cast<float>((1 << codes_.bits) - 1);
    const auto flip = static_cast<uint8_t>(codes_.is_signed ? 1 << (codes_.bits - 1) : 0);
    form_.for_each_run([&](uint64_t set, uint64_t first, uint64_t n) {
      const BlockScale block = blocks_[set];
      for (uint64_t i = first; i < first + n; i++) {
        const uint8_t code = block_code(x_[i], block, levels);
        if (tile_.measure) restored_[i] = block_value(code, block);
        made[i] = static_cast<std::byte>(static_cast<uint8_t>(code - flip));
      }
    });
    if (tile_.measure) kernels::accumulate_error(x_, restored_, size(), result_.sums);
    pack_data();
    return Status::kOk;
  }

  void pack_data() const {
    if (codes_.bits < 8) kernels::pack_codes(uint8s(made_), size(), codes_.bits, kernels::CodeForm::kUnsigned, uint8s(data_));
  }

  void store_parameters() const {
    if (scales_ != nullptr && codes_.scale == ElementType::kF16) {
      kernels::float32_to_float16(scale_, sets(), reinterpret_cast<uint16_t*>(scales_));
    } else if (scales_ != nullptr) {
      std::memcpy(scales_, scale_, sets() * sizeof(float));
    }
    if (zero_points_ == nullptr) return;
    for (size_t i = 0; i < sets(); i++) codes_of_zero_[i] = static_cast<std::byte>(zero_point_[i]);
    kernels::pack_codes(uint8s(codes_of_zero_), sets(), codes_.bits, kernels::CodeForm::kUnsigned, uint8s(zero_points_));
  }

  const Tile& tile_;
  const Form& form_;
  const DequantizeLinear& codes_;
  Encoded& result_;
  Floats floats_;
  const float* x_ = nullptr;
  float *min_, *max_, *scale_, *restored_ = nullptr;
  int32_t* zero_point_;
  BlockScale* blocks_ = nullptr;
  double* gain_ = nullptr;  ///< how much less the search loses
  uint64_t scratch_bytes_;
  std::byte *scratch_, *made_ = nullptr, *data_ = nullptr, *scales_ = nullptr, *codes_of_zero_ = nullptr, *zero_points_ = nullptr;
};

/// Checks a tile and its codes.
Status init(const Tile& tile, bool reads, Form& form) {
  if (const Status status = form.init(tile.rows, tile.columns); status != Status::kOk) return status;
  return reads ? check(tile) : Status::kOk;
}

}  // namespace

Status encode(const Tile& tile, const DequantizeLinear& codes, Arena& arena, Encoded& result) noexcept {
  Form form = {.codes = codes, .layout = {}};
  if (const Status status = init(tile, tile.ranges == nullptr || tile.wants(Role::kData), form); status != Status::kOk)
    return status;
  result = {};
  Encoder encoder(tile, form, arena, result);
  encoder.take_parts(arena);
  if (arena.only_counts()) return Status::kOk;
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
  if (arena.only_counts()) return Status::kOk;
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
  if (arena.only_counts()) return Status::kOk;
  if (arena.status() != Status::kOk) return arena.status();
  const auto sets = static_cast<size_t>(form.sets);
  const auto form_of = codes.is_signed ? kernels::CodeForm::kTwosComplement : kernels::CodeForm::kUnsigned;
  kernels::unpack_codes(uint8s(stored.data.data), static_cast<size_t>(form.size), codes.bits, form_of, made);
  if (codes.scale == ElementType::kF16) {
    kernels::float16_to_float32(reinterpret_cast<const uint16_t*>(stored.scale.data), sets, scale);
  } else {
    std::memcpy(scale, stored.scale.data, sets * sizeof(float));
  }
  if (has_zero_points) {
    kernels::unpack_codes(uint8s(stored.zero_point.data), sets, codes.bits, form_of, zero_point);
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
