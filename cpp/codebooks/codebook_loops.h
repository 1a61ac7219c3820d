// Loops of codebooks. Callers check arguments. n may be any number, including 0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scalepoint::loops {

/// Values of a codebook: codes take a byte.
inline constexpr size_t kMostCodes = 256;

/// Buckets of floats by their bits. A bucket is 1/32 wide relative to the float. The one in the middle holds magnitudes below
/// 2^-32, the outer ones magnitudes of 2 and more. The bucket of a larger float is not a lower one.
inline constexpr int32_t kCodeBuckets = 2 * 33 * 32 + 1;

/// Table that finds the code of a value. The rank of a value is the number of thresholds that it exceeds.
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

/// Any codebook. rank = number of thresholds below the bucket + number below the value in the bucket, found by bisection.
void search_codes_by_bucket(const float* x, size_t n, float factor, const CodeSearch& search, uint8_t* codes);

/// At most 16 codes. Compares every threshold with 16 values at a time.
void search_codes_by_counting(const float* x, size_t n, float factor, const CodeSearch& search, uint8_t* codes);

/// Adds sum x v and sum v^2 of the values v of the codes. Each is two sums, of the even and of the odd elements.
void fit_codes(const float* x, size_t n, const uint8_t* codes, const double* values, double* products, double* squares);

/// Largest number of scales in a sweep. Each scale is the one before times the same factor, from 0.96 to 0.99, and the last is more than
/// half of the first.
inline constexpr size_t kMostInSweep = 48;

/// Number of places behind the last scale for additions there. Several places, because an addition waits for the one before in the same
/// place.
inline constexpr size_t kBehindSweep = 4;

/// A threshold on the way from 0 outwards.
struct Crossing {
  double product, square;  ///< growth of the magnitude of the value, and of its square
  float threshold;         ///< magnitudes above it are past it
};

/// Tables of a sweep. As the scale falls, quotients move away from 0. Positive ones pass the thresholds from up[rank] on, and
/// negative ones those from down[thresholds - rank] on. Both end with three infinite thresholds.
struct Sweep {
  Crossing crossings[2 * (kMostCodes + 2)];  ///< up, then down
  size_t scales;
  float limit;  ///< quotients grow by less in the whole sweep
  uint8_t guess
      [258];  ///< by growth in steps of 2^-8, from 1 - 2^-8 on: the scale where a quotient has grown by as much, or the one before
};

/// Fills in `scales` and `guess`.
void prepare_sweep(double share, size_t scales, Sweep& sweep);

/// Sum x v and sum v^2 of the values v of the codes of a scale.
struct FitSums {
  double products = 0, squares = 0;
};

/// The sums of all scales of a sweep.
class SweepSums {
 public:
  /// Adds n elements. The ranks are those of the quotients at the first scale, which are the products with factors[0] or, if
  /// `negative`, with -factors[0]. There is a factor for each scale, and kBehindSweep infinite ones after them.
  void sweep(const float* x, const uint8_t* ranks, size_t n, const float* factors, bool negative, const CodeSearch& search,
             const double* values, const Sweep& by);
  /// The sums of scale i, after those of scale i - 1. After those of the last, the next sweep begins.
  FitSums take(size_t i, const Sweep& by);

 private:
  FitSums sum_;                                      ///< at the first scale, and then at that of the last `take`
  FitSums changes_[2][kMostInSweep + kBehindSweep];  ///< from one scale to the next; those of second crossings by themselves
};

/// x[i] = values[codes[i]] * factor. There are 256 values. Returns the largest code.
uint32_t restore_codes(const uint8_t* codes, size_t n, const float* values, float factor, float* x);

/// Bins of quotients: 2^-12 wide relative to the quotient, down to a magnitude of 2^-32. The middle one holds smaller quotients. They reach
/// to 2, because a quotient may exceed 1 by a rounding.
inline constexpr int32_t kQuotientFraction = 12, kQuotientSide = 33 << kQuotientFraction;
inline constexpr size_t kQuotientBins = 2 * kQuotientSide + 1;

/// For each v = x * factor, adds weight to the weight of its bin, and weight * v to the moment.
void count_quotients(const float* x, size_t n, float factor, double weight, double* weights, double* moments);

}  // namespace scalepoint::loops
