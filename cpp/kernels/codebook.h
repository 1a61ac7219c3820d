// The loops of codebooks. No checks: the callers have made them. Any n is fine, 0 too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint::kernels {

/// Values of a codebook: codes take a byte.
inline constexpr size_t kMostCodes = 256;

/// Buckets of floats by their bits. A bucket is 1/32 wide relative to the float. The one in the middle holds magnitudes below
/// 2^-32, the outer ones magnitudes of 2 and more. The bucket of a larger float is not a lower one.
inline constexpr int32_t kCodeBuckets = 2 * 33 * 32 + 1;

/// What finds the code of a value. Its rank is the number of thresholds that the value exceeds.
struct CodeSearch {
  uint32_t thresholds;              ///< one less than the number of codes
  int32_t steps;                    ///< of the bisection within a bucket: no bucket holds 2^steps thresholds
  float threshold[2 * kMostCodes];  ///< ascending, then infinities, which bisection may run into
  uint8_t code[kMostCodes];         ///< by rank
  uint8_t first[kCodeBuckets];      ///< thresholds in lower buckets
};

/// Fills in `first` and `steps` from the thresholds.
void prepare(CodeSearch& search);

/// The codes of x * factor. All of x is finite. Takes the faster of the two ways below.
void search_codes(const float* x, size_t n, float factor, const CodeSearch& search, uint8_t* codes);

/// Any codebook. The bucket says how many thresholds lie below it, and bisection how many of its own do.
void search_codes_by_bucket(const float* x, size_t n, float factor, const CodeSearch& search, uint8_t* codes);

/// At most 16 codes. Compares every threshold with 16 values at a time.
void search_codes_by_counting(const float* x, size_t n, float factor, const CodeSearch& search, uint8_t* codes);

/// Adds sum x v and sum v^2 of the values v of the codes. Each is two sums, of the even and of the odd elements.
void fit_codes(const float* x, size_t n, const uint8_t* codes, const float* values, double* products, double* squares);

/// x[i] = values[codes[i]] * factor. There are 256 values. Returns the largest code.
uint32_t restore_codes(const uint8_t* codes, size_t n, const float* values, float factor, float* x);

/// Bins of quotients: 2^-12 wide relative to the quotient, down to a magnitude of 2^-32. The one in the middle holds what is
/// smaller. They reach to 2, because a quotient may exceed 1 by a rounding.
inline constexpr int32_t kQuotientFraction = 12, kQuotientSide = 33 << kQuotientFraction;
inline constexpr size_t kQuotientBins = 2 * kQuotientSide + 1;

/// For each v = x * factor, adds weight to the weight of its bin, and weight * v to the moment.
void count_quotients(const float* x, size_t n, float factor, double weight, double* weights, double* moments);

}  // namespace scalepoint::kernels
