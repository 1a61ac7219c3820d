#include "codebooks/codebook.h"

#include "arrays/metrics_loops.h"
#include "arrays/min_max.h"
#include "arrays/min_max_loops.h"
#include "codebooks/codebook_parts.h"

namespace scalepoint {
namespace {

constexpr float kNf4[16] = {-1.0f,
                            -0.6961928009986877f,
                            -0.5250730514526367f,
                            -0.39491748809814453f,
                            -0.28444138169288635f,
                            -0.18477343022823334f,
                            -0.09105003625154495f,
                            0.0f,
                            0.07958029955625534f,
                            0.16093020141124725f,
                            0.24611230194568634f,
                            0.33791524171829224f,
                            0.44070982933044434f,
                            0.5626170039176941f,
                            0.7229568362236023f,
                            1.0f};

// 0, 1/16, 8, 12, 4, 6, 2 and 3, divided by 12, as bitsandbytes writes them, and the same with a sign.
constexpr float kFp4[16] = {0.0f, 5.208333333e-03f,  0.66666667f,  1.0f,  0.33333333f,  0.5f,  0.16666667f,  0.25f,
                            0.0f, -5.208333333e-03f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f};

}  // namespace

Status check_absmax(size_t n, Blocks blocks, std::span<const float> absmax) {
  if (!blocks.valid()) return Status::kBadLayout;
  if (absmax.size() != blocks.count(n)) return Status::kSizeMismatch;
  return first_non_finite(absmax) == absmax.size() ? Status::kOk : Status::kBadScale;
}

std::span<const float> published_codebook(PublishedCodebook codebook) noexcept {
  return codebook == PublishedCodebook::kNf4 ? kNf4 : kFp4;
}

Status quantize_codebook(std::span<const float> x, Blocks blocks, std::span<const float> absmax, std::span<const float> codebook,
                         Decision decision, std::span<uint8_t> codes) noexcept {
  if (codes.size() != x.size() || !has_size(codebook, decision)) return Status::kSizeMismatch;
  if (const Status s = check_absmax(x.size(), blocks, absmax); s != Status::kOk) return s;
  if (first_non_finite(codebook) < codebook.size()) return Status::kBadRange;
  loops::CodeSearch search;
  prepare_search(codebook, decision, search);
  return quantize_prepared(x, blocks, absmax, search, codes);
}

Status quantize_prepared(std::span<const float> x, Blocks blocks, std::span<const float> absmax, const loops::CodeSearch& search,
                         std::span<uint8_t> codes) {
  if (const Status s = check_absmax(x.size(), blocks, absmax); s != Status::kOk) return s;
  bool finite = true;
  for_each_block(x.size(), blocks, [&](size_t i, size_t size, size_t block) {
    if (loops::largest_magnitude(&x[i], size) >= kInfinityBits) finite = false;
    uint8_t* to = &codes[i];
    with_factor(x.subspan(i, size), absmax[block], [&](std::span<const float> some, float factor) {
      loops::search_codes(some.data(), some.size(), factor, search, to);
      to += some.size();
    });
  });
  return finite ? Status::kOk : Status::kNonFinite;
}

Status dequantize_codebook(std::span<const uint8_t> codes, Blocks blocks, std::span<const float> absmax,
                           std::span<const float> codebook, std::span<float> x) noexcept {
  if (codes.size() != x.size() || codebook.size() < 2 || codebook.size() > kMaxCodebookSize) return Status::kSizeMismatch;
  if (const Status s = check_absmax(x.size(), blocks, absmax); s != Status::kOk) return s;
  float values[kMaxCodebookSize] = {};
  std::copy(codebook.begin(), codebook.end(), values);
  uint32_t largest = 0;
  for_each_block(x.size(), blocks, [&](size_t i, size_t size, size_t block) {
    const uint32_t code = loops::restore_codes(&codes[i], size, values, absmax[block], &x[i]);
    largest = code > largest ? code : largest;
  });
  return largest < codebook.size() ? Status::kOk : Status::kBadRange;
}

Status accumulate_codebook_error(std::span<const float> x, std::span<const uint8_t> codes, Blocks blocks,
                                 std::span<const float> absmax, std::span<const float> codebook, ErrorSums& sums) noexcept {
  if (codes.size() != x.size()) return Status::kSizeMismatch;
  if (const Status s = check_absmax(x.size(), blocks, absmax); s != Status::kOk) return s;
  float y[loops::kErrorBlock];
  for (size_t i = 0; i < x.size(); i += std::size(y)) {
    const size_t size = std::min(std::size(y), x.size() - i);
    const uint64_t at = blocks.offset + i;
    const Blocks rest = {blocks.size, at % blocks.size};
    const std::span<const float> some = absmax.subspan(static_cast<size_t>(at / blocks.size), rest.count(size));
    const Status status = dequantize_codebook(codes.subspan(i, size), rest, some, codebook, {y, size});
    if (status != Status::kOk) return status;
    loops::accumulate_error(&x[i], y, size, sums);
  }
  return Status::kOk;
}

}  // namespace scalepoint
