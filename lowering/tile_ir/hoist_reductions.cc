#include "lowering/tile_ir/hoist_reductions.h"

#include <unordered_map>

#include "ir/parallel.h"
#include "lowering/planted.h"

namespace kachel::lowering {
namespace {

using ir::ExprKind;
using ir::ExprRef;
using Lets = std::unordered_map<const ir::Var*, ExprRef>;

bool uses(const ExprRef& expr, const ir::VarRef& var) {
  bool found = false;
  ir::visit(expr, [&](const ExprRef& node) { found |= node->kind == ExprKind::kVar && node->var == var; });
  return found;
}

ExprRef inline_lets(const ExprRef& expr, const Lets& lets) {
  return ir::rewrite(expr, [&](const ExprRef& node) {
    if (node->kind != ExprKind::kVar) return node;
    auto it = lets.find(node->var.get());
    return it == lets.end() ? node : it->second;
  });
}

// A planted bug: variables of the same extent exchanged.
ExprRef exchanged(const ExprRef& reduce, const std::vector<ir::IterVar>& outer) {
  for (const ir::IterVar& iter : outer) {
    if (!ir::same(iter.extent, reduce->iters[0].extent)) continue;
    auto copy = std::make_shared<ir::Expr>(*reduce);
    const ir::VarRef &a = iter.var, &b = reduce->iters[0].var;
    copy->args[0] = ir::rewrite(copy->args[0], [&](const ExprRef& node) {
      if (node->kind != ExprKind::kVar) return node;
      return node->var == a ? ir::make_var(b) : node->var == b ? ir::make_var(a) : node;
    });
    return copy;
  }
  return reduce;
}

class Hoister {
 public:
  ir::Kernel run(const ir::Kernel& kernel) {
    ir::Kernel out = kernel;
    out.body.clear();
    ir::Block rest = block(kernel.body);
    // Declarations stand first.
    for (ir::BufferRef& buffer : made_) out.body.push_back({{}, ir::DeclStmt{buffer, nullptr}});
    for (ir::Stmt& stmt : rest) out.body.push_back(std::move(stmt));
    return out;
  }

 private:
  ir::Block block(const ir::Block& in) {
    ir::Block out;
    for (const ir::Stmt& stmt : in) {
      loc_ = stmt.loc;
      out_ = &out;
      std::visit([&](const auto& node) { statement(node, &out); }, stmt.node);
    }
    return out;
  }

  // The expression with its outermost reductions replaced; their regions are appended to the current block.
  ExprRef expr(const ExprRef& in, const std::vector<ir::IterVar>& iters, const Lets& lets) {
    if (!in) return in;
    if (in->kind == ExprKind::kReduce) return reduction(inline_lets(in, lets), iters);
    bool changed = false;
    std::vector<ExprRef> args;
    for (const ExprRef& arg : in->args) {
      args.push_back(expr(arg, iters, lets));
      changed |= args.back() != arg;
    }
    if (!changed) return in;
    auto copy = std::make_shared<ir::Expr>(*in);
    copy->args = std::move(args);
    return copy;
  }
  ExprRef uniform(const ExprRef& in) { return expr(in, {}, {}); }

  ExprRef reduction(const ExprRef& reduce, const std::vector<ir::IterVar>& iters) {
    std::vector<ir::IterVar> outer;
    std::vector<ExprRef> shape, indices;
    std::unordered_map<const ir::Var*, ExprRef> fresh;
    for (const ir::IterVar& iter : iters) {
      if (!uses(reduce, iter.var)) continue;
      // A variable of one region cannot be that of another.
      ir::IterVar own{std::make_shared<ir::Var>(*iter.var), iter.extent};
      fresh[iter.var.get()] = ir::make_var(own.var);
      outer.push_back(own);
      shape.push_back(iter.extent);
      indices.push_back(ir::make_var(iter.var));
    }
    if (outer.empty()) {
      const ExprRef one = ir::make_int(1, ir::DType::I64);
      outer.push_back(
          {std::make_shared<ir::Var>(ir::Var{ir::VarKind::kParallel, "one", ir::TypeRef{ir::DType::I64, nullptr}, {}}),
           one});
      shape.push_back(one);
      indices.push_back(ir::make_int(0, ir::DType::I64));
    }
    auto buffer = std::make_shared<ir::Buffer>(ir::Buffer{"reduced",
                                                          iters.empty() ? ir::Scope::kShared : ir::Scope::kFragment,
                                                          ir::Direction::kInOut,
                                                          {reduce->type, nullptr},
                                                          shape,
                                                          loc_});
    made_.push_back(buffer);
    ExprRef value = inline_lets(reduce, fresh);
    if (planted(Planted::kReducedAxis)) value = exchanged(value, outer);
    ir::ParallelStmt region{outer, {}};
    std::vector<ExprRef> places;
    for (const ir::IterVar& iter : outer) places.push_back(ir::make_var(iter.var));
    region.body.push_back({loc_, ir::AssignStmt{buffer, places, ir::AssignOp::kSet, ir::AtomicOp::kNone, value}});
    out_->push_back({loc_, std::move(region)});
    return ir::make_load(buffer, indices);
  }

