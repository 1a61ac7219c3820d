#include "reference.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace scalepoint::reference {
namespace {

bool finite(float x) { return std::fabs(x) <= std::numeric_limits<float>::max(); }

constexpr int64_t power_of_two(int exponent) { return int64_t{1} << exponent; }

}  // namespace

int32_t lowest_code(DType dtype) { return dtype.is_signed ? static_cast<int32_t>(-power_of_two(dtype.bits - 1)) : 0; }

int32_t highest_code(DType dtype) {
  return static_cast<int32_t>(power_of_two(dtype.is_signed ? dtype.bits - 1 : dtype.bits) - 1);
}

double round_half_even(double x) {
  if (std::isinf(x)) return x;
  const double floor = std::floor(x);
  const double rest = x - floor;
  if (rest < 0.5) return floor;
  if (rest > 0.5) return floor + 1;
  const bool even = std::floor(floor / 2) * 2 == floor;
  return even ? floor : floor + 1;
}

// ---------------------------------------------------------------------------------------------------------------- arrays

size_t Partition::size() const {
  size_t n = 1;
  for (const size_t length : shape) n *= length;
  return n;
}

size_t Partition::parameter_count() const {
  if (granularity == Granularity::kPerTensor) return 1;
  if (granularity == Granularity::kPerChannel) return shape[axis];
  size_t n = 1;
  for (size_t d = 0; d < shape.size(); d++) n *= d == axis ? (shape[d] + group_size - 1) / group_size : shape[d];
  return n;
}

std::vector<size_t> Partition::parameters() const {
  std::vector<size_t> result(size(), 0);
  if (granularity == Granularity::kPerTensor) return result;
  const size_t groups = (shape[axis] + group_size - 1) / group_size;
  std::vector<size_t> coordinates(shape.size());
  for (size_t& parameter : result) {
    if (granularity == Granularity::kPerChannel) {
      parameter = coordinates[axis];
    } else {
      for (size_t d = 0; d < shape.size(); d++) {
        parameter = d == axis ? parameter * groups + coordinates[d] / group_size : parameter * shape[d] + coordinates[d];
      }
    }
    // On to the next element: the last coordinate is the fastest.
    for (size_t d = shape.size(); d-- > 0 && ++coordinates[d] == shape[d];) coordinates[d] = 0;
  }
  return result;
}

// ------------------------------------------------------------------------------------------------- scale and zero point

Parameters choose_qparams(float min, float max, const QuantizationSpec& spec) {
  double low = min, high = max;
  if (low > high) low = high = 0;
  const double smallest = std::ldexp(1.0, -127);
  const DType dtype = spec.dtype;

  if (spec.scheme == Scheme::kSymmetric) {
    const DType signed_dtype = {.bits = dtype.bits, .is_signed = true};
    const double qmin = lowest_code(signed_dtype), qmax = highest_code(signed_dtype);
    const double absmax = std::max(std::fabs(low), std::fabs(high));
    const double zero_point = dtype.is_signed ? 0 : static_cast<double>(power_of_two(dtype.bits - 1));
    if (absmax == 0) return {1, zero_point};
    const double scale = spec.symmetric_range == SymmetricRange::kRestricted ? absmax / qmax : 2 * absmax / (qmax - qmin);
    return {std::max(scale, smallest), zero_point};
  }

  if (spec.include_zero) {
    low = std::min(low, 0.0);
    high = std::max(high, 0.0);
  }
  if (low == high) {
    if (low == 0) return {1, 0};
    return {std::max(std::fabs(low), smallest), low < 0 && !dtype.is_signed ? 1.0 : 0.0};
  }
  const double qmin = lowest_code(dtype), qmax = highest_code(dtype);
  const double scale = std::max((high - low) / (qmax - qmin), smallest);
  return {scale, round_half_even(qmin - low / scale)};
}

std::vector<Range> observe(const std::vector<float>& x, const Partition& partition) {
  std::vector<Range> ranges(partition.parameter_count());
  const std::vector<size_t> parameters = partition.parameters();
  for (size_t i = 0; i < x.size(); i++) {
    if (!finite(x[i])) continue;
    const float value = x[i] == 0 ? 0.0f : x[i];  // not -0
    Range& range = ranges[parameters[i]];
    if (value < range.min) range.min = value;
    if (value > range.max) range.max = value;
  }
  return ranges;
}

