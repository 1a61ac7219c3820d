#include "compressed_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../kernels/minifloat.h"
#include "../linear.h"
#include "../metrics.h"
#include "../minifloat.h"
#include "../range.h"

namespace scalepoint::codecs {
namespace {

constexpr Minifloat kFloat8 = Minifloat::kFloat8E4M3FN;
constexpr double kLargestFloat8 = 448;

// ------------------------------------------------------------------------------------------------------------------- scales

/// Scales as they are stored. They differ from floats if they have 16 bits.
struct ScaleType {
  uint32_t bytes;
  float epsilon;   ///< from 1 to the next number
  float smallest;  ///< above 0
  void (*narrow)(const float* x, size_t n, uint16_t* bits);
  void (*widen)(const uint16_t* bits, size_t n, float* x);
};

const ScaleType* scale_type_of(ElementType type) {
  static constexpr ScaleType kF32 = {4, 0x1p-23f, 0x1p-149f, nullptr, nullptr},
                             kF16 = {2, 0x1p-10f, 0x1p-24f, kernels::float32_to_float16, kernels::float16_to_float32},
                             kBF16 = {2, 0x1p-7f, 0x1p-133f, kernels::float32_to_bfloat16, kernels::bfloat16_to_float32};
  return type == ElementType::kF32 ? &kF32 : type == ElementType::kF16 ? &kF16 : type == ElementType::kBF16 ? &kBF16 : nullptr;
}

// ------------------------------------------------------------------------------------------------------------------ packing

/// Codes of a byte to words: code - qmin, that is, with the top bit flipped. Zeros fill the last word.
void pack_words(std::span<const std::byte> codes, int32_t bits, std::span<std::byte> words) {
  const std::byte* from = codes.data();
  std::byte* to = words.data();
  const size_t n = codes.size();
  size_t used = n;
  if (bits == 8) {
    for (size_t i = 0; i < n; i++) to[i] = from[i] ^ std::byte{0x80};
  } else {
    for (size_t i = 0; i < n / 2; i++) {
      uint16_t pair;
      std::memcpy(&pair, from + 2 * i, 2);
      to[i] = static_cast<std::byte>(((pair & 15) | (pair >> 4 & 240)) ^ 0x88);
    }
    if (n % 2 != 0) to[n / 2] = (from[n - 1] & std::byte{15}) ^ std::byte{8};
    used = (n + 1) / 2;
  }
  std::memset(to + used, 0, words.size() - used);
}

/// The reverse.
void unpack_words(std::span<const std::byte> words, int32_t bits, std::span<std::byte> codes) {
  const auto* from = reinterpret_cast<const uint8_t*>(words.data());
  auto* to = reinterpret_cast<int8_t*>(codes.data());
  const size_t n = codes.size();
  if (bits == 8) {
    for (size_t i = 0; i < n; i++) to[i] = static_cast<int8_t>(from[i] - 128);
    return;
  }
  for (size_t i = 0; i < n / 2; i++) {
    to[2 * i] = static_cast<int8_t>((from[i] & 15) - 8);
    to[2 * i + 1] = static_cast<int8_t>((from[i] >> 4) - 8);
  }
  if (n % 2 != 0) to[n - 1] = static_cast<int8_t>((from[n / 2] & 15) - 8);
}

// -------------------------------------------------------------------------------------------------------------------- forms

/// Sizes that follow from a tile and its codes.
struct Form {
  uint64_t size = 0, rows = 0, columns = 0;
  uint64_t run_size = 0, runs_per_row = 0;
  uint64_t codes_per_word = 1;  ///< 1 if not packed
  uint64_t step = 0;            ///< elements
  const ScaleType* scale = nullptr;

