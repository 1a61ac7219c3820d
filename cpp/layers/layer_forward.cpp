// Multiplies with a layer: turns activations into integers, whose products with the weights are exact. Uses a workspace of the caller.
// There are two ways for rows of x. Groups of rows are walked together through a panel of integers, while a tile of weights stays in 16
// bits. Other rows are multiplied one by one: remaining rows, and rows of floats that need more than one round of fixed point.
#include <cmath>
#include <cstring>

#include "arrays/linear.h"
#include "lanes/round.h"
#include "layers/layer_memory.h"

namespace scalepoint {
namespace {

using loops::kTileRows;
using loops::Segment;

/// Rounds of fixed point that a segment can need. Each removes at least 29 bits of the remainder, and floats span 277 bits.
constexpr size_t kMaxRounds = 10;

/// Rows of x that are walked together.
constexpr uint32_t rows_together(ActivationType type) { return type == ActivationType::kFloat32 ? 2 : 4; }
/// Rows of integers that make one row of x.
constexpr uint32_t planes(ActivationType type) { return type == ActivationType::kFloat32 ? 2 : 1; }

bool is_float(const LayerSpec& spec) { return spec.activations == ActivationType::kFloat32; }

/// The workspace of layer_forward.
struct Workspace {
  uint64_t size;
  // One row alone, with all of its rounds.
  Segment* segments;
  int16_t* values;
  double* factor;
  double* sum;
  std::byte* codes;
  // Rows that are walked together.
  uint32_t* rows;   ///< their numbers, in order
  double* x_scale;  ///< their scales
  uint32_t* alone;  ///< the numbers of the other rows
  int16_t* panel;
  double* panel_factor;
  double* panel_sum;
  int16_t* wide;  ///< some columns of a tile in 16 bits
  double* total;  ///< eight sums for each of these rows

