#include "kernels/kernels.h"
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
  if (codes.size() != x.size() * dtype.storage_bytes()) return Status::kSizeMismatch;
  // Some blocks of the sums at a time: they stay in the first-level cache, and one call's checks serve them all.
  constexpr size_t kPart = 2048;
  float y[kPart];
  for (size_t i = 0; i < x.size(); i += kPart) {
    const size_t n = x.size() - i < kPart ? x.size() - i : kPart;
    const Status status = dequantize_linear(codes.subspan(i * dtype.storage_bytes(), n * dtype.storage_bytes()), dtype, layout,
                                            start + i, scale, zero_point, {y, n});
    if (status != Status::kOk) return status;
    kernels::accumulate_error(x.data() + i, y, n, sums);
  }
  return Status::kOk;
}

}  // namespace scalepoint
