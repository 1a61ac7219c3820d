#include "codecs/gptq_loops.h"

#include <algorithm>

#include "lanes/lanes.h"

namespace scalepoint::loops {
namespace {

/// Rows that are handled together: a cache line of words.
constexpr size_t kRows = 16;
/// Codes that fill whole words in every width.
constexpr size_t kCodes = 32;
/// Shift of row i of eight in a word.
constexpr uint32_t kShifts[8] = {0, 16, 4, 20, 8, 24, 12, 28};

}  // namespace

void unpack_down(const uint32_t* words, size_t rows, size_t columns, int32_t bits, uint8_t* codes) {
  const auto width = static_cast<uint32_t>(bits), mask = (1u << width) - 1;
  for (size_t first = 0; first < rows; first += kRows) {
    const size_t last = std::min(rows, first + kRows);
    for (size_t column = 0; column < columns; column += kCodes) {
      const uint32_t* const from = words + column / kCodes * width * rows;
      for (size_t row = first; row < last; row++) {
        uint8_t* const to = codes + row * columns + column;
        // Bits that are left of the words before.
        uint64_t held = 0;
        uint32_t count = 0;
        const uint32_t* next = from + row;
        SCALEPOINT_NO_UNROLL
        for (size_t i = 0; i < kCodes; i++) {
          if (count < width) {
            held |= uint64_t{*next} << count;
            count += 32;
            next += rows;
          }
          to[i] = static_cast<uint8_t>(held & mask);
          held >>= width;
          count -= width;
        }
      }
    }
  }
}

void pack_down(const uint8_t* codes, size_t rows, size_t columns, int32_t bits, uint32_t* words) {
  const auto width = static_cast<uint32_t>(bits);
  for (size_t first = 0; first < rows; first += kRows) {
    const size_t last = std::min(rows, first + kRows);
    for (size_t column = 0; column < columns; column += kCodes) {
      uint32_t* const to = words + column / kCodes * width * rows;
      for (size_t row = first; row < last; row++) {
        const uint8_t* const from = codes + row * columns + column;
        uint64_t held = 0;
        uint32_t count = 0;
        uint32_t* next = to + row;
        SCALEPOINT_NO_UNROLL
        for (size_t i = 0; i < kCodes; i++) {
          held |= uint64_t{from[i]} << count;
          count += width;
          if (count < 32) continue;
          *next = static_cast<uint32_t>(held);
          held >>= 32;
          count -= 32;
          next += rows;
        }
      }
    }
  }
}

void unpack_across(const uint32_t* words, size_t rows, size_t columns, uint8_t* codes) {
  const size_t width = rows / 8;
  for (size_t word = 0; word < width; word++) {
    uint8_t* const to = codes + word * 8 * columns;
    for (size_t column = 0; column < columns; column++) {
      const uint32_t held = words[column * width + word];
      SCALEPOINT_NO_UNROLL
      for (size_t i = 0; i < 8; i++) to[i * columns + column] = static_cast<uint8_t>(held >> kShifts[i] & 15);
    }
  }
}

void pack_across(const uint8_t* codes, size_t rows, size_t columns, uint32_t* words) {
  const size_t width = rows / 8;
  for (size_t word = 0; word < width; word++) {
    const uint8_t* const from = codes + word * 8 * columns;
    for (size_t column = 0; column < columns; column++) {
      uint32_t held = 0;
      SCALEPOINT_NO_UNROLL
      for (size_t i = 0; i < 8; i++) held |= uint32_t{from[i * columns + column]} << kShifts[i];
      words[column * width + word] = held;
    }
  }
}

void restore_grouped(const uint8_t* codes, const uint32_t* groups, size_t n, const float* scale, const float* zero_point,
                     size_t stride, float* x) {
  for (size_t i = 0; i < n; i++) {
    const size_t group = groups[i] * stride;
    x[i] = scale[group] * (static_cast<float>(codes[i]) - zero_point[group]);
  }
}

}  // namespace scalepoint::loops
