// Layers: packs weights into the tiles that the kernels walk, and brings activations into integers. A layer is one piece of memory:
// a head, the segments of its columns, bias, scales, zero points and weights. What it takes to run is in a workspace of the caller.
#include "layer.h"

#include <cmath>
#include <cstring>

#include "float16.h"
#include "kernels/layer.h"
#include "kernels/range.h"
#include "linear.h"
#include "qparams.h"
#include "range.h"

namespace scalepoint {
namespace {

using kernels::kColumnStep;
using kernels::kTileRows;
using kernels::Segment;

/// Rounds of fixed point that a segment can need: each takes 29 bits or more off what is left, and floats span 277.
constexpr size_t kMaxRounds = 10;

constexpr uint64_t round_up(uint64_t n, uint64_t step) { return (n + step - 1) / step * step; }

/// What follows from a spec.
struct Form {
  uint64_t tiles, groups, padded_group, padded_columns, segment_size, segments;
};

Form form_of(const LayerSpec& spec) {
  Form f{};
  f.tiles = round_up(spec.rows, kTileRows) / kTileRows;
  f.groups = round_up(spec.columns, spec.group_size) / spec.group_size;
  f.padded_group = round_up(spec.group_size, kColumnStep);
  const uint64_t last = spec.columns - (f.groups - 1) * spec.group_size;
  f.padded_columns = (f.groups - 1) * f.padded_group + round_up(last, kColumnStep);
  f.segment_size = spec.activations == ActivationType::kFloat32 ? kernels::kFixedPointColumns : kernels::kInt8Columns;
  const auto segments_of = [&](uint64_t columns) { return round_up(columns, f.segment_size) / f.segment_size; };
  f.segments = (f.groups - 1) * segments_of(spec.group_size) + segments_of(last);
  return f;
}

/// The start of a layer.
struct Head {
  LayerSpec spec;
  /// What codes are stored with: code - offset, or for 4 bits code + 8 where the type is signed, so that they fit.
  int32_t zero_point;
  double common_zero;
};

/// Where the parts of a layer or workspace lie: taken one after the other, each at a multiple of 16.
class Parts {
 public:
  explicit Parts(std::byte* base) : base_(base) {}
  template <class T>
  T* take(uint64_t n) {
    auto* const part = reinterpret_cast<T*>(base_ + used_);
    used_ += round_up(n * sizeof(T), 16);
    return part;
  }
  [[nodiscard]] uint64_t used() const { return used_; }

 private:
  std::byte* base_;
  uint64_t used_ = 0;
};

/// A layer in memory.
struct Layer {
  Form form;
  uint64_t size;
  Head* head;
  Segment* segments;
  float* bias;
  float* scale;
  float* zero;
  std::byte* weights;

  Layer(const LayerSpec& spec, std::byte* base) : form(form_of(spec)) {
    Parts parts(base);
    head = parts.take<Head>(1);
    segments = parts.take<Segment>(spec.bits == 32 ? 0 : form.segments);
    bias = parts.take<float>(form.tiles * kTileRows);
    scale = parts.take<float>(spec.bits == 32 ? 0 : form.tiles * form.groups * kTileRows);
    zero = parts.take<float>(spec.zero_points ? form.tiles * form.groups * kTileRows : 0);
    weights = parts.take<std::byte>(form.tiles * tile_bytes(spec));
    size = parts.used();
  }

  [[nodiscard]] uint64_t tile_bytes(const LayerSpec& spec) const { return form.padded_columns * spec.bits; }
  [[nodiscard]] const LayerSpec& spec() const { return head->spec; }

  [[nodiscard]] kernels::Tile tile(uint64_t t) const {
    const uint64_t at = t * form.groups * kTileRows;
    return {.weights = weights + t * tile_bytes(spec()),
            .scale = form.groups > 1 ? scale + at : nullptr,
            .zero = spec().zero_points ? zero + at : nullptr,
            .common_zero = head->common_zero};
  }

