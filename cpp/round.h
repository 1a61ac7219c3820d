// The numerics contract, one value at a time. The kernels do the same thing many values at a time; tests hold them to it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace scalepoint {

/// std::bit_cast, which the oldest supported tool chain lacks.
template <class To, class From>
inline To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

/// How x becomes a code. All in float32, half to even, then saturated to [qmin, qmax]; the three differ on ties and near them.
enum class Rounding : int32_t {
  kOnnx = 0,        ///< round(x / scale) + zero_point        (ONNX QuantizeLinear)
  kFused = 1,       ///< round(x / scale + zero_point)        (torch.round(x / scale + zero_point), compressed-tensors)
  kReciprocal = 2,  ///< round(x * (1 / scale)) + zero_point  (torch.quantize_per_tensor)
};

/// No zero point is larger in size: x / scale + zero_point then stays below 2^23, where float32 still holds every half.
inline constexpr int32_t kMaxZeroPoint = 1 << 22;

/// The smallest scale that choose_qparams gives: its reciprocal is the largest power of two in float32.
inline constexpr float kMinScale = 0x1p-127f;

/// 1.5 * 2^23. Adding it to a float of size up to 2^22 leaves the value, rounded half to even, in the low bits of the sum:
/// bits(v + kMagic) == kMagicBits + round_half_even(v).
inline constexpr float kMagic = 12582912.0f;
inline constexpr int32_t kMagicBits = 0x4B400000;

/// The bits of |x| as an integer: orders like |x|, and is at least kInfinityBits exactly for infinities and NaN.
inline constexpr uint32_t kAbsMask = 0x7FFFFFFFu;
inline constexpr uint32_t kInfinityBits = 0x7F800000u;

inline float round_half_even(float x) { return __builtin_nearbyintf(x); }
inline double round_half_even(double x) { return __builtin_nearbyint(x); }

template <class T>
constexpr T clamp(T x, T low, T high) {
  return x < low ? low : x > high ? high : x;
}

inline bool is_finite(float x) { return (bit_cast<uint32_t>(x) & kAbsMask) < kInfinityBits; }

/// The code of x. NaN gives the zero point (saturated to the type), infinities and large values the ends.
inline int32_t quantize_value(float x, float scale, int32_t zero_point, int32_t qmin, int32_t qmax, Rounding rounding) {
  const float v = rounding == Rounding::kReciprocal ? x * (1.0f / scale) : x / scale;
  if (v != v) return clamp(zero_point, qmin, qmax);
  if (rounding == Rounding::kFused) {
    const float code = round_half_even(v + static_cast<float>(zero_point));
    return static_cast<int32_t>(clamp(code, static_cast<float>(qmin), static_cast<float>(qmax)));
  }
  // Both bounds are integers below 2^24, exact in float32.
  const auto low = static_cast<float>(qmin - zero_point), high = static_cast<float>(qmax - zero_point);
  return static_cast<int32_t>(clamp(round_half_even(v), low, high)) + zero_point;
}

}  // namespace scalepoint
