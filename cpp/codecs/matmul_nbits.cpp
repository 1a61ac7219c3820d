#include "codecs/matmul_nbits.h"

#include <cmath>
#include <cstring>

#include "arrays/metrics_loops.h"
#include "arrays/min_max_loops.h"
#include "arrays/pack_bits_loops.h"
#include "codebooks/absmax.h"
#include "codecs/block_codes.h"
#include "codecs/block_codes_loops.h"
#include "codecs/block_fit.h"
#include "codecs/input_codes.h"
#include "ranges/range_search.h"

namespace scalepoint::codecs {
namespace {

constexpr uint64_t kPanel = loops::kPanel;
/// Columns that are read at once: 512 bytes of a row. Rows are often multiples of 4096 bytes apart, and then share the same lines of a
/// cache.
constexpr uint64_t kBand = 8 * kPanel;
/// Blocks of a column that are made one after the other.
constexpr uint64_t kBlocksAtOnce = 4;

/// Numbers that follow from the size of a tile and from its codes.
struct Form {
  const MatMulNBits& codes;
  uint64_t k = 0, n = 0, blocks = 0;  ///< rows and columns of B, blocks of a column
  uint64_t begin = 0, end = 0;        ///< rows of the piece

  Status init(uint32_t rows, uint32_t columns) {
    const int32_t bits = codes.bits;
    if ((bits != 2 && bits != 4 && bits != 8) || (codes.scale != ElementType::kF32 && codes.scale != ElementType::kF16)) {
      return Status::kBadDType;
    }
    const uint32_t block = codes.block_size;
    if (rows == 0 || columns == 0 || block < 16 || block > 256 || (block & (block - 1)) != 0) return Status::kBadLayout;
    k = codes.transposed ? columns : codes.all_rows > 0 ? codes.all_rows : rows;
    n = codes.transposed ? rows : columns;
    blocks = (k + block - 1) / block;
    begin = codes.row;
    end = codes.transposed ? k : begin + rows;
    if (codes.transposed && (codes.row > 0 || codes.all_rows > 0)) return Status::kBadLayout;
    return begin % block != 0 || (end % block != 0 && end != k) || end > k ? Status::kBadLayout : Status::kOk;
  }

  [[nodiscard]] uint64_t block_bytes() const { return uint64_t{codes.block_size} * static_cast<uint32_t>(codes.bits) / 8; }
  [[nodiscard]] uint64_t column_bytes() const { return blocks * block_bytes(); }
  [[nodiscard]] uint64_t zero_point_bytes() const {
    return codes.float_zero_points ? blocks * scale_bytes() : packed_bytes(blocks, codes.bits);
  }
  [[nodiscard]] uint64_t scale_bytes() const { return codes.scale == ElementType::kF16 ? 2 : 4; }
  [[nodiscard]] float levels() const { return static_cast<float>((1 << codes.bits) - 1); }
  /// Index in the tile of element i of a column.
  [[nodiscard]] uint64_t index(uint64_t column, uint64_t i) const { return codes.transposed ? column * k + i : i * n + column; }
};

/// Encodes a tile, a block of each column of a panel at a time.
class Encoder {
 public:
  Encoder(const Tile& tile, const Form& form, Arena& arena, Encoded& result)
      : tile_(tile),
        form_(form),
        codes_(form.codes),
        result_(result),
        // Allocated first, so that they have the same address for every piece of a tile.
        data_(take_part(tile, Role::kData, form.n * form.column_bytes(), arena, result.data)),
        scales_(take_part(tile, Role::kScale, form.n * form.blocks * form.scale_bytes(), arena, result.scale)),
        zero_points_(take_part(tile, Role::kZeroPoint, form.n * form.zero_point_bytes(), arena, result.zero_point)),
        floats_(tile, tile.size(), arena) {
    const uint64_t size = codes_.block_size;
    const bool data = tile.wants(Role::kData);
    band_ = arena.take<float>(kBand * size);
    words_ = arena.take<int32_t>(data ? kPanel * form.block_bytes() / 4 : 0);
    restored_ = arena.take<float>(data && tile.measure ? kPanel * size : 0);
    columns_ = arena.take<float>(codes_.search ? kPanel * size : 0);
    const Layout layout = {Granularity::kPerTensor};
    scratch_bytes_ = codes_.search && !codes_.symmetric ? search_scratch_bytes(size, layout) : 0;
    scratch_ = arena.take<std::byte>(scratch_bytes_);
  }

