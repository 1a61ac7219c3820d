// Records of the door that only calls about model files take.
#pragma once

#include <cstddef>
#include <cstdint>

#include "calibration/block_grids.h"
#include "calibration/factor.h"
#include "calibration/moments.h"
#include "codecs/cast.h"
#include "codecs/compressed_tensors.h"
#include "codecs/copy.h"
#include "codecs/dequantize_linear.h"
#include "codecs/elements.h"
#include "codecs/ggml.h"
#include "codecs/matmul_bnb4.h"
#include "codecs/matmul_nbits.h"
#include "door.h"
#include "language/likelihood.h"
#include "language/transformer.h"

namespace scalepoint::door {

/// The floats of a tile.
struct DecodedTile {
  const float* x;
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
