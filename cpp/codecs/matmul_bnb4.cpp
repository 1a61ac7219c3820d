#include "codecs/matmul_bnb4.h"

#include <algorithm>
#include <cstring>

#include "arrays/metrics_loops.h"
#include "codebooks/absmax.h"
#include "codebooks/codebook_parts.h"
#include "codecs/block_codes_loops.h"
#include "codecs/fed_rows.h"
#include "ranges/range_weighted.h"

namespace scalepoint::codecs {
namespace {

/// Numbers that follow from the size of a tile and from its codes.
struct Form {
  const MatMulBnb4& codes;
  uint64_t k = 0, n = 0, blocks = 0;  ///< rows and columns of B, blocks of a column

  Status init(uint32_t rows, uint32_t columns) {
    const uint32_t block = codes.block_size;
    k = codes.transposed ? columns : rows;
    n = codes.transposed ? rows : columns;
    if (k == 0 || n == 0 || block < 16 || block > 256 || (block & (block - 1)) != 0 || k % block != 0) return Status::kBadLayout;
    blocks = k / block;
    return Status::kOk;
  }

  [[nodiscard]] Decision decision() const { return codes.book == PublishedCodebook::kNf4 ? Decision::kNf4 : Decision::kFp4; }
  /// Columns that are gathered at once: whole cache lines of the rows, as many as stay in the cache.
  [[nodiscard]] uint64_t columns_at_once() const { return k > 4096 ? 16 : 64; }
  /// Index in the tile of element i of a column.
  [[nodiscard]] uint64_t index(uint64_t column, uint64_t i) const { return codes.transposed ? column * k + i : i * n + column; }
};

/// Scales of blocks of levels that reach from -1 to 1.
WeightedGrid scale_grid(const Levels& levels) { return {.qmin = -1, .qmax = 1, .levels = &levels}; }

/// Codes of columns with feedback.
class FedCodes final : public FedForm {
 public:
  FedCodes(const MatMulBnb4& codes, const Form& form, const float* scales)
      : FedForm(!codes.transposed), codes_(codes), form_(form), scales_(scales) {}

  Status encode_plain(const Tile& tile, Arena& arena, Encoded& result) override { return encode(tile, codes_, arena, result); }
  Status restore(const Stored& stored, Arena& arena, const float*& y) override { return decode(stored, codes_, arena, y); }

  void write(size_t column, const uint8_t* made, std::byte* data, std::byte* scale, std::byte*) override {
    pack(made, form_.k, uint8s(data) + column * form_.k / 2);
    std::memcpy(scale + column * form_.blocks * sizeof(float), scales_ + column * form_.blocks, form_.blocks * sizeof(float));
  }

  /// Packs the codes of a column.
  static void pack(const uint8_t* made, uint64_t k, uint8_t* to) {
    for (size_t j = 0; j < k / 2; j++) to[j] = static_cast<uint8_t>(made[2 * j] << 4 | made[2 * j + 1]);
  }