  Status run() {
    for (int32_t code = 0; codes_.search && code < 1 << codes_.bits; code++) {
      book_[code] = static_cast<float>(code - (1 << (codes_.bits - 1))) / static_cast<float>(1 << (codes_.bits - 1));
    }
    if (zero_points_ != nullptr && form_.begin == 0) std::memset(zero_points_, 0, result_.zero_point.size);
    const float* const x = floats_.read(0, static_cast<size_t>(tile_.size()));
    const uint64_t size = codes_.block_size, last = (form_.end + size - 1) / size;
    // Take all blocks of contiguous rows; otherwise enough blocks for their codes to fill cache lines.
    const uint64_t at_once = codes_.transposed ? last : kBlocksAtOnce;
    for (uint64_t first = form_.begin / size; first < last; first += at_once) {
      for (uint64_t column = 0; column < form_.n; column += kBand) {
        for (uint64_t block = first; block < std::min(last, first + at_once); block++) {
          const Status status = store_band(x, column, block);
          if (status != Status::kOk || has_problem()) return status;
        }
      }
    }
    return Status::kOk;
  }

 private:
  [[nodiscard]] bool has_problem() const { return result_.problem.kind != ProblemKind::kNone; }

  /// One block of each of the columns from `column` on, as many as a band has.
  Status store_band(const float* x, uint64_t column, uint64_t block) {
    const uint64_t first = block * codes_.block_size, end = std::min(form_.n, column + kBand);
    const auto rows = static_cast<size_t>(std::min<uint64_t>(codes_.block_size, form_.end - first));
    if (!codes_.transposed) {
      loops::take_panels(x + (first - form_.begin) * form_.n + column, rows, static_cast<size_t>(form_.n),
                         static_cast<size_t>(end - column), band_);
    }
    float* panel = band_;
    for (; column < end; column += kPanel) {
      const auto some = static_cast<size_t>(std::min(kPanel, end - column));
      if (codes_.transposed) {
        std::fill_n(panel, rows * kPanel, 0.0f);
        loops::gather_columns(x + column * form_.k + first, some, static_cast<size_t>(form_.k), rows, panel, kPanel);
      }
      panel_ = panel;
      const Status status = store_panel(rows, some, column, block);
      if (status != Status::kOk || has_problem()) return status;
      if (!codes_.transposed) panel += rows * kPanel;
    }
    return Status::kOk;
  }

  /// One block of each of the columns of the current panel.
  Status store_panel(size_t rows, size_t some, uint64_t column, uint64_t block) {
    const Status status = choose(rows, some);
    if (status != Status::kOk || has_problem()) return status;
    for (size_t i = 0; i < some; i++) {
      if (!std::isfinite(scale_[i]) || !std::isfinite(zero_point_[i])) {
        find_overflow(rows, i, column, block * codes_.block_size);
        return Status::kOk;
      }
    }
    store_parameters(some, column, block);
    if (data_ == nullptr) return Status::kOk;
    const loops::BlockCodes codes = {scale_, reciprocal_, zero_point_, form_.levels()};
    loops::make_panel_codes(panel_, rows, codes_.block_size, codes, codes_.bits, words_, tile_.measure ? restored_ : nullptr);
    loops::put_words(words_, static_cast<size_t>(form_.block_bytes() / 4), some,
                     uint8s(data_ + column * form_.column_bytes() + block * form_.block_bytes()),
                     static_cast<size_t>(form_.column_bytes()));
    if (tile_.measure) loops::accumulate_error(panel_, restored_, rows * kPanel, result_.sums);
    return Status::kOk;
  }

  /// Chooses scales and zero points of a panel, or reports a problem.
  Status choose(size_t rows, size_t some) {
    float min[kPanel], max[kPanel];
    if (loops::panel_range(panel_, rows, min, max) >= kInfinityBits) {
      find_problem();
      return Status::kOk;
    }
    const bool half = codes_.scale == ElementType::kF16;
    loops::choose_blocks(min, max, kPanel, codes_.bits, codes_.symmetric, half, scale_, reciprocal_, zero_point_);
    if (codes_.search) loops::gather_columns(panel_, rows, kPanel, some, columns_, codes_.block_size);
    for (size_t i = 0; (codes_.search || codes_.float_zero_points) && i < some; i++) {
      const std::span<const float> x = {codes_.search ? columns_ + i * codes_.block_size : nullptr, codes_.search ? rows : 0};
      BlockScale block = {scale_[i], reciprocal_[i], zero_point_[i]};
      if (codes_.float_zero_points) {
        choose_float(x, min[i], max[i], block);
      } else if (const Status status = search(x, block); status != Status::kOk) {
        return status;
      }
      scale_[i] = block.scale;
      reciprocal_[i] = block.reciprocal;
      zero_point_[i] = block.zero_point;
    }
    return Status::kOk;
  }

