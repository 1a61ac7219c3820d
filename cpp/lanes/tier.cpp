#include "lanes/tier.h"

#include "lanes/lanes.h"

namespace scalepoint {

bool is_simd() noexcept {
#ifdef SCALEPOINT_SIMD_LANES
  return true;
#else
  return false;
#endif
}

}  // namespace scalepoint
