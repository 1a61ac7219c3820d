#include "arrays/linear.h"

#include <cstring>

#include "arrays/linear_loops.h"
#include "arrays/metrics.h"
#include "arrays/min_max.h"
#include "arrays/qparams.h"
#include "arrays/stretches.h"

namespace scalepoint {
namespace {

/// Converts value by value.
void quantize_slowly(const float* x, const Stretch& s, const float* scale, const int32_t* zero_point, loops::CodeFormat format,
                     std::byte* codes) {
  const DType dtype = format.dtype;
  for (size_t i = 0; i < s.size; i++) {
    const size_t p = s.uniform ? 0 : i;
    const auto code =
        static_cast<uint16_t>(quantize_value(x[i], scale[p], zero_point[p], dtype.qmin(), dtype.qmax(), format.rounding));
    std::memcpy(codes + i * dtype.storage_bytes(), &code, dtype.storage_bytes());  // little-endian: the low byte is first
  }
}

/// True if the loops' fast rounding does not hold for all of the parameters.
bool needs_slow_rounding(const Stretch& s, const float* scale, const int32_t* zero_point, Rounding rounding) {
  if (rounding == Rounding::kFused) return false;  // adds the zero point before it rounds
  for (size_t i = 0, n = s.uniform ? 1 : s.size; i < n; i++) {
    if (zero_point[i] > loops::kMaxFastZeroPoint || zero_point[i] < -loops::kMaxFastZeroPoint) return true;
    // The reciprocal of a smaller scale is infinite, and its product with 0 is NaN.
    if (rounding == Rounding::kReciprocal && scale[i] < kMinScale) return true;
  }
  return false;
}

/// Makes the codes of a stretch. Returns true if all of x is finite.
bool quantize_stretch(const float* x, const Stretch& s, const float* scale, const int32_t* zero_point, loops::CodeFormat format,
                      std::byte* codes) {
  const bool slow = needs_slow_rounding(s, scale, zero_point, format.rounding);
  const auto quickly = [&](const float* from, size_t first, size_t n, std::byte* to) {
    if (slow) return false;
    return s.uniform ? loops::quantize_uniform(from, n, *scale, *zero_point, format, to)
                     : loops::quantize_each(from, n, scale + first, zero_point + first, format, to);
  };
  if (quickly(x, 0, s.size, codes)) return true;
  // Some value is outside of the loops' range. Convert only the pieces with such values one value at a time.
  constexpr size_t kPiece = 1024;
  bool finite = true;
  for (size_t i = 0; i < s.size; i += kPiece) {
    const size_t n = s.size - i < kPiece ? s.size - i : kPiece;
    std::byte* to = codes + i * format.dtype.storage_bytes();
    if (quickly(x + i, i, n, to)) continue;
    const size_t first = s.uniform ? 0 : i;
    quantize_slowly(x + i, {0, n, 0, s.uniform}, scale + first, zero_point + first, format, to);
    if (first_non_finite({x + i, n}) < n) finite = false;
  }
  return finite;
}

/// True if the loops can take runs four at a time. Longer runs are not faster that way: their own elements hide the division.
bool are_even_runs(size_t line_size, size_t run_size, const QuantizationSpec& spec) {
  return spec.dtype.bits <= 8 && run_size % 16 == 0 && line_size % run_size == 0 && run_size <= 4096 &&
         (spec.scheme == Scheme::kSymmetric || spec.include_zero);
}

/// Range, parameters and codes of one run.
Status quantize_run(std::span<const float> x, const QuantizationSpec& spec, std::span<float> scale, std::span<int32_t> zero_point,
                    std::span<std::byte> codes) {
  const Layout whole;
  float min, max;
  clear_range({&min, 1}, {&max, 1});
  Status status = observe(x, whole, 0, spec.non_finite, {&min, 1}, {&max, 1});
  if (status == Status::kOk) status = choose_qparams({&min, 1}, {&max, 1}, spec, scale, zero_point);
  if (status == Status::kOk) status = quantize_linear(x, whole, 0, scale, zero_point, spec, codes);
  return status;
}

}  // namespace

Status quantize_linear(std::span<const float> x, const Layout& layout, uint64_t start, std::span<const float> scale,
                       std::span<const int32_t> zero_point, const QuantizationSpec& spec, std::span<std::byte> codes) noexcept {
  if (!spec.dtype.valid()) return Status::kBadDType;
  if (!layout.valid()) return Status::kBadLayout;
  if (codes.size() != x.size() * spec.dtype.storage_bytes()) return Status::kSizeMismatch;
  if (const Status s = check_parameters(layout, start, x.size(), scale, zero_point); s != Status::kOk) return s;
  const loops::CodeFormat format = {spec.dtype, spec.rounding};
  bool finite = true;
  for_each_stretch(layout, start, x.size(), [&](const Stretch& s) {
    const std::span<const float> from = x.subspan(s.offset, s.size);
    std::byte* to = codes.data() + s.offset * spec.dtype.storage_bytes();
    const float* scales = scale.data() + s.parameter;
    const int32_t* zeros = zero_point.data() + s.parameter;
    if (!quantize_stretch(from.data(), s, scales, zeros, format, to)) finite = false;
  });
  return finite || spec.non_finite == NonFinite::kSaturate ? Status::kOk : Status::kNonFinite;
}

Status quantize_linear_measured(std::span<const float> x, const Layout& layout, uint64_t start, std::span<const float> scale,
                                std::span<const int32_t> zero_point, const QuantizationSpec& spec, std::span<std::byte> codes,
                                ErrorSums& sums) noexcept {
  if (!spec.dtype.valid()) return Status::kBadDType;
  if (!layout.valid()) return Status::kBadLayout;
  const size_t bytes = spec.dtype.storage_bytes();
  if (codes.size() != x.size() * bytes) return Status::kSizeMismatch;
  if (const Status s = check_parameters(layout, start, x.size(), scale, zero_point); s != Status::kOk) return s;
  bool finite = true;
  for (size_t i = 0; i < x.size();) {
    const MeasuredStretch part = measured_stretch_at(layout, start + i, x.size() - i);
    const std::span<const float> from = x.subspan(i, part.size);
    const std::span<std::byte> to = codes.subspan(i * bytes, part.size * bytes);
    const loops::Runs runs = {part.run_size, &scale[part.parameter], &zero_point[part.parameter]};
    const bool done =
        part.run_size > 0 && spec.dtype.bits <= 8 &&
        !needs_slow_rounding({0, part.size / part.run_size, 0, false}, runs.scale, runs.zero_point, spec.rounding) &&
        loops::quantize_measured(from.data(), part.size, runs, {spec.dtype, spec.rounding}, to.data(), sums);
    if (!done) {
      Status status = quantize_linear(from, layout, start + i, scale, zero_point, spec, to);
      if (status == Status::kNonFinite) {
        finite = false;
      } else if (status != Status::kOk) {
        return status;
      }
      status = accumulate_code_error(from, to, spec.dtype, layout, start + i, scale, zero_point, sums);
      if (status != Status::kOk) return status;
    }
    i += part.size;
  }
  return finite || spec.non_finite == NonFinite::kSaturate ? Status::kOk : Status::kNonFinite;
}

Status quantize_runs(std::span<const float> x, size_t line_size, size_t run_size, const QuantizationSpec& spec,
                     std::span<float> scale, std::span<int32_t> zero_point, std::span<std::byte> codes) noexcept {
  if (!spec.dtype.valid()) return Status::kBadDType;
  if (line_size == 0 || run_size == 0 || x.size() % line_size != 0) return Status::kBadLayout;
  const size_t runs_per_line = (line_size + run_size - 1) / run_size, runs = x.size() / line_size * runs_per_line;
  const size_t bytes = spec.dtype.storage_bytes();
  if (scale.size() != runs || zero_point.size() != runs || codes.size() != x.size() * bytes) return Status::kSizeMismatch;

  size_t run = 0, offset = 0;
  if (are_even_runs(line_size, run_size, spec)) {
    const size_t even = runs - runs % 4;
    const uint32_t largest =
        loops::quantize_even_runs(x.data(), run_size, even, spec, scale.data(), zero_point.data(), codes.data());
    if (largest >= kInfinityBits && spec.non_finite == NonFinite::kError) return Status::kNonFinite;
    // The rest of this function repeats the runs if a value is not finite, or so large that choose_qparams may have to lower a
    // scale: below 2^126 a scale times its farthest code, at most the width of the range except for rounding, is finite.
    if (largest < bit_cast<uint32_t>(0x1p126f)) {
      run = even;
      offset = even * run_size;
    }
  }
  while (run < runs) {
    const size_t in_line = line_size - run % runs_per_line * run_size, size = in_line < run_size ? in_line : run_size;
    const Status status = quantize_run(x.subspan(offset, size), spec, scale.subspan(run, 1), zero_point.subspan(run, 1),
                                       codes.subspan(offset * bytes, size * bytes));
    if (status != Status::kOk) return status;
    run++;
    offset += size;
  }
  return Status::kOk;
}

Status dequantize_linear(std::span<const std::byte> codes, DType dtype, const Layout& layout, uint64_t start,
                         std::span<const float> scale, std::span<const int32_t> zero_point, std::span<float> x) noexcept {
  if (!dtype.valid()) return Status::kBadDType;
  if (!layout.valid()) return Status::kBadLayout;
  if (codes.size() != x.size() * dtype.storage_bytes()) return Status::kSizeMismatch;
  if (const Status s = check_parameters(layout, start, x.size(), scale, zero_point); s != Status::kOk) return s;
  for_each_stretch(layout, start, x.size(), [&](const Stretch& s) {
    const std::byte* from = codes.data() + s.offset * dtype.storage_bytes();
    float* to = x.data() + s.offset;
    if (s.uniform) {
      loops::dequantize_uniform(from, dtype, s.size, scale[s.parameter], zero_point[s.parameter], to);
    } else {
      loops::dequantize_each(from, dtype, s.size, &scale[s.parameter], &zero_point[s.parameter], to);
    }
  });
  return Status::kOk;
}

}  // namespace scalepoint
