#include "lowering/tile_ir/region_hoister.h"

#include <utility>

#include "ir/parallel.h"
#include "lowering/tile_ir/tile_uses.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;

bool uses(const ExprRef& expr, const ir::VarRef& var) {
  bool found = false;
  ir::visit(expr, [&](const ExprRef& node) { found |= node->kind == ExprKind::kVar && node->var == var; });
  return found;
}

}  // namespace

ir::Kernel RegionHoister::run(const ir::Kernel& kernel) {
  ir::Block rest = block(kernel.body);
  return with_declared(kernel, made_, std::move(rest));
}

ir::Block RegionHoister::block(const ir::Block& in) {
  ir::Block out;
  for (const ir::Stmt& stmt : in) {
    loc_ = stmt.loc;
    out_ = &out;
    std::visit([&](const auto& node) { statement(node, &out); }, stmt.node);
    passed(stmt);
  }
  return out;
}

ir::Block RegionHoister::nested(const ir::Block& in) {
  entered();
  ir::Block out = block(in);
  left();
  return out;
}

ExprRef RegionHoister::replaced(const ExprRef& in, const Iters& iters, const Lets& lets) {
  if (!in) return in;
  if (hoists(in, iters, lets)) return hoisted(inline_lets(in, lets), iters);
  Iters within = iters;
  within.insert(within.end(), in->iters.begin(), in->iters.end());
  bool changed = false;
  std::vector<ExprRef> args;
  for (const ExprRef& arg : in->args) {
    args.push_back(replaced(arg, within, lets));
    changed |= args.back() != arg;
  }
  if (!changed) return in;
  auto copy = std::make_shared<ir::Expr>(*in);
  copy->args = std::move(args);
  return copy;
}

ExprRef RegionHoister::inline_lets(const ExprRef& expr, const Lets& lets) {
  return ir::rewrite(expr, [&](const ExprRef& node) {
    if (node->kind != ExprKind::kVar) return node;
    auto it = lets.find(node->var.get());
    return it == lets.end() ? node : it->second;
  });
}

RegionHoister::Iters RegionHoister::used(const ExprRef& value, const Iters& iters) {
  Iters outer;
  for (const ir::IterVar& iter : iters)
    if (uses(value, iter.var)) outer.push_back(iter);
  return outer;
}

std::vector<ExprRef> RegionHoister::places(const Iters& iters) {
  std::vector<ExprRef> places;
  for (const ir::IterVar& iter : iters) places.push_back(ir::make_var(iter.var));
  return places;
}

ir::IterVar RegionHoister::one() {
  const ir::TypeRef type{ir::DType::I64, nullptr};
  return {std::make_shared<ir::Var>(ir::Var{ir::VarKind::kParallel, "one", type, {}}), ir::make_int(1, ir::DType::I64)};
}

ir::BufferRef RegionHoister::make_tile(const char* name, ir::Scope scope, ir::DType type, const Iters& iters) {
  std::vector<ExprRef> shape;
  for (const ir::IterVar& iter : iters) shape.push_back(iter.extent);
  made_.push_back(std::make_shared<ir::Buffer>(
      ir::Buffer{name, scope, ir::Direction::kInOut, {type, nullptr}, std::move(shape), loc_}));
  return made_.back();
}

// A variable of one region cannot be that of another.
void RegionHoister::push_region(const ir::BufferRef& buffer, const ExprRef& value, const Iters& iters) {
  ir::ParallelStmt region;
  Lets fresh;
  for (const ir::IterVar& iter : iters) {
    auto var = std::make_shared<ir::Var>(*iter.var);
    var->kind = ir::VarKind::kParallel;
    region.iters.push_back({std::move(var), iter.extent});
    fresh[iter.var.get()] = ir::make_var(region.iters.back().var);
  }
  region.body.push_back({loc_, ir::AssignStmt{buffer, places(region.iters), ir::AssignOp::kSet, ir::AtomicOp::kNone,
                                              inline_lets(value, fresh)}});
  out_->push_back({loc_, std::move(region)});
}

ir::TileRef RegionHoister::tile(const ir::TileRef& in) {
  ir::TileRef out = in;
  for (ir::AxisSpec& axis : out.axes) {
    axis.start = uniform(axis.start);
    if (axis.gather) axis.gather = std::make_shared<ir::TileRef>(tile(*axis.gather));
  }
  out.within_first = uniform(in.within_first);
  out.within_length = uniform(in.within_length);
  return out;
}

void RegionHoister::statement(const ir::DeclStmt& decl, ir::Block* out) {
  out->push_back({loc_, ir::DeclStmt{decl.buffer, uniform(decl.init)}});
}
void RegionHoister::statement(const ir::LetStmt& let, ir::Block* out) {
  ExprRef value = uniform(let.value);
  out->push_back({loc_, ir::LetStmt{let.var, value}});
}
void RegionHoister::statement(const ir::CopyStmt& copy, ir::Block* out) {
  ir::CopyStmt made{tile(copy.dst), tile(copy.src), copy.atomic};
  out->push_back({loc_, std::move(made)});
}
void RegionHoister::statement(const ir::FillStmt& fill, ir::Block* out) {
  ir::FillStmt made{tile(fill.dst), uniform(fill.value)};
  out->push_back({loc_, std::move(made)});
}
void RegionHoister::statement(const ir::GemmStmt& gemm, ir::Block* out) {
  ir::GemmStmt made = gemm;
  made.c = tile(gemm.c), made.a = tile(gemm.a), made.b = tile(gemm.b);
  out->push_back({loc_, std::move(made)});
}
void RegionHoister::statement(const ir::AssignStmt& assign, ir::Block* out) {
  out->push_back({loc_, assign});
}

void RegionHoister::statement(const ir::ParallelStmt& region, ir::Block* out) {
  if (stays(region)) return out->push_back({loc_, region});
  const ir::ForwardedRegion forwarded = ir::forward_stores(region);
  ir::ParallelStmt made{region.iters, {}};
  Lets lets;
  for (const ir::LetStmt& let : forwarded.lets) {
    ExprRef value = replaced(let.value, region.iters, lets);
    lets[let.var.get()] = inline_lets(value, lets);
    made.body.push_back({loc_, ir::LetStmt{let.var, value}});
  }
  for (const ir::GuardedStore& store : forwarded.stores) {
    if (!store.guard) {
      made.body.push_back({store.loc, store.store});
      continue;
    }
    ir::IfStmt guarded{store.guard, {}, {}};
    guarded.then_body.push_back({store.loc, store.store});
    made.body.push_back({store.loc, std::move(guarded)});
  }
  out->push_back({loc_, std::move(made)});
}

void RegionHoister::statement(const ir::ForStmt& loop, ir::Block* out) {
  ir::ForStmt made = loop;
  made.begin = uniform(loop.begin);
  made.end = uniform(loop.end);
  made.body = nested(loop.body);
  out_ = out;
  out->push_back({loc_, std::move(made)});
}
void RegionHoister::statement(const ir::IfStmt& branch, ir::Block* out) {
  ir::IfStmt made{uniform(branch.condition), {}, {}};
  made.then_body = nested(branch.then_body);
  made.else_body = nested(branch.else_body);
  out_ = out;
  out->push_back({loc_, std::move(made)});
}

bool holds(const ir::ParallelStmt& region, const std::function<bool(const ir::Expr&)>& asked) {
  bool found = false;
  for_each_node(region.body, [&](const ExprRef& node) { found |= asked(*node); });
  return found;
}

}  // namespace kachel::lowering