  Status init(uint32_t rows_of_tile, uint32_t columns_of_tile, const CompressedTensors& codes) {
    scale = scale_type_of(codes.scale);
    const bool is_float8 = codes.bits == 8 && codes.symmetric && codes.group_size == 0 && !codes.packed && !codes.search;
    if ((codes.bits != 4 && codes.bits != 8) || (codes.float8 && !is_float8) || scale == nullptr) return Status::kBadDType;
    rows = rows_of_tile;
    columns = columns_of_tile;
    size = rows * columns;
    run_size = codes.group_size == 0 ? columns : codes.group_size;
    if (size == 0 || columns % run_size != 0) return Status::kBadLayout;
    runs_per_row = columns / run_size;
    codes_per_word = codes.packed ? static_cast<uint64_t>(32 / codes.bits) : 1;
    // Steps hold whole runs, and whole words: whole rows, where these end within a word.
    step = step_over(fills_words() ? run_size : columns, size);
    return Status::kOk;
  }

  [[nodiscard]] uint64_t runs() const { return rows * runs_per_row; }
  /// Bytes of the codes of so many columns.
  [[nodiscard]] uint64_t row_bytes(uint64_t n) const {
    return codes_per_word == 1 ? n : (n + codes_per_word - 1) / codes_per_word * 4;
  }
  [[nodiscard]] bool fills_words() const { return columns % codes_per_word == 0; }
  /// Bytes of all codes before element `at`, the first of a step.
  [[nodiscard]] uint64_t data_bytes(uint64_t at) const {
    return fills_words() ? row_bytes(at) : at / columns * row_bytes(columns);
  }
  [[nodiscard]] uint64_t zero_point_bytes() const {
    return codes_per_word == 1 ? runs() : (rows + codes_per_word - 1) / codes_per_word * runs_per_row * 4;
  }

  /// Calls f(first code, number of codes, first byte, number of bytes) for each stretch of codes in a step that is packed at once.
  template <class F>
  void for_each_line(uint64_t count, F f) const {
    const uint64_t line = fills_words() ? count : columns, bytes = row_bytes(line);
    for (uint64_t i = 0; i < count / line; i++) {
      f(static_cast<size_t>(i * line), static_cast<size_t>(line), static_cast<size_t>(i * bytes), static_cast<size_t>(bytes));
    }
  }
};

/// As a step sees it: one parameter for each of its runs.
Layout layout_of(const Form& form, uint64_t count) { return {Granularity::kPerChannel, count / form.run_size, form.run_size, 1}; }

/// torch.round(x / scale + zero point).
QuantizationSpec spec_of(const CompressedTensors& codes) {
  return {.dtype = {codes.bits, true},
          .scheme = codes.symmetric ? Scheme::kSymmetric : Scheme::kAsymmetric,
          .symmetric_range = SymmetricRange::kFull,
          .rounding = Rounding::kFused};
}

/// Where the zero point of a run lies among packed ones.
struct Place {
  size_t word;
  uint32_t shift;
};
Place place_of(const Form& form, const CompressedTensors& codes, uint64_t run) {
  const uint64_t row = run / form.runs_per_row, group = run % form.runs_per_row;
  return {static_cast<size_t>(row / form.codes_per_word * form.runs_per_row + group),
          static_cast<uint32_t>(row % form.codes_per_word) * static_cast<uint32_t>(codes.bits)};
}

/// What is added to signed codes where they are stored without a sign.
int32_t middle_of(const CompressedTensors& codes) { return 1 << (codes.bits - 1); }

// ------------------------------------------------------------------------------------------------------------------- encode

/// The parameters of the runs of a step.
struct Parameters {
  std::span<float> min, max, scale, other_scale;
  std::span<int32_t> zero_point, other_zero_point;
  std::span<uint16_t> stored;  ///< scales of 16 bits

  [[nodiscard]] Parameters first(size_t n) const {
    const auto cut = [n](auto span) { return span.first(std::min(n, span.size())); };
    return {cut(min), cut(max), cut(scale), cut(other_scale), cut(zero_point), cut(other_zero_point), cut(stored)};
  }
};

class Encoder {
 public:
  Encoder(const Tile& tile, const CompressedTensors& codes, const Form& form, Arena& arena, Encoded& result)
      : tile_(tile), codes_(codes), form_(form), result_(result), floats_(tile, reads() ? form.step : 0, arena) {
    lay_out(arena);
  }

