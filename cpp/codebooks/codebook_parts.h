// Functions that coding with a codebook, the search for absmax and the learning of codebooks share.
#pragma once

#include <algorithm>
#include <iterator>

#include "codebooks/codebook.h"
#include "codebooks/codebook_loops.h"
#include "lanes/round.h"

namespace scalepoint {

static_assert(kMaxCodebookSize == loops::kMostCodes);

/// kBadLayout, kSizeMismatch or kBadScale unless each block of n elements has a finite absmax.
[[nodiscard]] Status check_absmax(size_t n, Blocks blocks, std::span<const float> absmax);

/// True if the number of values of a codebook fits the codes and the decision.
[[nodiscard]] inline bool has_size(std::span<const float> codebook, Decision decision) {
  if (decision != Decision::kNearest) return codebook.size() == 16;
  return codebook.size() >= 2 && codebook.size() <= kMaxCodebookSize;
}

/// The largest float below x.
inline float next_below(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x);
  if (x == 0) return bit_cast<float>(0x80000001u);
  return bit_cast<float>(x > 0 ? bits - 1 : bits + 1);
}

/// Prepares the table that finds codes.
void prepare_search(std::span<const float> codebook, Decision decision, loops::CodeSearch& search);

/// quantize_codebook with a prepared codebook.
[[nodiscard]] Status quantize_prepared(std::span<const float> x, Blocks blocks, std::span<const float> absmax,
                                       const loops::CodeSearch& search, std::span<uint8_t> codes);

/// Calls f(offset, size, block) for every stretch of n elements that lies in one block.
template <class F>
void for_each_block(size_t n, Blocks blocks, F f) {
  uint64_t left = blocks.size - blocks.offset;
  for (size_t i = 0, block = 0; i < n; block++, left = blocks.size) {
    const size_t size = n - i < left ? n - i : static_cast<size_t>(left);
    f(i, size, block);
    i += size;
  }
}

/// Calls f(floats, factor) for pieces of x in order. The products floats * factor are the quotients x / absmax. If 1 / absmax is
/// not finite, the floats are those of x times 2^64. If absmax is 0, the factor is 0.
template <class F>
void with_factor(std::span<const float> x, float absmax, F f) {
  const float factor = absmax == 0 ? 0 : 1 / absmax;
  if (is_finite(factor)) {
    f(x, factor);
    return;
  }
  constexpr float kRaise = 0x1p64f;
  float raised[512];
  for (size_t i = 0; i < x.size(); i += std::size(raised)) {
    const std::span<const float> some = x.subspan(i, std::min(std::size(raised), x.size() - i));
    for (size_t j = 0; j < some.size(); j++) raised[j] = some[j] * kRaise;
    f(std::span<const float>(raised, some.size()), 1 / (absmax * kRaise));
  }
}

/// Sorts at most kMaxCodebookSize items by insertion. For this size it takes less code than std::sort, and hardly more time.
template <class T, class Less>
void sort_few(T* things, size_t n, Less less) {
  for (size_t i = 1; i < n; i++) {
    const T moved = things[i];
    size_t to = i;
    for (; to > 0 && less(moved, things[to - 1]); to--) things[to] = things[to - 1];
    things[to] = moved;
  }
}

}  // namespace scalepoint
