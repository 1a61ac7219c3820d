// The oracle: what the core has to return, computed the slow and obvious way from the documentation. It takes the names of types
// and of options from scalepoint.h and calls nothing of the core, so that the two can only agree by both being right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "scalepoint.h"

namespace scalepoint::reference {

/// The ends of the type.
int32_t lowest_code(DType dtype);
int32_t highest_code(DType dtype);

/// By floor and comparison, without the rounding mode of the machine. Infinities stay.
double round_half_even(double x);

// ---------------------------------------------------------------------------------------------------------------- arrays

/// A row-major array of any rank, and how its elements share parameters.
struct Partition {
  std::vector<size_t> shape;
  Granularity granularity = Granularity::kPerTensor;
  size_t axis = 0;
  size_t group_size = 1;

  size_t size() const;
  size_t parameter_count() const;
  /// The parameter of every element, from its coordinates.
  std::vector<size_t> parameters() const;
};

// ------------------------------------------------------------------------------------------------- scale and zero point

/// The scale before it is rounded to float32. The zero point may be larger than the documentation allows, and the scale so large
/// that a code stands for an infinity: the widening and the lowering that these lead to are no part of the oracle, because the
/// documentation leaves their amounts open.
struct Parameters {
  double scale;
  double zero_point;
};
Parameters choose_qparams(float min, float max, const QuantizationSpec& spec);

/// The range of the finite elements of every parameter, or +infinity and -infinity.
struct Range {
  float min = std::numeric_limits<float>::infinity();
  float max = -std::numeric_limits<float>::infinity();
};
std::vector<Range> observe(const std::vector<float>& x, const Partition& partition);

/// The least squared error that any scale above 0 leaves, a real number, with any zero point from -farthest_zero to farthest_zero
/// that the spec allows: by going through all assignments of levels that some scale makes.
double least_squared_error(const std::vector<float>& x, const QuantizationSpec& spec, int32_t farthest_zero);

struct Histogram {
  std::vector<uint32_t> counts;
  double below = 0;
  double above = 0;
};
Histogram histogram(const std::vector<float>& x, float min, float max, size_t bins);

// ----------------------------------------------------------------------------------------------------------------- codes

int32_t quantize_value(float x, float scale, int32_t zero_point, DType dtype, Rounding rounding);
float dequantize_value(int32_t code, float scale, int32_t zero_point);

std::vector<uint8_t> pack(const std::vector<int32_t>& codes, DType dtype);
std::vector<int32_t> unpack(const std::vector<uint8_t>& packed, DType dtype, size_t n);

// -------------------------------------------------------------------------------------------------------- error measures

struct Sums {
  long double squared_error = 0;
  long double absolute_error = 0;
  long double max_absolute_error = 0;
  long double squared_x = 0;
  long double squared_y = 0;
  long double product = 0;
  size_t non_finite = 0;
};
Sums accumulate_error(const std::vector<float>& x, const std::vector<float>& y);

// --------------------------------------------------------------------------------------------------------- float formats

/// A binary format with a sign, exponent_bits, mantissa_bits, infinities and NaN.
struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
};
inline constexpr FloatFormat kFloat16 = {5, 10};
inline constexpr FloatFormat kBfloat16 = {8, 7};

double decode(uint16_t bits, FloatFormat format);
/// x must not be NaN.
uint16_t encode(float x, FloatFormat format);

/// The value of a code of at most eight bits, of which the documentation of Minifloat gives the fields.
double minifloat_value(uint8_t bits, Minifloat format);
/// By the distances to all values.
uint8_t encode_minifloat(float x, Minifloat format, Overflow overflow);

}  // namespace scalepoint::reference
