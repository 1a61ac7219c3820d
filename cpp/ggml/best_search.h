// Blocks with lower errors than those of ggml's own searches, in ggml's form.
#pragma once

#include <cstddef>
#include <span>

namespace scalepoint {

struct BlockFormat;

/// Replaces blocks by those of a longer search where that lowers the sum of the squared errors, each times the weight of its column. Without
/// importance, all columns have the same weight. With it, the weight is importance / mean + 0.2, where the mean is that of all columns.
/// All of x is finite. `out` holds n blocks of a `searched` type, which follow from x. `importance` is empty, or has the length of a row
/// of whole blocks, and is finite and not negative.
void improve_blocks(const BlockFormat& format, const float* x, size_t n, std::span<const float> importance, std::byte* out);

}  // namespace scalepoint
