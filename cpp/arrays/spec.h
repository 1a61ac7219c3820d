// Quantization specs: choices of a caller for a whole array.
#pragma once

#include <cstdint>

#include "arrays/dtype.h"
#include "lanes/round.h"

namespace scalepoint {

/// Zero point: fixed (kSymmetric), or from the range (kAsymmetric).
enum class Scheme : int32_t { kSymmetric = 0, kAsymmetric = 1 };
/// Codes that a symmetric range covers: [-qmax, qmax], or [qmin, qmax] with its middle at 0.
enum class SymmetricRange : int32_t { kRestricted = 0, kFull = 1 };
/// Handling of NaN and infinities: an error, or codes that saturate.
enum class NonFinite : int32_t { kError = 0, kSaturate = 1 };

/// Choices that decide about codes. choose_qparams documents scheme, symmetric_range and include_zero, quantize_linear the others.
struct QuantizationSpec {
  DType dtype;
  Scheme scheme = Scheme::kSymmetric;
  SymmetricRange symmetric_range = SymmetricRange::kRestricted;
  bool include_zero = true;
  Rounding rounding = Rounding::kOnnx;
  NonFinite non_finite = NonFinite::kError;
};

}  // namespace scalepoint
