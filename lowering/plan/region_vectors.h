// Spaces of regions that touch tensors, and no fragment along their last axis: who has which of their elements.
#pragma once
#include "lowering/plan/placement.h"
#include "lowering/plan/spaces.h"

namespace kachel::lowering {

// Neighbours along the last axis of a region, or of what its reduction adds up, that one access to tensors serves, a
// power of two: of 16 bytes of the widest type that it writes, or reads if it writes none, as far as no thread is left
// without. 1 where some write goes element by element in any case, or as many accesses do as do not: for those, threads
// beside each other belong to neighbours.
int64_t region_vector(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask, const Space& space,
                      int64_t threads);

// The same along the last axis of a reduction's results, for what it adds up.
int64_t results_vector(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask, const Space& space,
                       int64_t threads);

// Whether a region reads tensors element by element along its last axis, and nothing else that differs along it.
bool reads_singly(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask, const ir::ParallelStmt& region);

// The axis of such a region whose neighbours lie beside each other in tensors: the one that all of their last indices
// follow. Nothing: there is no such axis, or they follow others as well.
std::optional<size_t> gathered_axis(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask,
                                    const ir::ParallelStmt& region);

// The layout of a space that no fragment is accessed in; nothing: it is dealt out in cyclic order. Where a region only
// moves between tensors and all threads have as much of it, its iterations are written out by the layout, so that the
// loads of several are under way together.
std::optional<FragmentLayout> layout_of_tensors(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask,
                                                const Space& space, int64_t threads);

}  // namespace kachel::lowering
