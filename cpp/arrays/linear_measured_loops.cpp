// Codes and their error sums in one pass (quantize_measured in linear_loops.h).
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

template <Rounding kRounding, class Code>
bool quantize_measured_as(const float* x, size_t n, const Runs& runs, DType dtype, void* to, ErrorSums& sums) {
  Code* codes = static_cast<Code*>(to);
  // Only a piece of a single run can have such a rest.
  const size_t rest = n % 8;
  if (!quantize_uniform(x + n - rest, rest, *runs.scale, *runs.zero_point, {dtype, kRounding}, codes + n - rest)) return false;
  // The error sums count values that are not finite, which saves a search in x.
  const ErrorSums before = sums;
  accumulate_error_of(x, MadeRuns<kRounding, Code>{{codes, dtype, runs}, codes}, n, sums);
  if (sums.non_finite == before.non_finite) return true;
  sums = before;
  return false;
}

constexpr PerRounding<PerSign<bool (*)(const float*, size_t, const Runs&, DType, void*, ErrorSums&)>> kQuantizeMeasured =
    SCALEPOINT_BYTES_PER_ROUNDING(quantize_measured_as);

}  // namespace

bool quantize_measured(const float* x, size_t n, const Runs& runs, CodeFormat format, void* codes, ErrorSums& sums) {
  return kQuantizeMeasured[format.rounding][format.dtype](x, n, runs, format.dtype, codes, sums);
}

}  // namespace scalepoint::loops
