// Shared by the tests: tables of types, lengths and layouts, buffers that notice stray writes, random numbers, comparisons.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "reference.h"
#include "scalepoint.h"

namespace scalepoint::tests {

using reference::Partition;

// ---------------------------------------------------------------------------------------------------------------- tables

inline constexpr DType kInt8 = {8, true}, kUint8 = {8, false}, kInt4 = {4, true}, kUint4 = {4, false};
inline constexpr DType kInt2 = {2, true}, kUint2 = {2, false}, kInt16 = {16, true}, kUint16 = {16, false};
inline constexpr DType kDTypes[] = {{2, true},  {3, true},  {4, true},  {5, true},  {6, true},  {7, true},
                                    {8, true},  {16, true}, {2, false}, {3, false}, {4, false}, {5, false},
                                    {6, false}, {7, false}, {8, false}, {16, false}};
inline constexpr int32_t kBadBits[] = {-8, -1, 0, 1, 9, 12, 15, 17, 24, 31, 32, 33, 64};
inline constexpr Scheme kSchemes[] = {Scheme::kSymmetric, Scheme::kAsymmetric};
inline constexpr SymmetricRange kSymmetricRanges[] = {SymmetricRange::kRestricted, SymmetricRange::kFull};
inline constexpr Rounding kRoundings[] = {Rounding::kOnnx, Rounding::kFused, Rounding::kReciprocal};
/// Around the widths of vectors, unrolled loops and blocks of sums.
inline constexpr size_t kLengths[] = {0,  1,  2,  3,  4,   5,   7,   8,   9,   15,  16,  17,  31,  32,   33,
                                      63, 64, 65, 96, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1000, 1031};

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kLargest = std::numeric_limits<float>::max();
inline constexpr float kSmallestNormal = std::numeric_limits<float>::min();
inline constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
inline const float kNan = std::bit_cast<float>(0x7FC00000u);
inline const float kNegativeNan = std::bit_cast<float>(0xFFC00000u);
inline const float kSignalingNan = std::bit_cast<float>(0x7F800001u);
inline const float kNegativeSignalingNan = std::bit_cast<float>(0xFF800001u);
inline const float kNonFinites[] = {kNan,
                                    kNegativeNan,
                                    std::bit_cast<float>(0x7FFFFFFFu),
                                    std::bit_cast<float>(0xFFFFFFFFu),
                                    kSignalingNan,
                                    kInfinity,
                                    kNegativeSignalingNan,
                                    -kInfinity};

inline std::string name(DType dtype) { return (dtype.is_signed ? "int" : "uint") + std::to_string(dtype.bits); }

inline std::string name(const QuantizationSpec& spec) {
  return name(spec.dtype) + (spec.scheme == Scheme::kSymmetric ? " symmetric" : " asymmetric") +
         (spec.symmetric_range == SymmetricRange::kRestricted ? " restricted" : " full") +
         (spec.include_zero ? " with zero" : " without zero") + " rounding " + std::to_string(static_cast<int>(spec.rounding));
}

/// Every type, scheme, symmetric range and use of zero.
inline std::vector<QuantizationSpec> all_specs() {
  std::vector<QuantizationSpec> specs;
  for (const DType dtype : kDTypes) {
    for (const Scheme scheme : kSchemes) {
      for (const SymmetricRange range : kSymmetricRanges) {
        for (const bool include_zero : {true, false}) {
          specs.push_back({.dtype = dtype, .scheme = scheme, .symmetric_range = range, .include_zero = include_zero});
        }
      }
    }
  }
  return specs;
}

/// Per tensor, per channel and per group along every axis of shapes with up to four dimensions.
inline std::vector<Partition> all_partitions() {
  const std::vector<size_t> shapes[] = {
      {1},           {5},          {64},           {130},       {1, 1},     {3, 1},       {1, 5},       {4, 9},
      {5, 16},       {3, 17},      {17, 3},        {2, 130},    {65, 2},    {3, 257},     {257, 3},     {2, 3, 1},
      {2, 5, 2},     {3, 4, 3},    {2, 33, 9},     {2, 35, 16}, {2, 7, 17}, {1, 1, 1},    {2, 2, 3, 9}, {2, 3, 2, 16},
      {2, 1, 3, 17}, {5, 1, 1, 7}, {2, 70, 2},     {1, 40, 65}, {4, 64},    {3, 5, 32},   {2, 3, 96},   {2, 2, 2, 64},
      {1, 2, 66, 1}, {3, 2, 1, 2}, {2, 16, 1, 16}, {7, 4, 48},  {2, 600},   {2, 1, 1100},
  };
  std::vector<Partition> partitions;
  for (const auto& shape : shapes) {
    partitions.push_back({.shape = shape});
    for (size_t axis = 0; axis < shape.size(); axis++) {
      partitions.push_back({.shape = shape, .granularity = Granularity::kPerChannel, .axis = axis});
      std::vector<size_t> group_sizes = {1, 2, 3, 4, 16, 31, 32, 64, shape[axis], shape[axis] + 1, 1000};
      std::sort(group_sizes.begin(), group_sizes.end());
      group_sizes.erase(std::unique(group_sizes.begin(), group_sizes.end()), group_sizes.end());
      for (const size_t group_size : group_sizes) {
        partitions.push_back({.shape = shape, .granularity = Granularity::kPerGroup, .axis = axis, .group_size = group_size});
      }
    }
  }
  return partitions;
}

inline std::string name(const Partition& partition) {
  std::string result = "shape";
  for (const size_t length : partition.shape) result += " " + std::to_string(length);
  if (partition.granularity == Granularity::kPerTensor) return result + " per tensor";
  const bool per_group = partition.granularity == Granularity::kPerGroup;
  return result + (per_group ? " per group of " + std::to_string(partition.group_size) + " along" : " per channel of") +
         " axis " + std::to_string(partition.axis);
}

inline Layout layout_of(const Partition& partition) {
  Layout layout = {.granularity = partition.granularity, .group_size = partition.group_size};
  layout.axis_size = partition.shape[partition.axis];
  for (size_t d = partition.axis + 1; d < partition.shape.size(); d++) layout.inner_size *= partition.shape[d];
  return layout;
}

// --------------------------------------------------------------------------------------------------------------- buffers

#if defined(__SANITIZE_ADDRESS__)
inline constexpr size_t kBackGuard = 0;  // the heap block ends with the last element, so that one read past it is caught too
#elif defined(__has_feature)
inline constexpr size_t kBackGuard = __has_feature(address_sanitizer) ? 0 : 64;
#else
inline constexpr size_t kBackGuard = 64;
#endif

/// n elements on the heap, `offset` elements behind a 16-byte boundary, between guard bytes that are checked at the end.
template <class T>
class Buffer {
 public:
  explicit Buffer(size_t n, size_t offset = 0) : front_(kFrontGuard + offset * sizeof(T)), n_(n), block_(new uint8_t[total()]) {
    std::memset(block_.get(), kFill, total());
  }
  explicit Buffer(std::span<const T> values, size_t offset = 0) : Buffer(values.size(), offset) {
    std::copy(values.begin(), values.end(), data());
  }
  explicit Buffer(const std::vector<T>& values, size_t offset = 0) : Buffer(std::span<const T>(values), offset) {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    const auto untouched = [](uint8_t byte) { return byte == kFill; };
    const uint8_t* back = block_.get() + front_ + n_ * sizeof(T);
    EXPECT_TRUE(std::all_of(block_.get(), block_.get() + front_, untouched)) << "a write in front of the buffer";
    EXPECT_TRUE(std::all_of(back, back + kBackGuard, untouched)) << "a write behind the buffer";
  }

