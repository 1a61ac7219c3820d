#include "blocks.h"

#include <algorithm>

#include "kernels/blocks.h"
#include "kernels/range.h"
#include "range.h"

namespace scalepoint {
namespace {

constexpr size_t kSuperBlock = 256;
/// Super-blocks that are checked, converted and checked again at a time: 16 KiB of floats, which stay in the first-level cache.
constexpr size_t kChunk = 16;

/// Whether none of `count` float16 numbers at `p` is an infinity or NaN.
bool finite_halves(const std::byte* p, size_t count) {
  bool finite = true;
  for (size_t i = 0; i < count; i++) finite = finite && (std::to_integer<int>(p[2 * i + 1]) & 0x7C) != 0x7C;
  return finite;
}

/// Quantizes n super-blocks of kBytes, which have kScales float16 numbers at kScalesAt. Returns false if x holds NaN or an infinity,
/// or if a scale is beyond float16.
template <void (*kQuantize)(const float*, size_t, std::byte*), size_t kBytes, size_t kScalesAt, size_t kScales>
bool quantize_checked(const float* x, size_t n, std::byte* out) {
  for (size_t i = 0; i < n; i += kChunk) {
    const size_t count = std::min(kChunk, n - i);
    const float* from = x + i * kSuperBlock;
    std::byte* to = out + i * kBytes;
    if (kernels::largest_magnitude(from, count * kSuperBlock) >= kInfinityBits) return false;
    kQuantize(from, count, to);
    for (size_t k = 0; k < count; k++) {
      if (!finite_halves(to + k * kBytes + kScalesAt, kScales)) return false;
    }
  }
  return true;
}

struct Format {
  BlockType type;
  bool (*quantize)(const float* x, size_t n, std::byte* out);
  void (*dequantize)(const std::byte* blocks, size_t n, float* x);
};

constexpr Format kFormats[] = {
    {BlockType::kQ4_0, kernels::quantize_q4_0, kernels::dequantize_q4_0},
    {BlockType::kQ4_1, kernels::quantize_q4_1, kernels::dequantize_q4_1},
    {BlockType::kQ5_0, kernels::quantize_q5_0, kernels::dequantize_q5_0},
    {BlockType::kQ5_1, kernels::quantize_q5_1, kernels::dequantize_q5_1},
    {BlockType::kQ8_0, kernels::quantize_q8_0, kernels::dequantize_q8_0},
    {BlockType::kQ2_K, quantize_checked<kernels::quantize_q2_k, block_size(BlockType::kQ2_K).bytes, 80, 2>,
     kernels::dequantize_q2_k},
    {BlockType::kQ3_K, quantize_checked<kernels::quantize_q3_k, block_size(BlockType::kQ3_K).bytes, 108, 1>,
     kernels::dequantize_q3_k},
    {BlockType::kQ4_K, quantize_checked<kernels::quantize_q4_k, block_size(BlockType::kQ4_K).bytes, 0, 2>,
     kernels::dequantize_q4_k},
    {BlockType::kQ5_K, quantize_checked<kernels::quantize_q5_k, block_size(BlockType::kQ5_K).bytes, 0, 2>,
     kernels::dequantize_q5_k},
    {BlockType::kQ6_K, quantize_checked<kernels::quantize_q6_k, block_size(BlockType::kQ6_K).bytes, 208, 1>,
     kernels::dequantize_q6_k},
    {BlockType::kIQ4_NL, kernels::quantize_iq4_nl, kernels::dequantize_iq4_nl},
    {BlockType::kIQ4_XS, kernels::quantize_iq4_xs, kernels::dequantize_iq4_xs},
    {BlockType::kTQ1_0, kernels::quantize_tq1_0, kernels::dequantize_tq1_0},
    {BlockType::kTQ2_0, kernels::quantize_tq2_0, kernels::dequantize_tq2_0},
    {BlockType::kMXFP4, kernels::quantize_mxfp4, kernels::dequantize_mxfp4},
    {BlockType::kQ1_0, kernels::quantize_q1_0, kernels::dequantize_q1_0},
    {BlockType::kQ2_0, kernels::quantize_q2_0, kernels::dequantize_q2_0},
};

const Format* find(BlockType type) {
  const auto* format = std::find_if(std::begin(kFormats), std::end(kFormats), [=](const Format& f) { return f.type == type; });
  return format == std::end(kFormats) ? nullptr : format;
}

/// Whether so many bytes are the blocks of n elements. Counted in blocks, so that no product overflows.
bool fits(BlockSize size, size_t n, size_t bytes) {
  return n % size.elements == 0 && bytes % size.bytes == 0 && n / size.elements == bytes / size.bytes;
}

}  // namespace

Status quantize_blocks(std::span<const float> x, BlockType type, std::span<std::byte> blocks) noexcept {
  const Format* format = find(type);
  if (format == nullptr) return Status::kBadDType;
  const BlockSize size = block_size(type);
  if (!fits(size, x.size(), blocks.size())) return Status::kSizeMismatch;
  if (format->quantize(x.data(), x.size() / size.elements, blocks.data())) return Status::kOk;
  return first_non_finite(x) < x.size() ? Status::kNonFinite : Status::kOverflow;
}

Status dequantize_blocks(std::span<const std::byte> blocks, BlockType type, std::span<float> x) noexcept {
  const Format* format = find(type);
  if (format == nullptr) return Status::kBadDType;
  const BlockSize size = block_size(type);
  if (!fits(size, x.size(), blocks.size())) return Status::kSizeMismatch;
  format->dequantize(blocks.data(), x.size() / size.elements, x.data());
  return Status::kOk;
}

}  // namespace scalepoint
