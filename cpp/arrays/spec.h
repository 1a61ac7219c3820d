// How codes are made: what a caller chooses once for an array.
#pragma once

#include <cstdint>

#include "arrays/dtype.h"
#include "lanes/round.h"

namespace scalepoint {

/// Whether the zero point is fixed (kSymmetric) or follows from the range (kAsymmetric).
enum class Scheme : int32_t { kSymmetric = 0, kAsymmetric = 1 };
/// Which codes a symmetric range covers: [-qmax, qmax], or [qmin, qmax] with its middle at 0.
enum class SymmetricRange : int32_t { kRestricted = 0, kFull = 1 };
/// What becomes of NaN and infinities: an error, or codes that saturate.
enum class NonFinite : int32_t { kError = 0, kSaturate = 1 };

/// How to make codes. choose_qparams says what scheme, symmetric_range and include_zero do, and quantize_linear what the others
/// do.
struct QuantizationSpec {
  DType dtype;
  Scheme scheme = Scheme::kSymmetric;
  SymmetricRange symmetric_range = SymmetricRange::kRestricted;
  bool include_zero = true;
  Rounding rounding = Rounding::kOnnx;
  NonFinite non_finite = NonFinite::kError;
};

}  // namespace scalepoint
