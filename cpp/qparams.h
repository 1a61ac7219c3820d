// Ranges to scales and zero points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spec.h"
#include "status.h"

namespace scalepoint {

/// Turns ranges into scales and zero points. All in double from the float32 bounds; the scale is rounded to float32 last.
///   symmetric   absmax = max(|min|, |max|); scale = absmax / qmax (restricted) or 2 absmax / (qmax - qmin) (full), with qmin
///               and qmax of the signed type; zero point 0, or 2^(bits-1) for an unsigned dtype. include_zero is not read.
///   asymmetric  the range is widened to hold 0 if include_zero; scale = (max - min) / (qmax - qmin); zero point =
///               round_half_even(qmin - min / scale). Without include_zero the zero point may leave [qmin, qmax]; the scale is
///               widened where needed to keep it at most kMaxZeroPoint - 2^16 in size.
/// Special: a symmetric range of 0, or an asymmetric one of zero width around 0, gives scale 1 (and zero point 0 if asymmetric).
///          An asymmetric range of zero width around c != 0 (only without include_zero) gives scale |c| and zero point 0, or 1
///          where an unsigned type has to hold -1, so that c is restored exactly. A scale below kMinScale is raised to it; one
///          that would restore a code to an infinity is lowered, but for the codes that a symmetric restricted or a constant
///          range does not use. An empty range (min > max, as observe leaves it when it saw no finite value) counts as [0, 0].
/// Shape:   min, max, scale and zero_point have the same length.
/// Status:  kBadDType, kSizeMismatch, or kBadRange if a bound is not finite. scale and zero_point are unspecified unless kOk.
[[nodiscard]] Status choose_qparams(std::span<const float> min, std::span<const float> max, const QuantizationSpec& spec,
                                    std::span<float> scale, std::span<int32_t> zero_point) noexcept;

}  // namespace scalepoint
