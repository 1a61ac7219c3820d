// What can go wrong in the core. Every fallible function returns one of these and never throws.
#pragma once

#include <cstdint>

namespace scalepoint {

enum class Status : int32_t {
  kOk = 0,
  kBadDType = 1,      ///< not one of int2..int8, uint2..uint8, int16, uint16
  kBadLayout = 2,     ///< a size of the layout is 0, or a run crosses the end of the data
  kSizeMismatch = 3,  ///< two spans that belong together differ in length
  kBadRange = 4,      ///< a range bound is not finite, or min > max
  kBadScale = 5,      ///< a scale is not finite and positive
  kBadZeroPoint = 6,  ///< a zero point is larger than kMaxZeroPoint in size
  kNonFinite = 7,     ///< the data hold NaN or an infinity and the policy is NonFinite::kError
  kOverflow = 8,      ///< a block's scale is larger than its float format holds
};

}  // namespace scalepoint
