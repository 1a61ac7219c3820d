#include "codecs_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace scalepoint::reference {
namespace {

using codecs::CompressedTensors;

FloatFormat format_of(ElementType type) { return type == ElementType::kF16 ? kFloat16 : kBfloat16; }

template <class T>
void append(std::vector<uint8_t>& bytes, T value) {
  const auto parts = std::bit_cast<std::array<uint8_t, sizeof(T)>>(value);
  bytes.insert(bytes.end(), parts.begin(), parts.end());
}

template <class T>
T take(const std::vector<uint8_t>& bytes, size_t index) {
  T value;
  std::memcpy(&value, &bytes[index * sizeof(T)], sizeof(T));
  return value;
}

size_t run_size(size_t columns, const CompressedTensors& codes) { return codes.group_size == 0 ? columns : codes.group_size; }

/// A scale as it is stored, as a float.
float rounded(float scale, ElementType type) {
  if (type == ElementType::kF32) return scale;
  return static_cast<float>(decode(encode(scale, format_of(type)), format_of(type)));
}

/// A matrix of codes of `bits` bits in words of 32, packed along the rows; rows are filled up with zeros.
std::vector<uint8_t> pack_rows(const std::vector<uint32_t>& values, size_t rows, size_t columns, int bits) {
  const size_t per_word = 32 / bits, words = (columns + per_word - 1) / per_word;
  std::vector<uint32_t> packed(rows * words, 0);
  for (size_t row = 0; row < rows; row++) {
    for (size_t column = 0; column < columns; column++) {
      packed[row * words + column / per_word] += values[row * columns + column] << (column % per_word * bits);
    }
  }
  std::vector<uint8_t> bytes;
  for (const uint32_t word : packed) append(bytes, word);
  return bytes;
}

}  // namespace

std::vector<uint8_t> store_elements(const std::vector<double>& values, ElementType type) {
  std::vector<uint8_t> bytes;
  bytes.reserve(values.size() * 8);
  for (const double value : values) {
    if (type == ElementType::kF64) {
      append(bytes, value);
    } else if (type == ElementType::kF32) {
      append(bytes, static_cast<float>(value));
    } else if (std::isnan(value)) {
      append(bytes, static_cast<uint16_t>((type == ElementType::kF16 ? 0x7E00 : 0x7FC0) | (std::signbit(value) ? 0x8000 : 0)));
    } else {
      append(bytes, encode(static_cast<float>(value), format_of(type)));
    }
  }
  return bytes;
}

std::vector<double> load_elements(const std::vector<uint8_t>& bytes, ElementType type) {
  std::vector<double> values;
  const size_t size = type == ElementType::kF64 ? 8 : type == ElementType::kF32 ? 4 : 2;
  values.reserve(bytes.size() / size);
  for (size_t i = 0; i < bytes.size() / size; i++) {
    if (type == ElementType::kF64) {
      values.push_back(take<double>(bytes, i));
    } else if (type == ElementType::kF32) {
      values.push_back(take<float>(bytes, i));
    } else {
      values.push_back(decode(take<uint16_t>(bytes, i), format_of(type)));
    }
  }
  return values;
}

CompressedTile compressed_parameters(const std::vector<Range>& ranges, const CompressedTensors& codes) {
  CompressedTile tile;
  const double epsilon = codes.scale == ElementType::kF32   ? std::ldexp(1.0, -23)
                         : codes.scale == ElementType::kF16 ? std::ldexp(1.0, -10)
                                                            : std::ldexp(1.0, -7);
  const double smallest = codes.scale == ElementType::kF32   ? std::ldexp(1.0, -149)
                          : codes.scale == ElementType::kF16 ? std::ldexp(1.0, -24)
                                                             : std::ldexp(1.0, -133);
  const DType dtype = {codes.bits, true};
  const int32_t qmin = lowest_code(dtype), qmax = highest_code(dtype);
  for (const Range& range : ranges) {
    const float low = std::min(range.min, 0.0f), high = std::max(range.max, 0.0f);
    const long double levels = codes.float8 ? 896 : qmax - qmin;
    long double width;
    if (codes.symmetric) {
      width = 2 * static_cast<long double>(std::max(-low, high));
    } else {
      const float difference = high - low;
      width = std::isinf(difference) ? static_cast<long double>(high) - low : difference;
    }
    float scale = rounded(static_cast<float>(width / levels), codes.scale);
    if (scale == 0) scale = static_cast<float>(low == 0 && high == 0 ? epsilon : smallest);
    double zero_point = 0;
    if (!codes.symmetric) {
      const float steps = low / scale;
      const float exact = static_cast<float>(qmin) - steps;
      zero_point = round_half_even(std::min<double>(std::max<double>(exact, qmin), qmax));
    }
    tile.scale.push_back(scale);
    tile.zero_point.push_back(static_cast<int32_t>(zero_point));
  }
  return tile;
}

