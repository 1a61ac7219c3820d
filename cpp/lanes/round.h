// The numerics contract for one value at a time. The loops do the same for many values at a time, and tests compare them with it.
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

/// Formula of a code. All compute in float32, round half to even, and saturate to [qmin, qmax]. They differ on ties and near them.
enum class Rounding : int32_t {
  kOnnx = 0,        ///< round(x / scale) + zero_point        (ONNX QuantizeLinear)
  kFused = 1,       ///< round(x / scale + zero_point)        (torch.round(x / scale + zero_point), compressed-tensors)
  kReciprocal = 2,  ///< round(x * (1 / scale)) + zero_point  (torch.quantize_per_tensor)
};

/// The largest magnitude of a zero point. x / scale + zero_point then stays below 2^23, where float32 still has every half.
inline constexpr int32_t kMaxZeroPoint = 1 << 22;

/// The smallest scale that choose_qparams gives: its reciprocal is the largest power of two in float32.
inline constexpr float kMinScale = 0x1p-127f;

/// 1.5 * 2^23. Added to a v with |v| <= 2^22, it leaves v, rounded half to even, in the low bits of the sum:
/// bits(v + kMagic) == kMagicBits + round_half_even(v).
inline constexpr float kMagic = 12582912.0f;
inline constexpr int32_t kMagicBits = 0x4B400000;

/// bits(x) & kAbsMask are the bits of |x|. As integers they order like |x|, and they are at least kInfinityBits exactly for
/// infinities and NaN.
inline constexpr uint32_t kAbsMask = 0x7FFFFFFFu;
inline constexpr uint32_t kInfinityBits = 0x7F800000u;

inline float round_half_even(float x) { return __builtin_nearbyintf(x); }
inline double round_half_even(double x) { return __builtin_nearbyint(x); }

template <class T>
constexpr T clamp(T x, T low, T high) {
  return x < low ? low : x > high ? high : x;
}

inline bool is_finite(float x) { return (bit_cast<uint32_t>(x) & kAbsMask) < kInfinityBits; }

/// The code of x. NaN gives the zero point, saturated to the type. Infinities and large values give qmin or qmax.
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
