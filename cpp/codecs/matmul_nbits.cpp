#include "matmul_nbits.h"

#include <cmath>
#include <cstring>

#include "../absmax.h"
#include "../kernels/block_codes.h"
#include "../kernels/metrics.h"
#include "../kernels/pack.h"
#include "../kernels/range.h"
#include "../range_search.h"
#include "block_codes.h"
#include "block_fit.h"

namespace scalepoint::codecs {
namespace {

/// Columns that are gathered at once: four cache lines of a row, which are next to each other.
constexpr uint64_t kColumnsAtOnce = 64;

const uint8_t* uint8s(const std::byte* bytes) { return reinterpret_cast<const uint8_t*>(bytes); }
uint8_t* uint8s(std::byte* bytes) { return reinterpret_cast<uint8_t*>(bytes); }

/// What follows from the size of a tile and from its codes.
struct Form {
  const MatMulNBits& codes;
  uint64_t k = 0, n = 0, blocks = 0;  ///< rows and columns of B, blocks of a column

  Status init(uint32_t rows, uint32_t columns) {
    const int32_t bits = codes.bits;
    if ((bits != 2 && bits != 4 && bits != 8) || (codes.scale != ElementType::kF32 && codes.scale != ElementType::kF16)) {
      return Status::kBadDType;
    }
    const uint32_t block = codes.block_size;
    if (rows == 0 || columns == 0 || block < 16 || block > 256 || (block & (block - 1)) != 0) return Status::kBadLayout;
    k = codes.transposed ? columns : rows;
    n = codes.transposed ? rows : columns;
    blocks = (k + block - 1) / block;
    return Status::kOk;
  }

  [[nodiscard]] uint64_t block_bytes() const { return uint64_t{codes.block_size} * static_cast<uint32_t>(codes.bits) / 8; }
  [[nodiscard]] uint64_t column_bytes() const { return blocks * block_bytes(); }
  [[nodiscard]] uint64_t zero_point_bytes() const {
    return codes.float_zero_points ? blocks * scale_bytes() : packed_bytes(blocks, codes.bits);
  }
  [[nodiscard]] uint64_t scale_bytes() const { return codes.scale == ElementType::kF16 ? 2 : 4; }
  [[nodiscard]] float levels() const { return static_cast<float>((1 << codes.bits) - 1); }
  /// Where element i of a column lies in the tile.
  [[nodiscard]] uint64_t index(uint64_t column, uint64_t i) const { return codes.transposed ? column * k + i : i * n + column; }
};

/// Encodes a tile, some columns at a time.
class Encoder {
 public:
  Encoder(const Tile& tile, const Form& form, Arena& arena, Encoded& result)
      : tile_(tile), form_(form), codes_(form.codes), result_(result), floats_(tile, tile.size(), arena) {
    const bool data = tile.wants(Role::kData);
    stride_ = form.codes.transposed ? static_cast<size_t>(form.k) : kernels::column_stride(static_cast<size_t>(form.k));
    columns_ = arena.take<float>(form.codes.transposed ? 0 : std::min(kColumnsAtOnce, form.n) * stride_);
    made_ = arena.take<uint8_t>(form.blocks * codes_.block_size);
    restored_ = arena.take<float>(data && tile.measure ? form.k : 0);
    zeros_ = arena.take<float>(form.blocks);
    packed_zeros_ = arena.take<uint8_t>(form.blocks);
    scales_of_column_ = arena.take<float>(form.blocks);
    const Layout layout = {Granularity::kPerTensor};
    scratch_bytes_ = codes_.search && !codes_.symmetric ? search_scratch_bytes(codes_.block_size, layout) : 0;
    scratch_ = arena.take<std::byte>(scratch_bytes_);
    data_ = take_part(arena, Role::kData, form.n * form.column_bytes(), result.data);
    scales_ = take_part(arena, Role::kScale, form.n * form.blocks * form.scale_bytes(), result.scale);
    zero_points_ = take_part(arena, Role::kZeroPoint, form.n * form.zero_point_bytes(), result.zero_point);
  }

  Status run() {
    for (int32_t code = 0; codes_.search && code < 1 << codes_.bits; code++) {
      book_[code] = static_cast<float>(code - (1 << (codes_.bits - 1))) / static_cast<float>(1 << (codes_.bits - 1));
    }
    const float* const x = floats_.read(0, static_cast<size_t>(tile_.size()));
    result_.problem = floats_.first_problem(0);
    if (has_problem()) return Status::kOk;
    for (uint64_t column = 0; column < form_.n; column += kColumnsAtOnce) {
      const uint64_t some = std::min(kColumnsAtOnce, form_.n - column);
      const float* from = x + column * form_.k;
      if (!codes_.transposed) from = gather(x + column, some);
      for (uint64_t i = 0; i < some; i++) {
        const Status status = store_column(from + i * stride_, column + i);
        if (status != Status::kOk || has_problem()) return status;
      }
    }
    return Status::kOk;
  }

