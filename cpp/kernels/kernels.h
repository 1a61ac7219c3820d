// The loops that have no topic header of their own at their callers yet.
#pragma once

#include "linear.h"
#include "metrics.h"
#include "range.h"