double least_squared_error(const std::vector<float>& x, const QuantizationSpec& spec, int32_t farthest_zero) {
  const int32_t qmin = lowest_code(spec.dtype), qmax = highest_code(spec.dtype),
                middle = spec.dtype.is_signed ? 0 : (qmax + 1) / 2;
  int32_t first_zero = middle, last_zero = middle;
  if (spec.scheme == Scheme::kAsymmetric) {
    first_zero = spec.include_zero ? qmin : -farthest_zero;
    last_zero = spec.include_zero ? qmax : farthest_zero;
  }
  // With levels k of the values x, the scale sum x k / sum k^2 is the best, and leaves sum x^2 - (sum x k)^2 / sum k^2.
  struct Window {
    int32_t low, high;
    double products = 0, squares = 0;
  };
  double all = 0;
  for (const float v : x) all += static_cast<double>(v) * v;
  double least = all;
  std::vector<Window> windows;
  int32_t farthest = 0;
  for (int32_t zero = first_zero; zero <= last_zero; zero++) {
    Window w = {qmin - zero, qmax - zero};
    // The largest scales put all values on the level next to 0.
    const double k = std::clamp(0, w.low, w.high);
    for (const float v : x) {
      w.products += v * k;
      w.squares += k * k;
    }
    windows.push_back(w);
    farthest = std::max({farthest, -w.low, w.high});
  }
  // Smaller scales move values away from 0, one level after the other: |x| leaves level k for k + 1 at 1 / scale = (k + 1/2) / |x|.
  // Equal values move together: levels that only some of them have are no better at any scale.
  struct Step {
    double at;
    uint32_t which;
    int32_t from;
  };
  struct Equals {
    float value;
    int32_t times;
  };
  std::vector<float> sorted = x;
  std::sort(sorted.begin(), sorted.end());
  std::vector<Equals> distinct;
  for (const float v : sorted) {
    if (distinct.empty() || v != distinct.back().value) distinct.push_back({v, 0});
    distinct.back().times++;
  }
  std::vector<Step> steps;
  for (uint32_t which = 0; which < distinct.size(); which++) {
    const double size = std::fabs(static_cast<double>(distinct[which].value));
    for (int32_t k = 0; size != 0 && k < farthest; k++) steps.push_back({(k + 0.5) / size, which, k});
  }
  // By pointers, which sanitizers check faster than iterators.
  std::sort(steps.data(), steps.data() + steps.size(), [](const Step& a, const Step& b) { return a.at < b.at; });
  const auto measure = [&](const Window& w) {
    if (w.products > 0) least = std::min(least, all - w.products * w.products / w.squares);
  };
  for (const Window& w : windows) measure(w);
  for (const Step& step : steps) {
    const auto [value, times] = distinct[step.which];
    const int32_t sign = value < 0 ? -1 : 1, from = sign * step.from, to = from + sign;
    // Windows that hold both levels: low <= min(from, to) and max(from, to) <= high, where low falls as the zero point rises.
    const int32_t below = std::min(from, to), above = std::max(from, to);
    const int32_t begin = std::max(first_zero, qmin - below), end = std::min(last_zero, qmax - above);
    for (int32_t zero = begin; zero <= end; zero++) {
      Window& w = windows[static_cast<size_t>(zero - first_zero)];
      w.products += times * std::fabs(static_cast<double>(value));
      w.squares += times * (2.0 * step.from + 1);
      measure(w);
    }
  }
  return std::max(0.0, least);
}

Histogram histogram(const std::vector<float>& x, float min, float max, size_t bins) {
  Histogram result;
  result.counts.resize(bins);
  const double low = min, high = max;
  for (const double value : x) {
    if (std::isnan(value)) continue;
    if (value < low) {
      result.below++;
    } else if (value > high) {
      result.above++;
    } else if (low == high) {
      result.counts[0]++;
    } else {
      const double bin = std::floor((value - low) * (static_cast<double>(bins) / (high - low)));
      result.counts[std::min(static_cast<size_t>(bin), bins - 1)]++;
    }
  }
  return result;
}

// ----------------------------------------------------------------------------------------------------------------- codes

