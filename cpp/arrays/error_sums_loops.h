// Error sums over any source of restored values: an array, codes, or codes that are made in the same pass.
//
// A source has these functions:
//   from          the source from an element on, the first of a block
//   run_end       where the run of element i ends, or n if that comes first: the elements up to there are made alike
//   run_at        the maker of these elements. Its `make` gives the values of eight elements, made from the given x if necessary
//   array         the values of n elements from i on as an array, for which there is memory
//   fetch_values  prefetches the inputs of n elements, unless these are the given x (fetch.h)
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "arrays/error_sums.h"
#include "arrays/linear_loops.h"
#include "arrays/metrics_loops.h"
#include "lanes/fetch.h"
#include "lanes/lanes.h"

namespace scalepoint::loops {

/// An array.
struct FloatValues {
  const float* y;

  FloatValues from(size_t i) const { return {y + i}; }
  size_t run_end(size_t, size_t n) const { return n; }
  const FloatValues& run_at(size_t) const { return *this; }
  const float* array(size_t i, size_t, float*) const { return y + i; }
  void fetch_values(size_t n) const { fetch(y, n * sizeof(float)); }
  void make(size_t i, lanes::F32x4, lanes::F32x4, lanes::F32x4& low, lanes::F32x4& high) const {
    low = lanes::load(y + i);
    high = lanes::load(y + i + 4);
  }
};

/// Codes that share a scale and a zero point. The values are those of dequantize_uniform.
template <class Code>
struct CodeValues {
  const Code* codes;
  DType dtype;
  float scale;
  int32_t zero_point;

  void make(size_t i, lanes::F32x4, lanes::F32x4, lanes::F32x4& low, lanes::F32x4& high) const {
    using namespace lanes;
#ifdef SCALEPOINT_SIMD_LANES
    if constexpr (sizeof(Code) == 1) {
      // Exact: integers below 2^24, since |zero_point| is at most 2^22.
      const float bottom = std::numeric_limits<Code>::min(), zero = 0x1p23f - bottom + static_cast<float>(zero_point);
      load_eight_raised(codes + i, low, high);
      low = mul(splat(scale), sub(low, splat(zero)));
      high = mul(splat(scale), sub(high, splat(zero)));
      return;
    }
#endif
    I32x4 c[2];
    load_eight_codes(codes + i, c);
    low = mul(splat(scale), to_float(opaque(sub(c[0], splat(zero_point)))));
    high = mul(splat(scale), to_float(opaque(sub(c[1], splat(zero_point)))));
  }
};

/// Codes of runs.
template <class Code>
struct CodeRuns {
  const Code* codes;
  DType dtype;
  Runs runs;

  CodeRuns from(size_t i) const {
    const size_t first = i / runs.size;
    return {codes + i, dtype, {runs.size, runs.scale + first, runs.zero_point + first}};
  }
  size_t run_end(size_t i, size_t n) const { return n - i < runs.size ? n : i + runs.size; }
  CodeValues<Code> run_at(size_t i) const { return {codes, dtype, runs.scale[i / runs.size], runs.zero_point[i / runs.size]}; }
  const float* array(size_t i, size_t n, float* memory) const {
    for (size_t at = i, end; at < i + n; at = end) {
      end = run_end(at, i + n);
      const size_t run = at / runs.size;
      dequantize_uniform(codes + at, dtype, end - at, runs.scale[run], runs.zero_point[run], memory + (at - i));
    }
    return memory;
  }
  void fetch_values(size_t n) const { fetch(codes, n * sizeof(Code)); }
};

/// The sums of a block in float32, four lanes each.
struct BlockSums {
  lanes::F32x4 squared_error = lanes::splat(0.0f), absolute_error = squared_error, squared_x = squared_error,
               squared_y = squared_error;
  lanes::I32x4 largest = lanes::splat(0);  ///< the bits of the largest error

  /// Adds the pairs (a, b) and (c, d). Adds the two to each other before the sum, which halves the chain of dependent additions.
  void take(lanes::F32x4 a, lanes::F32x4 b, lanes::F32x4 c, lanes::F32x4 d) {
    using namespace lanes;
    const F32x4 e = sub(a, b), f = sub(c, d);
    const I32x4 magnitude_e = magnitude_bits(e), magnitude_f = magnitude_bits(f);
    squared_error = add(squared_error, add(mul(e, e), mul(f, f)));
    absolute_error = add(absolute_error, add(from_bits(magnitude_e), from_bits(magnitude_f)));
    squared_x = add(squared_x, add(mul(a, a), mul(c, c)));
    squared_y = add(squared_y, add(mul(b, b), mul(d, d)));
    largest = max_unsigned(largest, max_unsigned(magnitude_e, magnitude_f));
  }
};

/// Adds the pairs (x[i], y[i]), fewer than eight, to the sums of a block.
void take_rest(const float* x, const float* y, size_t n, BlockSums& block);

/// The sums of a block over all lanes.
struct BlockTotals {
  float squared_error, squared_x, squared_y, absolute_error;
  uint32_t largest;  ///< the bits of the largest error
};

/// Adds the sums of a block to those of all blocks. Returns false, and only fills in `total`, if this needs the restored values.
bool add_block(const BlockSums& block, BlockTotals& total, ErrorSums& sums);

/// The same with the restored values, after add_block has filled in `total`.
void add_block(const BlockTotals& total, const float* x, const float* y, size_t n, ErrorSums& sums);

// The work per block is outside of this template, which has one instance for each type of code and each rounding.
template <class Values>
void accumulate_error_of(const float* all_x, Values all_y, size_t all, ErrorSums& sums) {
  using namespace lanes;
  for (size_t start = 0; start < all; start += kErrorBlock) {
    const size_t n = all - start < kErrorBlock ? all - start : kErrorBlock;
    const float* x = all_x + start;
    const Values y = all_y.from(start);
    fetch(x, n * sizeof(float));
    y.fetch_values(n);
    float memory[kErrorBlock];
    BlockSums block;
    size_t i = 0;
    while (i + 8 <= n) {
      const size_t end = y.run_end(i, n);
      const auto& run = y.run_at(i);
      SCALEPOINT_NO_UNROLL
      for (; i + 8 <= end; i += 8) {
        const F32x4 a = load(x + i), b = load(x + i + 4);
        F32x4 low, high;
        run.make(i, a, b, low, high);
        block.take(a, low, b, high);
      }
    }
    if (i < n) take_rest(x + i, y.array(i, n - i, memory), n - i, block);
    BlockTotals total;
    if (!add_block(block, total, sums)) add_block(total, x, y.array(0, n, memory), n, sums);
  }
}

}  // namespace scalepoint::loops
