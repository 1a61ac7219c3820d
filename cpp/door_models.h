// Records of the door that only calls about model files take.
#pragma once

#include <cstddef>
#include <cstdint>

#include "calibration/block_grids.h"
#include "calibration/factor.h"
#include "calibration/moments.h"
#include "codecs/bitsandbytes.h"
#include "codecs/cast.h"
#include "codecs/comfy.h"
#include "codecs/compressed_tensors.h"
#include "codecs/copy.h"
#include "codecs/dequantize_linear.h"
#include "codecs/elements.h"
#include "codecs/ggml.h"
#include "codecs/gptq.h"
#include "codecs/input_codes.h"
#include "codecs/low_rank.h"
#include "codecs/matmul_bnb4.h"
#include "codecs/matmul_nbits.h"
#include "codecs/microscaled.h"
#include "codecs/mlc.h"
#include "codecs/mlx.h"
#include "codecs/nvfp4_blocks.h"
#include "codecs/scaled_elements.h"
#include "door.h"
#include "language/likelihood.h"
#include "language/transformer.h"

namespace scalepoint::door {

/// The floats of a tile.
struct DecodedTile {
  const float* x;
};

/// Codes of rows that are multiplied with inputs, by the moments of these.
struct MatrixByMoments {
  uint32_t columns;
  uint32_t group_size;  ///< neighbors in a row that share a scale. 0: whole rows
  DType dtype;          ///< of at most 8 bits
  bool symmetric;
  const float* importance;  ///< weights of the squared errors without feedback, one for each column
  const float* scales;      ///< of all groups, with zero_points; null: they are searched for
  const int32_t* zero_points;
};

/// Codes of a byte each, scales and zero points, and their errors.
struct MatrixCodes {
  const std::byte* codes;
  const float* scales;
  const int32_t* zero_points;
  ErrorSums sums;
};

/// The range of a tile, or a problem.
struct ObservedTile {
  codecs::ValueRange range;
  codecs::Problem problem;
};

/// The facts about sets of elements that are larger than a tile, or a problem.
struct ObservedSets {
  const codecs::ValueRange* ranges;
  uint32_t count;
  codecs::Problem problem;
};

/// The damping that factor_moments used.
struct FactorDamping {
  double used;
};

}  // namespace scalepoint::door
