// Range, parameters and codes of adjacent runs (quantize_even_runs in linear_loops.h).
#include "arrays/dispatch_loops.h"
#include "arrays/linear_loops.h"
#include "arrays/rounding_loops.h"
#include "lanes/extremes.h"
#include "lanes/lanes.h"

namespace scalepoint::loops {
namespace {

using namespace lanes;

/// Four lanes' worth of the largest |x| of a run.
inline F32x4 largest_of_run(const float* x, size_t n) {
  I32x4 a = splat(0), b = a;
  for (size_t i = 0; i < n; i += 8) {
    a = max_unsigned(a, twice_magnitude_bits(load(x + i)));
    b = max_unsigned(b, twice_magnitude_bits(load(x + i + 4)));
  }
  return from_bits(shift_right_one(max_unsigned(a, b)));
}

struct LowHigh {
  F32x4 low, high;
};

/// Four lanes' worth of the range of a run and 0.
inline LowHigh low_high_of_run(const float* x, size_t n) {
  Extremes a, b;
  for (size_t i = 0; i < n; i += 8) {
    a.take(load(x + i));
    b.take(load(x + i + 4));
  }
  a.take(b);
  const I32x4 zero = splat(0);
  return {from_bits(min_signed(a.down, zero)), from_bits(max_signed(a.up, zero))};
}

/// Lane i of the result is the lane of the i-th vector that is farthest from 0. All lanes of a vector that are not +0 have the same sign,
/// so this is the lane with the largest bits. Keeps NaN. One transpose serves four runs.
inline F32x4 farthest_of_each(F32x4 a, F32x4 b, F32x4 c, F32x4 d) {
  transpose(a, b, c, d);
  return from_bits(max_unsigned(max_unsigned(bits(a), bits(b)), max_unsigned(bits(c), bits(d))));
}

struct FourParams {
  F32x4 scale;
  I32x4 zero_point;
};

/// choose_qparams for four symmetric ranges. The division is in float32. Its result equals that of a division in double, rounded to
/// float32, because 53 >= 2 * 24 + 2 (S. A. Figueroa, "When is double rounding innocuous?").
inline FourParams four_symmetric(F32x4 largest, const QuantizationSpec& spec) {
  const DType type = {spec.dtype.bits, true};
  const float levels = spec.symmetric_range == SymmetricRange::kRestricted ? static_cast<float>(type.qmax())
                                                                           : static_cast<float>(type.qmax() - type.qmin()) / 2;
  const F32x4 scale = pmax(splat(kMinScale), div(largest, splat(levels)));
  return {select(equal(largest, splat(0.0f)), splat(1.0f), scale), splat(spec.dtype.middle())};
}

/// choose_qparams for four asymmetric ranges that hold 0.
inline FourParams four_asymmetric(F32x4 low, F32x4 high, DType dtype) {
  const F64x2 levels = splat(static_cast<double>(dtype.qmax() - dtype.qmin())), qmin = splat(static_cast<double>(dtype.qmin()));
  const auto scale_of = [&](F64x2 a, F64x2 b) { return pmax(splat(static_cast<double>(kMinScale)), div(sub(b, a), levels)); };
  const F64x2 low0 = widen_low(low), low1 = widen_high(low);
  const F64x2 scale0 = scale_of(low0, widen_low(high)), scale1 = scale_of(low1, widen_high(high));
  const I32x4 zero_point = narrow_to_int(nearest(sub(qmin, div(low0, scale0))), nearest(sub(qmin, div(low1, scale1))));
  const I32x4 empty = equal(low, high);
  return {select(empty, splat(1.0f), narrow(scale0, scale1)), select(empty, splat(0), zero_point)};
}

/// Parameters of four adjacent runs of run_size elements. Returns the bits of the largest |x| of each. kSize is the run size if it is known
/// at compile time, else 0.
template <size_t kSize>
[[gnu::noinline]] I32x4 choose_four(const float* x, size_t run_size, const QuantizationSpec& spec, float* scale,
                                    int32_t* zero_point) {
  const size_t n = kSize > 0 ? kSize : run_size;
  I32x4 largest;
  FourParams four;
  if (spec.scheme == Scheme::kSymmetric) {
    F32x4 r[4];
    SCALEPOINT_NO_UNROLL
    for (size_t j = 0; j < 4; j++) r[j] = largest_of_run(x + j * n, n);
    const F32x4 farthest = farthest_of_each(r[0], r[1], r[2], r[3]);
    largest = bits(farthest);
    four = four_symmetric(farthest, spec);
  } else {
    LowHigh r[4];
    SCALEPOINT_NO_UNROLL
    for (size_t j = 0; j < 4; j++) r[j] = low_high_of_run(x + j * n, n);
    const F32x4 low = farthest_of_each(r[0].low, r[1].low, r[2].low, r[3].low);
    const F32x4 high = farthest_of_each(r[0].high, r[1].high, r[2].high, r[3].high);
    largest = shift_right_one(max_unsigned(twice_magnitude_bits(low), twice_magnitude_bits(high)));
    four = four_asymmetric(low, high, spec.dtype);
  }
  store(scale, four.scale);
  store(zero_point, four.zero_point);
  return largest;
}

/// Computes the parameters of the next four runs before the codes of these four. A maximum, a transpose and a division depend on each
/// other; in this order they overlap with independent work.
template <Rounding kRounding, class Code, size_t kSize>
uint32_t quantize_runs_of(const float* x, size_t run_size, size_t runs, const QuantizationSpec& spec, float* scale,
                          int32_t* zero_point, void* to) {
  if (runs == 0) return 0;
  const size_t n = kSize > 0 ? kSize : run_size;
  Code* codes = static_cast<Code*>(to);
  I32x4 largest = choose_four<kSize>(x, n, spec, scale, zero_point), unused = splat(0);
  for (size_t run = 0; run < runs; run += 4) {
    if (run + 4 < runs) {
      largest = max_unsigned(largest, choose_four<kSize>(x + 4 * n, n, spec, scale + run + 4, zero_point + run + 4));
    }
    SCALEPOINT_NO_UNROLL
    for (size_t j = run; j < run + 4; j++) {
      const Params p = Params::make<kRounding>(splat(scale[j]), splat(zero_point[j]));
      SCALEPOINT_NO_UNROLL
      for (size_t i = 0; i < n; i += kStep, x += kStep, codes += kStep) quantize_step<kRounding>(x, codes, p, spec.dtype, unused);
    }
  }
  return largest_lane(largest);
}

template <Rounding kRounding, class Code>
constexpr auto& quantize_runs_of_any = quantize_runs_of<kRounding, Code, 0>;
template <Rounding kRounding, class Code>
constexpr auto& quantize_runs_of_32 = quantize_runs_of<kRounding, Code, 32>;

using Kernel = uint32_t (*)(const float*, size_t, size_t, const QuantizationSpec&, float*, int32_t*, void*);
constexpr PerRounding<PerSign<Kernel>> kRunsOfAny = SCALEPOINT_BYTES_PER_ROUNDING(quantize_runs_of_any),
                                       kRunsOf32 = SCALEPOINT_BYTES_PER_ROUNDING(quantize_runs_of_32);

}  // namespace

uint32_t quantize_even_runs(const float* x, size_t run_size, size_t runs, const QuantizationSpec& spec, float* scale,
                            int32_t* zero_point, void* codes) {
  const auto& loop = run_size == 32 ? kRunsOf32 : kRunsOfAny;
  return loop[spec.rounding][spec.dtype](x, run_size, runs, spec, scale, zero_point, codes);
}

}  // namespace scalepoint::loops
