// What the parser guarantees of its own, checked for kernels that were built in C++, and the placement of statements.
#include <fmt/format.h>

#include <unordered_set>

#include "ir/lexer.h"
#include "ir/parser.h"
#include "ir/verify_rules.h"

namespace kachel::ir {
namespace {

enum class Place { kTop, kNested, kParallel };

class Structure {
 public:
  Structure(const Kernel& kernel, Diagnostics& out) : kernel_(kernel), out_(out) {}

  void run() {
    if (!is_identifier(kernel_.name) || is_reserved(kernel_.name))
      report(kernel_.loc, fmt::format("`{}` cannot name a kernel", kernel_.name), "use letters, digits and `_`");
    header();
    block(kernel_.body, Place::kTop);
  }

 private:
  void report(Loc loc, std::string message, std::string mend) {
    if (out_.size() < kMaxDiagnostics) out_.push_back({loc, std::move(message), std::move(mend)});
  }
  void incomplete(Loc loc, std::string_view what) {
    report(loc, fmt::format("{} is incomplete", what), "build it with ir/builder.h");
  }

  void declare(const void* object, const std::string& name, Loc loc) {
    if (!is_identifier(name) || is_reserved(name))
      report(loc, fmt::format("`{}` cannot be a name", name), "use letters, digits and `_`, and no reserved word");
    if (!names_.insert(name).second)
      report(loc, fmt::format("`{}` is declared already", name), "choose another name; visible names are never hidden");
    objects_.insert(object);
    order_.push_back({object, name});
  }
  void leave(size_t depth) {
    for (; order_.size() > depth; order_.pop_back()) {
      objects_.erase(order_.back().object);
      names_.erase(order_.back().name);
    }
  }

  bool variable(const VarRef& var, VarKind kind, Loc loc) {
    if (var && var->kind == kind) return true;
    incomplete(loc, "a declaration");
    return false;
  }

  void type(const TypeRef& type, Loc loc) {
    if (type.symbol && !objects_.count(type.symbol.get()))
      report(loc, fmt::format("the type symbol `{}` is not one of this kernel", type.symbol->name), "declare it first");
    if (type.accumulator && !type.symbol)
      report(loc, "an accumulator of no type symbol", "write the type that it is: f32, i32 or i64");
  }

  void header() {
    for (const TypeSymbolRef& symbol : kernel_.type_symbols) {
      if (!symbol || symbol->options.empty()) return incomplete(kernel_.loc, "a type symbol");
      declare(symbol.get(), symbol->name, symbol->loc);
    }
    auto declare_all = [&](const VarRef& var, VarKind kind) {
      if (variable(var, kind, kernel_.loc)) declare(var.get(), var->name, var->loc);
    };
    for (const VarRef& var : kernel_.consts) declare_all(var, VarKind::kConst);
    for (const Tunable& tunable : kernel_.tunables) {
      declare_all(tunable.var, VarKind::kTunable);
      if (tunable.values.empty() != tunable.automatic) incomplete(kernel_.loc, "a tunable without values");
    }
    for (const VarRef& var : kernel_.dims) declare_all(var, VarKind::kDim);
    for (const Param& param : kernel_.params) {
      if (!param.tensor) {
        declare_all(param.scalar, VarKind::kScalar);
        continue;
      }
      buffer(*param.tensor, Scope::kGlobal, param.tensor->loc);
      declare(param.tensor.get(), param.tensor->name, param.tensor->loc);
    }
    for (const ExprRef& expr : kernel_.where) this->expr(expr, kernel_.loc);
    for (const ExprRef& expr : kernel_.key) this->expr(expr, kernel_.loc);
    for (const IterVar& axis : kernel_.grid) expr(axis.extent, kernel_.loc);
    for (const IterVar& axis : kernel_.grid) declare_all(axis.var, VarKind::kGrid);
  }

