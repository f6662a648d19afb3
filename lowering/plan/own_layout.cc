#include "lowering/plan/own_layout.h"

#include <algorithm>

#include "lowering/plan/carried_state.h"
#include "lowering/plan/copied_widths.h"
#include "lowering/plan/free_layouts.h"
#include "lowering/plan/placement.h"
#include "lowering/plan/region_vectors.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

bool writes_tensors(const ir::ParallelStmt& region) {
  BufferSet written;
  for (const ir::Stmt& stmt : region.body) note_writes(stmt, &written);
  return std::any_of(written.begin(), written.end(),
                     [](const ir::Buffer* buffer) { return buffer->scope == ir::Scope::kGlobal; });
}

// The region that makes it, for shared memory alone, of single elements of tensors, which lanes beside each other
// have beside each other; null: there is none.
const ir::ParallelStmt* gathering(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask,
                                  const std::vector<Space>& spaces, const ir::Buffer& fragment) {
  const auto copies = SpaceCollector::copies_of(kernel, &fragment);
  if (copies.empty() || !std::all_of(copies.begin(), copies.end(), [](const SpaceCollector::Copied& copy) {
        return copy.stored && copy.other->scope == ir::Scope::kShared;
      }))
    return nullptr;
  for (const Space& space : spaces) {
    const bool made = std::any_of(space.uses.begin(), space.uses.end(), [&](const Space::Use& use) {
      return use.buffer.get() == &fragment && use.group == 1 && use.axes.size() == space.shape.size() &&
             use.spanned() == use.axes.size();
    });
    if (made && space.region && reads_singly(kernel, target, fact_mask, *space.region)) return space.region;
  }
  return nullptr;
}

// Whether it is what a reduction's iterations each have one of, in their order.
bool is_results(const ir::Buffer& fragment, const Space& space) {
  if (!space.reduction) return false;
  const size_t own = space.region->iters.size();
  return std::any_of(space.uses.begin(), space.uses.end(), [&](const Space::Use& use) {
    bool in_order = use.buffer.get() == &fragment && use.is_plain() && use.axes.size() == own;
    for (size_t axis = 0; in_order && axis < own; ++axis) in_order = use.axes[axis] == axis;
    return in_order;
  });
}

// Neighbours that accesses serve by which regions store elements of the fragment, or of one that lies as it does, to
// tensors; 0: none do.
int64_t stored_by_regions(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask,
                          const std::vector<Space>& spaces, const ir::Buffer& fragment, int64_t threads) {
  const auto touches = [](const Space& space, const BufferSet& fragments) {
    return std::any_of(space.uses.begin(), space.uses.end(),
                       [&](const Space::Use& use) { return use.is_plain() && fragments.count(use.buffer.get()); });
  };
  BufferSet alike{&fragment};
  for (const Space& space : spaces)
    if (touches(space, {&fragment}))
      for (const Space::Use& use : space.uses)
        if (use.is_plain()) alike.insert(use.buffer.get());
  int64_t vector = 0;
  for (const Space& space : spaces) {
    if (!space.region || !touches(space, alike) || !writes_tensors(*space.region)) continue;
    const int64_t one = region_vector(kernel, target, fact_mask, space, threads);
    vector = vector ? std::min(vector, one) : one;
  }
  return vector;
}

}  // namespace

FragmentLayout own_layout(const ir::Kernel& kernel, const Target& target, uint64_t fact_mask,
                          const std::vector<Space>& spaces, const std::map<const ir::Buffer*, std::string>& memory,
                          const ir::BufferRef& fragment, int64_t threads) {
  const Accessed by = accessed_by_copies(kernel, target, fact_mask, memory);
  const Stored stored_as = stored_by_copies(kernel);
  if (const auto axis = connected_axis(*fragment, spaces))
    return connected_layout(*fragment, *axis, spaces, by, threads,
                            stored_by_regions(kernel, target, fact_mask, spaces, *fragment, threads));
  if (auto state = state_layout(kernel, *fragment, spaces, threads)) return *state;
  int64_t vector = free_vector(*fragment, spaces, by, stored_as, threads);
  for (const Space& space : spaces)
    if (is_results(*fragment, space))
      vector = std::max(vector, results_vector(kernel, target, fact_mask, space, threads));
  if (const ir::ParallelStmt* region = gathering(kernel, target, fact_mask, spaces, *fragment)) {
    const auto axis = gathered_axis(kernel, target, fact_mask, *region);
    if (axis && *axis + 1 < fragment->shape.size())
      return gathered_layout(tile_shape(fragment), *axis, vector, threads);
    vector = std::min(vector, std::max<int64_t>(by(fragment.get(), kWordBytes), 1));
  }
  if (const auto axis = turned_axis(*fragment, spaces))
    if (auto turned = turned_layout(*fragment, *axis, vector, threads)) return *turned;
  const FragmentLayout blocked = FragmentLayout::blocked(tile_shape(fragment), vector, threads);
  const auto sliding = sliding_axis(*fragment, spaces);
  return sliding ? with_neighbours(blocked, *sliding) : blocked;
}

}  // namespace kachel::lowering
