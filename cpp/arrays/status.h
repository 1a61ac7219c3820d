// Status codes of the core. Every function that can fail returns one of them. No function throws.
#pragma once

#include <cstdint>

namespace scalepoint {

enum class Status : int32_t {
  kOk = 0,
  kBadDType = 1,      ///< unknown or unsupported type; each function documents its types
  kBadLayout = 2,     ///< a size of the layout is 0, or a run crosses the end of the data
  kSizeMismatch = 3,  ///< two spans that belong together differ in length
  kBadRange = 4,      ///< a range bound is not finite, or min > max
  kBadScale = 5,      ///< a scale is not finite and positive
  kBadZeroPoint = 6,  ///< the magnitude of a zero point is above kMaxZeroPoint
  kNonFinite = 7,     ///< the data hold NaN or an infinity, and the policy is NonFinite::kError
  kOverflow = 8,      ///< the scale of a block is larger than its float format holds
  kOutOfMemory = 9,   ///< there is no memory for a result or a temporary value
};

}  // namespace scalepoint
