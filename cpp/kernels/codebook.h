// The hot loops of the codebooks. The callers in cpp/codebook.cpp have checked everything.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint::kernels {

/// Values of a codebook: codes take a byte.
inline constexpr size_t kMostCodes = 256;

/// A bucket of floats by their bits: 1/32 wide relative to the float, sizes below 2^-32 in the one in the middle and sizes of 2
/// and more in the outer ones. Does not descend with the float.
inline constexpr int32_t kCodeBuckets = 2 * 33 * 32 + 1;

/// What finds the code of a value: rank = how many thresholds the value exceeds.
struct CodeSearch {
  uint32_t thresholds;              ///< one less than the number of codes
  int32_t steps;                    ///< of the search within a bucket: no bucket holds 2^steps thresholds
  float threshold[2 * kMostCodes];  ///< ascending, then infinities
  uint8_t code[kMostCodes];         ///< by rank
  uint8_t first[kCodeBuckets];      ///< thresholds in lower buckets
};

/// Fills in `first` and `steps` from the thresholds.
void prepare(CodeSearch& search);

/// The codes of x * factor, all finite.
void search_codes(const float* x, size_t n, float factor, const CodeSearch& search, uint8_t* codes);

/// Adds sum x v and sum v^2 of the values v of the codes. Two sums each, of the even and the odd elements.
void fit_codes(const float* x, size_t n, const uint8_t* codes, const float* values, double* products, double* squares);

/// x[i] = values[codes[i]] * factor. Returns the largest code; there are 256 values.
uint32_t restore_codes(const uint8_t* codes, size_t n, const float* values, float factor, float* x);

}  // namespace scalepoint::kernels