  /// Goes through the tile. Stops at a problem.
  Status run() {
    const auto zero_points = result_.part(Role::kZeroPoint);
    std::fill(zero_points.begin(), zero_points.end(), std::byte{0});
    for (uint64_t at = 0; at < form_.size && result_.problem.kind == ProblemKind::kNone; at += form_.step) {
      const uint64_t count = std::min(form_.step, form_.size - at);
      const std::span<const float> x = reads() ? floats_.read(at, static_cast<size_t>(count)) : std::span<const float>();
      const Parameters parameters = parameters_.first(static_cast<size_t>(count / form_.run_size));
      Status status = choose(at, x, parameters);
      if (status == Status::kOk && result_.problem.kind == ProblemKind::kNone) {
        store_parameters(at / form_.run_size, parameters);
        if (tile_.wants(Role::kData)) status = store_codes(at, x, parameters);
      }
      if (status != Status::kOk) return status;
    }
    return Status::kOk;
  }

 private:
  [[nodiscard]] bool searches() const { return codes_.search && tile_.ranges.empty(); }
  [[nodiscard]] bool reads() const { return tile_.ranges.empty() || tile_.wants(Role::kData); }

  void lay_out(Arena& arena) {
    const uint64_t step = form_.step, runs = step / form_.run_size, others = searches() ? runs : 0;
    parameters_ = {arena.take<float>(runs),   arena.take<float>(runs),     arena.take<float>(runs),   arena.take<float>(others),
                   arena.take<int32_t>(runs), arena.take<int32_t>(others), arena.take<uint16_t>(runs)};
    if (searches()) scratch_ = arena.take<std::byte>(search_scratch_bytes(step, layout_of(form_, step)));
    const bool data = tile_.wants(Role::kData);
    restored_ = arena.take<float>(data && tile_.measure && codes_.float8 ? step : 0);
    to_pack_ = arena.take<std::byte>(data && codes_.packed ? step : 0);
    const auto part = [&](Role role, uint64_t bytes) {
      result_.part(role) = arena.take<std::byte>(tile_.wants(role) ? bytes : 0);
    };
    part(Role::kData, form_.rows * form_.row_bytes(form_.columns));
    part(Role::kScale, form_.runs() * form_.scale->bytes);
    part(Role::kZeroPoint, form_.zero_point_bytes());
  }

  /// Scales and zero points of a step; or a problem.
  Status choose(uint64_t at, std::span<const float> x, const Parameters& p) {
    if (!tile_.ranges.empty()) {
      const ValueRange* range = &tile_.ranges[static_cast<size_t>(at / form_.run_size)];
      for (size_t i = 0; i < p.min.size(); i++, range++) p.min[i] = range->min, p.max[i] = range->max;
      from_ranges(p);
    } else {
      clear_range(p.min, p.max);
      const Status status = scalepoint::observe(x, layout_of(form_, x.size()), 0, NonFinite::kError, p.min, p.max);
      if (status == Status::kNonFinite) result_.problem = floats_.first_problem(at);
      if (status != Status::kOk) return status == Status::kNonFinite ? Status::kOk : status;
      from_ranges(p);
    }
    for (size_t i = 0; reads() && i < p.scale.size(); i++) {
      if (std::isfinite(p.scale[i])) continue;
      const auto first = x.begin() + static_cast<ptrdiff_t>(i * form_.run_size);
      const auto closer = [](float a, float b) { return std::fabs(a) < std::fabs(b); };
      overflow(at, x,
               static_cast<size_t>(std::max_element(first, first + static_cast<ptrdiff_t>(form_.run_size), closer) - x.begin()));
      return Status::kOk;
    }
    return searches() ? search(x, p) : Status::kOk;
  }

