// The block types of the large module: all of them.
#include <algorithm>
#include <iterator>

#include "ggml/block_formats.h"

namespace scalepoint {
namespace {

constexpr BlockFormat grid_format(BlockType type, decltype(BlockFormat::grid) quantize,
                                  decltype(BlockFormat::dequantize) dequantize, Mean mean) {
  return {type, nullptr, dequantize, nullptr, mean, quantize};
}

constexpr BlockFormat kTypes[] = {
    kQ4_0Format,
    {BlockType::kQ4_1, loops::quantize_q4_1, loops::dequantize_q4_1, loops::quantize_weighted_q4_1, Mean::kRow},
    {BlockType::kQ5_0, loops::quantize_q5_0, loops::dequantize_q5_0, loops::quantize_weighted_q5_0, Mean::kRow},
    {BlockType::kQ5_1, loops::quantize_q5_1, loops::dequantize_q5_1, loops::quantize_weighted_q5_1, Mean::kRow},
    kQ8_0Format,
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

/// True if each block type has loops.
constexpr bool all_types_have_loops() {
  for (const BlockFacts& facts : kBlockTypes) {
    if (std::none_of(std::begin(kTypes), std::end(kTypes), [&](const BlockFormat& format) { return format.type == facts.type; }))
      return false;
  }
  return true;
}
static_assert(all_types_have_loops());

constexpr BlockFormats kFormats = {kTypes, improve_blocks};

}  // namespace

const BlockFormats& block_formats() noexcept { return kFormats; }

}  // namespace scalepoint
