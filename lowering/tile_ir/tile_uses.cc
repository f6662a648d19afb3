#include "lowering/tile_ir/tile_uses.h"

#include <algorithm>

#include "lowering/tile_ir/reduce_ops.h"

namespace kachel::lowering {

void note_loads(const ir::ExprRef& expr, BufferSet* buffers) {
  if (!expr) return;
  ir::visit(expr, [&](const ir::ExprRef& node) {
    if (node->kind == ir::ExprKind::kLoad) buffers->insert(node->buffer.get());
  });
}

void note_uses(const ir::TileRef& tile, BufferSet* buffers) {
  buffers->insert(tile.buffer.get());
  for (const ir::AxisSpec& axis : tile.axes) {
    note_loads(axis.start, buffers);
    if (axis.gather) note_uses(*axis.gather, buffers);
  }
  note_loads(tile.within_first, buffers);
  note_loads(tile.within_length, buffers);
}

namespace {

class Uses {
 public:
  explicit Uses(BufferSet* buffers) : buffers_(buffers) {}

  void operator()(const ir::DeclStmt& decl) {
    buffers_->insert(decl.buffer.get());
    note_loads(decl.init, buffers_);
  }
  void operator()(const ir::LetStmt& let) { note_loads(let.value, buffers_); }
  void operator()(const ir::CopyStmt& copy) {
    note_uses(copy.dst, buffers_);
    note_uses(copy.src, buffers_);
  }
  void operator()(const ir::FillStmt& fill) {
    note_uses(fill.dst, buffers_);
    note_loads(fill.value, buffers_);
  }
  void operator()(const ir::GemmStmt& gemm) {
    for (const ir::TileRef* tile : {&gemm.c, &gemm.a, &gemm.b}) note_uses(*tile, buffers_);
  }
  void operator()(const ir::ParallelStmt& region) { block(region.body); }
  void operator()(const ir::AssignStmt& assign) {
    buffers_->insert(assign.buffer.get());
    for (const ir::ExprRef& index : assign.indices) note_loads(index, buffers_);
    note_loads(assign.value, buffers_);
  }
  void operator()(const ir::ForStmt& loop) {
    note_loads(loop.begin, buffers_);
    note_loads(loop.end, buffers_);
    block(loop.body);
  }
  void operator()(const ir::IfStmt& branch) {
    note_loads(branch.condition, buffers_);
    block(branch.then_body);
    block(branch.else_body);
  }

 private:
  void block(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) note_uses(stmt, buffers_);
  }
  BufferSet* buffers_;
};

class Replacement {
 public:
  Replacement(const ir::BufferRef& from, const ir::BufferRef& to) : from_(from), to_(to) {}

  void operator()(ir::DeclStmt& decl) { expr(&decl.init); }
  void operator()(ir::LetStmt& let) { expr(&let.value); }
  void operator()(ir::CopyStmt& copy) { tile(&copy.dst), tile(&copy.src); }
  void operator()(ir::FillStmt& fill) {
    tile(&fill.dst);
    expr(&fill.value);
  }
  void operator()(ir::GemmStmt& gemm) { tile(&gemm.c), tile(&gemm.a), tile(&gemm.b); }
  void operator()(ir::ParallelStmt& region) { block(&region.body); }
  void operator()(ir::AssignStmt& assign) {
    buffer(&assign.buffer);
    for (ir::ExprRef& index : assign.indices) expr(&index);
    expr(&assign.value);
  }
  void operator()(ir::ForStmt& loop) {
    expr(&loop.begin);
    expr(&loop.end);
    block(&loop.body);
  }
  void operator()(ir::IfStmt& branch) {
    expr(&branch.condition);
    block(&branch.then_body);
    block(&branch.else_body);
  }

 private:
  void block(ir::Block* body) {
    for (ir::Stmt& stmt : *body) std::visit(*this, stmt.node);
  }
  void buffer(ir::BufferRef* named) {
    if (*named == from_) *named = to_;
  }
  void expr(ir::ExprRef* value) {
    *value = ir::rewrite(*value, [&](const ir::ExprRef& node) {
      return node->kind == ir::ExprKind::kLoad && node->buffer == from_ ? ir::make_load(to_, node->args) : node;
    });
  }
  void tile(ir::TileRef* ref) {
    buffer(&ref->buffer);
    expr(&ref->within_first);
    expr(&ref->within_length);
    for (ir::AxisSpec& axis : ref->axes) {
      expr(&axis.start);
      if (!axis.gather) continue;
      axis.gather = std::make_shared<ir::TileRef>(*axis.gather);  // of this kernel alone
      tile(axis.gather.get());
    }
  }

  const ir::BufferRef from_, to_;
};

}  // namespace

void replace_uses(const ir::BufferRef& from, const ir::BufferRef& to, ir::Stmt* stmt) {
  std::visit(Replacement(from, to), stmt->node);
}

