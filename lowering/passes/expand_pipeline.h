// Pipelines to loops with commits, waits and releases: part of synchronise().
#pragma once
#include <functional>

#include "lowering/passes/further_registers.h"
#include "lowering/passes/group_batches.h"

namespace kachel::lowering {

// Writes a part of LoopPipeline::consume with its barriers and waits; parts may be asked for twice.
using Synchronised = std::function<void(const LoopBlock& part, LoopBlock* out)>;
// Of asynchronous copies. `fenced`: wgmma reads what was written ahead of the barrier of an iteration.
void expand_async(const LoopPipeline& node, GroupBatches* batches, const Synchronised& synchronised, bool fenced,
                  LoopBlock* out);
// The consumers' part of a pipeline that the copy engine fills. `ranges`: of the kernel.
void expand_bulk(const LoopPipeline& node, const Ranges& ranges, GroupBatches* batches,
                 const Synchronised& synchronised, FurtherRegisters* further, LoopBlock* out);

// Whether an iteration may leave its batch to the next one.
bool overlaps(const LoopPipeline& node);
// The body of an iteration, its batch committed where it may be left, else waited for.
LoopBlock consumed(const LoopPipeline& node, GroupBatches* batches, const Synchronised& synchronised);

}  // namespace kachel::lowering