 private:
  [[nodiscard]] bool has_problem() const { return result_.problem.kind != ProblemKind::kNone; }

  std::byte* take_part(Arena& arena, Role role, uint64_t bytes, Bytes& part) const {
    if (!tile_.wants(role)) return nullptr;
    auto* const at = arena.take<std::byte>(bytes);
    part = {at, static_cast<size_t>(bytes)};
    return at;
  }

  /// Puts columns one after the other.
  const float* gather(const float* x, uint64_t some) const {
    kernels::gather_columns(x, static_cast<size_t>(form_.k), static_cast<size_t>(form_.n), static_cast<size_t>(some), columns_,
                            stride_);
    return columns_;
  }

  Status store_column(const float* x, uint64_t column) {
    const uint64_t size = codes_.block_size;
    if (form_.k % size != 0) std::memset(made_, 0, static_cast<size_t>(form_.blocks * size));
    for (uint64_t block = 0; block < form_.blocks; block++) {
      const uint64_t first = block * size, some = std::min(size, form_.k - first);
      BlockScale scale;
      if (const Status status = choose({x + first, static_cast<size_t>(some)}, scale); status != Status::kOk) return status;
      if (!std::isfinite(scale.scale) || !std::isfinite(scale.zero_point)) {
        find_overflow(x, column, first, some);
        return Status::kOk;
      }
      scales_of_column_[block] = scale.scale;
      zeros_[block] = scale.zero_point;
      if (data_ == nullptr) continue;
      const kernels::BlockCodes codes = {scale.scale, scale.reciprocal, scale.zero_point, form_.levels()};
      kernels::make_block_codes(x + first, static_cast<size_t>(some), codes, made_ + first,
                                tile_.measure ? restored_ + first : nullptr);
    }
    store_parts(column);
    if (data_ != nullptr && tile_.measure) kernels::accumulate_error(x, restored_, static_cast<size_t>(form_.k), result_.sums);
    return Status::kOk;
  }

  Status choose(std::span<const float> x, BlockScale& block) {
    const kernels::Range range = kernels::range(x.data(), x.size());
    if (codes_.float_zero_points) return choose_float(x, range, block);
    block = choose_block(range.min, range.max, codes_.bits, codes_.symmetric, codes_.scale);
    if (!codes_.search || block.scale == 0 || !std::isfinite(block.scale)) return Status::kOk;
    BlockScale other;
    other.zero_point = block.zero_point;
    float scale = 0;
    int32_t zero_point = 0;
    if (codes_.symmetric) {
      const std::span<const float> book = {book_, size_t{1} << codes_.bits};
      const Status status = search_absmax(x, x.size(), book, Decision::kNearest, false, {&scale, 1});
      if (status != Status::kOk) return status;
      scale /= static_cast<float>(1 << (codes_.bits - 1));
    } else {
      const QuantizationSpec spec = {.dtype = {codes_.bits, false}, .scheme = Scheme::kAsymmetric};
      const Status status = search_qparams(x, {Granularity::kPerTensor}, spec, RangeMethod::kMse, 100,
                                           {scratch_, static_cast<size_t>(scratch_bytes_)}, {&scale, 1}, {&zero_point, 1});
      if (status != Status::kOk) return status;
      other.zero_point = static_cast<float>(zero_point);
    }
    set_scale(other, scale, codes_.scale);
    const bool is_possible =
        other.scale != 0 && std::isfinite(other.scale) && other.zero_point >= 0 && other.zero_point <= form_.levels();
    if (!is_possible) other = block;
    if (!codes_.symmetric) {
      fit_block(x, form_.levels(), codes_.scale, ZeroPointKind::kWhole, block, other);
    } else if (block_error(x, other, form_.levels()) < block_error(x, block, form_.levels())) {
      block = other;
    }
    return Status::kOk;
  }

  Status choose_float(std::span<const float> x, const kernels::Range& range, BlockScale& block) const {
    block = choose_float_block(range.min, range.max, form_.levels(), codes_.scale);
    if (!codes_.search || block.scale == 0 || !std::isfinite(block.scale)) return Status::kOk;
    // Least squares finds the nearest minimum. Narrower ranges lead to others.
    for (const float part : {0.9f, 0.8f, 0.7f}) {
      const float cut = (range.max - range.min) * (1 - part) / 2;
      const BlockScale narrower = choose_float_block(range.min + cut, range.max - cut, form_.levels(), codes_.scale);
      fit_block(x, form_.levels(), codes_.scale, ZeroPointKind::kFloat, block, narrower);
    }
    return Status::kOk;
  }

  /// The scale of a block is beyond its type.
  void find_overflow(const float* x, uint64_t column, uint64_t first, uint64_t some) {
    uint64_t worst = first;
    for (uint64_t i = first; i < first + some; i++) {
      if (std::fabs(x[i]) > std::fabs(x[worst])) worst = i;
    }
    result_.problem = {ProblemKind::kOverflow, form_.index(column, worst), x[worst]};
  }

