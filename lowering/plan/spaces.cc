#include "lowering/plan/spaces.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "lowering/loop_ir/region_index.h"
#include "lowering/plan/placement.h"
#include "lowering/tile_ir/hoist_reductions.h"
#include "lowering/tile_ir/hoist_scans.h"

namespace kachel::lowering {

using ir::ExprKind;
using ir::ExprRef;

size_t Space::Use::spanned() const {
  return axes.size() - static_cast<size_t>(std::count(axes.begin(), axes.end(), FragmentLayout::kNoAxis));
}

int64_t columns_together(const std::vector<Space>& spaces, const ir::Buffer& fragment) {
  constexpr int64_t kMost = 8;
  int64_t together = 1;
  for (const Space& space : spaces)
    for (const Space::Use& use : space.uses) {
      if (use.buffer.get() != &fragment) continue;
      const bool columns = use.grouped + 1 == fragment.shape.size();
      const int64_t wanted = use.pairs ? 2 : columns ? use.group : 1;
      if (wanted <= kMost && std::has_single_bit(static_cast<uint64_t>(wanted)) &&
          fragment.shape.back()->int_value % wanted == 0)
        together = std::max(together, wanted);
    }
  return together;
}

std::optional<FragmentLayout> Space::held(const Use& use, const FragmentLayout& layout) const {
  if (use.extent) return layout.part(layout.shape().size() - 1, use.first, use.extent);
  if (use.pairs) return layout.pairs();
  if (use.group > 1) return use.quotient ? std::nullopt : layout.split(use.grouped, use.group);
  FragmentLayout held = layout;
  for (size_t i = 0; use.leading && i < use.axes.size(); ++i)
    if (use.axes[i] != FragmentLayout::kNoAxis) held = held.leading(i, shape[use.axes[i]]);
  return held;
}

SpaceCollector::SpaceCollector(const ir::Kernel& kernel) {
  block(kernel.body);
}

std::vector<Space> SpaceCollector::spaces(const std::map<const ir::Buffer*, std::string>& memory) const {
  std::vector<Space> result = spaces_;
  std::erase_if(result, [&](const Space& space) {
    return space.turn && std::none_of(space.uses.begin(), space.uses.end(),
                                      [&](const Space::Use& use) { return memory.count(use.buffer.get()) != 0; });
  });
  for (Space& space : result) {
    std::erase_if(space.uses, [&](const Space::Use& use) { return memory.count(use.buffer.get()) != 0; });
    // A part that goes to memory is written by whoever holds it.
    if (space.uses.size() == 1 && space.uses[0].extent) space.uses.clear();
  }
  return result;
}

std::vector<Turn> SpaceCollector::turns(const std::map<const ir::Buffer*, std::string>& memory) const {
  std::vector<Turn> turns;
  for (const Space& space : spaces_)
    if (space.turn && !memory.count(space.uses[0].buffer.get()) && !memory.count(space.uses[1].buffer.get()))
      turns.push_back({space.uses[0].buffer, space.uses[1].buffer});
  return turns;
}

std::vector<SpaceCollector::Copied> SpaceCollector::copies_of(const ir::Kernel& kernel, const ir::Buffer* tile) {
  std::vector<Copied> found;
  std::function<void(const ir::Block&)> walk = [&](const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* copy = std::get_if<ir::CopyStmt>(&stmt.node)) {
        if (copy->dst.buffer.get() == tile) found.push_back({copy->src.buffer, copy->atomic, false});
        if (copy->src.buffer.get() == tile) found.push_back({copy->dst.buffer, copy->atomic, true});
      } else if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) {
        walk(loop->body);
      } else if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        walk(branch->then_body);
        walk(branch->else_body);
      }
    }
  };
  walk(kernel.body);
  return found;
}

void SpaceCollector::block(const ir::Block& body) {
  for (const ir::Stmt& stmt : body) std::visit([this](const auto& node) { statement(node); }, stmt.node);
}

void SpaceCollector::demote(const ir::BufferRef& buffer, const char* reason) {
  if (buffer->scope == ir::Scope::kFragment) memory_.try_emplace(buffer.get(), reason);
}

void SpaceCollector::reads(const ExprRef& expr, const char* reason) {
  ir::visit(expr, [&](const ExprRef& node) {
    if (node->kind == ExprKind::kLoad) demote(node->buffer, reason);
  });
}

