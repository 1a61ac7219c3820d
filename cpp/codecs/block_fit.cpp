#include "codecs/block_fit.h"

#include <algorithm>
#include <cmath>

namespace scalepoint::codecs {
namespace {

/// Rounds of least squares. Codes change little after the first ones.
constexpr int kRounds = 6;

/// Sums over the elements of a block and their codes.
struct Sums {
  double x = 0, code = 0, product = 0, squared_code = 0, count = 0;

  Sums(std::span<const float> values, const BlockScale& block, float levels) : count(static_cast<double>(values.size())) {
    for (const float value : values) {
      const double made = block_code(value, block, levels);
      x += value;
      code += made;
      product += made * value;
      squared_code += made * made;
    }
  }
};

/// The block that fits the codes best; its scale is 0 if all codes are equal.
BlockScale best_for(const Sums& sums, float levels, ElementType type, ZeroPointKind kind) {
  BlockScale block;
  const double spread = sums.squared_code - sums.code * sums.code / sums.count;
  if (!(spread > 0)) return block;
  const double slope = (sums.product - sums.code * sums.x / sums.count) / spread;
  const double zero_point = (sums.code - sums.x / slope) / sums.count;
  if (!std::isfinite(zero_point)) return block;
  if (kind == ZeroPointKind::kFloat) {
    block.zero_point = stored_scale(static_cast<float>(zero_point), type);
    set_scale(block, static_cast<float>(slope), type);
    return block;
  }
  block.zero_point = static_cast<float>(std::clamp(std::round(zero_point), 0.0, static_cast<double>(levels)));
  const double zero = block.zero_point;
  const double weight = sums.squared_code - 2 * zero * sums.code + zero * zero * sums.count;
  if (weight > 0) set_scale(block, static_cast<float>((sums.product - zero * sums.x) / weight), type);
  return block;
}

}  // namespace

void set_scale(BlockScale& block, float scale, ElementType type) {
  block.scale = stored_scale(scale, type);
  block.reciprocal = 1.0f / block.scale;
  if (!std::isinf(block.reciprocal)) return;
  block.scale = 0;
  block.reciprocal = 0;
}

double block_error(std::span<const float> x, const BlockScale& block, float levels) {
  double sum = 0;
  for (const float value : x) {
    const double error = static_cast<double>(value) - block_value(block_code(value, block, levels), block);
    sum += error * error;
  }
  return sum;
}

BlockScale choose_float_block(float min, float max, float levels, ElementType type) {
  BlockScale block;
  set_scale(block, max > min ? (max - min) / levels : max, type);
  // For equal elements, the scale is their value, and the code 0 lies one step above the zero point.
  const float zero_point = max > min ? -min * block.reciprocal : -1.0f;
  if (block.scale != 0) block.zero_point = stored_scale(zero_point, type);
  return block;
}

void fit_block(std::span<const float> x, float levels, ElementType type, ZeroPointKind kind, BlockScale& block,
               const BlockScale& other) {
  double least = block_error(x, block, levels);
  for (const BlockScale& begin : {block, other}) {
    BlockScale at = begin;
    double error = block_error(x, at, levels);
    for (int round = 0; round < kRounds; round++) {
      if (error < least) least = error, block = at;
      const BlockScale next = best_for({x, at, levels}, levels, type, kind);
      if (next.scale == 0 || !std::isfinite(next.scale) || !std::isfinite(next.zero_point)) break;
      const double next_error = block_error(x, next, levels);
      if (!(next_error < error)) break;
      at = next;
      error = next_error;
    }
    if (error < least) least = error, block = at;
  }
}

}  // namespace scalepoint::codecs
