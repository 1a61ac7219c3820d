// Codes and their error sums in one pass (quantize_measured and quantize_each_measured in linear_loops.h).
#include "arrays/dispatch_loops.h"
#include "arrays/error_sums_loops.h"
#include "arrays/linear_loops.h"
#include "arrays/rounding_loops.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

/// Codes of quantize_uniform, made in the same pass. The sums cost little, because they overlap with the division for the next codes.
template <Rounding kRounding, class Code>
struct MadeValues {
  Code* codes;
  Params p;
  F32x4 step;    ///< the scale
  I32x4 bottom;  ///< the bits of the smallest rounded value
  I32x4 top;     ///< the bits of the largest rounded value
  F32x4 center;  ///< kMagic + the addend before rounding

  void make(size_t i, F32x4 a, F32x4 b, F32x4& low, F32x4& high) const {
    // Except for kFused, center equals kMagic: one register serves both uses.
    const F32x4 magic = kRounding == Rounding::kFused ? splat(kMagic) : center;
    const I32x4 first = min_signed(max_signed(rounded_bits<kRounding>(a, p, magic), bottom), top);
    const I32x4 second = min_signed(max_signed(rounded_bits<kRounding>(b, p, magic), bottom), top);
    store_eight_codes(codes + i, sub(first, p.bias), sub(second, p.bias));
    // The differences are exact: they are between integers below 2^24.
    low = mul(step, sub(from_bits(first), center));
    high = mul(step, sub(from_bits(second), center));
  }
};

template <Rounding kRounding, class Code>
struct MadeRuns : CodeRuns<Code> {
  Code* made;

  MadeRuns from(size_t i) const { return {CodeRuns<Code>::from(i), made + i}; }
  void fetch_values(size_t) const {}
  MadeValues<kRounding, Code> run_at(size_t i) const {
    const size_t run = i / this->runs.size;
    const float scale = this->runs.scale[run];
    const int32_t zero_point = this->runs.zero_point[run], in_center = kRounding == Rounding::kFused ? zero_point : 0;
    const int32_t zero_bits = kMagicBits - zero_point + in_center;
    return {made,
            Params::make<kRounding>(splat(scale), splat(zero_point)),
            splat(scale),
            splat(zero_bits + this->dtype.qmin()),
            splat(zero_bits + this->dtype.qmax()),
            from_bits(opaque(bits(splat(kMagic + static_cast<float>(in_center)))))};
  }
};

/// Codes of quantize_each, made in the same pass. All have one zero point.
template <class Code>
struct MadeEach {
  Code* codes;
  const float* scale;
  int32_t zero_point;
  I32x4 bias;    ///< the bits of the rounded value that is code 0
  I32x4 bottom;  ///< the bits of the smallest rounded value
  I32x4 top;     ///< the bits of the largest rounded value
  F32x4 magic;   ///< kMagic

  MadeEach from(size_t i) const { return {codes + i, scale + i, zero_point, bias, bottom, top, magic}; }
  size_t run_end(size_t, size_t n) const { return n; }
  const MadeEach& run_at(size_t) const { return *this; }
  const float* array(size_t i, size_t n, float* memory) const {
    for (size_t j = i; j < i + n; j++) memory[j - i] = scale[j] * static_cast<float>(codes[j] - zero_point);
    return memory;
  }
  void fetch_values(size_t) const {}
  void make(size_t i, F32x4 a, F32x4 b, F32x4& low, F32x4& high) const {
    const F32x4 scale_a = load(scale + i), scale_b = load(scale + i + 4);
    const I32x4 first = min_signed(max_signed(bits(add(div(a, scale_a), magic)), bottom), top);
    const I32x4 second = min_signed(max_signed(bits(add(div(b, scale_b), magic)), bottom), top);
    store_eight_codes(codes + i, sub(first, bias), sub(second, bias));
    low = mul(scale_a, sub(from_bits(first), magic));
    high = mul(scale_b, sub(from_bits(second), magic));
  }
};

/// Adds the errors of the codes that `values` makes of x. Returns false, with the sums unchanged, if x is not finite: the sums count such
/// values, which saves a search in x.
template <class Values>
bool accumulate_finite(const float* x, const Values& values, size_t n, ErrorSums& sums) {
  const ErrorSums before = sums;
  accumulate_error_of(x, values, n, sums);
  if (sums.non_finite == before.non_finite) return true;
  sums = before;
  return false;
}

template <class Code>
bool quantize_each_measured_as(const float* x, size_t n, const float* scale, int32_t zero_point, DType dtype, void* to,
                               ErrorSums& sums) {
  Code* codes = static_cast<Code*>(to);
  for (size_t i = n - n % 8; i < n; i++) {
    if (!quantize_uniform(x + i, 1, scale[i], zero_point, {dtype, Rounding::kOnnx}, codes + i)) return false;
  }
  const int32_t bias = kMagicBits - zero_point;
  const MadeEach<Code> values = {codes,
                                 scale,
                                 zero_point,
                                 splat(bias),
                                 splat(bias + dtype.qmin()),
                                 splat(bias + dtype.qmax()),
                                 from_bits(opaque(splat(kMagicBits)))};
  return accumulate_finite(x, values, n, sums);
}

template <Rounding kRounding, class Code>
bool quantize_measured_as(const float* x, size_t n, const Runs& runs, DType dtype, void* to, ErrorSums& sums) {
  Code* codes = static_cast<Code*>(to);
  // Only a piece of a single run can have such a rest.
  const size_t rest = n % 8;
  if (!quantize_uniform(x + n - rest, rest, *runs.scale, *runs.zero_point, {dtype, kRounding}, codes + n - rest)) return false;
  return accumulate_finite(x, MadeRuns<kRounding, Code>{{codes, dtype, runs}, codes}, n, sums);
}

constexpr PerRounding<PerSign<bool (*)(const float*, size_t, const Runs&, DType, void*, ErrorSums&)>> kQuantizeMeasured =
    SCALEPOINT_BYTES_PER_ROUNDING(quantize_measured_as);
[[maybe_unused]] constexpr PerSign<bool (*)(const float*, size_t, const float*, int32_t, DType, void*, ErrorSums&)>
    kQuantizeEachMeasured = {&quantize_each_measured_as<int8_t>, &quantize_each_measured_as<uint8_t>};

}  // namespace

bool quantize_measured(const float* x, size_t n, const Runs& runs, CodeFormat format, void* codes, ErrorSums& sums) {
  return kQuantizeMeasured[format.rounding][format.dtype](x, n, runs, format.dtype, codes, sums);
}

bool quantize_each_measured(const float* x, size_t n, const float* scale, int32_t zero_point, DType dtype, void* codes,
                            ErrorSums& sums) {
  if constexpr (!kSimd) return false;
  return kQuantizeEachMeasured[dtype](x, n, scale, zero_point, dtype, codes, sums);
}

}  // namespace scalepoint::loops
