// Scalepoint core: float32 arrays to small integers with a scale and a zero point, and back.
//
// Each of these headers declares the public functions of one topic. No function allocates, throws or keeps a pointer. Sizes are
// counted in elements unless a name says bytes. Results depend on the arguments alone: the scalar and the SIMD build give the
// same bytes. Pointers need the alignment of their elements and no more: codes of 16 bits lie at even addresses.
#pragma once

#include "absmax.h"
#include "blocks.h"
#include "codebook.h"
#include "codebook_learning.h"
#include "dtype.h"
#include "error_sums.h"
#include "histogram.h"
#include "layer.h"
#include "layout.h"
#include "linear.h"
#include "metrics.h"
#include "minifloat.h"
#include "pack.h"
#include "qparams.h"
#include "range.h"
#include "range_search.h"
#include "round.h"
#include "spec.h"
#include "status.h"