  void buffer(const Buffer& buffer, Scope scope, Loc loc) {
    bool tile = scope != Scope::kGlobal;
    if (tile ? buffer.scope != Scope::kShared && buffer.scope != Scope::kFragment : buffer.scope != scope)
      incomplete(loc, fmt::format("`{}`, of a scope that tile IR does not have,", buffer.name));
    if (buffer.shape.empty() || buffer.shape.size() > 5)
      report(loc, fmt::format("`{}` has {} axes", buffer.name, buffer.shape.size()),
             "a tensor or tile has 1 to 5 axes");
    type(buffer.type, loc);
    for (const ExprRef& extent : buffer.shape) expr(extent, loc);
  }

  void iters(const std::vector<IterVar>& iters, VarKind kind, Loc loc) {
    if (iters.empty()) incomplete(loc, "a list of indices");
    for (const IterVar& iter : iters) {
      expr(iter.extent, loc);
      if (variable(iter.var, kind, loc)) declare(iter.var.get(), iter.var->name, iter.var->loc);
    }
  }

  void expr(const ExprRef& expr, Loc loc, int depth = 0) {
    if (!expr) return incomplete(loc, "an expression");
    if (depth > kMaxNesting) {
      if (depth == kMaxNesting + 1) report(expr->loc, "nested more than 200 deep", "name parts of it with `let`");
      return;
    }
    if (expr->loc.line > 0) loc = expr->loc;
    size_t scope = order_.size();
    size_t arity = expr->args.size();
    switch (expr->kind) {
      case ExprKind::kInt:
      case ExprKind::kFloat:
      case ExprKind::kBool:
        return;
      case ExprKind::kVar:
        if (!expr->var) return incomplete(loc, "an expression");
        if (!objects_.count(expr->var.get()))
          report(loc, fmt::format("`{}` is used outside the scope that declares it", expr->var->name),
                 "use it in its scope only");
        return;
      case ExprKind::kApply:
        arity = static_cast<size_t>(info(expr->op).arity);
        break;
      case ExprKind::kCast:
        arity = 1;
        type(expr->cast_type, loc);
        break;
      case ExprKind::kLoad:
        if (!access(expr->buffer, loc)) return;
        arity = expr->buffer->shape.size();
        break;
      case ExprKind::kReduce:
        arity = 1;
        iters(expr->iters, VarKind::kReduce, loc);
        break;
      case ExprKind::kScan:
        arity = 2;
        if (expr->iters.size() != 1) return incomplete(loc, "a prefix reduction");
        iters(expr->iters, VarKind::kReduce, loc);
        break;
    }
    if (expr->args.size() != arity)
      report(loc, fmt::format("{} operands are given where {} are needed", expr->args.size(), arity), "give that many");
    for (const ExprRef& arg : expr->args) this->expr(arg, loc, depth + 1);
    leave(scope);
  }

  bool access(const BufferRef& buffer, Loc loc) {
    if (!buffer) {
      incomplete(loc, "a reference to a tensor or tile");
      return false;
    }
    if (objects_.count(buffer.get())) return true;
    report(loc, fmt::format("`{}` is used but not declared", buffer->name), "declare it at the top of the kernel");
    return false;
  }

  void tile(const TileRef& tile, Loc loc, int depth = 0) {
    if (tile.loc.line > 0) loc = tile.loc;
    if (!access(tile.buffer, loc)) return;
    if (tile.axes.size() != tile.buffer->shape.size() || depth > kMaxNesting ||
        !tile.within_first != !tile.within_length)
      return incomplete(loc, fmt::format("the slice of `{}`", tile.buffer->name));
    bool any = false;
    for (const AxisSpec& axis : tile.axes) {
      any |= axis.kind != AxisSpec::Kind::kIndex;
      bool range = axis.kind == AxisSpec::Kind::kRange;
      if (range || axis.kind == AxisSpec::Kind::kIndex) expr(axis.start, loc);
      if (range) expr(axis.extent, loc);
      if (axis.kind != AxisSpec::Kind::kGather) continue;
      if (!axis.gather) return incomplete(loc, fmt::format("the slice of `{}`", tile.buffer->name));
      this->tile(*axis.gather, loc, depth + 1);
    }
    if (!any)
      report(loc, fmt::format("every axis of `{}` is an index, so this is no tile", tile.buffer->name),
             "give a range `a +: n` or `:` for one of them");
    if (tile.within_first) expr(tile.within_first, loc);
    if (tile.within_length) expr(tile.within_length, loc);
    if (tile.pad) expr(tile.pad, loc);
  }

