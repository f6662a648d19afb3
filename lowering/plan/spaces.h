// Where fragments meet: the iteration spaces of regions, reductions and copies, with the fragments accessed in them.
// What layout inference (infer_layouts.cc) works on.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/kernel.h"
#include "lowering/plan/fragment_layout.h"
#include "lowering/plan/turned_sums.h"
#include "lowering/tile_ir/exchanges.h"

namespace kachel::lowering {

struct Space {
  // Element [.., i_a, ..] of the fragment is accessed in iteration [.., i_axes[a], ..]; with `pairs`, of its last axis
  // elements 2 * i and 2 * i + 1. Axes of one element may have none: all iterations access it.
  struct Use {
    ir::BufferRef buffer;
    std::vector<size_t> axes;  // or FragmentLayout::kNoAxis
    bool pairs = false;
    int64_t first = 0, extent = 0;  // with `extent`, of the last axis elements first + i of so many
    bool leading = false;           // there are fewer iterations than elements: those elements that come first
    // With `group` above 1 an axis of the fragment, `grouped`, is one of groups of so many neighbours: two axes of the
    // space stand for it, which `axes` has both; or with `quotient` one, of which each group has an element.
    int64_t group = 1;
    size_t grouped = 0;
    bool quotient = false;
    size_t spanned() const;  // axes of the space
    bool is_plain() const { return !pairs && !extent && group == 1; }
  };
  // The layout of what the use takes as one element, of a fragment that is held in `layout`. Nothing where that parts a
  // pair, or a part among threads that do not hold it alike.
  std::optional<FragmentLayout> held(const Use& use, const FragmentLayout& layout) const;

  std::vector<int64_t> shape;
  std::vector<Use> uses;
  const ir::ParallelStmt* region = nullptr;  // null: a copy between fragments
  bool reduction = false;                    // the region's own axes first, then those reduced away
  std::optional<Exchange> exchange;          // what the region is; both of its tiles lie as its iterations do
  bool turn = false;  // it is one (turned_sums.h), whose tiles lie as turned() has it, each alone
  std::optional<FragmentLayout> layout;
};

// Columns of the fragment that an iteration uses at once, of 1, 2, 4 and 8 the most that are neighbours in some space.
int64_t columns_together(const std::vector<Space>& spaces, const ir::Buffer& fragment);

class SpaceCollector {
 public:
  // REQUIRES: from hoist_reductions(); outlives the collector.
  explicit SpaceCollector(const ir::Kernel& kernel);

  const std::vector<const ir::GemmStmt*>& gemms() const { return gemms_; }
  // The fragments that cannot be in registers wherever the rest is, and why.
  const std::map<const ir::Buffer*, std::string>& memory_tiles() const { return memory_; }
  // Without the fragments in `memory`, and turns.
  std::vector<Space> spaces(const std::map<const ir::Buffer*, std::string>& memory) const;
  // The other side of a copy from or to a tile.
  struct Copied {
    ir::BufferRef other;
    ir::AtomicOp atomic;
    bool stored;  // `other` is written
  };
  // Those of which both tiles are in registers.
  std::vector<Turn> turns(const std::map<const ir::Buffer*, std::string>& memory) const;
  static std::vector<Copied> copies_of(const ir::Kernel& kernel, const ir::Buffer* tile);

 private:
  void block(const ir::Block& body);
  void statement(const ir::DeclStmt&) {}
  void statement(const ir::LetStmt& let);
  void statement(const ir::CopyStmt& copy);
  void statement(const ir::FillStmt& fill);
  void statement(const ir::GemmStmt& gemm);
  void statement(const ir::ParallelStmt& region);
  void statement(const ir::AssignStmt&) {}
  void statement(const ir::ForStmt& loop);
  void statement(const ir::IfStmt& branch);

  void demote(const ir::BufferRef& buffer, const char* reason);
  void reads(const ir::ExprRef& expr, const char* reason);  // every fragment that it loads
  void tile(const ir::TileRef& ref);
  bool is_sum(const ir::BufferRef& buffer) const;  // of products so far
  void access(Space* space, const std::vector<ir::VarRef>& vars, const ir::BufferRef& buffer,
              const std::vector<ir::ExprRef>& indices);
  void loads(Space* space, const std::vector<ir::VarRef>& vars, const ir::ExprRef& expr);
  void body(Space* space, const std::vector<ir::VarRef>& vars, const ir::Block& block);

  std::vector<const ir::GemmStmt*> gemms_;
  std::vector<Space> spaces_;
  std::map<const ir::Buffer*, std::string> memory_;
};

}  // namespace kachel::lowering