void SpaceCollector::tile(const ir::TileRef& ref) {
  if (!is_whole(ref)) demote(ref.buffer, "a slice of it is used");
  for (const ir::AxisSpec& axis : ref.axes) {
    reads(axis.start, "it is read as an index");
    if (!axis.gather) continue;
    demote(axis.gather->buffer, "it is read as an index");
    tile(*axis.gather);
  }
  reads(ref.within_first, "it is read as a bound");
  reads(ref.within_length, "it is read as a bound");
}

void SpaceCollector::statement(const ir::LetStmt& let) {
  reads(let.value, "every thread reads it");
}
void SpaceCollector::statement(const ir::FillStmt& fill) {
  tile(fill.dst);
  reads(fill.value, "every thread reads it");
}
void SpaceCollector::statement(const ir::ForStmt& loop) {
  reads(loop.begin, "it is read as a bound");
  reads(loop.end, "it is read as a bound");
  block(loop.body);
}
void SpaceCollector::statement(const ir::IfStmt& branch) {
  reads(branch.condition, "every thread reads it");
  block(branch.then_body);
  block(branch.else_body);
}

void SpaceCollector::statement(const ir::GemmStmt& gemm) {
  gemms_.push_back(&gemm);
  tile(gemm.a), tile(gemm.b), tile(gemm.c);
}

bool SpaceCollector::is_sum(const ir::BufferRef& buffer) const {
  return std::any_of(gemms_.begin(), gemms_.end(), [&](const auto* gemm) { return gemm->c.buffer == buffer; });
}

void SpaceCollector::statement(const ir::CopyStmt& copy) {
  const ir::BufferRef &to = copy.dst.buffer, &from = copy.src.buffer;
  tile(copy.dst);
  const std::optional<int64_t> part =
      is_sum(from) && to->scope == ir::Scope::kFragment && is_whole(copy.dst) ? start_of_part(copy.src) : std::nullopt;
  if (!part) tile(copy.src);
  if (to->scope == ir::Scope::kGlobal && ir::bits(to->type.dtype) == 4)
    demote(from, "its elements are packed in pairs");
  auto rank = [](const ir::TileRef& ref) {
    return std::count_if(ref.axes.begin(), ref.axes.end(),
                         [](const ir::AxisSpec& axis) { return axis.kind != ir::AxisSpec::Kind::kIndex; });
  };
  // Axes of one element may be dropped by a tensor's slice, not by a fragment.
  if (rank(copy.dst) != rank(copy.src)) {
    demote(to, "it is copied between tiles of different rank");
    demote(from, "it is copied between tiles of different rank");
  }
  if (to->scope != ir::Scope::kFragment || from->scope != ir::Scope::kFragment) return;
  if (!part && (!is_whole(copy.dst) || !is_whole(copy.src))) return;
  Space space;
  space.shape = tile_shape(to);
  std::vector<size_t> axes;
  for (size_t i = 0; i < space.shape.size(); ++i) axes.push_back(i);
  space.uses = {{to, axes}, {from, axes}};
  if (part) space.uses[1].first = *part, space.uses[1].extent = space.shape.back();
  spaces_.push_back(std::move(space));
}

