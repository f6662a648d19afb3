#include "tests/conformance/coverage.h"

#include <fmt/format.h>

#include <set>

#include "ir/concrete.h"

namespace kachel::conformance {
namespace {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;
using Counts = std::map<std::string, std::map<std::string, int64_t>>;

constexpr const char* kScopes[] = {"global", "shared", "fragment", "register"};
constexpr const char* kAtomics[] = {"", "add", "max", "min"};
constexpr const char* kAssigns[] = {"=", "+=", "-=", "*=", "/="};

std::string named(DType type) {
  return std::string(ir::name(type));
}

class Walker {
 public:
  explicit Walker(Counts& counts) : counts_(counts) {}

  void header(const ir::Kernel& kernel) {
    for (const ir::Param& param : kernel.params) {
      if (param.scalar) {
        count("parameter", "scalar " + named(param.scalar->type.dtype));
        continue;
      }
      constexpr const char* kDirections[] = {"in", "out", "inout"};
      count("parameter", kDirections[static_cast<int>(param.tensor->direction)]);
      count("rank", fmt::format("tensor {}", param.tensor->shape.size()));
    }
    for (const ir::VarRef& var : kernel.consts) count("parameter", "const " + named(var->type.dtype));
    for (const ir::Tunable& tunable : kernel.tunables) count("parameter", tunable.var ? "tunable" : "");
    for (const ir::TypeSymbolRef& symbol : kernel.type_symbols)
      count("parameter", symbol->options.empty() ? "" : "type symbol");
    if (!kernel.where.empty()) count("parameter", "where");
    for (const ExprRef& key : kernel.key) {
      count("parameter", "key");
      ir::visit(key, [&](const ExprRef& node) {
        if (node->kind == ExprKind::kApply) count("op", feature_name(node->op));
      });
    }
    count("rank", fmt::format("grid {}", kernel.grid.size()));
    assignments(kernel.body);
  }

  void block(const ir::Block& body, bool region = false) {
    for (const ir::Stmt& stmt : body) {
      if (region)
        std::visit([this](const auto& node) { element(node); }, stmt.node);
      else
        std::visit([this](const auto& node) { statement(node); }, stmt.node);
    }
  }

 private:
  void count(const std::string& group, const std::string& feature) { ++counts_[group][feature]; }

