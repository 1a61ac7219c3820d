#include "ggml/ggml_blocks.h"

#include <algorithm>

#include "arrays/min_max.h"
#include "arrays/min_max_loops.h"
#include "ggml/best_search_loops.h"
#include "ggml/ggml_loops.h"

namespace scalepoint {
namespace {

/// Blocks that are checked, converted and checked again at a time: 16 KiB of floats, which stay in the first-level cache.
constexpr size_t kChunk = 4096;
/// With weights: fewer, since they lie on the stack.
constexpr size_t kWeightedChunk = 512;

/// What the mean square in the weights of elements is taken over, and its factor.
enum class Mean { kNone, kRow, kBlock, kTwiceBlock };

struct Format {
  BlockType type;
  bool (*quantize)(const float* x, size_t n, std::byte* out);
  void (*dequantize)(const std::byte* blocks, size_t n, float* x);
  // The rest is for types that choose scales by errors.
  void (*weighted)(const float* x, const float* weights, size_t n, std::byte* out) = nullptr;
  Mean mean = Mean::kNone;
  /// Instead of `weighted`, for types with grids: it looks at the scales itself.
  bool (*grid)(const float* x, const float* weights, size_t n, std::byte* out) = nullptr;
};

constexpr Format grid_format(BlockType type, decltype(Format::grid) quantize, decltype(Format::dequantize) dequantize,
                             Mean mean) {
  return {type, nullptr, dequantize, nullptr, mean, quantize};
}

/// Whether the scales and minimums of all n blocks are finite: float16 numbers, of which the exponent is not all ones.
bool finite_scales(const BlockFacts& facts, size_t n, const std::byte* blocks) {
  bool finite = true;
  const size_t numbers = facts.scale.minimum ? 2 : 1;
  for (const std::byte* p = blocks + facts.scale.at; n > 0; n--, p += facts.size.bytes) {
    for (size_t i = 0; i < numbers; i++) finite = finite && (std::to_integer<int>(p[2 * i + 1]) & 0x7C) != 0x7C;
  }
  return finite;
}

/// Quantizes n blocks with a loop that does not look at its input. Returns false if x holds NaN or an infinity, or if a scale is
/// beyond float16.
bool quantize_checked(const Format& format, const float* x, const float* weights, size_t n, std::byte* out) {
  const BlockFacts& facts = *block_facts(format.type);
  if (loops::largest_magnitude(x, n * facts.size.elements) >= kInfinityBits) return false;
  if (format.grid != nullptr) return format.grid(x, weights, n, out);
  format.weighted(x, weights, n, out);
  return finite_scales(facts, n, out);
}

/// Quantizes n blocks in rows of whole blocks.
bool quantize_rows(const Format& format, const float* x, size_t n, std::span<const float> importance, std::byte* out) {
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

constexpr Format kFormats[] = {
    {BlockType::kQ4_0, loops::quantize_q4_0, loops::dequantize_q4_0, loops::quantize_weighted_q4_0, Mean::kRow},
    {BlockType::kQ4_1, loops::quantize_q4_1, loops::dequantize_q4_1, loops::quantize_weighted_q4_1, Mean::kRow},
    {BlockType::kQ5_0, loops::quantize_q5_0, loops::dequantize_q5_0, loops::quantize_weighted_q5_0, Mean::kRow},
    {BlockType::kQ5_1, loops::quantize_q5_1, loops::dequantize_q5_1, loops::quantize_weighted_q5_1, Mean::kRow},
    {BlockType::kQ8_0, loops::quantize_q8_0, loops::dequantize_q8_0},
    {BlockType::kQ2_K, nullptr, loops::dequantize_q2_k, loops::quantize_q2_k, Mean::kBlock},
    {BlockType::kQ3_K, nullptr, loops::dequantize_q3_k, loops::quantize_q3_k, Mean::kTwiceBlock},
    {BlockType::kQ4_K, nullptr, loops::dequantize_q4_k, loops::quantize_q4_k, Mean::kTwiceBlock},
    {BlockType::kQ5_K, nullptr, loops::dequantize_q5_k, loops::quantize_q5_k, Mean::kTwiceBlock},
    {BlockType::kQ6_K, nullptr, loops::dequantize_q6_k, loops::quantize_q6_k, Mean::kNone},
    {BlockType::kIQ4_NL, loops::quantize_iq4_nl, loops::dequantize_iq4_nl, loops::quantize_weighted_iq4_nl, Mean::kTwiceBlock},
    {BlockType::kIQ4_XS, loops::quantize_iq4_xs, loops::dequantize_iq4_xs, loops::quantize_weighted_iq4_xs, Mean::kTwiceBlock},
    {BlockType::kTQ1_0, loops::quantize_tq1_0, loops::dequantize_tq1_0},
    {BlockType::kTQ2_0, loops::quantize_tq2_0, loops::dequantize_tq2_0},
    {BlockType::kMXFP4, loops::quantize_mxfp4, loops::dequantize_mxfp4},
    {BlockType::kQ1_0, loops::quantize_q1_0, loops::dequantize_q1_0},
    {BlockType::kQ2_0, loops::quantize_q2_0, loops::dequantize_q2_0},
    grid_format(BlockType::kIQ3_XXS, loops::quantize_iq3_xxs, loops::dequantize_iq3_xxs, Mean::kTwiceBlock),
    grid_format(BlockType::kIQ3_S, loops::quantize_iq3_s, loops::dequantize_iq3_s, Mean::kTwiceBlock),
    grid_format(BlockType::kIQ2_XXS, loops::quantize_iq2_xxs, loops::dequantize_iq2_xxs, Mean::kBlock),
    grid_format(BlockType::kIQ2_XS, loops::quantize_iq2_xs, loops::dequantize_iq2_xs, Mean::kBlock),
    grid_format(BlockType::kIQ2_S, loops::quantize_iq2_s, loops::dequantize_iq2_s, Mean::kTwiceBlock),
    grid_format(BlockType::kIQ1_S, loops::quantize_iq1_s, loops::dequantize_iq1_s, Mean::kTwiceBlock),
    grid_format(BlockType::kIQ1_M, loops::quantize_iq1_m, loops::dequantize_iq1_m, Mean::kTwiceBlock),
};

/// Whether each block type has its loops.
constexpr bool all_types_have_loops() {
  for (const BlockFacts& facts : kBlockTypes) {
    if (std::none_of(std::begin(kFormats), std::end(kFormats), [&](const Format& format) { return format.type == facts.type; }))
      return false;
  }
  return true;
}
static_assert(all_types_have_loops());

/// Quantizes n blocks without weights.
bool quantize_plain(const Format& format, const float* x, size_t n, std::byte* out) {
  if (format.quantize != nullptr) return format.quantize(x, n, out);
  const auto [elements, bytes] = block_size(format.type);
  const size_t together = kChunk / elements;
  for (size_t i = 0; i < n; i += together) {
    if (!quantize_checked(format, x + i * elements, nullptr, std::min(together, n - i), out + i * bytes)) return false;
  }
  return true;
}

/// The sum of squared errors, each by its importance, of the elements that a block stands for.
double block_error(const Format& format, size_t elements, const float* x, const float* importance, const std::byte* block) {
  float restored[loops::kLongestBlock];
  format.dequantize(block, 1, restored);
  double sum = 0;
  for (size_t i = 0; i < elements; i++) {
    const double error = static_cast<double>(x[i]) - restored[i];
    sum += (importance == nullptr ? 1 : importance[i]) * error * error;
  }
  return sum;
}

/// Puts the best blocks in the place of those that are not as good.
void improve(const Format& format, const loops::BestRule& rule, const float* x, size_t n, std::span<const float> importance,
             std::byte* out) {
  const auto [elements, bytes] = block_size(format.type);
  const size_t row = importance.size() / elements;
  std::byte made[loops::kLongestBlock];
  for (size_t i = 0; i < n; i++, x += elements, out += bytes) {
    const float* const weights = row == 0 ? nullptr : importance.data() + i % row * elements;
    loops::quantize_best(rule, x, weights, made);
    if (block_error(format, elements, x, weights, made) < block_error(format, elements, x, weights, out)) {
      std::copy_n(made, bytes, out);
    }
  }
}

const Format* find(BlockType type) {
  const auto* format = std::find_if(std::begin(kFormats), std::end(kFormats), [=](const Format& f) { return f.type == type; });
  return format == std::end(kFormats) ? nullptr : format;
}

/// Whether so many bytes are the blocks of n elements. Counted in blocks, so that no product overflows.
bool fits(BlockSize size, size_t n, size_t bytes) {
  return n % size.elements == 0 && bytes % size.bytes == 0 && n / size.elements == bytes / size.bytes;
}

}  // namespace

Status quantize_blocks(std::span<const float> x, BlockType type, std::span<std::byte> blocks, std::span<const float> importance,
                       BlockSearch search) noexcept {
  const Format* format = find(type);
  if (format == nullptr) return Status::kBadDType;
  const BlockFacts& facts = *block_facts(type);
  if (search == BlockSearch::kBest && !facts.searched) return Status::kBadDType;
  const BlockSize size = facts.size;
  if (!fits(size, x.size(), blocks.size())) return Status::kSizeMismatch;
  const size_t n = x.size() / size.elements, row = importance.size();
  if (row > 0 && (row % size.elements != 0 || x.size() % row != 0)) return Status::kSizeMismatch;
  if (n > 0 && row == 0 && facts.importance == Importance::kNeeded) return Status::kBadDType;
  const bool weighted = row > 0 && facts.importance != Importance::kIgnored;
  const bool good = weighted ? quantize_rows(*format, x.data(), n, importance, blocks.data())
                             : quantize_plain(*format, x.data(), n, blocks.data());
  if (good && search == BlockSearch::kBest) improve(*format, loops::best_rule(type), x.data(), n, importance, blocks.data());
  if (good) return Status::kOk;
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
