#include "codecs/fed_rows.h"

#include <algorithm>

#include "codecs/input_codes.h"
#include "codecs/output_judge.h"

namespace scalepoint::codecs {

Status encode_fed_rows(const Tile& tile, FedForm& form, FeedbackGrid& grid, const Moments& moments, Arena& arena,
                       Encoded& result) noexcept {
  const size_t rows = form.turned() ? tile.columns : tile.rows, columns = form.turned() ? tile.rows : tile.columns;
  const size_t size = rows * columns;
  if (size == 0) return Status::kBadLayout;
  // Encode without feedback.
  Tile whole = tile;
  whole.wanted = 1 << static_cast<int32_t>(Role::kData) | 1 << static_cast<int32_t>(Role::kScale) |
                 1 << static_cast<int32_t>(Role::kZeroPoint) | 1 << static_cast<int32_t>(Role::kGlobalScale);
  whole.measure = false;
  if (const Status status = form.encode_plain(whole, arena, result); status != Status::kOk) return status;
  if (result.problem.kind != ProblemKind::kNone) return Status::kOk;
  const Encoded best = result;
  // Take all other memory.
  const float* w = nullptr;
  if (const Status status = take_input_rows(tile, form.turned(), arena, w); status != Status::kOk) return status;
  OutputJudge judge({w, size}, columns, moments, arena);
  auto* const data = arena.take<std::byte>(best.data.size);
  auto* const scale = arena.take<std::byte>(best.scale.size);
  auto* const zero_point = arena.take<std::byte>(best.zero_point.size);
  auto* const codes = arena.take<uint8_t>(size);
  auto* const turned_back = arena.take<float>(form.turned() ? size : 0);
  const size_t scratch_size = feedback_scratch_size(rows, columns, grid);
  const std::span<float> scratch(arena.take<float>(scratch_size), scratch_size);
  if (arena.status() != Status::kOk) return arena.status();
  result.data.data = data;
  result.scale.data = scale;
  result.zero_point.data = zero_point;
  /// The values of the result, output by output.
  const auto restore = [&](const float*& y) {
    const Stored stored = {tile.rows, tile.columns, result.data, result.scale, result.zero_point, result.global_scale};
    const Status status = form.restore(stored, arena, y);
    if (status != Status::kOk || !form.turned()) return status;
    for (size_t i = 0; i < size; i++) turned_back[i] = y[i % columns * rows + i / columns];
    y = turned_back;
    return status;
  };
  /// Copies parts. The best ones are in memory of the arena.
  const auto copy = [](const Encoded& from, const Encoded& to) {
    for (const auto part : {&Encoded::data, &Encoded::scale, &Encoded::zero_point}) {
      std::copy_n((from.*part).data, (from.*part).size, const_cast<std::byte*>((to.*part).data));
    }
  };
  // Try the codes without feedback, those with it, and these refined. A row keeps what gets no better.
  const float* y = nullptr;
  const int last = grid.outer_size() == 0 ? 2 : 1;
  for (int i = 0; i <= last; i++) {
    Status status = Status::kOk;
    const std::span<const float> weights = {w, size};
    if (i == 1) {
      status = quantize_with_feedback(weights, columns, grid, {moments.feedback, columns * columns}, {moments.weights, columns},
                                      scratch, {codes, size}, {moments.order, moments.order == nullptr ? 0 : columns});
      if (status == Status::kOverflow) break;
    } else if (i == 2) {
      status =
          refine_codes(weights, columns, grid, {moments.moments, columns * columns}, moments.damping, scratch, {codes, size});
    }
    if (status != Status::kOk) return status;
    const auto write_rows = [&](bool all) {
      for (size_t row = 0; row < rows; row++) {
        if (all || judge.is_fed(row)) form.write(row, codes + row * columns, data, scale, zero_point);
      }
    };
    copy(i == 0 ? best : result, i == 0 ? result : best);
    if (i > 0) write_rows(true);
    status = restore(y);
    if (status != Status::kOk) return status;
    if (i == 0) {
      judge.judge_plain(y);
      continue;
    }
    judge.judge_fed(y);
    copy(best, result);
    write_rows(false);
  }
  if (!judge.put(result.sums)) return Status::kNonFinite;
  if (!tile.measure) return Status::kOk;
  if (const Status status = restore(y); status != Status::kOk) return status;
  Tile measured;
  measured.columns = static_cast<uint32_t>(columns);
  measured.importance = tile.importance;
  const uint64_t step = step_over(columns, size);
  for (uint64_t at = 0; at < size; at += step) {
    measure(measured, at, w + at, y + at, static_cast<size_t>(std::min<uint64_t>(step, size - at)), result.sums);
  }
  return Status::kOk;
}

}  // namespace scalepoint::codecs
