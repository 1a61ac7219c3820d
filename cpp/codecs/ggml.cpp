#include "codecs/ggml.h"

#include <algorithm>
#include <cmath>

#include "calibration/block_grids.h"
#include "codecs/elements.h"
#include "codecs/fed_rows.h"

namespace scalepoint::codecs {
namespace {

/// The first element of largest magnitude in the first block that overflows, of n floats. With weights, which change the scales of whole
/// rows, in the first such row. `out` has room for the block or row.
size_t find_overflow(const float* x, size_t n, BlockType type, std::span<const float> importance, std::byte* out) {
  const size_t elements = importance.empty() ? block_size(type).elements : importance.size();
  const size_t bytes = blocks_bytes(type, elements);
  size_t at = 0;
  while (at + elements < n && quantize_blocks({x + at, elements}, type, {out, bytes}, importance) == Status::kOk) at += elements;
  size_t worst = at;
  for (size_t i = at; i < at + elements; i++) {
    if (std::fabs(x[i]) > std::fabs(x[worst])) worst = i;
  }
  return worst;
}

/// Blocks for rows with feedback.
class FedBlocks final : public FedForm {
 public:
  FedBlocks(const Ggml& ggml, const BlockFeedbackGrid& grid, size_t columns)
      : ggml_(ggml), grid_(grid), row_bytes_(blocks_bytes(ggml.to, columns)) {}

  Status encode_plain(const Tile& tile, Arena& arena, Encoded& result) override { return encode(tile, ggml_, arena, result); }

  Status restore(const Stored& stored, Arena& arena, const float*& y) override {
    const size_t size = size_t{stored.rows} * stored.columns;
    auto* const restored = arena.take<float>(size);
    y = restored;
    if (arena.status() != Status::kOk) return arena.status();
    return dequantize_blocks({stored.data.data, stored.data.size}, ggml_.to, {restored, size});
  }

  void write(size_t row, const uint8_t* codes, std::byte* data, std::byte*, std::byte*) override {
    grid_.write(row, codes, data + row * row_bytes_);
  }

 private:
  const Ggml& ggml_;
  const BlockFeedbackGrid& grid_;
  size_t row_bytes_;
};

}  // namespace

Status encode(const Tile& tile, const Ggml& ggml, Arena& arena, Encoded& result) noexcept {
  if (const Status status = check(tile); status != Status::kOk) return status;
  const auto [elements, bytes] = block_size(ggml.to);
  if (elements == 0) return Status::kBadDType;
  const uint64_t size = tile.size();
  if (size % elements != 0) return Status::kBadLayout;
  const std::span<const float> importance(tile.importance, tile.importance != nullptr ? tile.columns : 0);
  if (tile.columns % elements != 0 && !importance.empty()) return Status::kBadLayout;
  const uint64_t step = importance.empty() ? kStepSize : step_over(tile.columns, size);
  Floats floats(tile, step, arena);
  auto* const restored = arena.take<float>(tile.measure ? std::min(step, size) : 0);
  auto* const data = arena.take<std::byte>(size / elements * bytes);
  result = {};
  if (arena.status() != Status::kOk) return arena.status();
  result.data = {data, static_cast<size_t>(size / elements * bytes)};

  for (uint64_t at = 0; at < size; at += step) {
    const auto n = static_cast<size_t>(std::min(step, size - at));
    const float* const x = floats.read(at, n);
    std::byte* const out = data + at / elements * bytes;
    const size_t made = n / elements * bytes;
    Status status = quantize_blocks({x, n}, ggml.to, {out, made}, importance, ggml.search);
    if (status == Status::kOverflow) {
      const size_t worst = find_overflow(x, n, ggml.to, importance, out);
      result.problem = {ProblemKind::kOverflow, at + worst, x[worst]};
    }
    if (status == Status::kOverflow || status == Status::kNonFinite) {
      const Problem first = floats.first_problem(at);
      if (first.kind != ProblemKind::kNone) result.problem = first;
      return Status::kOk;
    }
    if (status == Status::kOk && tile.measure) {
      status = dequantize_blocks({out, made}, ggml.to, {restored, n});
      measure(tile, at, x, restored, n, result.sums);
    }
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

Status encode_with_feedback(const Tile& tile, const Ggml& ggml, const Moments& moments, Arena& arena, Encoded& result) noexcept {
  if (!has_feedback(ggml.to)) return Status::kBadDType;
  const uint32_t elements = block_size(ggml.to).elements;
  if (tile.columns == 0 || tile.columns % elements != 0) return Status::kBadLayout;
  auto* const numbers = arena.take<BlockNumbers>(tile.size() / elements);
  if (arena.status() != Status::kOk) return arena.status();
  BlockFeedbackGrid grid(ggml.to, tile.columns, numbers);
  FedBlocks form(ggml, grid, tile.columns);
  return encode_fed_rows(tile, form, grid, moments, arena, result);
}

}  // namespace scalepoint::codecs
