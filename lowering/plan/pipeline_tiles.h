// Tile IR to tile IR: what a block loads once in front of its pipelined loop,
//
//   q = Q[...];  pipelined n < N, 3 { ... }  ...
//
// becomes a pipeline of one iteration around the rest of the body, `pipelined once < 1, 2 { q = Q[...]; ... }`, so that
// the copy engine can load it for the next tile while this one is computed. Where all of that stands under a condition,
// as of tiles behind the end of a sequence, the pipeline does too.
#pragma once
#include "ir/kernel.h"

namespace kachel::lowering {

// REQUIRES: grid kernel after instantiation. The result shares buffers and variables with `kernel`; it is `kernel`
// itself if there is nothing of that form.
ir::Kernel pipeline_tiles(const ir::Kernel& kernel);

// A pipeline of one iteration, for a tile that is worked on and the next one; its body is to be filled in.
ir::ForStmt single_pipeline(const char* name);
bool is_single(const ir::ForStmt& loop);

// Whether a pipelined loop stands in the body, at any depth.
bool encloses_pipeline(const ir::Block& body);

}  // namespace kachel::lowering