void SpaceCollector::access(Space* space, const std::vector<ir::VarRef>& vars, const ir::BufferRef& buffer,
                            const std::vector<ExprRef>& indices) {
  if (buffer->scope != ir::Scope::kFragment) return;
  const std::vector<int64_t> shape = tile_shape(buffer);
  std::vector<size_t> axes;
  bool pairs = false, leading = false;
  Space::Use grouped;
  const bool by_groups = space->region && !scan_of(*space->region) && !space->exchange;
  const auto axis_of = [&](const ir::VarRef& var) {
    return static_cast<size_t>(std::find(vars.begin(), vars.end(), var) - vars.begin());
  };
  for (size_t i = 0; i < indices.size(); ++i) {
    const std::optional<GroupIndex> groups = by_groups ? group_index(indices[i]) : std::nullopt;
    if (groups && grouped.group == 1) {
      const size_t inner = axis_of(groups->inner), outer = groups->outer ? axis_of(groups->outer) : inner;
      const bool known = inner < vars.size() && outer < vars.size() && !std::count(axes.begin(), axes.end(), inner) &&
                         !std::count(axes.begin(), axes.end(), outer);
      const bool whole = known && (groups->outer ? space->shape[inner] == groups->group && outer != inner &&
                                                       space->shape[outer] * groups->group == shape[i]
                                                 : space->shape[inner] == shape[i] * groups->group);
      if (whole && shape[i] > 1) {
        grouped.group = groups->group, grouped.grouped = i, grouped.quotient = !groups->outer;
        if (groups->outer) axes.push_back(outer);
        axes.push_back(inner);
        continue;
      }
    }
    // `j / g` of an axis of one group is 0.
    const bool one_group = groups && !groups->outer && axis_of(groups->inner) < vars.size() &&
                           space->shape[axis_of(groups->inner)] <= groups->group;
    if (shape[i] == 1 && (one_group || ir::is_int(indices[i], 0))) {
      axes.push_back(FragmentLayout::kNoAxis);
      continue;
    }
    const std::optional<PairIndex> pair = i + 1 == indices.size() ? pair_index(indices[i]) : std::nullopt;
    const ir::VarRef& var = pair ? pair->var : indices[i]->kind == ExprKind::kVar ? indices[i]->var : nullptr;
    const size_t axis = static_cast<size_t>(std::find(vars.begin(), vars.end(), var) - vars.begin());
    pairs = pair.has_value();
    // The one pair of an axis has no coordinate by which an access could be told from another one's.
    const int64_t accessed = axis < vars.size() ? space->shape[axis] * (pairs ? 2 : 1) : 0;
    if (!accessed || accessed > shape[i] || (pairs && shape[i] == 2) || std::count(axes.begin(), axes.end(), axis))
      return demote(buffer, "it is accessed in another order than it is held");
    leading |= accessed < shape[i];
    axes.push_back(axis);
  }
  if (grouped.group > 1 && (pairs || leading)) return demote(buffer, "it is accessed in another order than it is held");
  if (pairs && leading) return demote(buffer, "it is accessed in another order than it is held");
  for (const Space::Use& use : space->uses)
    if (use.buffer == buffer) {
      if (use.axes != axes || use.pairs != pairs || use.group != grouped.group || use.quotient != grouped.quotient)
        demote(buffer, "it is accessed in two orders in one region");
      return;
    }
  space->uses.push_back(
      {buffer, std::move(axes), pairs, 0, 0, leading, grouped.group, grouped.grouped, grouped.quotient});
}

void SpaceCollector::loads(Space* space, const std::vector<ir::VarRef>& vars, const ExprRef& expr) {
  ir::visit(expr, [&](const ExprRef& node) {
    if (node->kind == ExprKind::kLoad) access(space, vars, node->buffer, node->args);
  });
}

void SpaceCollector::body(Space* space, const std::vector<ir::VarRef>& vars, const ir::Block& block) {
  for (const ir::Stmt& stmt : block) {
    if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node)) {
      loads(space, vars, let->value);
    } else if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) {
      access(space, vars, assign->buffer, assign->indices);
      for (const ExprRef& index : assign->indices) loads(space, vars, index);
      loads(space, vars, assign->value);
    } else if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
      loads(space, vars, branch->condition);
      body(space, vars, branch->then_body);
      body(space, vars, branch->else_body);
    }
  }
}

void SpaceCollector::statement(const ir::ParallelStmt& region) {
  Space space;
  space.region = &region;
  std::vector<ir::VarRef> vars;
  auto add = [&](const std::vector<ir::IterVar>& iters) {
    for (const ir::IterVar& iter : iters) {
      vars.push_back(iter.var);
      space.shape.push_back(iter.extent->int_value);
    }
  };
  add(region.iters);
  space.exchange = exchange_of(region);
  if (space.exchange) {
    std::vector<ExprRef> own;
    for (const ir::VarRef& var : vars) own.push_back(ir::make_var(var));
    for (const ir::BufferRef& tile : {space.exchange->to, space.exchange->from}) access(&space, vars, tile, own);
    spaces_.push_back(std::move(space));
    return;
  }
  const std::optional<Turn> turn = turn_of(region);
  space.turn = turn && is_sum(turn->from) && turn->to->scope == ir::Scope::kFragment;
  if (const ir::Expr* reduce = reduction_of(region)) {
    space.reduction = true;
    add(reduce->iters);
  }
  body(&space, vars, region.body);
  spaces_.push_back(std::move(space));
}

}  // namespace kachel::lowering
