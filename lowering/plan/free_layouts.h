// Layouts that no instruction demands: what infer_layouts.cc asks where it is free to choose.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "lowering/plan/spaces.h"

namespace kachel::lowering {

// The layout of a space of that shape, of which `part` lies along `axes`: what is left over of its other axes goes to
// the part's replicas, then to registers; `vector` neighbours along the last one, a part of its extent, to a thread.
FragmentLayout extended(const FragmentLayout& part, const std::vector<size_t>& axes, const std::vector<int64_t>& shape,
                        int64_t vector);

// Sums of which the fragment is an operand that results beside each other share, as a filter's taps are; null: there
// are none, or fewer results than threads. It follows the layout of the results: by its own, threads would share sums.
Space* sums_that_share(std::vector<Space>* spaces, const ir::Buffer& fragment, int64_t threads);
// The layout of the results, what is added up in each of their threads; nothing: they have none.
std::optional<FragmentLayout> by_results(const Space& sums, const std::map<const ir::Buffer*, FragmentLayout>& layouts);

// Lays out sums of fewer results than threads that no fragment spans, x[m, j] * w[n, j], as the operand lies that is
// laid out already: results and other operands follow. Those that loops carry along, `carried`, which are added up in
// parts so; of others each thread would have to work with all results. Returns whether there are such.
bool lay_out_by_operand(std::vector<Space>* spaces, const std::map<const ir::Buffer*, FragmentLayout>& layouts,
                        const std::set<const ir::ParallelStmt*>& carried, int64_t threads);
// How many of those have the fragment as an operand.
int64_t sums_of(const ir::Buffer& fragment, const std::vector<Space>& spaces,
                const std::set<const ir::ParallelStmt*>& carried);

inline constexpr int64_t kVectorBytes = 16, kWordBytes = 4;

// Elements of one access of at most so many bytes to the tensors or tiles that a fragment is copied to or from; 0:
// there are none.
using Accessed = std::function<int64_t(const ir::Buffer* fragment, int64_t most_bytes)>;
// Elements of one store at most to any tensor that the fragment is copied to; 0: there is none.
using Stored = std::function<int64_t(const ir::Buffer* fragment)>;
// Neighbours along its last axis that a thread holds, for wide accesses; no more than one store has of any fragment
// that follows the layout, since two in turn would write half of each sector. A fragment that is only computed, from
// memory mostly, leaves rows to threads, which read what these share once, but no less than a word of what it ends in.
// Where nothing is added up, as few as leave no thread without, and no less than a word.
int64_t free_vector(const ir::Buffer& fragment, const std::vector<Space>& spaces, const Accessed& accessed,
                    const Stored& stored, int64_t threads);

// The axis of a fragment of results, not its last one, along which windows of what they are reduced from slide:
// sum[a < 3](x[i + a, j]).
std::optional<size_t> sliding_axis(const ir::Buffer& fragment, const std::vector<Space>& spaces);
// The same layout with neighbours along the axis in one thread, whose windows share most elements.
FragmentLayout with_neighbours(const FragmentLayout& layout, size_t axis);

// The axis of a fragment, not its last one, along whose neighbours lie in memory what a region makes its elements of:
// o[j, i] = tile[i, j].
std::optional<size_t> turned_axis(const ir::Buffer& fragment, const std::vector<Space>& spaces);
// For such a one, `vector` neighbours along the last axis in a thread. Lanes beside each other share a sector of what
// is stored by rows, then go along `axis`, to different banks. Nothing where the shape is not made of such parts.
std::optional<FragmentLayout> turned_layout(const ir::Buffer& fragment, size_t axis, int64_t vector, int64_t threads);

// The layout of a fragment whose elements are read one by one from memory, where neighbours along `axis`, which is not
// the last one, lie beside each other: lanes go along it, and `vector` neighbours along the last one, a part of its
// extent, belong to a thread, which stores them together.
FragmentLayout gathered_layout(const std::vector<int64_t>& shape, size_t axis, int64_t vector, int64_t threads);

// The axis of a fragment along which a prefix reduction runs or elements are exchanged, if that is so.
std::optional<size_t> connected_axis(const ir::Buffer& fragment, const std::vector<Space>& spaces);
// For such a one. A thread holds neighbours along the axis: along the last one as many as one access takes to or from
// tensors, if fragments of its spaces are copied there or regions store it (`stored` elements at once; 0: none does), for
// lanes beside each other are to share sectors; else what leaves no thread without. Rows lie in one warp, so that nothing needs memory of the block, where there are
// enough for all warps and their threads have room for them.
FragmentLayout connected_layout(const ir::Buffer& fragment, size_t axis, const std::vector<Space>& spaces,
                                const Accessed& accessed, int64_t threads, int64_t stored);

}  // namespace kachel::lowering
