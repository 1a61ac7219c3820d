// Scalepoint core: float32 arrays to small integers with a scale and a zero point, and back.
//
// Every public function of the core is declared here. None allocates, throws or keeps a pointer; sizes are counted in elements
// unless a name says bytes. Results depend on the arguments alone: the scalar and the SIMD build give the same bytes. Pointers
// need the alignment of their elements and no more: codes of 16 bits lie at even addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dtype.h"
#include "round.h"
#include "status.h"

namespace scalepoint {

// ------------------------------------------------------------------------------------------------------------------- layout

enum class Granularity : int32_t { kPerTensor = 0, kPerChannel = 1, kPerGroup = 2 };

/// Which scale and zero point belong to which element. A row-major array of any rank is seen as [outer, axis_size, inner_size]
/// around the axis of the granularity; outer follows from the number of elements.
///   per tensor   one parameter; the sizes are not read
///   per channel  parameter a of [axis_size]
///   per group    parameter (o * ceil(axis_size / group_size) + a / group_size) * inner_size + i: row-major order of the array's
///                shape with the axis divided by group_size, rounded up. The last group of an axis may be shorter.
struct Layout {
  Granularity granularity = Granularity::kPerTensor;
  uint64_t axis_size = 1;
  uint64_t inner_size = 1;
  uint64_t group_size = 1;