  /// The padded column of a column.
  [[nodiscard]] uint64_t place(uint64_t column) const {
    return column / spec().group_size * form.padded_group + column % spec().group_size;
  }
};

bool valid(const LayerSpec& spec) {
  if (spec.rows == 0 || spec.columns == 0 || spec.group_size == 0 || spec.group_size > spec.columns) return false;
  const auto activations = static_cast<int32_t>(spec.activations);
  if (activations < 0 || activations > 2) return false;
  return spec.bits == 4 || spec.bits == 8 ||
         (spec.bits == 32 && activations == 0 && spec.group_size == spec.columns && !spec.zero_points);
}

/// The layer at that address: the caller's own memory, which make_layer has filled.
Layer layer_at(std::span<const std::byte> memory) {
  auto* const base = const_cast<std::byte*>(memory.data());
  return {reinterpret_cast<const Head*>(base)->spec, base};
}

/// Whether rows [row, row + count) are rows of the layer.
bool holds(const LayerSpec& spec, uint32_t row, uint64_t count) { return row <= spec.rows && count <= spec.rows - row; }

/// Puts the code of a row and padded column into its tile.
void put_code(std::byte* weights, uint32_t bits, uint64_t column, uint64_t row, int32_t code) {
  if (bits == 8) {
    weights[column / 2 * 16 + row * 2 + column % 2] = static_cast<std::byte>(code);
  } else {
    std::byte& pair = weights[column / 4 * 16 + row * 2 + column % 2];
    const uint32_t shift = column / 2 % 2 * 4;
    pair = (pair & static_cast<std::byte>(0xF0u >> shift)) | static_cast<std::byte>(static_cast<uint32_t>(code) << shift);
  }
}

int32_t code_at(const std::byte* weights, uint32_t bits, uint64_t column, uint64_t row) {
  if (bits == 8) return static_cast<int8_t>(weights[column / 2 * 16 + row * 2 + column % 2]);
  return static_cast<int32_t>(weights[column / 4 * 16 + row * 2 + column % 2]) >> (column / 2 % 2 * 4) & 15;
}

/// What is added to codes before they are stored, so that 8 bits are signed and 4 are not.
int32_t offset_of(DType dtype) {
  if (dtype.bits <= 4) return dtype.is_signed ? 8 : 0;
  return dtype.is_signed ? 0 : -128;
}

/// The lane of a row and group among the scales and zero points.
uint64_t parameter_place(const Layer& layer, uint64_t row, uint64_t group) {
  return (row / kTileRows * layer.form.groups + group) * kTileRows + row % kTileRows;
}

// ------------------------------------------------------------------------------------------------------------ activations

/// Rows of x that are walked together: 2 of float32, 4 of int8.
constexpr uint32_t rows_together(ActivationType type) { return type == ActivationType::kFloat32 ? 2 : 4; }
/// Rows of integers that make one row of x.
constexpr uint32_t planes(ActivationType type) { return type == ActivationType::kFloat32 ? 2 : 1; }

/// The workspace of layer_forward.
struct Workspace {
  uint64_t size;
  // One row by itself, with all of its rounds.
  Segment* segments;
  int16_t* values;
  double* factor;
  double* sum;
  std::byte* codes;
  // Many rows.
  uint32_t* rows;   ///< those walked together, in order
  double* x_scale;  ///< of these
  uint32_t* alone;  ///< the others
  int16_t* panel;
  double* panel_factor;
  double* panel_sum;
  int16_t* wide;  ///< some columns of a tile in 16 bits
  double* total;  ///< eight sums for each of these rows