 private:
  const MatMulBnb4& codes_;
  const Form& form_;
  const float* scales_;
};

}  // namespace

Status encode_with_feedback(const Tile& tile, const MatMulBnb4& codes, const Moments& moments, Arena& arena,
                            Encoded& result) noexcept {
  Form form = {.codes = codes};
  if (const Status status = form.init(tile.rows, tile.columns); status != Status::kOk) return status;
  if (codes.book != PublishedCodebook::kNf4) return Status::kBadDType;
  const uint64_t sets = form.n * form.blocks;
  auto* const scales = arena.take<float>(sets);
  auto* const zero_points = arena.take<float>(sets);
  if (arena.status() != Status::kOk) return arena.status();
  const Levels levels = levels_of(published_codebook(codes.book));
  LinearFeedbackGrid grid(scale_grid(levels), codes.block_size, form.blocks, true, scales, zero_points);
  FedCodes fed(codes, form, scales);
  return encode_fed_rows(tile, fed, grid, moments, arena, result);
}

Status encode(const Tile& tile, const MatMulBnb4& codes, Arena& arena, Encoded& result) noexcept {
  Form form = {.codes = codes};
  if (const Status status = form.init(tile.rows, tile.columns); status != Status::kOk) return status;
  if (const Status status = check(tile); status != Status::kOk) return status;
  result = {};
  // Take all memory from the arena.
  Floats floats(tile, tile.size(), arena);
  const auto k = static_cast<size_t>(form.k), blocks = static_cast<size_t>(form.blocks);
  const uint64_t at_once = form.columns_at_once();
  const size_t stride = loops::column_stride(k);
  auto* const columns = arena.take<float>(codes.transposed ? 0 : std::min(at_once, form.n) * stride);
  auto* const restored = arena.take<float>(form.k);
  auto* const made = arena.take<uint8_t>(form.k);
  auto* const absmax = arena.take<float>(form.n * form.blocks);
  auto* const data = arena.take<uint8_t>(form.n * form.k / 2);
  if (arena.status() != Status::kOk) return arena.status();
  if (tile.wants(Role::kData)) result.data = {reinterpret_cast<std::byte*>(data), static_cast<size_t>(form.n * form.k / 2)};
  if (tile.wants(Role::kScale)) result.scale = {reinterpret_cast<std::byte*>(absmax), static_cast<size_t>(form.n) * blocks * 4};

  // Read the floats, and prepare the search for codes.
  const float* const x = floats.read(0, static_cast<size_t>(tile.size()));
  std::fill_n(absmax, form.n * form.blocks, 0.0f);
  const std::span<const float> book = published_codebook(codes.book);
  const Levels levels = levels_of(book);
  const WeightedGrid grid = scale_grid(levels);
  loops::CodeSearch search;
  prepare_search(book, form.decision(), search);
  const Blocks layout = {codes.block_size};
  for (uint64_t i = 0; i < form.n; i++) {
    // Gather columns, some at a time.
    const float* column = x + i * form.k;
    if (!codes.transposed) {
      const auto some = static_cast<size_t>(std::min(at_once, form.n - i / at_once * at_once));
      if (i % at_once == 0) loops::gather_columns(x + i, k, static_cast<size_t>(form.n), some, columns, stride);
      column = columns + i % at_once * stride;
    }
    // Quantize and measure a column.
    const std::span<const float> values = {column, k};
    const std::span<float> scales = {absmax + i * form.blocks, blocks};
    Status status = observe_absmax(values, layout, scales);
    if (status == Status::kNonFinite) {
      result.problem = floats.first_problem(0);
      return Status::kOk;
    }
    for (size_t block = 0; tile.importance != nullptr && block < blocks; block++) {
      const size_t first = block * codes.block_size;
      if (scales[block] == 0) continue;
      scales[block] = search_weighted_scale(column + first, tile.importance + first, codes.block_size, grid).scale;
    }
    if (status == Status::kOk) status = quantize_prepared(values, layout, scales, search, {made, k});
    if (status == Status::kOk && tile.measure) status = dequantize_codebook({made, k}, layout, scales, book, {restored, k});
    if (status != Status::kOk) return status;
    if (tile.measure && tile.wants(Role::kData)) loops::accumulate_error(column, restored, k, result.sums);
    // Pack its codes.
    uint8_t* const to = data + i * form.k / 2;
    FedCodes::pack(made, k, to);
  }
  return Status::kOk;
}

Status decode(const Stored& stored, const MatMulBnb4& codes, Arena& arena, const float*& x) noexcept {
  Form form = {.codes = codes};
  if (const Status status = form.init(stored.rows, stored.columns); status != Status::kOk) return status;
  if (stored.data.size != form.n * form.k / 2 || stored.scale.size != form.n * form.blocks * 4) return Status::kSizeMismatch;
  auto* const out = arena.take<float>(form.n * form.k);
  auto* const absmax = arena.take<float>(form.n * form.blocks);
  if (arena.status() != Status::kOk) return arena.status();
  std::memcpy(absmax, stored.scale.data, stored.scale.size);
  const std::span<const float> book = published_codebook(codes.book);
  for (uint64_t i = 0; i < form.n; i++) {
    for (uint64_t j = 0; j < form.k; j++) {
      const auto pair = std::to_integer<uint32_t>(stored.data.data[(i * form.k + j) / 2]);
      out[form.index(i, j)] = book[j % 2 == 0 ? pair >> 4 : pair & 15] * absmax[i * form.blocks + j / codes.block_size];
    }
  }
  x = out;
  return Status::kOk;
}

}  // namespace scalepoint::codecs
