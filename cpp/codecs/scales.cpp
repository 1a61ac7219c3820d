#include "codecs/scales.h"

#include <cstring>

#include "arrays/minifloat_loops.h"
#include "lanes/float16.h"

namespace scalepoint::codecs {

void store_scales(const float* scales, size_t n, ElementType type, std::byte* to) {
  if (type == ElementType::kF16) {
    loops::float32_to_float16(scales, n, reinterpret_cast<uint16_t*>(to));
  } else if (type == ElementType::kBF16) {
    loops::float32_to_bfloat16(scales, n, reinterpret_cast<uint16_t*>(to));
  } else {
    std::memcpy(to, scales, n * sizeof(float));
  }
}

void load_scales(const std::byte* from, size_t n, ElementType type, float* scales) {
  if (type == ElementType::kF16) {
    loops::float16_to_float32(reinterpret_cast<const uint16_t*>(from), n, scales);
  } else if (type == ElementType::kBF16) {
    loops::bfloat16_to_float32(reinterpret_cast<const uint16_t*>(from), n, scales);
  } else {
    std::memcpy(scales, from, n * sizeof(float));
  }
}

float stored_scale(float scale, ElementType type) {
  // Searches ask for one scale after the other, where the loops would convert a whole step each time.
  if (type == ElementType::kF16) return float16_value(float16_of(scale));
  alignas(float) std::byte stored[sizeof(float)];
  store_scales(&scale, 1, type, stored);
  load_scales(stored, 1, type, &scale);
  return scale;
}

float neighbor_scale(float scale, ElementType type, int32_t steps) {
  if (scale_bytes_of(type) != 2) return scale;
  alignas(float) std::byte stored[sizeof(float)];
  store_scales(&scale, 1, type, stored);
  uint16_t bits = 0;
  std::memcpy(&bits, stored, sizeof(bits));
  bits = static_cast<uint16_t>(bits + steps);
  std::memcpy(stored, &bits, sizeof(bits));
  load_scales(stored, 1, type, &scale);
  return scale;
}

}  // namespace scalepoint::codecs
