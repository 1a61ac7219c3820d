#include "codecs/microscales.h"

#include <algorithm>
#include <cmath>
#include <span>

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

/// The smallest byte of a scale that elements can be divided by.
int32_t least_byte(MicroscaleType type) { return type == MicroscaleType::kPowerOfTwo ? 0 : 1; }

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
  return clamp(power + 127, least_byte(form.scale), kLargestPower);
}

/// True for a scale that elements can be divided by.
bool is_usable(float scale) { return scale > 0 && is_finite(scale); }

/// Blocks that are made together.
constexpr size_t kTogether = 32;
/// Most elements of a block.
constexpr size_t kMostElements = 32;

/// The bytes of the scales of blocks by the rule, from their magnitudes.
void bytes_of(const Microscales& form, const GlobalScale& global, const float* amax, size_t blocks, uint8_t* bytes) {
  if (form.scale != MicroscaleType::kFloat8) {
    for (size_t i = 0; i < blocks; i++) {
      bytes[i] = static_cast<uint8_t>(amax[i] == 0 ? form.zero_scale : static_cast<uint32_t>(power_of(form, amax[i])));
    }
    return;
  }
  float wanted[kTogether] = {};
  for (size_t i = 0; i < blocks; i++) {
    const float scale = amax[i] / element_of(form.element).largest;
    wanted[i] = global.divides ? global.value * scale : scale / global.value;
  }
  loops::float32_to_minifloat(wanted, blocks, Minifloat::kFloat8E4M3FN, Overflow::kSaturate, bytes);
  for (size_t i = 0; i < blocks; i++) {
    if (bytes[i] == 0) bytes[i] = static_cast<uint8_t>(form.zero_scale);
  }
}

/// The values of scales. 0 or NaN where the byte or the product is.
void values_of(MicroscaleType type, const GlobalScale& global, const uint8_t* bytes, size_t n, float* values) {
  if (type == MicroscaleType::kFloat8) {
    loops::minifloat_to_float32(bytes, n, Minifloat::kFloat8E4M3FN, values);
  } else {
    const uint32_t least = type == MicroscaleType::kPowerOfTwo ? 1u << 22 : 0;
    for (size_t i = 0; i < n; i++) {
      const uint32_t bits = bytes[i] == 0 ? least : static_cast<uint32_t>(bytes[i]) << 23;
      values[i] = bytes[i] == 255 ? NAN : bit_cast<float>(bits);
    }
  }
  for (size_t i = 0; i < n; i++) values[i] = global.divides ? values[i] / global.value : values[i] * global.value;
}

/// Replaces the bytes of the rule by those of their neighbors with the smallest errors.
void search(const Microscales& form, const GlobalScale& global, const float* x, const float* weights, const float* amax,
            size_t blocks, uint8_t* bytes) {
  constexpr int32_t kFloat8Steps[] = {0, 1, -1, 2, -2, 3, -3, 4, -4, 5, 6}, kPowerSteps[] = {0, -1, 1};
  const bool is_power = form.scale != MicroscaleType::kFloat8;
  const int32_t least = least_byte(form.scale), most = is_power ? kLargestPower : kLargestFloat8;
  uint8_t start[kTogether], tried[kTogether];
  float value[kTogether], error[kTogether], least_error[kTogether];
  std::copy_n(bytes, blocks, start);
  std::fill_n(least_error, blocks, INFINITY);
  for (const int32_t step : is_power ? std::span<const int32_t>(kPowerSteps) : std::span<const int32_t>(kFloat8Steps)) {
    for (size_t i = 0; i < blocks; i++) tried[i] = static_cast<uint8_t>(clamp(start[i] + step, least, most));
    values_of(form.scale, global, tried, blocks, value);
    for (size_t i = 0; i < blocks; i++) {
      if (!is_usable(value[i])) value[i] = 0;
    }
    loops::microscale_errors(x, weights, form.block, blocks, form.element, value, error);
    for (size_t i = 0; i < blocks; i++) {
      // A clamped step is one that was tried, or will be.
      const bool is_better = tried[i] == start[i] + step && value[i] > 0 && amax[i] > 0 && error[i] < least_error[i];
      if (!is_better) continue;
      least_error[i] = error[i];
      bytes[i] = tried[i];
    }
  }
}

