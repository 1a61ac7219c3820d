// The tier that a module was built for.
#pragma once

namespace scalepoint {

/// True in the SIMD tier, false in the scalar one.
[[nodiscard]] bool is_simd() noexcept;

}  // namespace scalepoint
