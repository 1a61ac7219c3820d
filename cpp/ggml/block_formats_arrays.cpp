// The block types of the small module.
#include "ggml/block_formats.h"

namespace scalepoint {
namespace {

constexpr BlockFormat kTypes[] = {kQ4_0Format, kQ8_0Format};
constexpr BlockFormats kFormats = {kTypes};

}  // namespace

const BlockFormats& block_formats() noexcept { return kFormats; }

}  // namespace scalepoint
