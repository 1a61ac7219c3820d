#include "ggml/ggml_blocks.h"

#include <algorithm>

#include "arrays/min_max.h"
#include "arrays/min_max_loops.h"
#include "ggml/block_formats.h"
#include "ggml/ggml_loops.h"

namespace scalepoint {
namespace {

/// Blocks that are checked, converted and checked again at a time: 16 KiB of floats, which stay in the first-level cache.
constexpr size_t kChunk = 4096;
/// The same with weights: less, because they lie on the stack.
constexpr size_t kWeightedChunk = 512;

/// True if the scales and minimums of all n blocks are finite: float16 numbers whose exponent is not all ones.
bool finite_scales(const BlockFacts& facts, size_t n, const std::byte* blocks) {
  bool finite = true;
  const size_t numbers = facts.scale.minimum ? 2 : 1;
  for (const std::byte* p = blocks + facts.scale.at; n > 0; n--, p += facts.size.bytes) {
    for (size_t i = 0; i < numbers; i++) finite = finite && (std::to_integer<int>(p[2 * i + 1]) & 0x7C) != 0x7C;
  }
  return finite;
}

/// Quantizes n blocks with a loop that does not check its input. Returns false if x holds NaN or an infinity, or if a scale is beyond
/// float16.
bool quantize_checked(const BlockFormat& format, const float* x, const float* weights, size_t n, std::byte* out) {
  const BlockFacts& facts = *block_facts(format.type);
  if (loops::largest_magnitude(x, n * facts.size.elements) >= kInfinityBits) return false;
  if (format.grid != nullptr) return format.grid(x, weights, n, out);
  format.weighted(x, weights, n, out);
  return finite_scales(facts, n, out);
}

/// Quantizes n blocks in rows of whole blocks.
bool quantize_rows(const BlockFormat& format, const float* x, size_t n, std::span<const float> importance, std::byte* out) {
  const auto [elements, bytes] = block_size(format.type);
  const size_t together = kWeightedChunk / elements, row = importance.size() / elements;
  float weights[kWeightedChunk], mean = 0;
  for (size_t i = 0; i < n; i += together) {
    const size_t count = std::min(together, n - i);
    for (size_t k = i; k < i + count; k++) {
      const float* const p = x + k * elements;
      const auto size = static_cast<float>(elements);
      if (format.mean == Mean::kRow && k % row == 0) {
        mean = loops::sum_squares(p, importance.size()) / static_cast<float>(importance.size());
      }
      if (format.mean == Mean::kBlock) mean = loops::sum_squares(p, elements) / size;
      if (format.mean == Mean::kTwiceBlock) mean = 2 * loops::sum_squares(p, elements) / size;
      float* const to = weights + (k - i) * elements;
      const float* const from = importance.data() + k % row * elements;
      if (format.mean == Mean::kNone) {
        std::copy_n(from, elements, to);
      } else {
        loops::make_weights(p, from, elements, mean, to);
      }
    }
    if (!quantize_checked(format, x + i * elements, weights, count, out + i * bytes)) return false;
  }
  return true;
}

/// Quantizes n blocks without weights.
bool quantize_plain(const BlockFormat& format, const float* x, size_t n, std::byte* out) {
  if (format.quantize != nullptr) return format.quantize(x, n, out);
  const auto [elements, bytes] = block_size(format.type);
  const size_t together = kChunk / elements;
  for (size_t i = 0; i < n; i += together) {
    if (!quantize_checked(format, x + i * elements, nullptr, std::min(together, n - i), out + i * bytes)) return false;
  }
  return true;
}

const BlockFormat* find(BlockType type) {
  const std::span<const BlockFormat> types = block_formats().types;
  const auto format = std::find_if(types.begin(), types.end(), [=](const BlockFormat& f) { return f.type == type; });
  return format == types.end() ? nullptr : &*format;
}

/// True if the module has the better search for a type.
bool has_best(const BlockFacts& facts) { return facts.searched && block_formats().improve != nullptr; }

/// True if `bytes` is the size of n elements. Compares counts of blocks, so that products do not overflow.
bool fits(BlockSize size, size_t n, size_t bytes) {
  return n % size.elements == 0 && bytes % size.bytes == 0 && n / size.elements == bytes / size.bytes;
}

}  // namespace

bool has_blocks(BlockType type, BlockSearch search) noexcept {
  return find(type) != nullptr && (search == BlockSearch::kUsual || has_best(*block_facts(type)));
}

Status quantize_blocks(std::span<const float> x, BlockType type, std::span<std::byte> blocks, std::span<const float> importance,
                       BlockSearch search) noexcept {
  const BlockFormat* format = find(type);
  if (format == nullptr) return Status::kBadDType;
  const BlockFacts& facts = *block_facts(type);
  if (search == BlockSearch::kBest && !has_best(facts)) return Status::kBadDType;
  const BlockSize size = facts.size;
  if (!fits(size, x.size(), blocks.size())) return Status::kSizeMismatch;
  const size_t n = x.size() / size.elements, row = importance.size();
  if (row > 0 && (row % size.elements != 0 || x.size() % row != 0)) return Status::kSizeMismatch;
  if (n > 0 && row == 0 && facts.importance == Importance::kNeeded) return Status::kBadDType;
  const bool weighted = row > 0 && facts.importance != Importance::kIgnored;
  const bool good = weighted ? quantize_rows(*format, x.data(), n, importance, blocks.data())
                             : quantize_plain(*format, x.data(), n, blocks.data());
  if (good && search == BlockSearch::kBest) block_formats().improve(*format, x.data(), n, importance, blocks.data());
  if (good) return Status::kOk;
  return first_non_finite(x) < x.size() ? Status::kNonFinite : Status::kOverflow;
}

Status dequantize_blocks(std::span<const std::byte> blocks, BlockType type, std::span<float> x) noexcept {
  const BlockFormat* format = find(type);
  if (format == nullptr) return Status::kBadDType;
  const BlockSize size = block_size(type);
  if (!fits(size, x.size(), blocks.size())) return Status::kSizeMismatch;
  format->dequantize(blocks.data(), x.size() / size.elements, x.data());
  return Status::kOk;
}

}  // namespace scalepoint
