// Blocks of ggml, as GGUF files hold them.
#pragma once

#include "codecs/codec.h"
#include "ggml/ggml_blocks.h"

namespace scalepoint::codecs {

struct Ggml {
  BlockType to = BlockType::kQ8_0;
  BlockSearch search = BlockSearch::kUsual;
};

/// Blocks of neighbors, byte for byte as ggml makes them. Part: data. With the importance of columns, the rows of the tile are those of
/// the tensor.
/// Special: NaN and infinities are problems. So is a block that needs a scale beyond float16: kOverflow, at its first
///          element of largest magnitude. NaN and infinities have priority, wherever they are.
/// Status:  those of check and Arena; kBadDType for unsupported types; kBadLayout unless the tile holds whole blocks.
[[nodiscard]] Status encode(const Tile& tile, const Ggml& ggml, Arena& arena, Encoded& result) noexcept;

/// The same for whole rows that pass their errors on. OutputJudge chooses the rows that take these blocks; all keep those of `encode`
/// if errors leave the range of the type. A measured tile has the errors of outputs before and after.
/// Status: also kBadDType for types without feedback.
[[nodiscard]] Status encode_with_feedback(const Tile& tile, const Ggml& ggml, const Moments& moments, Arena& arena,
                                          Encoded& result) noexcept;

}  // namespace scalepoint::codecs
