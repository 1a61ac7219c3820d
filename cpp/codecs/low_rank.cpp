#include "codecs/low_rank.h"

#include <cmath>
#include <cstring>

#include "codecs/low_rank_loops.h"
#include "lanes/round.h"

namespace scalepoint::codecs {
namespace {

/// A matrix of rows * columns as floats: in place if it is float32, else in the arena.
Status read_matrix(Bytes stored, ElementType type, uint64_t rows, uint64_t columns, Arena& arena, const float*& x) {
  if (element_size(static_cast<int32_t>(type)).elements != 1) return Status::kBadDType;
  if (rows > UINT32_MAX || columns > UINT32_MAX) return Status::kBadLayout;
  Tile tile;
  tile.rows = static_cast<uint32_t>(rows);
  tile.columns = static_cast<uint32_t>(columns);
  tile.type = static_cast<int32_t>(type);
  tile.source = stored;
  return decode(tile, arena, x);
}

/// to[column * rows + row] = from[row * columns + column].
void transpose(const float* from, size_t rows, size_t columns, float* to) {
  for (size_t row = 0; row < rows; row++) {
    for (size_t column = 0; column < columns; column++) to[column * rows + row] = from[row * columns + column];
  }
}

/// to[a][i * kernel + p] = sum over b of middle[a][b][p] * down[b][i].
void combine(const float* middle, const float* down, const LowRank& pair, size_t down_columns, float* to) {
  const size_t columns = down_columns * pair.kernel;
  std::memset(to, 0, pair.rank * columns * sizeof(float));
  for (size_t a = 0; a < pair.rank; a++, to += columns) {
    for (size_t b = 0; b < pair.inner; b++, middle += pair.kernel) {
      for (size_t i = 0; i < down_columns; i++) {
        for (size_t p = 0; p < pair.kernel; p++) to[i * pair.kernel + p] += middle[p] * down[b * down_columns + i];
      }
    }
  }
}

/// Scales each row of y to its magnitude, the norm that DoRA trains.
Status set_magnitudes(const float* magnitudes, uint32_t rows, uint32_t columns, float* y) {
  for (uint32_t row = 0; row < rows; row++, y += columns) {
    double squares = 0;
    for (uint32_t i = 0; i < columns; i++) squares += static_cast<double>(y[i]) * static_cast<double>(y[i]);
    const auto factor = static_cast<float>(static_cast<double>(magnitudes[row]) / std::sqrt(squares));
    if (!is_finite(factor)) return Status::kBadRange;
    for (uint32_t i = 0; i < columns; i++) y[i] *= factor;
  }
  return Status::kOk;
}

}  // namespace

Status add_low_rank(const float* x, uint32_t rows, uint32_t columns, const LowRank& pair, Arena& arena, float* y) noexcept {
  const uint64_t rank = pair.rank, inner = pair.inner, kernel = pair.kernel;
  if (rows == 0 || columns == 0 || rank == 0 || kernel == 0) return Status::kBadLayout;
  if (inner > 0 && (pair.turned || columns % kernel != 0)) return Status::kBadLayout;
  const double share = pair.root ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank);
  const auto factor = static_cast<float>(pair.strength * (pair.alpha / share));
  if (!is_finite(factor)) return Status::kBadScale;

  // Read the matrices, and take all memory.
  const float *up = nullptr, *down = nullptr, *middle = nullptr, *magnitudes = nullptr;
  const uint64_t down_rows = inner > 0 ? inner : rank, down_columns = inner > 0 ? columns / kernel : columns;
  Status status = read_matrix(pair.up, pair.up_type, rows, rank, arena, up);
  if (status == Status::kOk) status = read_matrix(pair.down, pair.down_type, down_rows, down_columns, arena, down);
  if (status == Status::kOk && inner > 0)
    status = read_matrix(pair.middle, pair.middle_type, rank * inner, kernel, arena, middle);
  if (status == Status::kOk && pair.magnitude.size > 0)
    status = read_matrix(pair.magnitude, pair.magnitude_type, rows, 1, arena, magnitudes);
  if (status != Status::kOk) return status;
  auto* const turned_up = arena.take<float>(pair.turned ? rows * rank : 0);
  auto* const turned_down = arena.take<float>(pair.turned ? columns * rank : 0);
  auto* const product = arena.take<float>(inner > 0 ? columns * rank : 0);
  auto* const panel = arena.take<float>(rank * loops::kLowRankPanel);
  if (arena.status() != Status::kOk) return arena.status();

  // Bring the matrices into the order of the product.
  const auto terms = static_cast<size_t>(rank);
  if (pair.turned) {
    transpose(up, terms, rows, turned_up);
    transpose(down, columns, terms, turned_down);
    up = turned_up;
    down = turned_down;
  }
  if (inner > 0) {
    combine(middle, down, pair, static_cast<size_t>(down_columns), product);
    down = product;
  }
  // Multiply a few columns at a time, which stay in the nearest cache.
  for (size_t column = 0; column < columns; column += loops::kLowRankPanel) {
    const size_t n = std::min<size_t>(loops::kLowRankPanel, columns - column);
    for (size_t k = 0; k < terms; k++) {
      for (size_t c = 0; c < loops::kLowRankPanel; c++) {
        panel[k * loops::kLowRankPanel + c] = c < n ? down[k * columns + column + c] : 0;
      }
    }
    loops::add_panel_of_products(x + column, rows, n, columns, up, panel, terms, factor, y + column);
  }
  return magnitudes == nullptr ? Status::kOk : set_magnitudes(magnitudes, rows, columns, y);
}

}  // namespace scalepoint::codecs