  void block(const Block& block, Place place) {
    if (++depth_ > kMaxNesting) {
      if (depth_ == kMaxNesting + 1) report({}, "nested more than 200 deep", "flatten the loops");
    } else {
      size_t scope = order_.size();
      for (const Stmt& stmt : block) statement(stmt, place);
      leave(scope);
    }
    --depth_;
  }

  void statement(const Stmt& stmt, Place place) {
    Loc loc = stmt.loc;
    bool parallel = place == Place::kParallel;
    Place inner = parallel ? place : Place::kNested;
    if (const auto* let = std::get_if<LetStmt>(&stmt.node)) {
      expr(let->value, loc);
      if (variable(let->var, VarKind::kLet, loc)) declare(let->var.get(), let->var->name, let->var->loc);
    } else if (const auto* branch = std::get_if<IfStmt>(&stmt.node)) {
      expr(branch->condition, loc);
      block(branch->then_body, inner);
      block(branch->else_body, inner);
    } else if (const auto* assign = std::get_if<AssignStmt>(&stmt.node)) {
      if (!parallel)
        report(loc, "one element is assigned outside `parallel`", "write `parallel i < 1 { ... }` around it");
      if (!access(assign->buffer, loc)) return;
      if (assign->indices.size() != assign->buffer->shape.size())
        report(loc, fmt::format("`{}` needs {} indices", assign->buffer->name, assign->buffer->shape.size()),
               "give one index for each axis");
      for (const ExprRef& index : assign->indices) expr(index, loc);
      expr(assign->value, loc);
    } else if (const auto* decl = std::get_if<DeclStmt>(&stmt.node)) {
      if (!decl->buffer) return incomplete(loc, "a declaration");
      if (place != Place::kTop)
        report(loc, fmt::format("the tile `{}` is declared inside a block", decl->buffer->name),
               "declare it at the top of the kernel's body");
      buffer(*decl->buffer, Scope::kShared, loc);
      if (decl->init) expr(decl->init, loc);
      declare(decl->buffer.get(), decl->buffer->name, decl->buffer->loc);
    } else if (parallel) {
      report(loc, "a statement on tiles inside `parallel`",
             "a `parallel` holds `let`, `if` and assignments of elements; move it out");
    } else {
      tile_statement(stmt);
    }
  }

  void tile_statement(const Stmt& stmt) {
    Loc loc = stmt.loc;
    size_t scope = order_.size();
    if (const auto* copy = std::get_if<CopyStmt>(&stmt.node)) {
      tile(copy->dst, loc);
      tile(copy->src, loc);
    } else if (const auto* fill = std::get_if<FillStmt>(&stmt.node)) {
      tile(fill->dst, loc);
      expr(fill->value, loc);
    } else if (const auto* gemm = std::get_if<GemmStmt>(&stmt.node)) {
      tile(gemm->c, loc);
      tile(gemm->a, loc);
      tile(gemm->b, loc);
    } else if (const auto* region = std::get_if<ParallelStmt>(&stmt.node)) {
      iters(region->iters, VarKind::kParallel, loc);
      block(region->body, Place::kParallel);
    } else if (const auto* loop = std::get_if<ForStmt>(&stmt.node)) {
      expr(loop->begin, loc);
      expr(loop->end, loc);
      if (loop->stages) expr(loop->stages, loc);
      if (variable(loop->var, VarKind::kLoop, loc)) declare(loop->var.get(), loop->var->name, loop->var->loc);
      block(loop->body, Place::kNested);
    }
    leave(scope);
  }

  struct Declared {
    const void* object;
    std::string name;
  };
  const Kernel& kernel_;
  Diagnostics& out_;
  std::unordered_set<const void*> objects_;
  std::unordered_set<std::string> names_;
  std::vector<Declared> order_;
  int depth_ = 0;
};

}  // namespace

void check_structure(const Kernel& kernel, Diagnostics& out) {
  Structure(kernel, out).run();
}

}  // namespace kachel::ir
