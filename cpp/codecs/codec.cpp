#include "codec.h"

namespace scalepoint::codecs {

std::byte* Arena::take_bytes(uint64_t bytes) {
  const uint64_t begin = (used_ + 15) / 16 * 16;
  used_ = begin + bytes;
  return used_ > room_ ? nullptr : base_ + begin;
}

Status Arena::status() const {
  return used_ > room_ || reinterpret_cast<uintptr_t>(base_) % 16 != 0 ? Status::kSizeMismatch : Status::kOk;
}

}  // namespace scalepoint::codecs
