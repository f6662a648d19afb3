// Pipelines to loops with commits, waits and releases: part of synchronise().
#pragma once
#include <functional>

#include "lowering/group_batches.h"
#include "lowering/loop_ir.h"

namespace kachel::lowering {

// Whether a body is nothing but wgmma on accumulators that nothing else in it touches.
bool only_products(const LoopBlock& body);
// Whether there is wgmma in it.
bool issues(const LoopBlock& body);

LoopStmt marker(LoopIntrinsic::Kind kind, int64_t groups = 0);

// Of asynchronous copies. `consume` is synchronised; with `overlapped` its last batch is still under way.
void expand_async(const LoopPipeline& node, LoopBlock consume, bool overlapped, GroupBatches* batches, LoopBlock* out);

// The consumers' part of a pipeline that the copy engine fills. `synchronised` writes a part of node.consume with its
// barriers and waits; parts may be asked for twice.
void expand_bulk(const LoopPipeline& node, GroupBatches* batches,
                 const std::function<void(const LoopBlock& part, LoopBlock* out)>& synchronised, LoopBlock* out);

}  // namespace kachel::lowering