  // As written: a concrete kernel has `x = x + e` for `x += e`.
  void assignments(const ir::Block& body) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* region = std::get_if<ir::ParallelStmt>(&stmt.node)) assignments(region->body);
      if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) assignments(loop->body);
      if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
        assignments(branch->then_body);
        assignments(branch->else_body);
      }
      const auto* assign = std::get_if<ir::AssignStmt>(&stmt.node);
      if (assign && assign->atomic == ir::AtomicOp::kNone) count("region", kAssigns[static_cast<int>(assign->op)]);
    }
  }

  // Scalars.
  void expr(const ExprRef& root, const char* place) {
    if (root) node(root, place, 0);
  }
  void node(const ExprRef& e, const char* place, int reductions) {
    switch (e->kind) {
      case ExprKind::kApply: {
        const DType type = e->args.back()->type;
        count("op", (e->approx ? "approx " : "") + feature_name(e->op));
        count("op by type", fmt::format("{}:{}", feature_name(e->op), ir::name(type)));
        break;
      }
      case ExprKind::kCast:
        count("cast to", named(e->cast_type.dtype));
        count("cast from", named(e->args[0]->type));
        count("casts", fmt::format("{}>{}", ir::name(e->args[0]->type), ir::name(e->cast_type.dtype)));
        break;
      case ExprKind::kLoad:
        count("element read", fmt::format("{} {}", scope(e->buffer), ir::name(e->buffer->type.dtype)));
        for (const ExprRef& index : e->args) {
          bool follows = false;
          ir::visit(index, [&](const ExprRef& inner) { follows |= inner->kind == ExprKind::kLoad; });
          if (follows) count("element read", "index from memory");
        }
        reduced_axes(*e);
        break;
      case ExprKind::kReduce:
        count("reduce", fmt::format("{}:{}", ir::spelling(e->reduce), ir::name(e->args[0]->type)));
        count("reduce", reductions ? "nested" : place);
        if (e->iters.size() > 1) count("reduce", "several indices");
        ++reductions;
        for (const ir::IterVar& iter : e->iters) reduced_.insert(iter.var.get());
        break;
      case ExprKind::kScan:
        count("scan", fmt::format("{}:{}", ir::spelling(e->reduce), ir::name(e->type)));
        count("scan", e->inclusive ? "with the element" : "without the element");
        ++reductions;
        break;
      default:
        break;
    }
    for (const ExprRef& arg : e->args) node(arg, place, reductions);
  }
  void reduced_axes(const ir::Expr& load) {
    for (size_t axis = 0; axis < load.args.size(); ++axis)
      if (load.args[axis]->kind == ExprKind::kVar && reduced_.count(load.args[axis]->var.get()))
        count("reduce", fmt::format("axis {} of {}", axis, load.args.size()));
  }

  // Slices.
  static const char* scope(const ir::BufferRef& buffer) { return kScopes[static_cast<int>(buffer->scope)]; }
  void tile(const ir::TileRef& ref, bool written) {
    const char* side = written ? "written" : "read";
    bool bare = !ref.within_first && !ref.pad;
    for (const ir::AxisSpec& axis : ref.axes) {
      constexpr const char* kKinds[] = {"index", "range", "whole", "gather"};
      count("slice", fmt::format("{} {}", side, kKinds[static_cast<int>(axis.kind)]));
      bare &= axis.kind == ir::AxisSpec::Kind::kWhole;
      expr(axis.start, "at block level");
      if (!axis.gather) continue;
      count("slice",
            fmt::format("indices in {} {}", scope(axis.gather->buffer), ir::name(axis.gather->buffer->type.dtype)));
      tile(*axis.gather, false);
    }
    if (bare) count("slice", fmt::format("{} bare", side));
    if (ref.within_first) count("slice", fmt::format("{} within", side));
    if (ref.pad) count("slice", "pad");
    expr(ref.within_first, "at block level");
    expr(ref.within_length, "at block level");
  }
  static bool bare(const ir::TileRef& ref) {
    for (const ir::AxisSpec& axis : ref.axes)
      if (axis.kind != ir::AxisSpec::Kind::kWhole) return false;
    return true;
  }

  // Statements on tiles.
  void statement(const ir::DeclStmt& decl) {
    count("statement", decl.init ? "declaration with a value" : "declaration");
    count("tile type", fmt::format("{} {}", scope(decl.buffer), ir::name(decl.buffer->type.dtype)));
    count("rank", fmt::format("tile {}", decl.buffer->shape.size()));
  }
  void statement(const ir::LetStmt& let) {
    count("statement", "let");
    expr(let.value, "at block level");
  }
  void statement(const ir::CopyStmt& copy) {
    const ir::BufferRef &to = copy.dst.buffer, &from = copy.src.buffer;
    tile(copy.dst, true);
    tile(copy.src, false);
    if (from_gemm_.count(from.get())) from_gemm_.insert(to.get());
    if (copy.atomic != ir::AtomicOp::kNone) {
      count("statement", "atomic copy");
      count("atomic", fmt::format("{}:{}", kAtomics[static_cast<int>(copy.atomic)], ir::name(to->type.dtype)));
      return;
    }
    count("statement", "copy");
    count("copy scopes", fmt::format("{}>{}", scope(from), scope(to)));
    count("copy types", fmt::format("{}>{}", ir::name(from->type.dtype), ir::name(to->type.dtype)));
    if (from->scope == ir::Scope::kGlobal) count("copy from tensor", named(from->type.dtype));
    if (to->scope == ir::Scope::kGlobal) count("copy to tensor", named(to->type.dtype));
  }
  void statement(const ir::FillStmt& fill) {
    count("statement", "fill");
    tile(fill.dst, true);
    expr(fill.value, "at block level");
  }
  void statement(const ir::GemmStmt& gemm) {
    count("statement", "gemm");
    tile(gemm.c, true);
    tile(gemm.a, false);
    tile(gemm.b, false);
    const DType a = gemm.a.buffer->type.dtype, b = gemm.b.buffer->type.dtype;
    const bool is_float = ir::is_float(a);
    count("gemm", fmt::format("{}{} {} {}", gemm.transpose_a ? "t" : "n", gemm.transpose_b ? "t" : "n",
                              is_float ? "float" : "integer", gemm.accumulate ? "+=" : "="));
    count("gemm types", fmt::format("{}@{}", ir::name(a), ir::name(b)));
    count("gemm", "into " + named(gemm.c.buffer->type.dtype));
    if (gemm.precision == ir::Precision::kTf32) count("gemm", "tf32");
    if (gemm.precision == ir::Precision::kFast) count("gemm", "fast");
    if (!bare(gemm.a) || !bare(gemm.b)) count("gemm", "slice as operand");
    if (!bare(gemm.c)) count("gemm", "slice as result");
    for (const ir::BufferRef& operand : {gemm.a.buffer, gemm.b.buffer}) {
      count("gemm", std::string("operand in ") + scope(operand));
      if (from_gemm_.count(operand.get())) count("gemm", "chained");
    }
    count("gemm", std::string("result in ") + scope(gemm.c.buffer));
    if (loops_ > 0) count("gemm", pipelined_ ? "in a pipeline" : "in a loop");
    from_gemm_.insert(gemm.c.buffer.get());
  }
  void statement(const ir::ParallelStmt& region) {
    count("statement", "parallel");
    count("rank", fmt::format("parallel {}", region.iters.size()));
    written_.clear();
    block(region.body, true);
    written_.clear();
  }
  void statement(const ir::AssignStmt&) {}
  void statement(const ir::ForStmt& loop) {
    count("statement", loop.pipelined ? loop.stages ? "pipelined with stages" : "pipelined" : "for");
    if (!ir::is_int(loop.begin, 0)) count("statement", "loop from a first index");
    bool from_memory = false;
    for (const ExprRef& bound : {loop.begin, loop.end})
      ir::visit(bound, [&](const ExprRef& inner) { from_memory |= inner->kind == ExprKind::kLoad; });
    if (from_memory) count("statement", "loop bound from memory");
    expr(loop.begin, "at block level");
    expr(loop.end, "at block level");
    count("loop depth", fmt::format("{}", ++loops_));
    const bool outer = std::exchange(pipelined_, pipelined_ || loop.pipelined);
    block(loop.body);
    pipelined_ = outer;
    --loops_;
  }
  void statement(const ir::IfStmt& branch) {
    count("statement", branch.else_body.empty() ? "if" : "if else");
    if (loops_ > 0) count("statement", "if in a loop");
    expr(branch.condition, "at block level");
    block(branch.then_body);
    block(branch.else_body);
  }

  // Statements of regions.
  template <class T>
  void element(const T&) {}
  void element(const ir::LetStmt& let) {
    count("region", "let");
    reads(let.value);
  }
  void element(const ir::IfStmt& branch) {
    count("region", branch.else_body.empty() ? "if" : "if else");
    reads(branch.condition);
    block(branch.then_body, true);
    block(branch.else_body, true);
  }
  void element(const ir::AssignStmt& assign) {
    for (const ExprRef& index : assign.indices) expr(index, "in a region");
    reads(assign.value);
    const DType type = assign.buffer->type.dtype;
    if (assign.atomic != ir::AtomicOp::kNone) {
      count("region", "atomic");
      count("atomic", fmt::format("{}:{}", kAtomics[static_cast<int>(assign.atomic)], ir::name(type)));
      return;
    }
    count("element written", fmt::format("{} {}", scope(assign.buffer), ir::name(type)));
    for (const ir::AssignStmt* earlier : written_)
      if (earlier->buffer == assign.buffer)
        count("region", same(*earlier, assign.indices) ? "written again" : "two places of one buffer");
    ir::visit(assign.value, [&](const ExprRef& node) {
      if (node->kind == ExprKind::kLoad && node->buffer == assign.buffer && !same(assign, node->args))
        count("region", "reads elsewhere what it writes");
      if (node->kind == ExprKind::kLoad && from_gemm_.count(node->buffer.get())) from_gemm_.insert(assign.buffer.get());
    });
    written_.push_back(&assign);
  }
  void reads(const ExprRef& e) {
    expr(e, "in a region");
    ir::visit(e, [&](const ExprRef& node) {
      if (node->kind != ExprKind::kLoad) return;
      for (const ir::AssignStmt* earlier : written_)
        if (earlier->buffer == node->buffer)
          count("region", same(*earlier, node->args) ? "reads back" : "reads as before");
    });
  }
  static bool same(const ir::AssignStmt& assign, const std::vector<ExprRef>& indices) {
    for (size_t i = 0; i < indices.size(); ++i)
      if (!ir::same(assign.indices[i], indices[i])) return false;
    return true;
  }

  Counts& counts_;
  std::set<const ir::Buffer*> from_gemm_;  // what a result of a gemm went into
  std::set<const ir::Var*> reduced_;
  std::vector<const ir::AssignStmt*> written_;
  int loops_ = 0;
  bool pipelined_ = false;
};

}  // namespace