  Workspace(const LayerSpec& spec, const LayerForm& form, uint32_t batch, std::byte* base) {
    Parts parts(base);
    const bool floats = is_float(spec);
    const uint64_t rounds = floats ? kMaxRounds : 1, together = rows_together(spec.activations);
    segments = parts.take<Segment>(floats ? form.segments * rounds : 0);
    values = parts.take<int16_t>(form.padded_columns * planes(spec.activations) * rounds);
    factor = parts.take<double>(form.segments * rounds);
    sum = parts.take<double>(form.segments * rounds);
    codes = parts.take<std::byte>(floats ? 0 : spec.columns);
    const uint64_t many = batch < together ? 0 : round_up(batch, together);
    rows = parts.take<uint32_t>(batch);
    x_scale = parts.take<double>(batch);
    alone = parts.take<uint32_t>(batch);
    panel = parts.take<int16_t>(many * form.padded_columns * planes(spec.activations));
    panel_factor = parts.take<double>(floats ? many * form.segments : 0);
    panel_sum = parts.take<double>(many * form.segments);
    wide = parts.take<int16_t>(many > 0 ? loops::kWideColumns * kTileRows : 0);
    total = parts.take<double>(many * kTileRows);
    size = parts.used();
  }
};

// ------------------------------------------------------------------------------------------------------------ activations

enum class Row { kPlain, kRounds, kNonFinite };

/// One segment of x, padded with zeros.
void copy_segment(const float* x, const Segment& s, float* to) {
  std::memcpy(to, x + s.column, s.count * sizeof(float));
  std::memset(to + s.count, 0, (s.length - s.count) * sizeof(float));
}

/// The first round of a row of x, number `slot` of `together` rows.
Row prepare_float(const Layer& layer, const float* x, uint32_t together, uint32_t slot, int16_t* values, double* factor,
                  double* sum) {
  Row row = Row::kPlain;
  for (uint64_t i = 0; i < layer.form.segments; i++) {
    const Segment& s = layer.segments[i];
    float block[loops::kFixedPointColumns];
    copy_segment(x, s, block);
    const loops::FixedPoint p =
        loops::to_fixed_point(block, s.length, size_t{4} * together, values + size_t{s.start} * 2 * together + 4 * slot);
    if (!p.finite) return Row::kNonFinite;
    if (p.more) row = Row::kRounds;
    factor[i * together + slot] = p.factor;
    sum[i * together + slot] = p.sum;
  }
  return row;
}

/// All rounds of a row: the first of every segment, then the others. Returns the number of segments, or 0 if x is not finite.
uint64_t prepare_rounds(const Layer& layer, const float* x, const Workspace& work) {
  uint64_t n = layer.form.segments;
  std::memcpy(work.segments, layer.segments, n * sizeof(Segment));
  const Row row = prepare_float(layer, x, 1, 0, work.values, work.factor, work.sum);
  if (row == Row::kNonFinite) return 0;
  if (row == Row::kPlain) return n;
  int16_t* values = work.values + layer.form.padded_columns * 2;
  for (uint64_t i = 0; i < layer.form.segments; i++) {
    const Segment& s = layer.segments[i];
    float block[loops::kFixedPointColumns];
    copy_segment(x, s, block);
    // The first round again, for its remainder.
    for (loops::FixedPoint p = loops::to_fixed_point(block, s.length, 4, values); p.more; n++, values += s.length * 2) {
      p = loops::to_fixed_point(block, s.length, 4, values);
      work.segments[n] = s;
      work.factor[n] = p.factor;
      work.sum[n] = p.sum;
    }
  }
  return n;
}

/// A row of x in 8 bits. Returns its scale, or 0 if x is not finite.
double prepare_int8(const Layer& layer, const float* x, uint32_t together, uint32_t slot, std::byte* codes, int16_t* values,
                    double* sum) {
  const LayerSpec& spec = layer.spec();
  const QuantizationSpec int8 = {
      .dtype = {}, .scheme = spec.activations == ActivationType::kInt8Symmetric ? Scheme::kSymmetric : Scheme::kAsymmetric};
  float scale;
  int32_t zero_point;
  if (quantize_runs({x, spec.columns}, spec.columns, spec.columns, int8, {&scale, 1}, {&zero_point, 1}, {codes, spec.columns}) !=
      Status::kOk) {
    return 0;
  }
  const auto* const from = reinterpret_cast<const int8_t*>(codes);
  for (uint64_t i = 0; i < layer.form.segments; i++) {
    const Segment& s = layer.segments[i];
    int16_t* to = values + size_t{s.start} * together + 2 * slot;
    int32_t total = 0;
    for (uint32_t c = 0; c < s.length; c += 2, to += 2 * together) {
      for (uint32_t j = 0; j < 2; j++) {
        const int32_t value = c + j < s.count ? from[s.column + c + j] - zero_point : 0;
        to[j] = static_cast<int16_t>(value);
        total += value;
      }
    }
    sum[i * together + slot] = total;
  }
  return scale;
}

// ----------------------------------------------------------------------------------------------------------------- results

/// The scale by which the sums of a tile are still to be multiplied.
double row_scale(const Layer& layer, uint64_t row) { return layer.form.groups > 1 ? 1.0 : layer.scale[row]; }

/// Rounds the sums of a tile for one row of x.
void finish(const Layer& layer, uint64_t tile, const double* total, double scale, float* y) {
  const uint64_t first = tile * kTileRows, left = layer.spec().rows - first, n = left < kTileRows ? left : kTileRows;
  for (uint64_t i = 0; i < n; i++) {
    y[first + i] = static_cast<float>(scale * row_scale(layer, first + i) * total[i] + double{layer.bias[first + i]});
  }
}

/// A row of x with NaN or infinities: adds only their products with the weights, since the other columns do not change the
/// result.
void propagate(const Layer& layer, const float* x, float* y) {
  const LayerSpec& spec = layer.spec();
  std::memcpy(y, layer.bias, spec.rows * sizeof(float));
  for (uint32_t column = 0; column < spec.columns; column++) {
    if (is_finite(x[column])) continue;
    for (uint32_t row = 0; row < spec.rows; row++) {
      const uint64_t at = layer.parameter_place(row, column / spec.group_size);
      const double zero = spec.zero_points ? layer.zero[at] : layer.head->common_zero;
      const int32_t code = code_at(layer.tile_weights(row / kTileRows), spec.bits, layer.place(column), row % kTileRows);
      y[row] = static_cast<float>(y[row] + double{x[column]} * (layer.scale[at] * (code - zero)));
    }
  }
}

// --------------------------------------------------------------------------------------------------------------- one row

/// Calls f(tile, sums, scale) with the sums of a row of x for each tile. Returns false if x is not finite.
template <class F>
bool run_alone(const Layer& layer, const float* x, const Workspace& work, F f) {
  const LayerSpec& spec = layer.spec();
  loops::Activations a = {layer.segments, layer.form.segments, work.values, work.factor, work.sum};
  double scale = 1;
  if (is_float(spec)) {
    a.segments = work.segments;
    a.count = prepare_rounds(layer, x, work);
    if (a.count == 0) return false;
  } else {
    scale = prepare_int8(layer, x, 1, 0, work.codes, work.values, work.sum);
    if (scale == 0) return false;
  }
  const auto run = is_float(spec) ? loops::accumulate_float32 : loops::accumulate_int8;
  const uint64_t end_tile = layer.form.tiles;
  uint64_t t = 0;
  constexpr size_t kTogether = loops::kTilesTogether;
  for (; !is_float(spec) && spec.bits == 8 && t + kTogether <= end_tile; t += kTogether) {
    double total[kTogether * kTileRows] = {};
    loops::LayerTile tiles[kTogether];
    for (size_t i = 0; i < kTogether; i++) tiles[i] = layer.tile(t + i);
    loops::accumulate_int8_tiles(tiles, a, total);
    for (size_t i = 0; i < kTogether; i++) f(t + i, total + i * kTileRows, scale);
  }
  for (; t < end_tile; t++) {
    double total[kTileRows] = {};
    run(static_cast<int>(spec.bits), layer.tile(t), a, total);
    f(t, total, scale);
  }
  return true;
}

// --------------------------------------------------------------------------------------------------------------- many rows

/// Rows of x in a panel of integers, `together` at a time.
struct Panel {
  uint32_t together;
  size_t values;    ///< of `together` rows
  size_t segments;  ///< of `together` rows

