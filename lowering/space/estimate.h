// How long a configuration is likely to take, from its tile extents alone: enough to leave out what a cost model, or a
// measurement, need not look at. Comparable among the configurations of one kernel only.
//
// On a GPU an iteration of the loops that fill tiles takes as long as its products, or as its bytes from the L2, or as
// its share of the memory's latency that stages and neighbouring blocks do not hide; per multiply-add, times what
// padding adds to the work, times what the last wave of blocks leaves idle. Without products it is the bytes, and what
// a block costs by itself.
//
// On a CPU a product is better the more often a tile's rows and columns are used, as long as the tiles that an
// iteration touches stay in the second-level cache; without products, tiles are to be long enough for the loop around
// them to be cheap and short enough for the first-level cache.
#pragma once
#include "lowering/space/outline.h"

namespace kachel::lowering {

double estimate(const Outline& outline, const Footprint& footprint);

}  // namespace kachel::lowering