CompressedTile compressed_parameters(const std::vector<float>& x, size_t rows, size_t columns, const CompressedTensors& codes) {
  const size_t size = run_size(columns, codes);
  std::vector<Range> ranges(rows * columns / size);
  for (size_t i = 0; i < x.size(); i++) {
    Range& range = ranges[i / size];
    range.min = std::min(range.min, x[i] == 0 ? 0.0f : x[i]);
    range.max = std::max(range.max, x[i] == 0 ? 0.0f : x[i]);
  }
  return compressed_parameters(ranges, codes);
}

void store_parameters(size_t rows, const CompressedTensors& codes, CompressedTile& tile) {
  const size_t runs_per_row = tile.scale.size() / rows;
  tile.scale_bytes = store_elements({tile.scale.begin(), tile.scale.end()}, codes.scale);
  tile.zero_point_bytes.clear();
  if (!codes.packed) {
    for (const int32_t zero_point : tile.zero_point) tile.zero_point_bytes.push_back(static_cast<uint8_t>(zero_point));
    return;
  }
  // Packed down the rows: the transposed matrix along its rows, the words transposed back.
  std::vector<uint32_t> transposed;
  for (size_t group = 0; group < runs_per_row; group++) {
    for (size_t row = 0; row < rows; row++) {
      transposed.push_back(static_cast<uint32_t>(tile.zero_point[row * runs_per_row + group] - lowest_code({codes.bits, true})));
    }
  }
  const std::vector<uint8_t> packed = pack_rows(transposed, runs_per_row, rows, codes.bits);
  const size_t words = packed.size() / 4 / runs_per_row;
  for (size_t word = 0; word < words; word++) {
    for (size_t group = 0; group < runs_per_row; group++)
      append(tile.zero_point_bytes, take<uint32_t>(packed, group * words + word));
  }
}

void compress(const std::vector<float>& x, size_t rows, size_t columns, const CompressedTensors& codes, CompressedTile& tile) {
  const size_t size = run_size(columns, codes);
  const DType dtype = {codes.bits, true};
  tile.codes.reserve(x.size());
  tile.restored.reserve(x.size());
  for (size_t i = 0; i < x.size(); i++) {
    const float scale = tile.scale[i / size];
    const int32_t zero_point = tile.zero_point[i / size];
    if (codes.float8) {
      const float quotient = x[i] / scale;
      const uint8_t code = encode_minifloat(quotient, Minifloat::kFloat8E4M3FN, Overflow::kSaturate);
      tile.codes.push_back(code);
      tile.restored.push_back(scale * static_cast<float>(minifloat_value(code, Minifloat::kFloat8E4M3FN)));
    } else {
      tile.codes.push_back(quantize_value(x[i], scale, zero_point, dtype, Rounding::kFused));
      tile.restored.push_back(dequantize_value(tile.codes.back(), scale, zero_point));
    }
  }
  if (codes.packed) {
    std::vector<uint32_t> values;
    for (const int32_t code : tile.codes) values.push_back(static_cast<uint32_t>(code - lowest_code(dtype)));
    tile.data_bytes = pack_rows(values, rows, columns, codes.bits);
  } else {
    tile.data_bytes.clear();
    for (const int32_t code : tile.codes) tile.data_bytes.push_back(static_cast<uint8_t>(code));
  }
  store_parameters(rows, codes, tile);
}

}  // namespace scalepoint::reference