  explicit Panel(const Layer& layer)
      : together(rows_together(layer.spec().activations)),
        values(layer.form.padded_columns * planes(layer.spec().activations) * together),
        segments(layer.form.segments * together) {}
};

/// Number of rows of x in the panel, and number of rows to multiply one by one.
struct RowCounts {
  uint32_t together, alone;
};

/// Makes the panel, and lists the rows that are in it and the others.
RowCounts fill_panel(const Layer& layer, const float* x, uint32_t batch, const Panel& panel, const Workspace& work) {
  const LayerSpec& spec = layer.spec();
  uint32_t count = 0, alone = 0;
  for (uint32_t b = 0; b < batch; b++) {
    const float* const row = x + size_t{b} * spec.columns;
    if (batch < panel.together) {
      work.alone[alone++] = b;
      continue;
    }
    const uint32_t slot = count % panel.together;
    int16_t* const values = work.panel + count / panel.together * panel.values;
    double* const sum = work.panel_sum + count / panel.together * panel.segments;
    bool plain;
    if (is_float(spec)) {
      double* const factor = work.panel_factor + count / panel.together * panel.segments;
      plain = prepare_float(layer, row, panel.together, slot, values, factor, sum) == Row::kPlain;
      work.x_scale[count] = 1;
    } else {
      work.x_scale[count] = prepare_int8(layer, row, panel.together, slot, work.codes, values, sum);
      plain = work.x_scale[count] != 0;
    }
    if (plain) {
      work.rows[count++] = b;
    } else {
      work.alone[alone++] = b;
    }
  }
  for (; count % panel.together != 0; count--) work.alone[alone++] = work.rows[count - 1];
  return {count, alone};
}

/// The sums of a tile for all rows in the panel.
void run_tile(const Layer& layer, uint64_t t, uint32_t count, const Panel& panel, const Workspace& work) {
  const LayerSpec& spec = layer.spec();
  const auto run = is_float(spec) ? loops::accumulate_float32 : loops::accumulate_int8;
  // Subtract a zero point that all weights share from the widened weights, if the sums then fit (see kInt8Columns).
  const bool take_zero = !spec.zero_points && std::fabs(layer.head->common_zero) <= 127;
  const auto less = static_cast<int16_t>(take_zero ? layer.head->common_zero : 0);
  std::memset(work.total, 0, count * kTileRows * sizeof(double));
  loops::LayerTile tile = layer.tile(t);
  const std::byte* const weights = tile.weights;
  if (take_zero) tile.common_zero = 0;
  for (uint64_t i = 0, end = 0; i < layer.form.segments; i = end) {
    const uint32_t start = layer.segments[i].start;
    uint32_t columns = 0;
    for (; end < layer.form.segments && columns + layer.segments[end].length <= loops::kWideColumns; end++) {
      columns += layer.segments[end].length;
    }
    loops::widen_tile(static_cast<int>(spec.bits), weights + size_t{start} * spec.bits, columns, less, work.wide);
    // The segments count their columns from the start of the tile.
    tile.weights = reinterpret_cast<const std::byte*>(work.wide) - size_t{start} * 16;
    for (uint32_t c = 0; c < count; c += panel.together) {
      const size_t p = c / panel.together, at = p * panel.segments + i * panel.together;
      const size_t first = size_t{start} * planes(spec.activations) * panel.together;
      run(16, tile,
          {layer.segments + i, end - i, work.panel + p * panel.values + first, work.panel_factor + at, work.panel_sum + at},
          work.total + c * kTileRows);
    }
  }
}

void forward_codes(const Layer& layer, const float* x, uint32_t batch, float* y, const Workspace& work) {
  const LayerSpec& spec = layer.spec();
  const Panel panel(layer);
  const RowCounts rows = fill_panel(layer, x, batch, panel, work);
  for (uint64_t t = 0; t < layer.form.tiles && rows.together > 0; t++) {
    run_tile(layer, t, rows.together, panel, work);
    for (uint32_t c = 0; c < rows.together; c++) {
      finish(layer, t, work.total + c * kTileRows, work.x_scale[c], y + size_t{work.rows[c]} * spec.rows);
    }
  }
  for (uint32_t i = 0; i < rows.alone; i++) {
    const float* const row = x + size_t{work.alone[i]} * spec.columns;
    float* const to = y + size_t{work.alone[i]} * spec.rows;
    const auto put = [&](uint64_t t, const double* total, double scale) { finish(layer, t, total, scale, to); };
    if (!run_alone(layer, row, work, put)) propagate(layer, row, to);
  }
}

/// Rows [row, row + rows) of x for the float layer.
struct FloatRows {
  uint32_t row, rows;
};

/// Calls f for the rows of a batch, four at a time, the last ones alone.
template <class F>
void for_each_rows(uint32_t batch, F f) {
  for (uint32_t b = 0; b < batch;) {
    const uint32_t rows = batch - b < 4 ? 1 : 4;
    f(FloatRows{b, rows});
    b += rows;
  }
}

/// Puts x into `values`, column by column for the rows that are walked together.
void interleave(const LayerSpec& spec, uint64_t columns, const float* x, uint32_t batch, float* values) {
  for_each_rows(batch, [&](FloatRows part) {
    float* to = values + part.row * columns;
    for (uint64_t c = 0; c < columns; c++) {
      for (uint32_t r = 0; r < part.rows; r++) *to++ = c < spec.columns ? x[size_t{part.row + r} * spec.columns + c] : 0.0f;
    }
  });
}

/// All rows of x go through a tile while it is in the cache.
void forward_floats(const Layer& layer, const float* x, uint32_t batch, float* y, float* values) {
  const LayerSpec& spec = layer.spec();
  const uint64_t columns = layer.form.padded_columns;
  interleave(spec, columns, x, batch, values);
  for (uint64_t t = 0; t < layer.form.tiles; t++) {
    const auto* const weights = reinterpret_cast<const float*>(layer.tile_weights(t));
    const uint64_t first = t * kTileRows, left = spec.rows - first, n = left < kTileRows ? left : kTileRows;
    for_each_rows(batch, [&](FloatRows part) {
      float total[4 * kTileRows] = {};
      loops::accumulate_plain(part.rows, weights, columns, values + part.row * columns, total);
      for (uint32_t r = 0; r < part.rows; r++) {
        float* const to = y + size_t{part.row + r} * spec.rows + first;
        for (uint64_t i = 0; i < n; i++) to[i] = total[r * kTileRows + i] + layer.bias[first + i];
      }
    });
  }
}

uint64_t workspace_bytes(const LayerSpec& spec, const LayerForm& form, uint32_t batch) {
  if (spec.bits == 32) return batch * form.padded_columns * sizeof(float);
  return Workspace(spec, form, batch, nullptr).size;
}

}  // namespace

uint64_t layer_workspace_bytes(const LayerSpec& spec, uint32_t batch) noexcept {
  return valid(spec) ? workspace_bytes(spec, LayerForm(spec), batch) : 0;
}

Status layer_forward(std::span<const std::byte> memory, std::span<const float> x, uint32_t batch, std::span<float> y,
                     std::span<std::byte> workspace) noexcept {
  const Layer layer = layer_at(memory);
  const LayerSpec& spec = layer.spec();
  if (x.size() != uint64_t{batch} * spec.columns || y.size() != uint64_t{batch} * spec.rows) return Status::kSizeMismatch;
  if (workspace.size() < workspace_bytes(spec, layer.form, batch)) return Status::kSizeMismatch;
  if (spec.bits == 32) {
    forward_floats(layer, x.data(), batch, y.data(), reinterpret_cast<float*>(workspace.data()));
  } else {
    forward_codes(layer, x.data(), batch, y.data(), Workspace(spec, layer.form, batch, workspace.data()));
  }
  return Status::kOk;
}

}  // namespace scalepoint