  /// The scales of p as they are stored, and what that makes of them.
  void round_scales(std::span<float> scale, const Parameters& p) const {
    if (p.stored.empty() || form_.scale->narrow == nullptr) return;
    form_.scale->narrow(scale.data(), scale.size(), p.stored.data());
    form_.scale->widen(p.stored.data(), scale.size(), scale.data());
  }

  /// calculate_qparams of compressed-tensors. Its operations are in float32, and so are these: what is computed in double is one
  /// operation, rounded once more.
  void from_ranges(const Parameters& p) const {
    const double levels = codes_.float8 ? 2 * kLargestFloat8 : (1 << codes_.bits) - 1, qmin = -middle_of(codes_);
    for (size_t i = 0; i < p.scale.size(); i++) {
      const float low = std::min(p.min[i], 0.0f), high = std::max(p.max[i], 0.0f);
      const double exact = static_cast<double>(high) - low;
      const auto width = static_cast<float>(exact);
      const double wide = std::isfinite(width) ? width : exact;
      p.scale[i] = static_cast<float>((codes_.symmetric ? std::max(-low, high) * 2.0 : wide) / levels);
    }
    round_scales(p.scale, p);
    for (size_t i = 0; i < p.scale.size(); i++) {
      const float low = std::min(p.min[i], 0.0f);
      if (p.scale[i] == 0) p.scale[i] = low == 0 && p.max[i] <= 0 ? form_.scale->epsilon : form_.scale->smallest;
      const auto steps = static_cast<float>(static_cast<double>(low) / p.scale[i]);
      const double exact = static_cast<float>(qmin - steps);
      p.zero_point[i] = codes_.symmetric ? 0 : static_cast<int32_t>(round_half_even(std::clamp(exact, qmin, qmin + levels)));
    }
  }

  /// Takes searched scales and zero points instead.
  Status search(std::span<const float> x, const Parameters& p) const {
    const QuantizationSpec spec = spec_of(codes_);
    const Status status = search_qparams(x, layout_of(form_, x.size()), spec, codes_.method, codes_.percentile, scratch_,
                                         p.other_scale, p.other_zero_point);
    if (status != Status::kOk) return status;
    round_scales(p.other_scale, p);
    if (codes_.method != RangeMethod::kMse) {
      for (size_t i = 0; i < p.scale.size(); i++) {
        const float scale = p.other_scale[i];
        // Runs of zeros keep what they have; so do runs whose scale is beyond the type.
        if ((p.min[i] == 0 && p.max[i] == 0) || !(scale > 0 && std::isfinite(scale))) continue;
        p.scale[i] = scale;
        p.zero_point[i] = p.other_zero_point[i];
      }
      return Status::kOk;
    }
    const auto take = [&] {
      return take_better(x, static_cast<size_t>(form_.run_size), spec.dtype, p.scale, p.zero_point, p.other_scale,
                         p.other_zero_point);
    };
    Status taken = take();
    // The bits of positive floats are in their order: one up, then one down.
    for (const int step : {1, -2}) {
      if (taken != Status::kOk || form_.scale->widen == nullptr) break;
      for (uint16_t& bits : p.stored) bits = static_cast<uint16_t>(bits + step);
      form_.scale->widen(p.stored.data(), p.stored.size(), p.other_scale.data());
      taken = take();
    }
    return taken;
  }

  /// Puts the parameters of the runs from `run` on into their parts.
  void store_parameters(uint64_t run, const Parameters& p) const {
    if (const auto out = result_.part(Role::kScale); !out.empty()) {
      std::byte* const to = out.data() + run * form_.scale->bytes;
      if (form_.scale->narrow == nullptr) {
        std::memcpy(to, p.scale.data(), p.scale.size_bytes());
      } else {
        form_.scale->narrow(p.scale.data(), p.scale.size(), reinterpret_cast<uint16_t*>(to));
      }
    }
    const auto out = result_.part(Role::kZeroPoint);
    if (out.empty()) return;
    if (!codes_.packed) {
      for (size_t i = 0; i < p.zero_point.size(); i++)
        out[static_cast<size_t>(run + i)] = static_cast<std::byte>(p.zero_point[i]);
      return;
    }
    auto* const words = reinterpret_cast<uint32_t*>(out.data());
    for (const int32_t zero_point : p.zero_point) {
      const auto [word, shift] = place_of(form_, codes_, run++);
      words[word] |= static_cast<uint32_t>(zero_point + middle_of(codes_)) << shift;
    }
  }

