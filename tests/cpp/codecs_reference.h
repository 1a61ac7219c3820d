// The oracle of the codecs, in the manner of reference.h: the slow and obvious way, sharing no code with cpp/.
#pragma once

#include "codecs/compressed_tensors.h"
#include "reference.h"

namespace scalepoint::reference {

using codecs::ElementType;

/// The bytes of single elements, each rounded half to even.
std::vector<uint8_t> store_elements(const std::vector<double>& values, ElementType type);
/// Their values.
std::vector<double> load_elements(const std::vector<uint8_t>& bytes, ElementType type);

/// Result for a tile of floats in the layout of compressed-tensors.
struct CompressedTile {
  std::vector<float> scale;
  std::vector<int32_t> zero_point;
  std::vector<int32_t> codes;
  std::vector<float> restored;
  std::vector<uint8_t> data_bytes, scale_bytes, zero_point_bytes;
};

/// Scales and zero points, one a run, from the smallest and largest values.
CompressedTile compressed_parameters(const std::vector<Range>& ranges, const codecs::CompressedTensors& codes);

/// The parameters of a tile's runs.
CompressedTile compressed_parameters(const std::vector<float>& x, size_t rows, size_t columns,
                                     const codecs::CompressedTensors& codes);

/// Adds codes and bytes to parameters.
void compress(const std::vector<float>& x, size_t rows, size_t columns, const codecs::CompressedTensors& codes,
              CompressedTile& tile);

/// The bytes of parameters alone.
void store_parameters(size_t rows, const codecs::CompressedTensors& codes, CompressedTile& tile);

}  // namespace scalepoint::reference
