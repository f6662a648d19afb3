// Pipelines to loops with commits, waits and releases: part of synchronise().
#pragma once
#include <functional>

#include "lowering/group_batches.h"

namespace kachel::lowering {

// Writes a part of LoopPipeline::consume with its barriers and waits; parts may be asked for twice.
using Synchronised = std::function<void(const LoopBlock& part, LoopBlock* out)>;

// Of asynchronous copies.
void expand_async(const LoopPipeline& node, GroupBatches* batches, const Synchronised& synchronised, LoopBlock* out);
// The consumers' part of a pipeline that the copy engine fills.
void expand_bulk(const LoopPipeline& node, GroupBatches* batches, const Synchronised& synchronised, LoopBlock* out);

}  // namespace kachel::lowering
