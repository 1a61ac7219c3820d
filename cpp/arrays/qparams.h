// Turns ranges into scales and zero points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "arrays/spec.h"
#include "arrays/status.h"

namespace scalepoint {

/// Turns ranges into scales and zero points. Computes in double from the float32 bounds, and rounds the scale to float32 last.
///   symmetric   absmax = max(|min|, |max|). The scale is absmax / qmax (restricted) or 2 absmax / (qmax - qmin) (full), with
///               qmin and qmax of the signed type. The zero point is 0, or 2^(bits - 1) for an unsigned type. include_zero does
///               not matter.
///   asymmetric  If include_zero, the range is widened to hold 0. The scale is (max - min) / (qmax - qmin), and the zero point is
///               round_half_even(qmin - min / scale). Without include_zero the zero point may leave [qmin, qmax]; the scale is
///               widened where that keeps |zero point| at most kMaxZeroPoint - 2^16.
/// Special: a symmetric range of 0 gives scale 1. An asymmetric range of zero width around 0 gives scale 1 and zero point 0.
///          An asymmetric range of zero width around c != 0 (only without include_zero) restores c exactly: scale |c|, zero point
///          0, or 1 where an unsigned type has to hold -1.
///          An empty range (min > max, as observe leaves it when it saw no finite value) counts as [0, 0].
///          A scale below kMinScale is raised to it. A scale that would restore a code as an infinity is lowered; codes that a symmetric
///          restricted range or a range of zero width does not use are ignored.
/// Shape:   min, max, scale and zero_point have the same length.
/// Status:  kBadDType, kSizeMismatch, or kBadRange if a bound is not finite. scale and zero_point are undefined unless kOk.
[[nodiscard]] Status choose_qparams(std::span<const float> min, std::span<const float> max, const QuantizationSpec& spec,
                                    std::span<float> scale, std::span<int32_t> zero_point) noexcept;

}  // namespace scalepoint