  [[nodiscard]] bool valid() const;
  [[nodiscard]] uint64_t groups_per_axis() const { return axis_size / group_size + (axis_size % group_size != 0); }
  /// One more than the largest parameter that the elements [start, start + size) use.
  [[nodiscard]] uint64_t parameter_end(uint64_t start, uint64_t size) const;
};

// ----------------------------------------------------------------------------------------------------- scale and zero point

enum class Scheme : int32_t { kSymmetric = 0, kAsymmetric = 1 };
enum class SymmetricRange : int32_t { kRestricted = 0, kFull = 1 };
enum class NonFinite : int32_t { kError = 0, kSaturate = 1 };

/// How to make codes. See choose_qparams for what the fields do to scale and zero point, quantize_linear for the rest.
struct QuantizationSpec {
  DType dtype;
  Scheme scheme = Scheme::kSymmetric;
  SymmetricRange symmetric_range = SymmetricRange::kRestricted;
  bool include_zero = true;
  Rounding rounding = Rounding::kOnnx;
  NonFinite non_finite = NonFinite::kError;
};

/// The smallest scale that choose_qparams gives: its reciprocal is the largest power of two in float32.
inline constexpr float kMinScale = 0x1p-127f;

/// Turns ranges into scales and zero points. All in double from the float32 bounds; the scale is rounded to float32 last.
///   symmetric   absmax = max(|min|, |max|); scale = absmax / qmax (restricted) or 2 absmax / (qmax - qmin) (full), with qmin
///               and qmax of the signed type; zero point 0, or 2^(bits-1) for an unsigned dtype. include_zero is not read.
///   asymmetric  the range is widened to hold 0 if include_zero; scale = (max - min) / (qmax - qmin); zero point =
///               round_half_even(qmin - min / scale). Without include_zero the zero point may leave [qmin, qmax]; the scale is
///               widened where needed to keep it at most kMaxZeroPoint - 2^16 in size.
/// Special: a symmetric range of 0, or an asymmetric one of zero width around 0, gives scale 1 (and zero point 0 if asymmetric).
///          An asymmetric range of zero width around c != 0 (only without include_zero) gives scale |c| and zero point 0, or 1
///          where an unsigned type has to hold -1, so that c is restored exactly. A scale below kMinScale is raised to it; one
///          that would restore a code to an infinity is lowered, but for the codes that a symmetric restricted or a constant
///          range does not use. An empty range (min > max, as observe leaves it when it saw no finite value) counts as [0, 0].
/// Shape:   min, max, scale and zero_point have the same length.
/// Status:  kBadDType, kSizeMismatch, or kBadRange if a bound is not finite. scale and zero_point are unspecified unless kOk.
[[nodiscard]] Status choose_qparams(std::span<const float> min, std::span<const float> max, const QuantizationSpec& spec,
                                    std::span<float> scale, std::span<int32_t> zero_point) noexcept;

// -------------------------------------------------------------------------------------------------------------- observation

/// Sets min and max to the empty range that observe starts from: +infinity and -infinity.
void clear_range(std::span<float> min, std::span<float> max) noexcept;

/// Widens min[p] and max[p] by every finite element x[i] whose parameter is p. x is the piece [start, start + x.size()) of the
/// array.
/// Special: -0 counts as 0. NaN and infinities are left out under NonFinite::kSaturate.
/// Status:  kBadLayout, kSizeMismatch if min or max is too short, kNonFinite if x holds one and the policy is kError.
[[nodiscard]] Status observe(std::span<const float> x, const Layout& layout, uint64_t start, NonFinite non_finite,
                             std::span<float> min, std::span<float> max) noexcept;

/// Index of the first NaN or infinity, or x.size() if there is none.
[[nodiscard]] size_t first_non_finite(std::span<const float> x) noexcept;

/// Adds the elements of x to counts: bin i holds [min + i w, min + (i + 1) w) with w = (max - min) / counts.size(), the last bin
/// also max; the bin of x is floor((x - min) * (counts.size() / (max - min))) in double. Smaller values (and -infinity) add to
/// *below, larger ones to *above, NaN to neither. min == max puts the values equal to it into bin 0.
/// Status:  kBadRange unless min <= max, both finite; kSizeMismatch if counts is empty.
[[nodiscard]] Status histogram(std::span<const float> x, float min, float max, std::span<uint32_t> counts, double* below,
                               double* above) noexcept;

// ----------------------------------------------------------------------------------------------------- quantize, dequantize

/// Quantizes the piece [start, start + x.size()) of an array with given parameters:
///   codes[i] = saturate(round_half_even(x[i] / scale[p]) + zero_point[p])     for Rounding::kOnnx; round.h has the others.
/// Shape:   codes holds x.size() codes of spec.dtype.storage_bytes() bytes each; scale and zero_point reach to
///          layout.parameter_end().
/// Error:   |x[i] - dequantized| <= scale / 2, up to float rounding, for every x[i] that does not saturate.
/// Special: under kSaturate NaN gives the zero point, saturated, and infinities give the ends; under kError they give kNonFinite,
///          after all of x was converted.
/// Status:  kBadDType, kBadLayout, kSizeMismatch, kBadScale, kBadZeroPoint, kNonFinite. Source: ONNX QuantizeLinear-25.
[[nodiscard]] Status quantize_linear(std::span<const float> x, const Layout& layout, uint64_t start, std::span<const float> scale,
                                     std::span<const int32_t> zero_point, const QuantizationSpec& spec,
                                     std::span<std::byte> codes) noexcept;

/// Range, parameters and codes in one pass, for arrays in which each parameter's elements are contiguous: x is a sequence of
/// lines of line_size elements, and every line a sequence of runs of run_size (the last run of a line may be shorter). One run
/// has one scale and zero point. The same as observe, choose_qparams and quantize_linear one after the other, with every run read
/// while it is in the cache.
/// Shape:   x.size() is a multiple of line_size; scale and zero_point have (x.size() / line_size) * ceil(line_size / run_size)
///          elements.
/// Status:  kBadDType, kBadLayout, kSizeMismatch, kNonFinite.
[[nodiscard]] Status quantize_runs(std::span<const float> x, size_t line_size, size_t run_size, const QuantizationSpec& spec,
                                   std::span<float> scale, std::span<int32_t> zero_point, std::span<std::byte> codes) noexcept;

/// x[i] = scale[p] * float(codes[i] - zero_point[p]): one exact subtraction and one float32 multiplication.
/// Shape and status as quantize_linear.
[[nodiscard]] Status dequantize_linear(std::span<const std::byte> codes, DType dtype, const Layout& layout, uint64_t start,
                                       std::span<const float> scale, std::span<const int32_t> zero_point,
                                       std::span<float> x) noexcept;

// ----------------------------------------------------------------------------------------------------------- error measures

/// Sums from which every error measure follows; e = x - y. Pairs with a NaN or an infinity count in non_finite and nowhere else.
struct ErrorSums {
  double squared_error = 0;   ///< sum e^2
  double absolute_error = 0;  ///< sum |e|
  double max_absolute_error = 0;
  double squared_x = 0;   ///< sum x^2
  double squared_y = 0;   ///< sum y^2
  double product = 0;     ///< sum x y
  double non_finite = 0;  ///< number of pairs left out
};

/// Adds the pairs (x[i], y[i]) to sums. Blocks of 512 elements, counted from the start of x, are summed in float32 in a fixed
/// order and then added to the doubles, so that the result does not depend on the build. A block whose squares would overflow or
/// vanish in float32 is summed in double instead.
/// Error:   relative to the exact sums at most 70 * 2^-24: 67 float32 additions in a row (64 of pairs in a lane, one within the
///          pair, two over the lanes) and up to three roundings a term. The product is (sum x^2 + sum y^2 - sum e^2) / 2 in
///          blocks with 16 sum e^2 <= sum x^2, where sum y^2 lies between 9/16 and 25/16 of sum x^2: at most 70 * 2^-24 * (1 +
///          25/16 + 1/16) / 2 of sum x^2, or 125 * 2^-24 of sqrt(sum x^2 sum y^2).
/// Status:  kSizeMismatch.
[[nodiscard]] Status accumulate_error(std::span<const float> x, std::span<const float> y, ErrorSums& sums) noexcept;

/// The same with y = the dequantized codes of the piece [start, start + x.size()). Status as dequantize_linear.
[[nodiscard]] Status accumulate_code_error(std::span<const float> x, std::span<const std::byte> codes, DType dtype,
                                           const Layout& layout, uint64_t start, std::span<const float> scale,
                                           std::span<const int32_t> zero_point, ErrorSums& sums) noexcept;

/// quantize_linear and accumulate_code_error in one pass: the same codes and the same sums, bit for bit. Shape and status as
/// quantize_linear; sums mean nothing unless kOk.
[[nodiscard]] Status quantize_linear_measured(std::span<const float> x, const Layout& layout, uint64_t start,
                                              std::span<const float> scale, std::span<const int32_t> zero_point,
                                              const QuantizationSpec& spec, std::span<std::byte> codes, ErrorSums& sums) noexcept;

/// accumulate_error with sums of their own for each parameter of a layout: sums[p] takes the pairs of the piece whose parameter is p.
/// Blocks of 512 elements count from where a stretch of one parameter begins in the piece, so that the results do depend on how an
/// array is divided into pieces. Pairs whose neighbours have other parameters are summed in double.
/// Status:  kBadLayout, kSizeMismatch if x and y differ in length or sums is too short.
[[nodiscard]] Status accumulate_error_each(std::span<const float> x, std::span<const float> y, const Layout& layout,
                                           uint64_t start, std::span<ErrorSums> sums) noexcept;

// ------------------------------------------------------------------------------------------------------------ dense packing

/// Bytes that n codes of this width take when packed: ceil(n * bits / 8).
[[nodiscard]] constexpr uint64_t packed_bytes(uint64_t n, int32_t bits) { return n / 8 * bits + (n % 8 * bits + 7) / 8; }

/// Packs codes (one or two bytes each, see DType) densely: element i takes the bits [i * bits, (i + 1) * bits) of the result,
/// least significant first, in two's complement; unused bits of the last byte are 0. A code outside the type loses its upper
/// bits.
/// Shape:   packed.size() == packed_bytes(n, bits).
/// Status:  kBadDType, kSizeMismatch.
[[nodiscard]] Status pack(std::span<const std::byte> codes, DType dtype, std::span<std::byte> packed) noexcept;

/// The reverse of pack; signed types are sign-extended.
[[nodiscard]] Status unpack(std::span<const std::byte> packed, DType dtype, std::span<std::byte> codes) noexcept;

// ------------------------------------------------------------------------------------------------------------- float formats

/// float16 (IEEE 754 binary16) bits to float32, exactly. NaN stays NaN. x.size() == bits.size(), else kSizeMismatch.
[[nodiscard]] Status float16_to_float32(std::span<const uint16_t> bits, std::span<float> x) noexcept;

/// bfloat16 bits to float32, exactly: the bits are the upper half.
[[nodiscard]] Status bfloat16_to_float32(std::span<const uint16_t> bits, std::span<float> x) noexcept;

/// float32 to float16 bits, half to even; a size above 65504 (after rounding) gives infinity, NaN a quiet NaN of the same sign.
[[nodiscard]] Status float32_to_float16(std::span<const float> x, std::span<uint16_t> bits) noexcept;

/// float32 to bfloat16 bits, half to even; NaN gives a quiet NaN of the same sign.
[[nodiscard]] Status float32_to_bfloat16(std::span<const float> x, std::span<uint16_t> bits) noexcept;

// -------------------------------------------------------------------------------------------------------------- ggml blocks

/// ggml's block types, with its numbers (ggml_type of github.com/ggml-org/ggml, include/ggml.h).
enum class BlockType : int32_t {
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kMXFP4 = 39,
};

/// Elements and bytes of one block; zeros if there is no such type.
struct BlockSize {
  uint32_t elements;
  uint32_t bytes;
};
[[nodiscard]] BlockSize block_size(BlockType type) noexcept;

/// Floats to blocks, byte for byte as ggml_quantize_chunk makes them without an importance matrix.
/// Shape:   x.size() is a multiple of the block's elements, blocks.size() the bytes of as many blocks.
/// Status:  kBadDType, kSizeMismatch; kNonFinite if x holds NaN or an infinity; kOverflow if a block would restore infinities, as
///          its scale or minimum is beyond float16. What blocks holds after an error means nothing.
[[nodiscard]] Status quantize_blocks(std::span<const float> x, BlockType type, std::span<std::byte> blocks) noexcept;

/// The floats that blocks stand for, bit for bit as ggml's dequantize_row_* gives them. Any bytes are blocks: scales that are NaN
/// or infinite give such floats.
/// Status:  kBadDType, kSizeMismatch.
[[nodiscard]] Status dequantize_blocks(std::span<const std::byte> blocks, BlockType type, std::span<float> x) noexcept;

// ------------------------------------------------------------------------------------------------------- search for ranges

/// How the range is found where it is not given and not that of all values.
enum class RangeMethod : int32_t {
  kMse = 0,         ///< least squared error of the restored values, by scale and zero point
  kPercentile = 1,  ///< from the (100 - p)th to the pth percentile; symmetric: up to the pth percentile of the sizes
  kEntropy = 2,     ///< least divergence of a histogram from itself in levels, as TensorRT calibrates
};

/// Bytes of memory that search_qparams needs for an array of so many elements.
[[nodiscard]] uint64_t search_scratch_bytes(uint64_t size, const Layout& layout) noexcept;

/// Chooses scale and zero point of every parameter of a whole array.
///   kMse         never worse than min-max, up to float32 sums. Runs of up to 128 values: some thirty scales, or scales and zero
///                points, from no clipping to that at which the farthest value alone errs more than all do without, each improved
///                to the best for its codes. Longer runs: a sample and all far values find the best few, all values decide.
///   kPercentile  percentile: above 50, at most 100; between two of the sorted values by linear interpolation, as numpy does. The
///                range then goes through choose_qparams.
///   kEntropy     2048 bins of |x| up to the largest; of the thresholds from 2^(bits - 1) bins to all, that at which the bins
///                below it, with all that is beyond in the last, diverge least (Kullback and Leibler) from the same in 2^(bits - 1)
///                levels; asymmetric ranges are cut to [-threshold, threshold]. Source: S. Migacz, 8-bit inference with TensorRT.
/// Special: constants and arrays of zeros have the parameters of min-max. Under NonFinite::kSaturate NaN and infinities count as
///          the first finite value of their run.
/// Shape:   scratch: search_scratch_bytes, its address a multiple of 8; scale and zero_point: all of the array's.
/// Status:  kBadDType, kBadLayout, kSizeMismatch, kBadRange for the percentile, kNonFinite.
[[nodiscard]] Status search_qparams(std::span<const float> x, const Layout& layout, const QuantizationSpec& spec,
                                    RangeMethod method, double percentile, std::span<std::byte> scratch, std::span<float> scale,
                                    std::span<int32_t> zero_point) noexcept;

/// Takes the other scale and zero point for each run of run_size values that they restore with the smaller squared error, beyond the
/// rounding of float32 sums. For scales that are stored in fewer bits than they were searched with.
/// Special: an other scale that is not finite and positive is never taken.
/// Shape:   x.size() == scale.size() * run_size; finite; the other spans are as long as scale.
/// Status:  kBadDType, kSizeMismatch; kBadScale if one of scale is not finite and positive.
[[nodiscard]] Status take_better(std::span<const float> x, size_t run_size, DType dtype, std::span<float> scale,
                                 std::span<int32_t> zero_point, std::span<const float> other_scale,
                                 std::span<const int32_t> other_zero_point) noexcept;

// ------------------------------------------------------------------------------------------------------------------- layers

/// What a layer computes with. An int8 row of x is quantized on the fly: symmetric (absmax / 127) or asymmetric (with 0 in the
/// range), as quantize_linear does with its own range.
enum class ActivationType : int32_t { kFloat32 = 0, kInt8Symmetric = 1, kInt8Asymmetric = 2 };

/// The form of a matrix of weights [rows, columns] = [outputs, inputs].
struct LayerSpec {
  uint32_t rows = 0;
  uint32_t columns = 0;
  uint32_t group_size = 0;                                ///< columns that share a scale; `columns` for one scale a row
  uint32_t bits = 8;                                      ///< 4 for codes of up to 4 bits, 8 for those of up to 8, 32 for floats
  bool zero_points = false;                               ///< one a scale; else all have the same
  ActivationType activations = ActivationType::kFloat32;  ///< float32 if bits is 32
};

/// Bytes that such a layer takes; 0 if there is none: a size is 0, or the bits or activations are not among those above.
[[nodiscard]] uint64_t layer_bytes(const LayerSpec& spec) noexcept;

/// Lays out a layer in `layer`, whose address is a multiple of 8, with weights and bias 0. zero_point is that of all codes unless
/// spec.zero_points.
/// Status:  kBadLayout, kSizeMismatch unless layer.size() == layer_bytes(spec), kBadZeroPoint.
[[nodiscard]] Status make_layer(const LayerSpec& spec, int32_t zero_point, std::span<std::byte> layer) noexcept;

/// Fills rows from `row` on with codes, and their scales and zero points.
/// Shape:   codes: whole rows; scale and zero_point: one a row and group, in that order.
/// Status:  kBadDType if the layer's bits are not those of the type, kSizeMismatch.
[[nodiscard]] Status set_layer_codes(std::span<std::byte> layer, uint32_t row, std::span<const std::byte> codes, DType dtype,
                                     std::span<const float> scale, std::span<const int32_t> zero_point) noexcept;

/// The same with blocks of Q8_0 (a layer of 8 bits and zero point 0) or Q4_0 (4 bits, zero point 0), in groups of 32.
/// Status:  kBadDType, kSizeMismatch.
[[nodiscard]] Status set_layer_blocks(std::span<std::byte> layer, uint32_t row, std::span<const std::byte> blocks,
                                      BlockType type) noexcept;

/// The same with floats, in a layer of 32 bits.
[[nodiscard]] Status set_layer_floats(std::span<std::byte> layer, uint32_t row, std::span<const float> weights) noexcept;

/// One bias a row of the layer.
[[nodiscard]] Status set_layer_bias(std::span<std::byte> layer, std::span<const float> bias) noexcept;

/// Bytes that layer_forward needs beside x and y.
[[nodiscard]] uint64_t layer_workspace_bytes(const LayerSpec& spec, uint32_t batch) noexcept;

/// y[b, o] = sum_i x[b, i] w[o, i] + bias[o], with w = scale * (code - zero_point).
/// Shape:   x: [batch, columns]; y: [batch, rows]; workspace: layer_workspace_bytes, its address a multiple of 8.
/// Error:   int8: a group's sum is exact in integers. It is scaled and added to those of other groups in double, times the row's
///            scale, plus the bias, and rounded to float32 once.
///          float32: x becomes integers of 30 bits, block by block: at most 128 columns of one group share a power of two. So
///            |error| <= 2^-24 |y| + 2^-29 sum over blocks of (sum |w| * max |x| in the block): each x is off by at most half a
///            unit of 2^(e - 29), where 2^(e - 1) <= max |x|, the sums of a block are exact, those of blocks are in double (2^-53
///            an addition), and y is rounded to float32 once. Where the largest |x| of a block dwarfs the rest, so that for half
///            of the rest that is more than 2^-22 |x|, about what a float32 sum loses, what was cut off is added as a block of its
///            own: then each x has at least 60 bits below the largest.
///          A row of x gives the same bits in any batch.
/// Special: NaN and infinities in a row of x give what they would give in float32. Overflow of y gives infinity.
/// Status:  kSizeMismatch.
[[nodiscard]] Status layer_forward(std::span<const std::byte> layer, std::span<const float> x, uint32_t batch, std::span<float> y,
                                   std::span<std::byte> workspace) noexcept;

/// The sums of one row of x for rows [row, row + scores.size()) of a layer of codes, in double: no bias, and for int8 activations
/// not times their scale.
/// Status:  kBadDType if the layer's bits are 32, kSizeMismatch, kNonFinite.
[[nodiscard]] Status layer_scores(std::span<const std::byte> layer, std::span<const float> x, uint32_t row,
                                  std::span<double> scores, std::span<std::byte> workspace) noexcept;

// ------------------------------------------------------------------------------------------------------- floats of a byte

/// Floats of at most eight bits, one a byte. Source: ONNX, "Float stored in 8 bits" and "Float stored in 4 bits".
///   float8e4m3fn  sign, 4 bits of exponent (bias 7), 3 of fraction; no infinities; NaN 0x7F; largest value 448
///   float8e5m2    sign, 5 bits of exponent (bias 15), 2 of fraction; infinity 0x7C, NaN above it; largest value 57344
///   float4e2m1    sign, 2 bits of exponent (bias 1), 1 of fraction; neither infinities nor NaN; largest value 6
enum class Minifloat : int32_t { kFloat8E4M3FN = 0, kFloat8E5M2 = 1, kFloat4E2M1 = 2 };

/// What a size becomes that is above the largest value after rounding, infinity too.
///   kSaturate  the largest value
///   kEscape    infinity, or NaN in float8e4m3fn; float4e2m1 has neither and saturates
enum class Overflow : int32_t { kSaturate = 0, kEscape = 1 };

/// float32 to the bits of such floats, half to even, as ONNX Cast-25 defines it. The sign of everything stays, that of -0 and NaN
/// too, but for NaN in float4e2m1, which becomes +6. NaN becomes 0x7F in both float8 formats.
/// Status: kSizeMismatch, kBadDType if there is no such format.
[[nodiscard]] Status float32_to_minifloat(std::span<const float> x, Minifloat format, Overflow overflow,
                                          std::span<uint8_t> bits) noexcept;

/// The values, exactly. Bits above the sign are not read. NaN stays NaN, of the same sign. Status as above.
[[nodiscard]] Status minifloat_to_float32(std::span<const uint8_t> bits, Minifloat format, std::span<float> x) noexcept;

/// bits[i] = float32_to_minifloat(x[i] / scale[p]), saturated, for the piece [start, start + x.size()) of an array.
/// Shape:  bits.size() == x.size(); scale reaches to layout.parameter_end().
/// Status: kBadDType, kBadLayout, kSizeMismatch, kBadScale.
[[nodiscard]] Status quantize_minifloat(std::span<const float> x, const Layout& layout, uint64_t start,
                                        std::span<const float> scale, Minifloat format, std::span<uint8_t> bits) noexcept;

/// x[i] = scale[p] * value of bits[i], one float32 multiplication. Shape and status as quantize_minifloat.
[[nodiscard]] Status dequantize_minifloat(std::span<const uint8_t> bits, const Layout& layout, uint64_t start,
                                          std::span<const float> scale, Minifloat format, std::span<float> x) noexcept;

// ------------------------------------------------------------------------------------------------------------- codebooks

// Non-uniform codes: x is cut into blocks, each block divided by its largest size or another scale, called absmax all the same, and
// each quotient replaced by the index of a near value in a codebook that all blocks share.

inline constexpr size_t kMaxCodebookSize = 256;

/// Blocks of so many elements; a piece of an array begins `offset` elements into its first block (0 <= offset < size). Its blocks
/// are (offset + n + size - 1) / size; the first and the last may lie in it only in part.
struct Blocks {
  uint64_t size;
  uint64_t offset = 0;