  /// Replaces a block by the result of the search if that is better.
  Status search(std::span<const float> x, BlockScale& block) {
    if (block.scale == 0 || !std::isfinite(block.scale)) return Status::kOk;
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

  void choose_float(std::span<const float> x, float min, float max, BlockScale& block) const {
    block = choose_float_block(min, max, form_.levels(), codes_.scale);
    if (!codes_.search || block.scale == 0 || !std::isfinite(block.scale)) return;
    // Least squares finds the nearest minimum. Try narrower ranges, which lead to others.
    for (const float part : {0.9f, 0.8f, 0.7f}) {
      const float cut = (max - min) * (1 - part) / 2;
      const BlockScale narrower = choose_float_block(min + cut, max - cut, form_.levels(), codes_.scale);
      fit_block(x, form_.levels(), codes_.scale, ZeroPointKind::kFloat, block, narrower);
    }
  }

  /// Reports an element that is not finite.
  void find_problem() {
    result_.problem = floats_.first_problem(0);
    result_.problem.index += form_.begin * form_.n;
  }

  /// Reports a block whose scale is beyond its type. NaN and infinities have priority, wherever they are.
  void find_overflow(size_t rows, size_t i, uint64_t column, uint64_t first) {
    find_problem();
    if (has_problem()) return;
    size_t worst = 0;
    for (size_t row = 0; row < rows; row++) {
      if (std::fabs(panel_[row * kPanel + i]) > std::fabs(panel_[worst * kPanel + i])) worst = row;
    }
    result_.problem = {ProblemKind::kOverflow, form_.index(column + i, first + worst), panel_[worst * kPanel + i]};
  }

  void store_parameters(size_t some, uint64_t column, uint64_t block) const {
    const auto scale_bytes = static_cast<size_t>(form_.scale_bytes());
    if (scales_ != nullptr) store_floats(scale_, some, scales_ + (column * form_.blocks + block) * scale_bytes);
    if (zero_points_ == nullptr) return;
    if (codes_.float_zero_points) {
      return store_floats(zero_point_, some, zero_points_ + (column * form_.blocks + block) * scale_bytes);
    }
    const uint64_t bit = block * static_cast<uint32_t>(codes_.bits);
    for (size_t i = 0; i < some; i++) {
      const auto code = static_cast<uint32_t>(zero_point_[i]);
      zero_points_[(column + i) * form_.zero_point_bytes() + bit / 8] |= static_cast<std::byte>(code << bit % 8);
    }
  }

  /// One float for each column, in the type of scales.
  void store_floats(const float* floats, size_t some, std::byte* to) const {
    alignas(float) std::byte stored[kPanel * sizeof(float)];
    store_scales(floats, some, codes_.scale, stored);
    const auto size = static_cast<size_t>(form_.scale_bytes()), step = static_cast<size_t>(form_.blocks) * size;
    for (size_t i = 0; i < some; i++) std::memcpy(to + i * step, stored + i * size, size);
  }

  const Tile& tile_;
  const Form& form_;
  const MatMulNBits& codes_;
  Encoded& result_;
  std::byte *data_, *scales_, *zero_points_;
  Floats floats_;
  float book_[256];
  float scale_[kPanel], reciprocal_[kPanel], zero_point_[kPanel];  ///< of the panel at hand
  float *band_, *restored_, *columns_;
  const float* panel_ = nullptr;  ///< the one at hand
  int32_t* words_;
  uint64_t scratch_bytes_;
  std::byte* scratch_;
};

/// Encodes a tile by data about the inputs, which all lie in it. @param moments null: rounding passes no errors on
Status encode_by_inputs(const Tile& tile, const MatMulNBits& codes, const Moments* moments, Arena& arena, Encoded& result) {
  Form form = {.codes = codes};
  if (const Status status = form.init(tile.rows, tile.columns); status != Status::kOk) return status;
  if (codes.row > 0 || codes.all_rows > 0) return Status::kBadLayout;
  if (const Status status = check(tile); status != Status::kOk) return status;
  result = {};
  const auto k = static_cast<size_t>(form.k), n = static_cast<size_t>(form.n), blocks = static_cast<size_t>(form.blocks);
  std::byte* const data = take_part(tile, Role::kData, n * form.column_bytes(), arena, result.data);
  std::byte* const scales = take_part(tile, Role::kScale, n * form.blocks * form.scale_bytes(), arena, result.scale);
  std::byte* const zero_points = take_part(tile, Role::kZeroPoint, n * form.zero_point_bytes(), arena, result.zero_point);
  auto* const column = arena.take<uint8_t>(form.blocks * codes.block_size);
  // Encode from the smallest to the largest values, which finds problems.
  MatMulNBits plain = codes;
  plain.search = false;
  Tile whole = tile;
  whole.importance = nullptr;
  whole.measure = false;
  Encoded found;
  if (const Status status = encode(whole, plain, arena, found); status != Status::kOk) return status;
  result.problem = found.problem;
  if (result.problem.kind != ProblemKind::kNone) return Status::kOk;
  // Make the codes.
  const float* w = nullptr;
  if (const Status status = take_input_rows(tile, !codes.transposed, arena, w); status != Status::kOk) return status;
  const InputMatrix matrix = {.rows = n,
                              .columns = k,
                              .group_size = codes.block_size,
                              .bits = codes.bits,
                              .symmetric = codes.symmetric,
                              .negative = true,
                              .float_zero_points = codes.float_zero_points,
                              .scale = codes.scale,
                              .importance = tile.importance,
                              .moments = moments};
  InputCodes made;
  const Status status = make_input_codes({w, n * k}, matrix, arena, made, tile.measure ? &result.sums : nullptr);
  if (status != Status::kOk) return status;
  // Store them.
  std::fill_n(column, blocks * codes.block_size, uint8_t{0});
  for (size_t i = 0; data != nullptr && i < n; i++) {
    std::copy_n(made.codes + i * k, k, column);
    loops::pack_codes(column, blocks * codes.block_size, codes.bits, loops::CodeForm::kUnsigned,
                      uint8s(data + i * form.column_bytes()));
  }
  if (scales != nullptr) store_scales(made.scales, n * blocks, codes.scale, scales);
  if (zero_points == nullptr) return Status::kOk;
  if (codes.float_zero_points) {
    store_scales(made.zero_points, n * blocks, codes.scale, zero_points);
    return Status::kOk;
  }
  for (size_t i = 0; i < n; i++) {
    for (size_t block = 0; block < blocks; block++) column[block] = static_cast<uint8_t>(made.zero_points[i * blocks + block]);
    loops::pack_codes(column, blocks, codes.bits, loops::CodeForm::kUnsigned, uint8s(zero_points + i * form.zero_point_bytes()));
  }
  return Status::kOk;
}

}  // namespace

Status encode_with_feedback(const Tile& tile, const MatMulNBits& codes, const Moments& moments, Arena& arena,
                            Encoded& result) noexcept {
  return tile.importance == nullptr ? Status::kBadLayout : encode_by_inputs(tile, codes, &moments, arena, result);
}

Status encode(const Tile& tile, const MatMulNBits& codes, Arena& arena, Encoded& result) noexcept {
  if (tile.importance != nullptr) return encode_by_inputs(tile, codes, nullptr, arena, result);
  Form form = {.codes = codes};
  if (const Status status = form.init(tile.rows, tile.columns); status != Status::kOk) return status;
  if (const Status status = check(tile); status != Status::kOk) return status;
  result = {};
  Encoder encoder(tile, form, arena, result);
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
  if (arena.status() != Status::kOk) return arena.status();
  constexpr loops::CodeForm kUnsigned = loops::CodeForm::kUnsigned;
  std::fill_n(zero_point, blocks, static_cast<float>(1 << (codes.bits - 1)));
  for (uint64_t column = 0; column < form.n; column++) {
    const std::byte* const data = stored.data.data + column * form.column_bytes();
    const std::byte* const scales = stored.scale.data + column * form.blocks * form.scale_bytes();
    loops::unpack_codes(uint8s(data), blocks * codes.block_size, codes.bits, kUnsigned, made);
    load_scales(scales, blocks, codes.scale, scale);
    if (has_zero_points && codes.float_zero_points) {
      load_scales(stored.zero_point.data + column * form.zero_point_bytes(), blocks, codes.scale, zero_point);
    } else if (has_zero_points) {
      loops::unpack_codes(uint8s(stored.zero_point.data + column * form.zero_point_bytes()), blocks, codes.bits, kUnsigned,
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
