// How codes are made: what a caller chooses once for an array.
#pragma once

#include <cstdint>

#include "dtype.h"
#include "round.h"

namespace scalepoint {

enum class Scheme : int32_t { kSymmetric = 0, kAsymmetric = 1 };
enum class SymmetricRange : int32_t { kRestricted = 0, kFull = 1 };
enum class NonFinite : int32_t { kError = 0, kSaturate = 1 };

/// How to make codes. See choose_qparams for what the fields do to scale and zero point, quantize_linear for the rest.
struct QuantizationSpec {
  DType dtype;
  Scheme scheme = Scheme::kSymmetric;
  SymmetricRange symmetric_range = SymmetricRange::kRestricted;
  bool include_zero = true;
  Rounding rounding = Rounding::kOnnx;
  NonFinite non_finite = NonFinite::kError;
};

}  // namespace scalepoint