  [[nodiscard]] bool valid() const { return size > 0 && offset < size; }
  /// Blocks that n elements touch.
  [[nodiscard]] uint64_t count(uint64_t n) const { return n == 0 ? 0 : (offset + n - 1) / size + 1; }
};

/// The 4-bit codebooks of bitsandbytes. Source: github.com/bitsandbytes-foundation/bitsandbytes, csrc/kernels.cu.
enum class PublishedCodebook : int32_t { kNf4 = 0, kFp4 = 1 };

/// The 16 values of a published codebook by code: nf4 in ascending order, fp4 with the sign in the upper bit of the code.
[[nodiscard]] std::span<const float> published_codebook(PublishedCodebook codebook) noexcept;

/// Between which quotients the codes change: halfway between neighbouring values, or where bitsandbytes' own decision trees do,
/// whose bounds are rounded.
enum class Decision : int32_t { kNearest = 0, kNf4 = 1, kFp4 = 2 };

/// absmax[b] = max(absmax[b], |x|) over the elements of block b: start from 0.
/// Shape:  absmax.size() == blocks.count(x.size()).
/// Status: kBadLayout, kSizeMismatch; kNonFinite if x holds NaN or an infinity.
[[nodiscard]] Status observe_absmax(std::span<const float> x, Blocks blocks, std::span<float> absmax) noexcept;

/// Absmax values that lie together on whole multiples, up to 127, of one unit, which is a bfloat16.
inline constexpr size_t kAbsmaxSet = 256;

/// Rounds the absmax values of whole sets (the last may be shorter) to the nearest multiples of the set's unit, of which the largest
/// becomes 127: the unit is the bfloat16 nearest to a 127th of it. Symmetric int8 with kAbsmaxSet values a scale then holds them
/// without loss, if the unit is a normal float.
/// Status: kBadScale if an absmax is not finite.
[[nodiscard]] Status round_absmax(std::span<float> absmax) noexcept;

/// For each block of an array the absmax, negative ones included, with which the codebook restores it with a small squared error. It
/// tries scales on either side of 0, from 1.12 times that at which the largest value has the codebook's largest for a quotient down
/// to 0.67 times, and on while the error is below twice the least; each is improved to the best for its codes (least squares). Never
/// worse than the largest size, unless `rounded`: then the best of those multiples that round_absmax has near each.
/// Shape:   block_size > 0, absmax.size() == the number of blocks.
/// Status:  as quantize_codebook; what was in absmax does not matter.
[[nodiscard]] Status search_absmax(std::span<const float> x, uint64_t block_size, std::span<const float> codebook,
                                   Decision decision, bool rounded, std::span<float> absmax) noexcept;

/// codes[i] = the code of the value nearest to v = x[i] * (1 / absmax[b]) in float32; halfway between two, that of the smaller;
/// among equal values, that of the first for v up to them. codebook[code] * absmax[b] restores x.
/// Special: a block whose absmax is 0 gets the code of 0; one whose absmax has no finite reciprocal is multiplied by 2^64 before,
///          its absmax too. Values may be in any order. With Decision::kNf4 and kFp4 the codebook has to be the published one.
/// Shape:   codes.size() == x.size(); absmax.size() == blocks.count(x.size()); 2 to kMaxCodebookSize values.
/// Status:  kBadLayout, kSizeMismatch, kBadRange if a value is not finite, kBadScale if an absmax is not finite,
///          kNonFinite if x holds NaN or an infinity.
[[nodiscard]] Status quantize_codebook(std::span<const float> x, Blocks blocks, std::span<const float> absmax,
                                       std::span<const float> codebook, Decision decision, std::span<uint8_t> codes) noexcept;

/// x[i] = codebook[codes[i]] * absmax[b], one float32 multiplication.
/// Shape and status as quantize_codebook, but for kBadRange: a code without a value in the codebook.
[[nodiscard]] Status dequantize_codebook(std::span<const uint8_t> codes, Blocks blocks, std::span<const float> absmax,
                                         std::span<const float> codebook, std::span<float> x) noexcept;

/// accumulate_error with y = the dequantized codes. Status as dequantize_codebook.
[[nodiscard]] Status accumulate_codebook_error(std::span<const float> x, std::span<const uint8_t> codes, Blocks blocks,
                                               std::span<const float> absmax, std::span<const float> codebook,
                                               ErrorSums& sums) noexcept;

/// Memory in which a codebook is learned: it sees the data piece by piece and then gives the values. Aligned to 8 bytes.
[[nodiscard]] size_t codebook_learner_bytes() noexcept;
/// Puts the memory into the state that observe_codebook starts from.
[[nodiscard]] Status clear_codebook_learner(std::span<std::byte> learner) noexcept;
/// Adds the quotients of x, counted with absmax^2, which is what an error of theirs costs in x, to a histogram: bins are 2^-12 wide
/// relative to the quotient, down to a size of 2^-32, and know the mean of what fell into them.
/// Shape and status as quantize_codebook.
[[nodiscard]] Status observe_codebook(std::span<const float> x, Blocks blocks, std::span<const float> absmax,
                                      std::span<std::byte> learner) noexcept;
/// The values, in ascending order, that make the squared error of x small: the best partition of the histogram, with bins joined
/// until 2048 are left, by dynamic programming; then Lloyd's iteration over all bins until nothing changes. Of data with fewer
/// bins in use than values the means of the bins, the largest repeated; 0 where there was nothing but zeros. What the memory holds
/// afterwards means nothing.
/// Status:  kSizeMismatch for fewer than 2 values or more than kMaxCodebookSize.
[[nodiscard]] Status learn_codebook(std::span<std::byte> learner, std::span<float> values) noexcept;

/// Packs codes of 1 to 8 bits as pack does.
[[nodiscard]] Status pack_codebook(std::span<const uint8_t> codes, int32_t bits, std::span<std::byte> packed) noexcept;
[[nodiscard]] Status unpack_codebook(std::span<const std::byte> packed, int32_t bits, std::span<uint8_t> codes) noexcept;

}  // namespace scalepoint