int32_t quantize_value(float x, float scale, int32_t zero_point, DType dtype, Rounding rounding) {
  const double qmin = lowest_code(dtype), qmax = highest_code(dtype);
  float ratio;  // float32, as every other value of this type here: the ties depend on it
  if (rounding == Rounding::kReciprocal) {
    const float reciprocal = 1.0f / scale;
    ratio = x * reciprocal;
  } else {
    ratio = x / scale;
  }
  double code;
  if (std::isnan(ratio)) {
    code = zero_point;
  } else if (rounding == Rounding::kFused) {
    const float sum = ratio + static_cast<float>(zero_point);
    code = round_half_even(sum);
  } else {
    code = round_half_even(ratio) + zero_point;
  }
  if (code < qmin) code = qmin;
  if (code > qmax) code = qmax;
  return static_cast<int32_t>(code);
}

float dequantize_value(int32_t code, float scale, int32_t zero_point) {
  const int64_t steps = static_cast<int64_t>(code) - zero_point;
  return scale * static_cast<float>(steps);
}

std::vector<uint8_t> pack(const std::vector<int32_t>& codes, DType dtype) {
  std::vector<uint8_t> packed((codes.size() * dtype.bits + 7) / 8);
  for (size_t i = 0; i < codes.size(); i++) {
    for (int bit = 0; bit < dtype.bits; bit++) {
      const size_t position = i * dtype.bits + bit;
      const bool set = (static_cast<uint32_t>(codes[i]) >> bit) % 2 == 1;
      if (set) packed[position / 8] = static_cast<uint8_t>(packed[position / 8] + (1 << position % 8));
    }
  }
  return packed;
}

std::vector<int32_t> unpack(const std::vector<uint8_t>& packed, DType dtype, size_t n) {
  std::vector<int32_t> codes(n);
  for (size_t i = 0; i < n; i++) {
    int64_t code = 0;
    for (int bit = 0; bit < dtype.bits; bit++) {
      const size_t position = i * dtype.bits + bit;
      const bool set = (packed[position / 8] >> position % 8) % 2 == 1;
      if (set) code += power_of_two(bit);
    }
    if (code > highest_code(dtype)) code -= power_of_two(dtype.bits);
    codes[i] = static_cast<int32_t>(code);
  }
  return codes;
}

// -------------------------------------------------------------------------------------------------------- error measures

Sums accumulate_error(const std::vector<float>& x, const std::vector<float>& y) {
  Sums sums;
  for (size_t i = 0; i < x.size(); i++) {
    if (!finite(x[i]) || !finite(y[i])) {
      sums.non_finite++;
      continue;
    }
    const long double a = x[i], b = y[i], error = a - b;
    sums.squared_error += error * error;
    sums.absolute_error += std::fabs(error);
    sums.max_absolute_error = std::max(sums.max_absolute_error, std::fabs(error));
    sums.squared_x += a * a;
    sums.squared_y += b * b;
    sums.product += a * b;
  }
  return sums;
}

// --------------------------------------------------------------------------------------------------------- float formats

double decode(uint16_t bits, FloatFormat format) {
  const int64_t mantissa_values = power_of_two(format.mantissa_bits);
  const int64_t exponent_values = power_of_two(format.exponent_bits);
  const int bias = static_cast<int>(exponent_values / 2 - 1);
  const int64_t mantissa = bits % mantissa_values;
  const int64_t exponent = bits / mantissa_values % exponent_values;
  const double sign = bits / mantissa_values / exponent_values == 1 ? -1 : 1;
  if (exponent == exponent_values - 1) {
    if (mantissa != 0) return std::numeric_limits<double>::quiet_NaN();
    return sign * std::numeric_limits<double>::infinity();
  }
  const auto fraction = static_cast<double>(exponent == 0 ? mantissa : mantissa + mantissa_values);
  const int power = static_cast<int>(exponent == 0 ? 1 : exponent) - bias - format.mantissa_bits;
  return sign * std::ldexp(fraction, power);
}