  /// Puts the codes of a step into their part, and adds up the errors.
  Status store_codes(uint64_t at, std::span<const float> x, const Parameters& p) {
    const std::span<std::byte> data = result_.part(Role::kData).subspan(static_cast<size_t>(form_.data_bytes(at)));
    const std::span<std::byte> made = (codes_.packed ? to_pack_ : data).first(x.size());
    const Layout layout = layout_of(form_, x.size());
    const QuantizationSpec spec = spec_of(codes_);
    ErrorSums& sums = result_.sums;
    Status status;
    if (codes_.float8) {
      status = quantize_float8(x, layout, p, made);
    } else if (tile_.measure) {
      status = quantize_linear_measured(x, layout, 0, p.scale, p.zero_point, spec, made, sums);
    } else {
      status = quantize_linear(x, layout, 0, p.scale, p.zero_point, spec, made);
    }
    if (status != Status::kOk) return status;
    // Codes go half a step beyond the largest values, and so beyond the largest float.
    if (sums.non_finite != 0) {
      find_beyond(at, x, p, made);
      return Status::kOk;
    }
    if (codes_.packed) {
      form_.for_each_line(x.size(), [&](size_t code, size_t n, size_t byte, size_t bytes) {
        pack_words(made.subspan(code, n), codes_.bits, data.subspan(byte, bytes));
      });
    }
    return Status::kOk;
  }

  Status quantize_float8(std::span<const float> x, const Layout& layout, const Parameters& p, std::span<std::byte> out) {
    const std::span<uint8_t> bits = {reinterpret_cast<uint8_t*>(out.data()), out.size()};
    Status status = quantize_minifloat(x, layout, 0, p.scale, kFloat8, bits);
    if (status != Status::kOk || !tile_.measure) return status;
    const std::span<float> y = restored_.first(x.size());
    status = dequantize_minifloat(bits, layout, 0, p.scale, kFloat8, y);
    return status == Status::kOk ? accumulate_error(x, y, result_.sums) : status;
  }

  /// Names the first element of a step whose code stands for an infinity.
  void find_beyond(uint64_t at, std::span<const float> x, const Parameters& p, std::span<const std::byte> made) {
    for (size_t i = 0; i < x.size(); i++) {
      const auto run = static_cast<size_t>(i / form_.run_size);
      const float steps = codes_.float8 ? restored_[i] : static_cast<float>(static_cast<int8_t>(made[i]) - p.zero_point[run]);
      if (!std::isfinite(codes_.float8 ? steps : steps * p.scale[run])) return overflow(at, x, i);
    }
  }

  /// Element i of a step overflows. What is not finite comes first, wherever it is.
  void overflow(uint64_t at, std::span<const float> x, size_t i) {
    result_.problem = {ProblemKind::kOverflow, at + i, x[i]};
    const Problem first = floats_.first_problem(at);
    if (first.kind != ProblemKind::kNone) result_.problem = first;
  }