void note_uses(const ir::Stmt& stmt, BufferSet* buffers) {
  std::visit(Uses(buffers), stmt.node);
}

ir::TileRef whole_tile(const ir::BufferRef& tile) {
  return {tile, std::vector<ir::AxisSpec>(tile->shape.size()), nullptr, nullptr, nullptr, {}};
}

bool has_whole_axes(const ir::TileRef& slice) {
  return !slice.within_first && std::all_of(slice.axes.begin(), slice.axes.end(), [](const ir::AxisSpec& axis) {
    return axis.kind == ir::AxisSpec::Kind::kWhole;
  });
}

std::vector<size_t> kept_axes(const ir::TileRef& slice) {
  std::vector<size_t> kept;
  for (size_t i = 0; i < slice.axes.size(); ++i)
    if (slice.axes[i].kind != ir::AxisSpec::Kind::kIndex) kept.push_back(i);
  return kept;
}

bool is_unwritten(const ir::Buffer& buffer) {
  return buffer.scope == ir::Scope::kGlobal && buffer.direction == ir::Direction::kIn;
}

bool is_unchanging(const ir::ExprRef& value) {
  bool unchanging = true;
  ir::visit(value, [&](const ir::ExprRef& node) {
    unchanging &= !ir::is_reduction(*node) && (node->kind != ir::ExprKind::kLoad || is_unwritten(*node->buffer));
  });
  return unchanging;
}

void note_writes(const ir::Stmt& stmt, BufferSet* buffers) {
  ir::for_each_tile(stmt, [&](const ir::TileRef& tile, bool written) {
    if (written) buffers->insert(tile.buffer.get());
  });
  auto block = [&](const ir::Block& body) {
    for (const ir::Stmt& inner : body) note_writes(inner, buffers);
  };
  if (const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node)) buffers->insert(assign->buffer.get());
  if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) block(region->body);
  if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) block(loop->body);
  if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) block(branch->then_body), block(branch->else_body);
}

int64_t elements_of(const ir::Buffer& tile) {
  int64_t all = 1;
  for (const ir::ExprRef& extent : tile.shape) all *= extent->int_value;
  return all;
}

int64_t uses_of(const ir::Buffer* buffer, const ir::Block& body, Ways ways) {
  int64_t uses = 0;
  for (const ir::Stmt& stmt : body) {
    BufferSet used;
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) {
      uses += uses_of(buffer, loop->body, ways);
      note_loads(loop->begin, &used);
      note_loads(loop->end, &used);
    } else if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
      const int64_t holds = uses_of(buffer, branch->then_body, ways), other = uses_of(buffer, branch->else_body, ways);
      uses += ways == Ways::kAll ? holds + other : std::max(holds, other);
      note_loads(branch->condition, &used);
    } else if (const auto* decl = std::get_if<ir::DeclStmt>(&stmt.node)) {
      note_loads(decl->init, &used);
    } else {
      note_uses(stmt, &used);
    }
    uses += used.count(buffer) != 0;
  }
  return uses;
}

ir::Kernel with_declared(const ir::Kernel& kernel, const std::vector<ir::BufferRef>& tiles, ir::Block body) {
  ir::Kernel out = kernel;
  out.body.clear();
  for (const ir::BufferRef& tile : tiles) out.body.push_back({tile->loc, ir::DeclStmt{tile, nullptr}});
  for (ir::Stmt& stmt : body) out.body.push_back(std::move(stmt));
  return out;
}

ir::ParallelStmt region_over(const std::vector<ir::ExprRef>& shape, std::vector<ir::ExprRef>* places) {
  ir::ParallelStmt region;
  for (const ir::ExprRef& extent : shape) {
    const char* name = places->empty() ? "i" : "j";
    const auto var = std::make_shared<ir::Var>(ir::Var{ir::VarKind::kParallel, name, {ir::DType::I64, nullptr}, {}});
    region.iters.push_back({var, extent});
    places->push_back(ir::make_var(var));
  }
  return region;
}

ir::ParallelStmt combined_into(ir::ReduceOp op, const ir::BufferRef& to, const ir::BufferRef& from, ir::Loc loc) {
  std::vector<ir::ExprRef> places;
  ir::ParallelStmt region = region_over(from->shape, &places);
  ir::AssignStmt both{to, places};
  both.value = combined(op, ir::make_load(to, places), ir::make_load(from, places));
  region.body.push_back({loc, std::move(both)});
  return region;
}

bool is_own_element(const ir::ExprRef& expr, const std::vector<ir::IterVar>& iters) {
  if (expr->kind != ir::ExprKind::kLoad || expr->args.size() != iters.size()) return false;
  for (size_t i = 0; i < expr->args.size(); ++i)
    if (expr->args[i]->kind != ir::ExprKind::kVar || expr->args[i]->var != iters[i].var) return false;
  return true;
}

}  // namespace kachel::lowering