uint16_t encode(float x, FloatFormat format) {
  const int64_t mantissa_values = power_of_two(format.mantissa_bits);
  const int64_t exponent_values = power_of_two(format.exponent_bits);
  const int bias = static_cast<int>(exponent_values / 2 - 1);
  const int64_t sign = std::signbit(x) ? mantissa_values * exponent_values : 0;
  const int64_t infinity = sign + (exponent_values - 1) * mantissa_values;
  const double size = std::fabs(static_cast<double>(x));
  if (std::isinf(size)) return static_cast<uint16_t>(infinity);
  if (size == 0) return static_cast<uint16_t>(sign);

  // size = units * 2^power before rounding, where 2^power is the distance of the format's neighbours there.
  int exponent;
  std::frexp(size, &exponent);
  exponent = std::max(exponent - 1, 1 - bias);
  const int power = exponent - format.mantissa_bits;
  const double units = round_half_even(std::ldexp(size, -power));
  if (std::ldexp(units, power) >= std::ldexp(1.0, bias + 1)) return static_cast<uint16_t>(infinity);
  // Counting units from the start of the binade carries into the exponent where rounding reached the next one; below the first
  // normal number the count alone is the code.
  return static_cast<uint16_t>(sign + (exponent + bias - 1) * mantissa_values + static_cast<int64_t>(units));
}

double minifloat_value(uint8_t bits, Minifloat format) {
  // Exponent bits, fraction bits, bias, and the codes above which there is no number.
  const bool e4m3 = format == Minifloat::kFloat8E4M3FN, e5m2 = format == Minifloat::kFloat8E5M2;
  const int exponent_bits = e4m3 ? 4 : e5m2 ? 5 : 2, fraction_bits = e4m3 ? 3 : e5m2 ? 2 : 1;
  const int bias = e4m3 ? 7 : e5m2 ? 15 : 1, largest = e4m3 ? 0x7E : e5m2 ? 0x7B : 0x7;
  const int size_bits = exponent_bits + fraction_bits, size = bits % (1 << size_bits);
  const double sign = bits / (1 << size_bits) % 2 == 1 ? -1 : 1;
  if (size > largest) {
    const bool infinite = e5m2 && size == 0x7C;
    return infinite ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  const int exponent = size >> fraction_bits, fraction = size % (1 << fraction_bits);
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

namespace {

/// The values of codes 0 to `largest`.
std::vector<double> nonnegative_values(Minifloat format, int largest) {
  std::vector<double> values;
  for (int code = 0; code <= largest; code++) values.push_back(minifloat_value(static_cast<uint8_t>(code), format));
  return values;
}

}  // namespace

uint8_t encode_minifloat(float x, Minifloat format, Overflow overflow) {
  const bool e4m3 = format == Minifloat::kFloat8E4M3FN, e5m2 = format == Minifloat::kFloat8E5M2;
  const int largest = e4m3 ? 0x7E : e5m2 ? 0x7B : 0x7, sign_bit = e4m3 || e5m2 ? 0x80 : 0x8;
  if (std::isnan(x)) {
    if (!e4m3 && !e5m2) return 0x7;
    return static_cast<uint8_t>(0x7F | (std::signbit(x) ? sign_bit : 0));
  }
  static const std::array<std::vector<double>, 3> all_values = {nonnegative_values(Minifloat::kFloat8E4M3FN, 0x7E),
                                                                nonnegative_values(Minifloat::kFloat8E5M2, 0x7B),
                                                                nonnegative_values(Minifloat::kFloat4E2M1, 0x7)};
  const std::vector<double>& values = all_values[e4m3 ? 0 : e5m2 ? 1 : 2];
  // Far above all values they would seem equally far away in double.
  const double size = std::min(std::fabs(static_cast<double>(x)), 1e6);
  int nearest = 0;
  for (int code = 1; code <= largest; code++) {
    const double far = std::fabs(values[nearest] - size), near = std::fabs(values[code] - size);
    if (near < far || (near == far && code % 2 == 0)) nearest = code;
  }
  // The next number if they went on: as far above the largest as that is above the one before it.
  const double last = values[largest], middle = last + (last - values[largest - 1]) / 2;
  const bool escapes = size > middle || (size == middle && largest % 2 == 1);
  if (escapes && overflow == Overflow::kEscape && (e4m3 || e5m2)) nearest = largest + 1;
  return static_cast<uint8_t>(nearest | (std::signbit(x) ? sign_bit : 0));
}

}  // namespace scalepoint::reference
