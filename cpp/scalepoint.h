// Scalepoint core: float32 arrays to small integers with a scale and a zero point, and back.
//
// Each of these headers declares the public functions of one topic. No function allocates, throws or keeps a pointer. Sizes are
// counted in elements unless a name says bytes. Results depend on the arguments alone: the scalar and the SIMD build give the
// same bytes. Pointers need the alignment of their elements and no more: codes of 16 bits lie at even addresses.
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
