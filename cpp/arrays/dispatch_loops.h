// Tables of functions: one function for each type of code and each rounding.
// A call through a table prevents inlining on purpose: one big function with all the loops would run out of registers in each loop.
#pragma once

#include <cstdint>

#include "arrays/dtype.h"
#include "lanes/round.h"

namespace scalepoint::loops {

template <class Function>
struct PerCodeType {
  Function of_int8, of_uint8, of_int16, of_uint16;

  Function operator[](DType dtype) const {
    if (dtype.bits > 8) return dtype.is_signed ? of_int16 : of_uint16;
    return dtype.is_signed ? of_int8 : of_uint8;
  }
};

/// For functions that take types of at most 8 bits.
template <class Function>
struct PerSign {
  Function of_int8, of_uint8;

  Function operator[](DType dtype) const { return dtype.is_signed ? of_int8 : of_uint8; }
};

template <class Function>
struct PerRounding {
  Function onnx, fused, reciprocal;

  Function operator[](Rounding rounding) const {
    switch (rounding) {
      case Rounding::kOnnx:
        return onnx;
      case Rounding::kFused:
        return fused;
      case Rounding::kReciprocal:
        return reciprocal;
    }
    return {};  // not reached: the compiler warns about a rounding that is missing above
  }
};

// f is a function template of a code type, or of a rounding and a code type.
#define SCALEPOINT_PER_CODE_TYPE(f) \
  { &f<int8_t>, &f<uint8_t>, &f<int16_t>, &f<uint16_t> }
#define SCALEPOINT_OF_ROUNDING(f, rounding) \
  { &f<rounding, int8_t>, &f<rounding, uint8_t>, &f<rounding, int16_t>, &f<rounding, uint16_t> }
#define SCALEPOINT_PER_ROUNDING(f)                                                           \
  {                                                                                          \
    SCALEPOINT_OF_ROUNDING(f, Rounding::kOnnx), SCALEPOINT_OF_ROUNDING(f, Rounding::kFused), \
        SCALEPOINT_OF_ROUNDING(f, Rounding::kReciprocal)                                     \
  }
#define SCALEPOINT_BYTES_OF_ROUNDING(f, rounding) \
  { &f<rounding, int8_t>, &f<rounding, uint8_t> }
/// For types of at most 8 bits.
#define SCALEPOINT_BYTES_PER_ROUNDING(f)                                                                 \
  {                                                                                                      \
    SCALEPOINT_BYTES_OF_ROUNDING(f, Rounding::kOnnx), SCALEPOINT_BYTES_OF_ROUNDING(f, Rounding::kFused), \
        SCALEPOINT_BYTES_OF_ROUNDING(f, Rounding::kReciprocal)                                           \
  }

}  // namespace scalepoint::loops