  Workspace(const LayerSpec& spec, const Form& form, uint32_t batch, std::byte* base) {
    Parts parts(base);
    const bool is_float = spec.activations == ActivationType::kFloat32;
    const uint64_t rounds = is_float ? kMaxRounds : 1, together = rows_together(spec.activations);
    segments = parts.take<Segment>(is_float ? form.segments * rounds : 0);
    values = parts.take<int16_t>(form.padded_columns * planes(spec.activations) * rounds);
    factor = parts.take<double>(form.segments * rounds);
    sum = parts.take<double>(form.segments * rounds);
    codes = parts.take<std::byte>(is_float ? 0 : spec.columns);
    const uint64_t many = batch < together ? 0 : round_up(batch, together);
    rows = parts.take<uint32_t>(batch);
    x_scale = parts.take<double>(batch);
    alone = parts.take<uint32_t>(batch);
    panel = parts.take<int16_t>(many * form.padded_columns * planes(spec.activations));
    panel_factor = parts.take<double>(is_float ? many * form.segments : 0);
    panel_sum = parts.take<double>(many * form.segments);
    wide = parts.take<int16_t>(many > 0 ? kernels::kWideColumns * kTileRows : 0);
    total = parts.take<double>(many * kTileRows);
    size = parts.used();
  }
};

enum class Row { kPlain, kRounds, kNonFinite };

/// One segment of x, padded.
void copy_segment(const float* x, const Segment& s, float* to) {
  std::memcpy(to, x + s.column, s.count * sizeof(float));
  std::memset(to + s.count, 0, (s.length - s.count) * sizeof(float));
}

/// The first round of a row of x: one of `together` rows, of which it is number `slot`.
Row prepare_float(const Layer& layer, const float* x, uint32_t together, uint32_t slot, int16_t* values, double* factor,
                  double* sum) {
  Row row = Row::kPlain;
  for (uint64_t i = 0; i < layer.form.segments; i++) {
    const Segment& s = layer.segments[i];
    float block[kernels::kFixedPointColumns];
    copy_segment(x, s, block);
    const kernels::FixedPoint p =
        kernels::to_fixed_point(block, s.length, size_t{4} * together, values + size_t{s.start} * 2 * together + 4 * slot);
    if (!p.finite) return Row::kNonFinite;
    if (p.more) row = Row::kRounds;
    factor[i * together + slot] = p.factor;
    sum[i * together + slot] = p.sum;
  }
  return row;
}

/// All rounds of a row: the first of every segment, then those that follow. Returns the number of segments, 0 if x is not finite.
uint64_t prepare_rounds(const Layer& layer, const float* x, const Workspace& work) {
  uint64_t n = layer.form.segments;
  std::memcpy(work.segments, layer.segments, n * sizeof(Segment));
  const Row row = prepare_float(layer, x, 1, 0, work.values, work.factor, work.sum);
  if (row == Row::kNonFinite) return 0;
  if (row == Row::kPlain) return n;
  int16_t* values = work.values + layer.form.padded_columns * 2;
  for (uint64_t i = 0; i < layer.form.segments; i++) {
    const Segment& s = layer.segments[i];
    float block[kernels::kFixedPointColumns];
    copy_segment(x, s, block);
    // The first round again, for what it left.
    for (kernels::FixedPoint p = kernels::to_fixed_point(block, s.length, 4, values); p.more; n++, values += s.length * 2) {
      p = kernels::to_fixed_point(block, s.length, 4, values);
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

/// NaN and infinities times their weights: whatever the other columns add, nothing else shows.
void propagate(const Layer& layer, const float* x, float* y) {
  const LayerSpec& spec = layer.spec();
  std::memcpy(y, layer.bias, spec.rows * sizeof(float));
  for (uint32_t column = 0; column < spec.columns; column++) {
    if (is_finite(x[column])) continue;
    for (uint32_t row = 0; row < spec.rows; row++) {
      const uint64_t at = parameter_place(layer, row, column / spec.group_size);
      const double zero = spec.zero_points ? layer.zero[at] : layer.head->common_zero;
      const int32_t code = code_at(layer.tile(row / kTileRows).weights, spec.bits, layer.place(column), row % kTileRows);
      y[row] = static_cast<float>(y[row] + double{x[column]} * (layer.scale[at] * (code - zero)));
    }
  }
}

/// A row of x by itself: its sums for the tiles from the one of `row` on, given to f(tile, sums, scale). False if x is not finite.
template <class F>
bool run_alone(const Layer& layer, const float* x, const Workspace& work, uint64_t first_tile, uint64_t end_tile, F f) {
  const LayerSpec& spec = layer.spec();
  const bool is_float = spec.activations == ActivationType::kFloat32;
  kernels::Activations a = {layer.segments, layer.form.segments, work.values, work.factor, work.sum};
  double scale = 1;
  if (is_float) {
    a.segments = work.segments;
    a.count = prepare_rounds(layer, x, work);
    if (a.count == 0) return false;
  } else {
    scale = prepare_int8(layer, x, 1, 0, work.codes, work.values, work.sum);
    if (scale == 0) return false;
  }
  const auto run = is_float ? kernels::accumulate_float32 : kernels::accumulate_int8;
  for (uint64_t t = first_tile; t < end_tile; t++) {
    double total[kTileRows] = {};
    run(static_cast<int>(spec.bits), layer.tile(t), a, total);
    f(t, total, scale);
  }
  return true;
}

/// The scale that a tile left out.
double row_scale(const Layer& layer, uint64_t row) { return layer.form.groups > 1 ? 1.0 : layer.scale[row]; }

/// Rounds what a tile gave for one row of x.
void finish(const Layer& layer, uint64_t tile, const double* total, double scale, float* y) {
  const uint64_t first = tile * kTileRows, left = layer.spec().rows - first, n = left < kTileRows ? left : kTileRows;
  for (uint64_t i = 0; i < n; i++) {
    y[first + i] = static_cast<float>(scale * row_scale(layer, first + i) * total[i] + double{layer.bias[first + i]});
  }
}

void forward_codes(const Layer& layer, const float* x, uint32_t batch, float* y, const Workspace& work) {
  const LayerSpec& spec = layer.spec();
  const Form& form = layer.form;
  const bool is_float = spec.activations == ActivationType::kFloat32;
  const uint32_t together = rows_together(spec.activations);
  const size_t panel_size = form.padded_columns * planes(spec.activations) * together, panel_segments = form.segments * together;

  uint32_t count = 0, alone = 0;
  for (uint32_t b = 0; b < batch; b++) {
    const float* const row = x + size_t{b} * spec.columns;
    if (batch < together) {
      work.alone[alone++] = b;
      continue;
    }
    int16_t* const values = work.panel + count / together * panel_size;
    double* const sum = work.panel_sum + count / together * panel_segments;
    bool plain;
    if (is_float) {
      double* const factor = work.panel_factor + count / together * panel_segments;
      plain = prepare_float(layer, row, together, count % together, values, factor, sum) == Row::kPlain;
      work.x_scale[count] = 1;
    } else {
      work.x_scale[count] = prepare_int8(layer, row, together, count % together, work.codes, values, sum);
      plain = work.x_scale[count] != 0;
    }
    if (plain)
      work.rows[count++] = b;
    else
      work.alone[alone++] = b;
  }
  for (; count % together != 0; count--) work.alone[alone++] = work.rows[count - 1];

  const auto run = is_float ? kernels::accumulate_float32 : kernels::accumulate_int8;
  // A zero point that is the same everywhere goes into the widened weights, as long as sums then fit (see kInt8Columns).
  const bool take_zero = !spec.zero_points && std::fabs(layer.head->common_zero) <= 127;
  const auto less = static_cast<int16_t>(take_zero ? layer.head->common_zero : 0);
  for (uint64_t t = 0; t < form.tiles && count > 0; t++) {
    std::memset(work.total, 0, count * kTileRows * sizeof(double));
    const kernels::Tile stored = layer.tile(t);
    for (uint64_t i = 0, end = 0; i < form.segments; i = end) {
      const uint32_t start = layer.segments[i].start;
      uint32_t columns = 0;
      for (; end < form.segments && columns + layer.segments[end].length <= kernels::kWideColumns; end++) {
        columns += layer.segments[end].length;
      }
      kernels::widen_tile(static_cast<int>(spec.bits), stored.weights + size_t{start} * spec.bits, columns, less, work.wide);
      kernels::Tile tile = stored;
      // The segments count their columns from the start of the tile.
      tile.weights = reinterpret_cast<const std::byte*>(work.wide) - size_t{start} * 16;
      if (take_zero) tile.common_zero = 0;
      for (uint32_t c = 0; c < count; c += together) {
        const size_t panel = c / together, at = panel * panel_segments + i * together;
        run(16, tile,
            {layer.segments + i, end - i, work.panel + panel * panel_size + size_t{start} * planes(spec.activations) * together,
             work.panel_factor + at, work.panel_sum + at},
            work.total + c * kTileRows);
      }
    }
    for (uint32_t c = 0; c < count; c++) {
      finish(layer, t, work.total + c * kTileRows, work.x_scale[c], y + size_t{work.rows[c]} * spec.rows);
    }
  }
  for (uint32_t i = 0; i < alone; i++) {
    const float* const row = x + size_t{work.alone[i]} * spec.columns;
    float* const to = y + size_t{work.alone[i]} * spec.rows;
    const auto put = [&](uint64_t t, const double* total, double scale) { finish(layer, t, total, scale, to); };
    if (!run_alone(layer, row, work, 0, form.tiles, put)) propagate(layer, row, to);
  }
}

void forward_floats(const Layer& layer, const float* x, uint32_t batch, float* y, float* values) {
  const LayerSpec& spec = layer.spec();
  for (uint32_t b = 0; b < batch;) {
    const uint32_t rows = batch - b < 4 ? 1 : 4;
    for (uint64_t c = 0; c < layer.form.padded_columns; c++) {
      for (uint32_t r = 0; r < rows; r++) {
        values[c * rows + r] = c < spec.columns ? x[size_t{b + r} * spec.columns + c] : 0.0f;
      }
    }
    for (uint64_t t = 0; t < layer.form.tiles; t++) {
      float total[4 * kTileRows] = {};
      kernels::accumulate_plain(rows, reinterpret_cast<const float*>(layer.tile(t).weights), layer.form.padded_columns, values,
                                total);
      const uint64_t first = t * kTileRows, left = spec.rows - first, n = left < kTileRows ? left : kTileRows;
      for (uint32_t r = 0; r < rows; r++) {
        for (uint64_t i = 0; i < n; i++) {
          y[size_t{b + r} * spec.rows + first + i] = total[r * kTileRows + i] + layer.bias[first + i];
        }
      }
    }
    b += rows;
  }
}

uint64_t workspace_bytes(const LayerSpec& spec, const Form& form, uint32_t batch) {
  if (spec.bits == 32) return form.padded_columns * 4 * sizeof(float);
  return Workspace(spec, form, batch, nullptr).size;
}

}  // namespace

uint64_t layer_bytes(const LayerSpec& spec) noexcept { return valid(spec) ? Layer(spec, nullptr).size : 0; }

Status make_layer(const LayerSpec& spec, int32_t zero_point, std::span<std::byte> memory) noexcept {
  if (!valid(spec)) return Status::kBadLayout;
  if (memory.size() != layer_bytes(spec)) return Status::kSizeMismatch;
  if (zero_point < -kMaxZeroPoint || zero_point > kMaxZeroPoint) return Status::kBadZeroPoint;
  std::memset(memory.data(), 0, memory.size());
  const Layer layer(spec, memory.data());
  *layer.head = {.spec = spec, .zero_point = zero_point, .common_zero = 0};
  if (spec.bits == 32) return Status::kOk;
  uint64_t n = 0;
  for (uint64_t group = 0; group < layer.form.groups; group++) {
    const uint64_t column = group * spec.group_size, left = spec.columns - column;
    const uint64_t columns = left < spec.group_size ? left : spec.group_size;
    for (uint64_t at = 0; at < columns; at += layer.form.segment_size) {
      const uint64_t count = columns - at < layer.form.segment_size ? columns - at : layer.form.segment_size;
      layer.segments[n++] = {.start = static_cast<uint32_t>(group * layer.form.padded_group + at),
                             .length = static_cast<uint32_t>(round_up(count, kColumnStep)),
                             .group = static_cast<uint32_t>(group),
                             .column = static_cast<uint32_t>(column + at),
                             .count = static_cast<uint32_t>(count)};
    }
  }
  return Status::kOk;
}

Status set_layer_codes(std::span<std::byte> memory, uint32_t row, std::span<const std::byte> codes, DType dtype,
                       std::span<const float> scale, std::span<const int32_t> zero_point) noexcept {
  const Layer layer = layer_at(memory);
  const LayerSpec& spec = layer.spec();
  if (!dtype.valid() || spec.bits != (dtype.bits <= 4 ? 4u : 8u) || dtype.bits > 8) return Status::kBadDType;
  const uint64_t rows = codes.size() / spec.columns;
  if (codes.size() % spec.columns != 0 || !holds(spec, row, rows)) return Status::kSizeMismatch;
  if (scale.size() != rows * layer.form.groups || zero_point.size() != scale.size()) return Status::kSizeMismatch;
  const int32_t offset = offset_of(dtype);
  layer.head->common_zero = layer.head->zero_point + offset;
  for (uint64_t r = 0; r < rows; r++) {
    std::byte* const weights = layer.weights + (row + r) / kTileRows * layer.tile_bytes(spec);
    const std::byte* const from = codes.data() + r * spec.columns;
    for (uint64_t group = 0, column = 0; group < layer.form.groups; group++) {
      const uint64_t at = parameter_place(layer, row + r, group), parameter = r * layer.form.groups + group;
      layer.scale[at] = scale[parameter];
      if (spec.zero_points) layer.zero[at] = static_cast<float>(zero_point[parameter] + offset);
      const uint64_t left = spec.columns - column, count = left < spec.group_size ? left : spec.group_size;
      const uint64_t place = group * layer.form.padded_group;
      for (uint64_t i = 0; i < count; i++, column++) {
        const int32_t code = dtype.is_signed ? static_cast<int8_t>(from[column]) : static_cast<uint8_t>(from[column]);
        put_code(weights, spec.bits, place + i, (row + r) % kTileRows, code + offset);
      }
    }
  }
  return Status::kOk;
}

Status set_layer_blocks(std::span<std::byte> memory, uint32_t row, std::span<const std::byte> blocks, BlockType type) noexcept {
  const Layer layer = layer_at(memory);
  const LayerSpec& spec = layer.spec();
  const bool is_q8 = type == BlockType::kQ8_0;
  if ((!is_q8 && type != BlockType::kQ4_0) || spec.bits != (is_q8 ? 8u : 4u) || spec.group_size != 32 || spec.columns % 32 != 0 ||
      spec.zero_points || layer.head->zero_point != 0) {
    return Status::kBadDType;
  }
  const size_t block = block_size(type).bytes, row_bytes = layer.form.groups * block, rows = blocks.size() / row_bytes;
  if (blocks.size() % row_bytes != 0 || !holds(spec, row, rows)) return Status::kSizeMismatch;
  layer.head->common_zero = is_q8 ? 0 : 8;
  const std::byte* from = blocks.data();
  for (uint64_t r = row; r < row + rows; r++) {
    std::byte* const weights = layer.weights + r / kTileRows * layer.tile_bytes(spec);
    for (uint64_t group = 0; group < layer.form.groups; group++, from += block) {
      uint16_t half;
      std::memcpy(&half, from, sizeof(half));
      layer.scale[parameter_place(layer, r, group)] = float16_value(half);
      for (uint64_t i = 0; i < 32; i++) {
        const auto byte = static_cast<int32_t>(from[2 + (is_q8 ? i : i % 16)]);
        const int32_t code = is_q8 ? static_cast<int8_t>(byte) : i < 16 ? byte & 15 : byte >> 4;
        put_code(weights, spec.bits, group * 32 + i, r % kTileRows, code);
      }
    }
  }
  return Status::kOk;
}

Status set_layer_floats(std::span<std::byte> memory, uint32_t row, std::span<const float> weights) noexcept {
  const Layer layer = layer_at(memory);
  const LayerSpec& spec = layer.spec();
  if (spec.bits != 32) return Status::kBadDType;
  const uint64_t rows = weights.size() / spec.columns;
  if (weights.size() % spec.columns != 0 || !holds(spec, row, rows)) return Status::kSizeMismatch;
  for (uint64_t r = row; r < row + rows; r++) {
    auto* const to = reinterpret_cast<float*>(layer.weights + r / kTileRows * layer.tile_bytes(spec)) + r % kTileRows;
    const float* const from = weights.data() + (r - row) * spec.columns;
    kernels::copy_steps(from, 1, spec.columns, 1, to, kTileRows);
  }
  return Status::kOk;
}

Status set_layer_bias(std::span<std::byte> memory, std::span<const float> bias) noexcept {
  const Layer layer = layer_at(memory);
  if (bias.size() != layer.spec().rows) return Status::kSizeMismatch;
  std::memcpy(layer.bias, bias.data(), bias.size() * sizeof(float));
  return Status::kOk;
}

uint64_t layer_workspace_bytes(const LayerSpec& spec, uint32_t batch) noexcept {
  return valid(spec) ? workspace_bytes(spec, form_of(spec), batch) : 0;
}

Status layer_forward(std::span<const std::byte> memory, std::span<const float> x, uint32_t batch, std::span<float> y,
                     std::span<std::byte> workspace) noexcept {
  const Layer layer = layer_at(memory);
  const LayerSpec& spec = layer.spec();
  if (x.size() != uint64_t{batch} * spec.columns || y.size() != uint64_t{batch} * spec.rows) return Status::kSizeMismatch;
  if (workspace.size() < workspace_bytes(spec, layer.form, batch)) return Status::kSizeMismatch;
  if (spec.bits == 32)
    forward_floats(layer, x.data(), batch, y.data(), reinterpret_cast<float*>(workspace.data()));
  else
    forward_codes(layer, x.data(), batch, y.data(), Workspace(spec, layer.form, batch, workspace.data()));
  return Status::kOk;
}

Status layer_scores(std::span<const std::byte> memory, std::span<const float> x, uint32_t row, std::span<double> scores,
                    std::span<std::byte> workspace) noexcept {
  const Layer layer = layer_at(memory);
  const LayerSpec& spec = layer.spec();
  if (spec.bits == 32) return Status::kBadDType;
  if (x.size() != spec.columns || !holds(spec, row, scores.size())) return Status::kSizeMismatch;
  if (workspace.size() < workspace_bytes(spec, layer.form, 1)) return Status::kSizeMismatch;
  const uint64_t end = row + scores.size();
  const auto put = [&](uint64_t t, const double* total, double) {
    for (uint64_t r = t * kTileRows; r < (t + 1) * kTileRows; r++) {
      if (r >= row && r < end) scores[r - row] = row_scale(layer, r) * total[r % kTileRows];
    }
  };
  const Workspace work(spec, layer.form, 1, workspace.data());
  const bool finite = run_alone(layer, x.data(), work, row / kTileRows, round_up(end, kTileRows) / kTileRows, put);
  return finite ? Status::kOk : Status::kNonFinite;
}

}  // namespace scalepoint
