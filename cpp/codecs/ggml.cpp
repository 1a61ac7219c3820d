#include "codecs/ggml.h"

#include <algorithm>
#include <cmath>

#include "calibration/block_grids.h"
#include "calibration/feedback.h"
#include "codecs/elements.h"
#include "codecs/output_judge.h"

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
  const auto [elements, bytes] = block_size(ggml.to);
  const size_t rows = tile.rows, columns = tile.columns, size = rows * columns;
  if (columns == 0 || columns % elements != 0) return Status::kBadLayout;
  // Take all memory, and encode without feedback.
  const float* x = nullptr;
  if (const Status status = decode(tile, arena, x); status != Status::kOk) return status;
  const std::span<const float> w(x, size);
  auto* const numbers = arena.take<BlockNumbers>(size / elements);
  auto* const codes = arena.take<uint8_t>(size);
  auto* const blocks = arena.take<std::byte>(size / elements * bytes);
  auto* const restored = arena.take<float>(size);
  OutputJudge judge(w, columns, moments, arena);
  if (arena.status() != Status::kOk) return arena.status();
  BlockFeedbackGrid grid(ggml.to, columns, numbers);
  const size_t scratch_size = feedback_scratch_size(rows, columns, grid);
  const std::span<float> scratch(arena.take<float>(scratch_size), scratch_size);
  if (const Status status = encode(tile, ggml, arena, result); status != Status::kOk) return status;
  if (result.problem.kind != ProblemKind::kNone) return Status::kOk;
  const std::byte* const plain = result.data.data;
  if (const Status status = dequantize_blocks({plain, result.data.size}, ggml.to, {restored, size}); status != Status::kOk)
    return status;
  judge.judge_plain(restored);

  // Encode with feedback.
  Status status = quantize_with_feedback(w, columns, grid, {moments.feedback, columns * columns}, {moments.weights, columns},
                                         scratch, {codes, size}, {moments.order, moments.order == nullptr ? 0 : columns});
  if (status == Status::kOverflow) {
    if (!judge.put(result.sums)) return Status::kNonFinite;
    return Status::kOk;
  }
  if (status != Status::kOk) return status;
  const size_t row_bytes = columns / elements * bytes;
  for (size_t row = 0; row < rows; row++) grid.write(row, codes + row * columns, blocks + row * row_bytes);
  const std::span<const std::byte> made(blocks, rows * row_bytes);
  status = dequantize_blocks(made, ggml.to, {restored, size});
  if (status != Status::kOk) return status;
  judge.judge_fed(restored);
  // Keep the rows that got no better.
  for (size_t row = 0; row < rows; row++) {
    if (!judge.is_fed(row)) std::copy_n(plain + row * row_bytes, row_bytes, blocks + row * row_bytes);
  }
  result.data = {blocks, rows * row_bytes};
  ErrorSums measured;
  if (!judge.put(measured)) return Status::kNonFinite;
  if (!tile.measure) return Status::kOk;
  status = dequantize_blocks(made, ggml.to, {restored, size});
  if (status != Status::kOk) return status;
  const uint64_t step = step_over(columns, size);
  for (uint64_t at = 0; at < size; at += step) {
    measure(tile, at, x + at, restored + at, static_cast<size_t>(std::min<uint64_t>(step, size - at)), measured);
  }
  result.sums = measured;
  return Status::kOk;
}

}  // namespace scalepoint::codecs