  ir::TileRef tile(const ir::TileRef& in) {
    ir::TileRef out = in;
    for (ir::AxisSpec& axis : out.axes) {
      axis.start = uniform(axis.start);
      if (axis.gather) axis.gather = std::make_shared<ir::TileRef>(tile(*axis.gather));
    }
    out.within_first = uniform(in.within_first);
    out.within_length = uniform(in.within_length);
    return out;
  }

  void statement(const ir::DeclStmt& decl, ir::Block* out) {
    out->push_back({loc_, ir::DeclStmt{decl.buffer, uniform(decl.init)}});
  }
  void statement(const ir::LetStmt& let, ir::Block* out) {
    ExprRef value = uniform(let.value);
    out->push_back({loc_, ir::LetStmt{let.var, value}});
  }
  void statement(const ir::CopyStmt& copy, ir::Block* out) {
    ir::CopyStmt made{tile(copy.dst), tile(copy.src), copy.atomic};
    out->push_back({loc_, std::move(made)});
  }
  void statement(const ir::FillStmt& fill, ir::Block* out) {
    ir::FillStmt made{tile(fill.dst), uniform(fill.value)};
    out->push_back({loc_, std::move(made)});
  }
  void statement(const ir::GemmStmt& gemm, ir::Block* out) {
    ir::GemmStmt made = gemm;
    made.c = tile(gemm.c), made.a = tile(gemm.a), made.b = tile(gemm.b);
    out->push_back({loc_, std::move(made)});
  }
  void statement(const ir::AssignStmt& assign, ir::Block* out) { out->push_back({loc_, assign}); }
  void statement(const ir::ParallelStmt& region, ir::Block* out) {
    ir::ForwardedRegion forwarded = ir::forward_stores(region);
    ir::ParallelStmt made{region.iters, {}};
    Lets lets;
    for (const ir::LetStmt& let : forwarded.lets) {
      ExprRef value = expr(let.value, region.iters, lets);
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
  void statement(const ir::ForStmt& loop, ir::Block* out) {
    ir::ForStmt made = loop;
    made.begin = uniform(loop.begin);
    made.end = uniform(loop.end);
    made.body = block(loop.body);
    out_ = out;
    out->push_back({loc_, std::move(made)});
  }
  void statement(const ir::IfStmt& branch, ir::Block* out) {
    ir::IfStmt made{uniform(branch.condition), {}, {}};
    made.then_body = block(branch.then_body);
    made.else_body = block(branch.else_body);
    out_ = out;
    out->push_back({loc_, std::move(made)});
  }

  std::vector<ir::BufferRef> made_;
  ir::Block* out_ = nullptr;
  ir::Loc loc_;
};

}  // namespace

ir::Kernel hoist_reductions(const ir::Kernel& kernel) {
  return Hoister().run(kernel);
}

const ir::Expr* reduction_of(const ir::ParallelStmt& region) {
  if (region.body.size() != 1) return nullptr;
  const auto* assign = std::get_if<ir::AssignStmt>(&region.body[0].node);
  return assign && assign->value->kind == ExprKind::kReduce ? assign->value.get() : nullptr;
}

RegionStep step_of(const ir::ParallelStmt& region) {
  if (region.body.size() != 2) return {};
  const auto* let = std::get_if<ir::LetStmt>(&region.body[0].node);
  const auto* assign = std::get_if<ir::AssignStmt>(&region.body[1].node);
  if (!let || !assign || assign->op != ir::AssignOp::kSet || assign->atomic != ir::AtomicOp::kNone) return {};
  if (assign->value->kind != ir::ExprKind::kVar || assign->value->var != let->var) return {};
  return {assign, let->value};
}

}  // namespace kachel::lowering