/// Makes at most kTogether blocks.
void make(const Microscales& form, const GlobalScale& global, const float* x, const float* weights, size_t blocks,
          uint8_t* scales, uint8_t* codes) {
  const size_t n = form.block;
  float amax[kTogether], value[kTogether], quotient[kTogether * kMostElements];
  for (size_t i = 0; i < blocks; i++) amax[i] = loops::block_magnitude(x + i * n, n);
  bytes_of(form, global, amax, blocks, scales);
  if (form.search) search(form, global, x, weights, amax, blocks, scales);
  values_of(form.scale, global, scales, blocks, value);
  for (size_t i = 0; i < blocks; i++) {
    if (is_usable(value[i])) {
      loops::divide_by_scale(x + i * n, n, value + i, true, quotient + i * n);
    } else {
      std::fill_n(quotient + i * n, n, 0.0f);
    }
  }
  loops::float32_to_minifloat(quotient, blocks * n, form.element, Overflow::kSaturate, codes);
}

}  // namespace

bool is_valid(const Microscales& form) noexcept {
  const bool has_element = form.element == Minifloat::kFloat4E2M1 || form.element == Minifloat::kFloat8E4M3FN;
  const bool has_scale = form.scale >= MicroscaleType::kPowerOfTwo && form.scale <= MicroscaleType::kPowerOfTwoOrZero;
  const bool has_rule = form.rule >= MicroscaleRule::kNearFloor && form.rule <= MicroscaleRule::kNearest;
  const auto most = static_cast<uint32_t>(form.scale == MicroscaleType::kFloat8 ? kLargestFloat8 : kLargestPower);
  return has_element && has_scale && has_rule && (form.block == 16 || form.block == 32) && form.zero_scale <= most;
}

GlobalScale global_scale_of(float amax, bool divides) noexcept {
  constexpr float kMost = 448 * 6;
  const float value = divides ? (1 / amax) * kMost : amax / kMost;
  return {is_usable(value) ? value : 1, divides};
}

float microscale_value(MicroscaleType type, uint8_t byte, const GlobalScale& global) noexcept {
  float value = 0;
  values_of(type, global, &byte, 1, &value);
  return value;
}

uint8_t choose_microscale(const Microscales& form, const GlobalScale& global, const float* x, const float* weights) noexcept {
  const float amax = loops::block_magnitude(x, form.block);
  uint8_t byte = 0;
  bytes_of(form, global, &amax, 1, &byte);
  if (form.search) search(form, global, x, weights, &amax, 1, &byte);
  return byte;
}

bool MicroscaleGrid::choose(size_t row, size_t group, const float* x, const float* weights, size_t, RowGrid& grid) {
  const uint8_t byte = bytes_[row * blocks_ + group] = choose_microscale(form_, global_, x, weights);
  const float value = microscale_value(form_.scale, byte, global_);
  // Levels are doubled.
  grid.scale = is_usable(value) ? value / 2 : 0;
  return true;
}

void make_microscales(const Microscales& form, const GlobalScale& global, const float* x, const float* weights, size_t blocks,
                      uint8_t* scales, uint8_t* codes, float* restored) noexcept {
  for (size_t done = 0; done < blocks; done += kTogether) {
    const size_t from = done * form.block;
    make(form, global, x + from, weights != nullptr ? weights + from : nullptr, std::min(kTogether, blocks - done), scales + done,
         codes + from);
  }
  if (restored != nullptr) restore_microscales(form, global, scales, codes, blocks, restored);
}

void restore_microscales(const Microscales& form, const GlobalScale& global, const uint8_t* scales, const uint8_t* codes,
                         size_t blocks, float* x) noexcept {
  const size_t n = form.block;
  loops::minifloat_to_float32(codes, blocks * n, form.element, x);
  for (size_t done = 0; done < blocks; done += kTogether) {
    const size_t count = std::min(kTogether, blocks - done);
    float value[kTogether];
    values_of(form.scale, global, scales + done, count, value);
    for (size_t i = 0; i < count; i++) loops::multiply_by_scale(x + (done + i) * n, n, value + i, true);
  }
}

}  // namespace scalepoint::codecs