  void store_parts(uint64_t column) const {
    const auto blocks = static_cast<size_t>(form_.blocks);
    constexpr kernels::CodeForm kUnsigned = kernels::CodeForm::kUnsigned;
    if (data_ != nullptr) {
      kernels::pack_codes(made_, blocks * codes_.block_size, codes_.bits, kUnsigned,
                          uint8s(data_ + column * form_.column_bytes()));
    }
    if (scales_ != nullptr) store_floats(scales_of_column_, scales_ + column * form_.blocks * form_.scale_bytes());
    if (zero_points_ == nullptr) return;
    std::byte* const zero_points = zero_points_ + column * form_.zero_point_bytes();
    if (codes_.float_zero_points) return store_floats(zeros_, zero_points);
    for (size_t block = 0; block < blocks; block++) packed_zeros_[block] = static_cast<uint8_t>(zeros_[block]);
    kernels::pack_codes(packed_zeros_, blocks, codes_.bits, kUnsigned, uint8s(zero_points));
  }

  /// One float for each block of a column, in the type of scales.
  void store_floats(const float* floats, std::byte* to) const {
    const auto blocks = static_cast<size_t>(form_.blocks);
    if (codes_.scale == ElementType::kF16) {
      kernels::float32_to_float16(floats, blocks, reinterpret_cast<uint16_t*>(to));
    } else {
      std::memcpy(to, floats, blocks * sizeof(float));
    }
  }

  const Tile& tile_;
  const Form& form_;
  const MatMulNBits& codes_;
  Encoded& result_;
  Floats floats_;
  float book_[256];
  size_t stride_;
  float *columns_, *restored_, *scales_of_column_, *zeros_;
  uint8_t *made_, *packed_zeros_;
  uint64_t scratch_bytes_;
  std::byte *scratch_, *data_, *scales_, *zero_points_;
};

}  // namespace

Status encode(const Tile& tile, const MatMulNBits& codes, Arena& arena, Encoded& result) noexcept {
  Form form = {.codes = codes};
  if (const Status status = form.init(tile.rows, tile.columns); status != Status::kOk) return status;
  if (const Status status = check(tile); status != Status::kOk) return status;
  result = {};
  Encoder encoder(tile, form, arena, result);
  if (arena.only_counts()) return Status::kOk;
  return arena.status() == Status::kOk ? encoder.run() : arena.status();
}

Status decode(const Stored& stored, const MatMulNBits& codes, Arena& arena, const float*& x) noexcept {
  Form form = {.codes = codes};
  if (const Status status = form.init(stored.rows, stored.columns); status != Status::kOk) return status;
  const bool has_zero_points = stored.zero_point.size != 0;
  if (stored.data.size != form.n * form.column_bytes() || stored.scale.size != form.n * form.blocks * form.scale_bytes() ||
      (has_zero_points && stored.zero_point.size != form.n * form.zero_point_bytes())) {
    return Status::kSizeMismatch;
  }
  const auto blocks = static_cast<size_t>(form.blocks);
  auto* const out = arena.take<float>(form.k * form.n);
  auto* const made = arena.take<uint8_t>(form.blocks * codes.block_size);
  auto* const scale = arena.take<float>(form.blocks);
  auto* const zeros = arena.take<uint8_t>(form.blocks);
  auto* const zero_point = arena.take<float>(form.blocks);
  if (arena.only_counts()) return Status::kOk;
  if (arena.status() != Status::kOk) return arena.status();
  constexpr kernels::CodeForm kUnsigned = kernels::CodeForm::kUnsigned;
  std::fill_n(zero_point, blocks, static_cast<float>(1 << (codes.bits - 1)));
  const auto load = [&](const std::byte* from, float* to) {
    if (codes.scale == ElementType::kF16) {
      kernels::float16_to_float32(reinterpret_cast<const uint16_t*>(from), blocks, to);
    } else {
      std::memcpy(to, from, blocks * sizeof(float));
    }
  };
  for (uint64_t column = 0; column < form.n; column++) {
    const std::byte* const data = stored.data.data + column * form.column_bytes();
    const std::byte* const scales = stored.scale.data + column * form.blocks * form.scale_bytes();
    kernels::unpack_codes(uint8s(data), blocks * codes.block_size, codes.bits, kUnsigned, made);
    load(scales, scale);
    if (has_zero_points && codes.float_zero_points) {
      load(stored.zero_point.data + column * form.zero_point_bytes(), zero_point);
    } else if (has_zero_points) {
      kernels::unpack_codes(uint8s(stored.zero_point.data + column * form.zero_point_bytes()), blocks, codes.bits, kUnsigned,
                            zeros);
      for (size_t block = 0; block < blocks; block++) zero_point[block] = zeros[block];
    }
    for (uint64_t i = 0; i < form.k; i++) {
      const uint64_t block = i / codes.block_size;
      out[form.index(column, i)] = (static_cast<float>(made[i]) - zero_point[block]) * scale[block];
    }
  }
  x = out;
  return Status::kOk;
}

}  // namespace scalepoint::codecs
