#include "codecs/microscales.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "arrays/minifloat_loops.h"
#include "codecs/microscales_loops.h"
#include "lanes/round.h"

namespace scalepoint::codecs {
namespace {

/// Facts of an element type.
struct Element {
  float largest;
  int32_t exponent;  ///< of the largest power of two in it
};

Element element_of(Minifloat format) { return format == Minifloat::kFloat4E2M1 ? Element{6, 2} : Element{448, 8}; }

constexpr int32_t kLargestFloat8 = 126, kLargestPower = 254;

/// The E4M3 byte of a value that is not negative.
uint8_t float8_of(float x) {
  uint8_t code = 0;
  loops::float32_to_minifloat(&x, 1, Minifloat::kFloat8E4M3FN, Overflow::kSaturate, &code);
  return code;
}

/// floor(log2(x)) of a positive finite float.
int32_t exponent_of(float x) { return std::ilogb(x); }

/// The biased exponent of a block's scale by the rule. amax is finite.
int32_t power_of(const Microscales& form, float amax) {
  if (amax == 0) return 0;
  const Element element = element_of(form.element);
  int32_t power = 0;
  switch (form.rule) {
    case MicroscaleRule::kNearFloor:
      // A quarter of the power of two carries a fraction of 1.75 and more into the exponent. Subnormals have no fraction of that kind.
      power = static_cast<int32_t>((bit_cast<uint32_t>(amax) + (1u << 21)) >> 23) - 127 - element.exponent;
      break;
    case MicroscaleRule::kFloor:
      power = exponent_of(amax) - element.exponent;
      break;
    case MicroscaleRule::kCeiling:
    case MicroscaleRule::kNearest: {
      // In double, because the quotient of two floats is exact enough there to decide on which side of a power of two it is.
      const double ratio = static_cast<double>(amax) / element.largest;
      power = std::ilogb(ratio);
      const double fraction = std::scalbn(ratio, -power);
      // The nearest exponent changes at the square root of 2, which no quotient of floats meets.
      if (form.rule == MicroscaleRule::kCeiling ? fraction > 1 : fraction * fraction > 2) power++;
      break;
    }
  }
  return clamp(power + 127, 0, kLargestPower);
}

/// The byte of a block's scale by the rule.
uint8_t byte_of(const Microscales& form, const GlobalScale& global, float amax) {
  if (form.scale == MicroscaleType::kPowerOfTwo) {
    return static_cast<uint8_t>(amax == 0 ? form.zero_scale : static_cast<uint32_t>(power_of(form, amax)));
  }
  const float scale = amax / element_of(form.element).largest;
  const uint8_t byte = float8_of(global.divides ? global.value * scale : scale / global.value);
  return byte == 0 ? static_cast<uint8_t>(form.zero_scale) : byte;
}

/// True for a scale that elements can be divided by.
bool is_usable(float scale) { return scale > 0 && is_finite(scale); }

/// The byte with the smallest error among that of the rule and its neighbors.
uint8_t searched(const Microscales& form, const GlobalScale& global, const float* x, const float* weights, uint8_t start) {
  constexpr int32_t kFloat8Steps[] = {0, 1, -1, 2, -2, 3, -3, 4, -4, 5, 6}, kPowerSteps[] = {0, -1, 1};
  const bool is_power = form.scale == MicroscaleType::kPowerOfTwo;
  const int32_t least = is_power ? 0 : 1, most = is_power ? kLargestPower : kLargestFloat8;
  uint8_t best = start;
  float least_error = INFINITY;
  for (size_t i = 0; i < (is_power ? std::size(kPowerSteps) : std::size(kFloat8Steps)); i++) {
    const int32_t byte = start + (is_power ? kPowerSteps[i] : kFloat8Steps[i]);
    if (byte < least || byte > most) continue;
    const float scale = microscale_value(form.scale, static_cast<uint8_t>(byte), global);
    if (!is_usable(scale)) continue;
    const float error = loops::microscale_error(x, weights, form.block, form.element, scale);
    if (!(error < least_error)) continue;
    least_error = error;
    best = static_cast<uint8_t>(byte);
  }
  return best;
}

}  // namespace

bool is_valid(const Microscales& form) noexcept {
  const bool has_element = form.element == Minifloat::kFloat4E2M1 || form.element == Minifloat::kFloat8E4M3FN;
  const bool has_rule = form.rule >= MicroscaleRule::kNearFloor && form.rule <= MicroscaleRule::kNearest;
  const auto most = static_cast<uint32_t>(form.scale == MicroscaleType::kFloat8 ? kLargestFloat8 : kLargestPower);
  return has_element && has_rule && (form.block == 16 || form.block == 32) && form.zero_scale <= most;
}

GlobalScale global_scale_of(float amax, bool divides) noexcept {
  constexpr float kMost = 448 * 6;
  const float value = divides ? (1 / amax) * kMost : amax / kMost;
  return {is_usable(value) ? value : 1, divides};
}

float microscale_value(MicroscaleType type, uint8_t byte, const GlobalScale& global) noexcept {
  float value = NAN;
  if (type == MicroscaleType::kFloat8) {
    loops::minifloat_to_float32(&byte, 1, Minifloat::kFloat8E4M3FN, &value);
  } else if (byte < 255) {
    value = bit_cast<float>(byte == 0 ? 1u << 22 : static_cast<uint32_t>(byte) << 23);
  }
  return global.divides ? value / global.value : value * global.value;
}

uint8_t choose_microscale(const Microscales& form, const GlobalScale& global, const float* x, const float* weights) noexcept {
  const float amax = loops::block_magnitude(x, form.block);
  const uint8_t byte = byte_of(form, global, amax);
  return form.search && amax > 0 ? searched(form, global, x, weights, byte) : byte;
}

void make_microscales(const Microscales& form, const GlobalScale& global, const float* x, const float* weights, size_t blocks,
                      uint8_t* scales, uint8_t* codes, float* restored) noexcept {
  const size_t n = form.block;
  for (size_t i = 0; i < blocks; i++, x += n, codes += n) {
    scales[i] = choose_microscale(form, global, x, weights);
    const float scale = microscale_value(form.scale, scales[i], global);
    if (is_usable(scale)) {
      float quotient[32];
      loops::divide_by_scale(x, n, &scale, true, quotient);
      loops::float32_to_minifloat(quotient, n, form.element, Overflow::kSaturate, codes);
    } else {
      std::fill_n(codes, n, uint8_t{0});
    }
    if (restored != nullptr) restore_microscales(form, global, scales + i, codes, 1, restored + i * n);
    if (weights != nullptr) weights += n;
  }
}

void restore_microscales(const Microscales& form, const GlobalScale& global, const uint8_t* scales, const uint8_t* codes,
                         size_t blocks, float* x) noexcept {
  const size_t n = form.block;
  loops::minifloat_to_float32(codes, blocks * n, form.element, x);
  for (size_t i = 0; i < blocks; i++) {
    const float scale = microscale_value(form.scale, scales[i], global);
    loops::multiply_by_scale(x + i * n, n, &scale, true);
  }
}

}  // namespace scalepoint::codecs
