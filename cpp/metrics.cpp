#include <iterator>

#include "kernels/kernels.h"
#include "layout.h"
#include "scalepoint.h"

namespace scalepoint {

Status accumulate_error(std::span<const float> x, std::span<const float> y, ErrorSums& sums) noexcept {
  if (x.size() != y.size()) return Status::kSizeMismatch;
  kernels::accumulate_error(x.data(), y.data(), x.size(), sums);
  return Status::kOk;
}

Status accumulate_code_error(std::span<const float> x, std::span<const std::byte> codes, DType dtype, const Layout& layout,
                             uint64_t start, std::span<const float> scale, std::span<const int32_t> zero_point,
                             ErrorSums& sums) noexcept {
  if (!dtype.valid()) return Status::kBadDType;
  if (!layout.valid()) return Status::kBadLayout;
  const size_t bytes = dtype.storage_bytes();
  if (codes.size() != x.size() * bytes) return Status::kSizeMismatch;
  if (const Status s = check_parameters(layout, start, x.size(), scale, zero_point); s != Status::kOk) return s;
  using kernels::kErrorBlock;
  for (size_t i = 0; i < x.size();) {
    // A long stretch with one scale goes straight from its codes, block by block.
    const size_t left = x.size() - i;
    const Stretch s = stretch_at(layout, start + i, left);
    if (s.uniform && (s.size == left || s.size >= kErrorBlock)) {
      const size_t n = s.size == left ? left : s.size - s.size % kErrorBlock;
      kernels::accumulate_code_error(x.data() + i, codes.data() + i * bytes, dtype, n, scale[s.parameter],
                                     zero_point[s.parameter], sums);
      i += n;
      continue;
    }
    // Others are restored first, a few blocks at a time, which stay in the first-level cache.
    float y[4 * kErrorBlock];
    const size_t n = left < std::size(y) ? left : std::size(y);
    const Status status =
        dequantize_linear(codes.subspan(i * bytes, n * bytes), dtype, layout, start + i, scale, zero_point, {y, n});
    if (status != Status::kOk) return status;
    kernels::accumulate_error(x.data() + i, y, n, sums);
    i += n;
  }
  return Status::kOk;
}

}  // namespace scalepoint