  const Tile& tile_;
  const CompressedTensors& codes_;
  const Form& form_;
  Encoded& result_;
  Floats floats_;
  Parameters parameters_;
  std::span<std::byte> scratch_, to_pack_;
  std::span<float> restored_;
};

// ------------------------------------------------------------------------------------------------------------------- decode

/// The parameters of the runs from `first` on.
void read_parameters(const Stored& stored, const CompressedTensors& codes, const Form& form, uint64_t first,
                     std::span<float> scale, std::span<int32_t> zero_point) {
  const std::byte* const scales = stored.part(Role::kScale).data() + first * form.scale->bytes;
  if (form.scale->widen == nullptr) {
    std::memcpy(scale.data(), scales, scale.size_bytes());
  } else {
    form.scale->widen(reinterpret_cast<const uint16_t*>(scales), scale.size(), scale.data());
  }
  const std::byte* const from = stored.part(Role::kZeroPoint).data();
  for (size_t i = 0; i < zero_point.size(); i++) {
    if (codes.symmetric) {
      zero_point[i] = 0;
    } else if (!codes.packed) {
      zero_point[i] = static_cast<int8_t>(from[first + i]);
    } else {
      const auto [word, shift] = place_of(form, codes, first + i);
      const uint32_t value = reinterpret_cast<const uint32_t*>(from)[word] >> shift & ((1u << codes.bits) - 1);
      zero_point[i] = static_cast<int32_t>(value) - middle_of(codes);
    }
  }
}

}  // namespace

Status encode(const Tile& tile, const CompressedTensors& codes, Arena& arena, Encoded& result) noexcept {
  Form form;
  if (const Status status = form.init(tile.rows, tile.columns, codes); status != Status::kOk) return status;
  if (tile.ranges.empty() || tile.wants(Role::kData)) {
    if (const Status status = check(tile); status != Status::kOk) return status;
  }
  if (!tile.ranges.empty() && (tile.ranges.size() != tile.rows || form.runs_per_row != 1)) return Status::kBadLayout;
  // The search looks at runs side by side: its results are those of the whole tile at once.
  if (codes.search && tile.ranges.empty()) form.step = form.size;
  result = {};
  Encoder encoder(tile, codes, form, arena, result);
  if (arena.only_counts()) return Status::kOk;
  return arena.status() == Status::kOk ? encoder.run() : arena.status();
}

Status decode(const Stored& stored, const CompressedTensors& codes, Arena& arena, std::span<float>& x) noexcept {
  Form form;
  if (const Status status = form.init(stored.rows, stored.columns, codes); status != Status::kOk) return status;
  const std::span<const std::byte> data = stored.part(Role::kData);
  if (data.size() != form.rows * form.row_bytes(form.columns) ||
      stored.part(Role::kScale).size() != form.runs() * form.scale->bytes ||
      (!codes.symmetric && stored.part(Role::kZeroPoint).size() != form.zero_point_bytes())) {
    return Status::kSizeMismatch;
  }
  const uint64_t runs_of_step = form.step / form.run_size;
  x = arena.take<float>(form.size);
  const auto scales = arena.take<float>(runs_of_step);
  const auto zero_points = arena.take<int32_t>(runs_of_step);
  const auto unpacked = arena.take<std::byte>(codes.packed ? form.step : 0);
  if (arena.only_counts()) return Status::kOk;
  if (arena.status() != Status::kOk) return arena.status();

  for (uint64_t at = 0; at < form.size; at += form.step) {
    const auto count = static_cast<size_t>(std::min(form.step, form.size - at));
    const auto runs = static_cast<size_t>(count / form.run_size);
    const std::span<float> scale = scales.first(runs), out = x.subspan(static_cast<size_t>(at), count);
    const std::span<int32_t> zero_point = zero_points.first(runs);
    read_parameters(stored, codes, form, at / form.run_size, scale, zero_point);
    std::span<const std::byte> made = data.subspan(static_cast<size_t>(form.data_bytes(at)));
    if (codes.packed) {
      form.for_each_line(count, [&](size_t code, size_t n, size_t byte, size_t bytes) {
        unpack_words(made.subspan(byte, bytes), codes.bits, unpacked.subspan(code, n));
      });
      made = unpacked;
    }
    made = made.first(count);
    const std::span<const uint8_t> bits = {reinterpret_cast<const uint8_t*>(made.data()), count};
    const Layout layout = layout_of(form, count);
    const Status status = codes.float8 ? dequantize_minifloat(bits, layout, 0, scale, kFloat8, out)
                                       : dequantize_linear(made, spec_of(codes).dtype, layout, 0, scale, zero_point, out);
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

}  // namespace scalepoint::codecs