  T* data() { return reinterpret_cast<T*>(block_.get() + front_); }
  std::span<T> span() { return {data(), n_}; }
  operator std::span<T>() { return span(); }
  operator std::span<const T>() requires(!std::is_const_v<T>) { return span(); }
  std::vector<T> values() { return {data(), data() + n_}; }

 private:
  static constexpr size_t kFrontGuard = 32;  // a multiple of 16, so that the offset alone sets the alignment
  static constexpr uint8_t kFill = 0xA5;

  size_t total() const { return front_ + n_ * sizeof(T) + kBackGuard; }

  size_t front_;
  size_t n_;
  std::unique_ptr<uint8_t[]> block_;
};

/// A view of a piece of the values, as the core sees the middle of an array.
template <class T>
std::span<const T> piece(const std::vector<T>& values, size_t start, size_t size) {
  return std::span<const T>(values).subspan(start, size);
}

/// Codes as the core stores them: one or two bytes each.
inline std::vector<std::byte> store_codes(const std::vector<int32_t>& codes, DType dtype) {
  std::vector<std::byte> bytes(codes.size() * dtype.storage_bytes());
  for (size_t i = 0; i < codes.size(); i++) {
    const auto code = static_cast<uint16_t>(codes[i]);
    if (dtype.bits == 16) {
      std::memcpy(&bytes[2 * i], &code, 2);
    } else {
      bytes[i] = static_cast<std::byte>(code & 0xFF);
    }
  }
  return bytes;
}

inline std::vector<int32_t> load_codes(std::span<const std::byte> bytes, DType dtype) {
  std::vector<int32_t> codes(bytes.size() / dtype.storage_bytes());
  for (size_t i = 0; i < codes.size(); i++) {
    uint16_t wide = 0;
    std::memcpy(&wide, &bytes[i * dtype.storage_bytes()], dtype.storage_bytes());
    if (dtype.bits == 16) {
      codes[i] = dtype.is_signed ? static_cast<int16_t>(wide) : wide;
    } else {
      codes[i] = dtype.is_signed ? static_cast<int8_t>(wide) : wide;
    }
  }
  return codes;
}

// ---------------------------------------------------------------------------------------------------------------- random

/// A fixed sequence; the seed belongs into the trace of the test that draws from it. Not the distributions of the standard
/// library, whose results differ between implementations.
class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}

  uint32_t bits() { return static_cast<uint32_t>(engine_()); }
  size_t below(size_t n) { return bits() % n; }
  bool coin() { return below(2) == 1; }
  int32_t integer(int32_t low, int32_t high) { return low + static_cast<int32_t>(below(static_cast<size_t>(high - low) + 1)); }
  float uniform(float low, float high) { return low + (high - low) * static_cast<float>(bits() >> 8) * 0x1p-24f; }
  /// Any bits: NaN, infinities and denormals among them.
  float any_float() { return std::bit_cast<float>(bits()); }
  float any_finite() {
    for (;;) {
      const float x = any_float();
      if (std::isfinite(x)) return x;
    }
  }
  /// A size between 2^low and 2^high, evenly over the exponents.
  float power(int low, int high) { return std::ldexp(uniform(1, 2), integer(low, high - 1)); }

  std::vector<float> uniform_values(size_t n, float low, float high) {
    std::vector<float> values(n);
    for (float& value : values) value = uniform(low, high);
    return values;
  }
  int32_t code(DType dtype) { return integer(reference::lowest_code(dtype), reference::highest_code(dtype)); }
  std::vector<int32_t> codes(size_t n, DType dtype) {
    std::vector<int32_t> values(n);
    for (int32_t& value : values) value = code(dtype);
    return values;
  }
  /// Lengths of up to `longest` that sum up to n.
  std::vector<size_t> pieces(size_t n, size_t longest) {
    std::vector<size_t> lengths;
    while (n > 0) {
      lengths.push_back(std::min(n, 1 + below(longest)));
      n -= lengths.back();
    }
    return lengths;
  }

 private:
  std::mt19937 engine_;
};

