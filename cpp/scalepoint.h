// Scalepoint core: float32 arrays to small integers with a scale and a zero point, and back.
//
// Each of these headers declares the public functions of one topic. A caller includes the headers of other topics by themselves:
//   codecs/X.h                          a tile of floats to the parts of a tensor in a file, and back; codecs/codec.h describes all codecs
//   search/search.h, search/rotation.h  vector search over codes of 1, 2, 4 and 8 bits
//   calibration/*.h                     second moments of the inputs of a matrix, and rounding with error feedback (GPTQ)
//   language/*.h                        a transformer between its matrix products; likelihoods of tokens
//
// Status   A function that can fail returns a Status, whose words are in arrays/status.h; its comment lists those that it gives. It
//          throws nothing. Outputs are undefined unless the status is kOk or a comment defines them.
// Memory   Inputs and outputs are spans of the caller, which do not overlap unless a comment allows it. Functions keep no pointers, and
//          allocate nothing; codecs take memory from an arena of the caller. Where a size does not follow from other sizes, a function
//          computes it: packed_bytes, blocks_bytes, layer_bytes, search_scratch_size. Pointers need the alignment of their elements and
//          no more, unless a comment asks for it: codes of 16 bits lie at even addresses.
// Sizes    Counted in elements unless a name says bytes. Arrays may have any size that fits into memory. Limits of single topics are in
//          their headers, such as DType, kMaxZeroPoint (lanes/round.h) and kMaxDimension (search/search.h).
// Threads  Calls may run in several threads at once if none writes memory that another one uses.
// Results  depend on the arguments alone: all builds and machines with IEEE 754 arithmetic in round-to-nearest mode give the same bytes.
//          Options such as -ffast-math would change them.
#pragma once

#include "arrays/dtype.h"
#include "arrays/error_sums.h"
#include "arrays/layout.h"
#include "arrays/linear.h"
#include "arrays/metrics.h"
#include "arrays/min_max.h"
#include "arrays/minifloat.h"
#include "arrays/pack_bits.h"
#include "arrays/qparams.h"
#include "arrays/spec.h"
#include "arrays/status.h"
#include "codebooks/absmax.h"
#include "codebooks/codebook.h"
#include "codebooks/codebook_learning.h"
#include "ggml/ggml_blocks.h"
#include "lanes/round.h"
#include "lanes/tier.h"
#include "layers/layer.h"
#include "ranges/histogram.h"
#include "ranges/range_search.h"
