#include "arrays/minifloat.h"

#include <algorithm>
#include <iterator>

#include "arrays/minifloat_loops.h"
#include "arrays/stretches.h"
#include "lanes/round.h"

namespace scalepoint {
namespace {

/// True for the number of a format.
bool exists(Minifloat format) { return format >= Minifloat::kFloat8E4M3FN && format <= Minifloat::kFloat4E2M1; }

Status check_scales(const Layout& layout, uint64_t start, size_t size, std::span<const float> scale, Minifloat format) {
  if (!exists(format)) return Status::kBadDType;
  if (!layout.valid()) return Status::kBadLayout;
  const uint64_t used = layout.parameter_end(start, size);
  if (used > scale.size()) return Status::kSizeMismatch;
  for (const float s : scale.first(static_cast<size_t>(used))) {
    if (!(s > 0 && is_finite(s))) return Status::kBadScale;
  }
  return Status::kOk;
}

}  // namespace

Status float16_to_float32(std::span<const uint16_t> bits, std::span<float> x) noexcept {
  if (bits.size() != x.size()) return Status::kSizeMismatch;
  loops::float16_to_float32(bits.data(), bits.size(), x.data());
  return Status::kOk;
}

Status bfloat16_to_float32(std::span<const uint16_t> bits, std::span<float> x) noexcept {
  if (bits.size() != x.size()) return Status::kSizeMismatch;
  loops::bfloat16_to_float32(bits.data(), bits.size(), x.data());
  return Status::kOk;
}

Status float32_to_float16(std::span<const float> x, std::span<uint16_t> bits) noexcept {
  if (bits.size() != x.size()) return Status::kSizeMismatch;
  loops::float32_to_float16(x.data(), x.size(), bits.data());
  return Status::kOk;
}

Status float32_to_bfloat16(std::span<const float> x, std::span<uint16_t> bits) noexcept {
  if (bits.size() != x.size()) return Status::kSizeMismatch;
  loops::float32_to_bfloat16(x.data(), x.size(), bits.data());
  return Status::kOk;
}

Status float32_to_minifloat(std::span<const float> x, Minifloat format, Overflow overflow, std::span<uint8_t> bits) noexcept {
  if (!exists(format)) return Status::kBadDType;
  if (bits.size() != x.size()) return Status::kSizeMismatch;
  loops::float32_to_minifloat(x.data(), x.size(), format, overflow, bits.data());
  return Status::kOk;
}

Status minifloat_to_float32(std::span<const uint8_t> bits, Minifloat format, std::span<float> x) noexcept {
  if (!exists(format)) return Status::kBadDType;
  if (bits.size() != x.size()) return Status::kSizeMismatch;
  loops::minifloat_to_float32(bits.data(), bits.size(), format, x.data());
  return Status::kOk;
}

Status quantize_minifloat(std::span<const float> x, const Layout& layout, uint64_t start, std::span<const float> scale,
                          Minifloat format, std::span<uint8_t> bits) noexcept {
  if (const Status s = check_scales(layout, start, x.size(), scale, format); s != Status::kOk) return s;
  if (bits.size() != x.size()) return Status::kSizeMismatch;
  float quotient[512];  // stays in the first-level cache between the two passes
  for_each_stretch(layout, start, x.size(), [&](const Stretch& s) {
    for (size_t i = 0; i < s.size; i += std::size(quotient)) {
      const size_t n = std::min(std::size(quotient), s.size - i);
      loops::divide_by_scale(&x[s.offset + i], n, &scale[s.parameter + (s.uniform ? 0 : i)], s.uniform, quotient);
      loops::float32_to_minifloat(quotient, n, format, Overflow::kSaturate, &bits[s.offset + i]);
    }
  });
  return Status::kOk;
}

Status dequantize_minifloat(std::span<const uint8_t> bits, const Layout& layout, uint64_t start, std::span<const float> scale,
                            Minifloat format, std::span<float> x) noexcept {
  if (const Status s = check_scales(layout, start, x.size(), scale, format); s != Status::kOk) return s;
  if (bits.size() != x.size()) return Status::kSizeMismatch;
  loops::minifloat_to_float32(bits.data(), bits.size(), format, x.data());
  for_each_stretch(layout, start, x.size(),
                   [&](const Stretch& s) { loops::multiply_by_scale(&x[s.offset], s.size, &scale[s.parameter], s.uniform); });
  return Status::kOk;
}

}  // namespace scalepoint