// ----------------------------------------------------------------------------------------------------------- comparisons

inline uint32_t float_bits(float x) { return std::bit_cast<uint32_t>(x); }
inline std::string exact(float x) {
  char text[64];
  std::snprintf(text, sizeof text, "%a (%.9g, bits %08x)", x, x, float_bits(x));
  return text;
}

/// Compares element by element and says no more than where the first difference is. Floats compare by their bits.
template <class T>
testing::AssertionResult same(std::span<const T> expected, std::span<const T> actual) {
  if (expected.size() != actual.size()) {
    return testing::AssertionFailure() << "expected " << expected.size() << " elements, got " << actual.size();
  }
  for (size_t i = 0; i < expected.size(); i++) {
    if (std::memcmp(&expected[i], &actual[i], sizeof(T)) == 0) continue;
    auto failure = testing::AssertionFailure() << "at " << i << " of " << expected.size() << ": ";
    if constexpr (std::is_same_v<T, float>) {
      return failure << "expected " << exact(expected[i]) << ", got " << exact(actual[i]);
    } else {
      return failure << "expected " << +static_cast<int64_t>(expected[i]) << ", got " << +static_cast<int64_t>(actual[i]);
    }
  }
  return testing::AssertionSuccess();
}
template <class T>
testing::AssertionResult same(const std::vector<T>& expected, const std::vector<T>& actual) {
  return same(std::span<const T>(expected), std::span<const T>(actual));
}

}  // namespace scalepoint::tests

namespace scalepoint {
inline void PrintTo(Status status, std::ostream* out) {
  constexpr const char* kNames[] = {"kOk",       "kBadDType",     "kBadLayout", "kSizeMismatch", "kBadRange",
                                    "kBadScale", "kBadZeroPoint", "kNonFinite", "kOverflow"};
  *out << kNames[static_cast<int>(status)];
}
}  // namespace scalepoint