void Coverage::add(const Case& test, const ir::Kernel& concrete) {
  ++programs_;
  Walker walker(counts_);
  walker.header(test.kernel);
  walker.block(concrete.body);
  for (const ArgumentSpec& arg : test.args)
    for (int64_t extent : arg.tensor.shape)
      if (extent == 0) ++counts_["parameter"]["empty dimension"];
}

std::string Coverage::report() const {
  std::string text = fmt::format("coverage of {} programs\n", programs_);
  for (const auto& [group, features] : counts_) {
    text += fmt::format("  {} ({}):", group, features.size());
    for (const auto& [feature, count] : features) text += fmt::format(" {} {},", feature, count);
    text.back() = '\n';
  }
  return text;
}

std::vector<std::string> Coverage::missing() const {
  std::vector<std::string> list;
  for (const char* group : {"op",
                            "op by type",
                            "cast to",
                            "cast from",
                            "copy scopes",
                            "copy from tensor",
                            "copy to tensor",
                            "tile type",
                            "element read",
                            "element written",
                            "statement",
                            "region",
                            "slice",
                            "gemm",
                            "reduce",
                            "scan",
                            "atomic",
                            "parameter",
                            "rank",
                            "loop depth",
                            "lowered"}) {
    auto counted = counts_.find(group);
    for (const std::string& feature : required_features(group))
      if (counted == counts_.end() || !counted->second.count(feature))
        list.push_back(fmt::format("{}: {}", group, feature));
  }
  return list;
}

}  // namespace kachel::conformance
