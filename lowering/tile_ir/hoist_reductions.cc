#include "lowering/tile_ir/hoist_reductions.h"

#include <unordered_map>

#include "ir/parallel.h"
#include "lowering/planted.h"
#include "lowering/tile_ir/tile_uses.h"

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

// What a region of one assignment assigns, if it is of that kind.
const ir::Expr* assigned(const ir::ParallelStmt& region, ExprKind kind) {
  if (region.body.size() != 1) return nullptr;
  const auto* assign = std::get_if<ir::AssignStmt>(&region.body[0].node);
  return assign && assign->value->kind == kind ? assign->value.get() : nullptr;
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
  // What is hoisted: kReduce or kScan.
  explicit Hoister(ExprKind kind) : kind_(kind) {}

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
    if (in->kind == kind_) {
      const ExprRef whole = inline_lets(in, lets);
      return kind_ == ExprKind::kScan ? scan(*whole, iters) : reduction(whole, iters);
    }
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

  // Those of a region's variables that a value depends on.
  static std::vector<ir::IterVar> used(const ExprRef& value, const std::vector<ir::IterVar>& iters) {
    std::vector<ir::IterVar> outer;
    for (const ir::IterVar& iter : iters)
      if (uses(value, iter.var)) outer.push_back(iter);
    return outer;
  }

  // `buffer[...] = value` as a region over `iters`. A variable of one region cannot be that of another.
  void push_region(const ir::BufferRef& buffer, const ExprRef& value, const std::vector<ir::IterVar>& iters) {
    ir::ParallelStmt region;
    std::vector<ExprRef> places;
    Lets fresh;
    for (const ir::IterVar& iter : iters) {
      region.iters.push_back({std::make_shared<ir::Var>(*iter.var), iter.extent});
      places.push_back(ir::make_var(region.iters.back().var));
      fresh[iter.var.get()] = places.back();
    }
    ExprRef own = inline_lets(value, fresh);
    if (planted(Planted::kReducedAxis) && kind_ == ExprKind::kReduce) own = exchanged(own, region.iters);
    region.body.push_back({loc_, ir::AssignStmt{buffer, places, ir::AssignOp::kSet, ir::AtomicOp::kNone, own}});
    out_->push_back({loc_, std::move(region)});
  }
  ir::BufferRef make_tile(const char* name, ir::Scope scope, ir::DType type, const std::vector<ir::IterVar>& iters) {
    std::vector<ExprRef> shape;
    for (const ir::IterVar& iter : iters) shape.push_back(iter.extent);
    made_.push_back(std::make_shared<ir::Buffer>(
        ir::Buffer{name, scope, ir::Direction::kInOut, {type, nullptr}, std::move(shape), loc_}));
    return made_.back();
  }
  static ir::IterVar one() {
    const ir::TypeRef type{ir::DType::I64, nullptr};
    return {std::make_shared<ir::Var>(ir::Var{ir::VarKind::kParallel, "one", type, {}}),
            ir::make_int(1, ir::DType::I64)};
  }

  ExprRef scan(const ir::Expr& scan, const std::vector<ir::IterVar>& iters) {
    const ExprRef& index = scan.args[1];
    const ExprRef operand = inline_lets(scan.args[0], {{scan.iters[0].var.get(), index}});
    auto made = std::make_shared<ir::Expr>(scan);
    made->iters.clear();
    made->args[0] = operand;
    const std::vector<ir::IterVar> outer = used(made, iters);
    std::vector<ExprRef> places;
    for (const ir::IterVar& iter : outer) places.push_back(ir::make_var(iter.var));
    const ir::BufferRef tile = make_tile("scanned", ir::Scope::kFragment, scan.type, outer);
    const bool held = is_element(operand, outer);
    if (!held) push_region(tile, operand, outer);
    if (!held) made->args[0] = ir::make_load(tile, places);
    push_region(tile, made, outer);
    return ir::make_load(tile, places);
  }
  // Whether it is the element of a fragment at the iteration's own place.
  static bool is_element(const ExprRef& value, const std::vector<ir::IterVar>& iters) {
    if (value->kind != ExprKind::kLoad || value->buffer->scope != ir::Scope::kFragment) return false;
    if (value->args.size() != iters.size()) return false;
    for (size_t i = 0; i < iters.size(); ++i)
      if (value->args[i]->kind != ExprKind::kVar || value->args[i]->var != iters[i].var ||
          !ir::same(value->buffer->shape[i], iters[i].extent))
        return false;
    return true;
  }

  ExprRef reduction(const ExprRef& reduce, const std::vector<ir::IterVar>& iters) {
    std::vector<ir::IterVar> outer = used(reduce, iters);
    std::vector<ExprRef> indices;
    for (const ir::IterVar& iter : outer) indices.push_back(ir::make_var(iter.var));
    if (outer.empty()) {
      outer.push_back(one());
      indices.push_back(ir::make_int(0, ir::DType::I64));
    }
    const ir::Scope scope = iters.empty() ? ir::Scope::kShared : ir::Scope::kFragment;
    const ir::BufferRef tile = make_tile("reduced", scope, reduce->type, outer);
    push_region(tile, reduce, outer);
    return ir::make_load(tile, indices);
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
    if (scan_of(region) || (kind_ == ExprKind::kScan && !has_scans(region))) return out->push_back({loc_, region});
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

  static bool has_scans(const ir::ParallelStmt& region) {
    bool found = false;
    for_each_node(region.body, [&](const ExprRef& node) { found |= node->kind == ExprKind::kScan; });
    return found;
  }

  const ExprKind kind_;
  std::vector<ir::BufferRef> made_;
  ir::Block* out_ = nullptr;
  ir::Loc loc_;
};

}  // namespace

ir::Kernel hoist_scans(const ir::Kernel& kernel) {
  return Hoister(ExprKind::kScan).run(kernel);
}
ir::Kernel hoist_reductions(const ir::Kernel& kernel) {
  return Hoister(ExprKind::kReduce).run(kernel);
}

const ir::Expr* reduction_of(const ir::ParallelStmt& region) {
  return assigned(region, ExprKind::kReduce);
}
const ir::Expr* scan_of(const ir::ParallelStmt& region) {
  const ir::Expr* scan = assigned(region, ExprKind::kScan);
  return scan && scan->iters.empty() ? scan : nullptr;
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
