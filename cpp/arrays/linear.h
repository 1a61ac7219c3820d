// Quantizes floats to codes with a scale and a zero point, and restores them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/error_sums.h"
#include "arrays/layout.h"
#include "arrays/spec.h"
#include "arrays/status.h"

namespace scalepoint {

/// Quantizes the piece [start, start + x.size()) of an array with given parameters:
///   codes[i] = saturate(round_half_even(x[i] / scale[p]) + zero_point[p])
/// This is Rounding::kOnnx; round.h has the others. Source: ONNX QuantizeLinear-25.
/// Shape:   codes holds x.size() codes of spec.dtype.storage_bytes() bytes each. scale and zero_point have at least
///          layout.parameter_end(start, x.size()) elements.
/// Error:   |x[i] - dequantized| <= scale / 2, up to float rounding, for every x[i] that does not saturate.
/// Special: NaN gives the zero point, saturated, and infinities give the smallest and the largest code. Under kError the status is then
///          kNonFinite, after all of x was converted.
/// Status:  kBadDType, kBadLayout, kSizeMismatch, kBadScale, kBadZeroPoint, kNonFinite.
[[nodiscard]] Status quantize_linear(std::span<const float> x, const Layout& layout, uint64_t start, std::span<const float> scale,
                                     std::span<const int32_t> zero_point, const QuantizationSpec& spec,
                                     std::span<std::byte> codes) noexcept;

/// quantize_linear and accumulate_code_error (metrics.h) in one pass: the same codes and the same sums, bit for bit.
/// Shape and status as quantize_linear. sums are undefined unless kOk.
[[nodiscard]] Status quantize_linear_measured(std::span<const float> x, const Layout& layout, uint64_t start,
                                              std::span<const float> scale, std::span<const int32_t> zero_point,
                                              const QuantizationSpec& spec, std::span<std::byte> codes, ErrorSums& sums) noexcept;

/// Makes range, parameters and codes in one pass, for arrays in which the elements of a parameter are contiguous. x is a sequence of
/// lines of line_size elements. A line is a sequence of runs of run_size elements; the last run of a line may be shorter. Each
/// run has its own scale and zero point. The results are those of observe, choose_qparams and quantize_linear.
/// Shape:   x.size() is a multiple of line_size. scale and zero_point have (x.size() / line_size) * ceil(line_size / run_size)
///          elements.
/// Status:  kBadDType, kBadLayout, kSizeMismatch, kNonFinite.
/// Speed:   reads each run again while it is in the cache.
[[nodiscard]] Status quantize_runs(std::span<const float> x, size_t line_size, size_t run_size, const QuantizationSpec& spec,
                                   std::span<float> scale, std::span<int32_t> zero_point, std::span<std::byte> codes) noexcept;

/// x[i] = scale[p] * float(codes[i] - zero_point[p]): one exact subtraction and one float32 multiplication.
/// Shape and status as quantize_linear.
[[nodiscard]] Status dequantize_linear(std::span<const std::byte> codes, DType dtype, const Layout& layout, uint64_t start,
                                       std::span<const float> scale, std::span<const int32_t> zero_point,
                                       std::span<float> x) noexcept;

}  // namespace scalepoint
