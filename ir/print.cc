// One writer for canonical text and for canonical bodies; they differ in the names it is given and in the header.
//
// A fixed point of print and parse needs three things: parentheses are decided by precedence alone, negative constants
// print as the parser reads them back, and every number is printed as the shortest text that denotes its f32.
#include "ir/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace kachel::ir {
namespace {

class Names {
 public:
  virtual ~Names() = default;
  virtual std::string of(const Var& var) { return var.name; }
  virtual std::string of(const Buffer& buffer) { return buffer.name; }
  virtual std::string of(const TypeSymbol& symbol) { return symbol.name; }
};

// Names by class and order of first use; whatever must keep its declared position is named before anything is written.
class Positions : public Names {
 public:
  std::string of(const Var& var) override {
    static constexpr const char* kPrefix[] = {"d", "p", "c", "n", "g", "k", "j", "r", "v", "h"};
    return name(&var, kPrefix[static_cast<int>(var.kind)]);
  }
  std::string of(const Buffer& buffer) override {
    static constexpr const char* kPrefix[] = {"A", "S", "F", "R", "W"};
    return name(&buffer, kPrefix[static_cast<int>(buffer.scope)]);
  }
  std::string of(const TypeSymbol& symbol) override { return name(&symbol, "T"); }

 private:
  std::string name(const void* what, const char* prefix) {
    auto [it, fresh] = names_.try_emplace(what);
    if (fresh) it->second = fmt::format("{}{}", prefix, counts_[prefix]++);
    return it->second;
  }
  std::unordered_map<const void*, std::string> names_;
  std::unordered_map<std::string, int> counts_;
};

std::string number(double value) {
  struct Constant {
    float value;
    const char* name;
  };
  static constexpr Constant kNamed[] = {
      {1.44269504088896340736f, "log2e"}, {0.693147180559945309417f, "ln2"}, {3.14159265358979323846f, "pi"}};
  float single = static_cast<float>(value);
  if (std::isnan(single)) return "nan";
  if (std::isinf(single)) return single < 0 ? "-inf" : "inf";
  for (const Constant& constant : kNamed)
    if (single == constant.value) return constant.name;
  std::string text = fmt::format("{}", single);
  return text.find_first_of(".e") == text.npos ? text + ".0" : text;
}

class Writer {
 public:
  explicit Writer(Names& names) : names_(names) {}

  std::string text;

  void kernel(const Kernel& kernel) {
    text += "kernel ";
    header(kernel);
    grid(kernel);
    text += "{\n";
    block(kernel.body, 1);
    text += "}\n";
  }

  void program(const Program& program) {
    text += "program ";
    header(program.header);
    calls(program, [](const std::string& kernel) { return kernel; });
  }

  template <class NameOf>
  void canonical(const Program& program, const NameOf& name_of) {
    text += "program ";
    canonical_header(program.header);
    calls(program, name_of);
  }

  void canonical(const Kernel& kernel) {
    text += "kernel ";
    canonical_header(kernel);
    grid(kernel);
    text += "{\n";
    block(kernel.body, 1);
    text += "}\n";
  }

  // Parenthesised if it binds no tighter than `outer`.
  void expr(const ExprRef& expr, int outer = -1) {
    if (!expr) {
      text += "?";
      return;
    }
    switch (expr->kind) {
      case ExprKind::kInt:
        text += expr->typed && expr->type == DType::U64 ? fmt::format("{}", static_cast<uint64_t>(expr->int_value))
                                                        : fmt::format("{}", expr->int_value);
        return;
      case ExprKind::kFloat:
        text += number(expr->float_value);
        return;
      case ExprKind::kBool:
        text += expr->int_value ? "true" : "false";
        return;
      case ExprKind::kVar:
        text += names_.of(*expr->var);
        return;
      case ExprKind::kApply:
        apply(*expr, outer);
        return;
      case ExprKind::kCast:
        type(expr->cast_type);
        text += "(";
        this->expr(expr->args[0]);
        text += ")";
        return;
      case ExprKind::kLoad:
        text += names_.of(*expr->buffer);
        list("[", expr->args, "]");
        return;
      case ExprKind::kReduce:
        text += expr->reduce == ReduceOp::kSum ? "sum[" : expr->reduce == ReduceOp::kMax ? "max[" : "min[";
        iters(expr->iters);
        text += "](";
        this->expr(expr->args[0]);
        text += ")";
        return;
    }
  }

  void tile(const TileRef& tile) {
    text += names_.of(*tile.buffer);
    bool whole = true;
    for (const AxisSpec& axis : tile.axes) whole &= axis.kind == AxisSpec::Kind::kWhole;
    if (!whole) {
      for (size_t i = 0; i < tile.axes.size(); ++i) {
        text += i ? ", " : "[";
        axis(tile.axes[i]);
      }
      text += "]";
    }
    if (tile.within_first) {
      text += " within ";
      expr(tile.within_first);
      text += " +: ";
      expr(tile.within_length);
    }
    if (tile.pad) {
      text += " pad ";
      expr(tile.pad);
    }
  }

 private:
  static constexpr int kTernary = 0;

  void list(const char* open, const std::vector<ExprRef>& exprs, const char* close) {
    text += open;
    for (size_t i = 0; i < exprs.size(); ++i) {
      if (i) text += ", ";
      expr(exprs[i]);
    }
    text += close;
  }
  void line(const char* word, const std::vector<ExprRef>& exprs) { list(word, exprs, "\n"); }

  void iters(const std::vector<IterVar>& iters) {
    for (size_t i = 0; i < iters.size(); ++i) {
      text += (i ? ", " : "") + names_.of(*iters[i].var) + " < ";
      expr(iters[i].extent);
    }
  }

  void type(const TypeRef& type) {
    const std::string spelt = type.symbol ? names_.of(*type.symbol) : std::string(name(type.dtype));
    text += type.accumulator ? "acc(" + spelt + ")" : spelt;
  }

  void apply(const Expr& expr, int outer) {
    const OpInfo& op = info(expr.op);
    bool ternary = expr.op == Op::kSelect;
    if (!ternary && op.precedence == 0) {
      if (expr.approx) text += "approx ";
      text += op.spelling;
      list("(", expr.args, ")");
      return;
    }
    int own = ternary ? kTernary : op.precedence;
    bool parens = own <= outer;
    if (parens) text += "(";
    if (ternary) {
      this->expr(expr.args[0], kTernary);
      text += " ? ";
      this->expr(expr.args[1]);
      text += " : ";
      this->expr(expr.args[2]);
    } else if (op.arity == 1) {
      text += op.spelling;
      this->expr(expr.args[0], own - 1);
    } else {
      // Left-associative, but comparisons do not associate.
      this->expr(expr.args[0], is_comparison(expr.op) ? own : own - 1);
      text += fmt::format(" {} ", op.spelling);
      this->expr(expr.args[1], own);
    }
    if (parens) text += ")";
  }

  void axis(const AxisSpec& axis) {
    switch (axis.kind) {
      case AxisSpec::Kind::kWhole:
        text += ":";
        return;
      case AxisSpec::Kind::kGather:
        tile(*axis.gather);
        return;
      case AxisSpec::Kind::kIndex:
        expr(axis.start);
        return;
      case AxisSpec::Kind::kRange:
        expr(axis.start);
        text += " +: ";
        expr(axis.extent);
        return;
    }
  }

  void header(const Kernel& kernel) {
    text += kernel.name;
    angle_params(kernel, true);
    params(kernel);
    text += "\n";
    if (!kernel.where.empty()) line("where ", kernel.where);
    if (!kernel.key.empty()) line("key ", kernel.key);
    for (size_t i = 0; i < kernel.tunables.size(); ++i) {
      text += fmt::format("{}{} = {}", i ? ", " : "tune ", names_.of(*kernel.tunables[i].var),
                          fmt::join(kernel.tunables[i].values, " | "));
    }
    if (!kernel.tunables.empty()) text += "\n";
  }

  void canonical_header(const Kernel& kernel) {
    for (const TypeSymbolRef& symbol : kernel.type_symbols) names_.of(*symbol);
    for (const VarRef& var : kernel.consts) names_.of(*var);
    for (const Tunable& tunable : kernel.tunables) names_.of(*tunable.var);
    angle_params(kernel, false);
    params(kernel);
    text += "\n";
  }

  template <class NameOf>
  void calls(const Program& program, const NameOf& name_of) {
    text += "{\n";
    const char* separator = "  temp ";
    for (const BufferRef& temp : program.temps) {
      text += separator + names_.of(*temp) + ": ";
      type(temp->type);
      list("[", temp->shape, "]");
      separator = ", ";
    }
    if (!program.temps.empty()) text += "\n";
    for (const Call& call : program.calls) {
      text += "  " + name_of(call.kernel);
      separator = "<";
      for (const Call::Const& value : call.consts) {
        text += fmt::format("{}{} = ", separator, value.name);
        const bool plain = value.value->kind != ExprKind::kApply;
        if (!plain) text += "(";
        expr(value.value);
        if (!plain) text += ")";
        separator = ", ";
      }
      text += call.consts.empty() ? "(" : ">(";
      separator = "";
      for (const CallArg& arg : call.args) {
        text += separator;
        if (arg.tensor) text += names_.of(*arg.tensor);
        else expr(arg.value);
        separator = ", ";
      }
      text += ")\n";
    }
    text += "}\n";
  }

  void angle_params(const Kernel& kernel, bool options) {
    const char* separator = "<";
    for (const TypeSymbolRef& symbol : kernel.type_symbols) {
      text += separator + names_.of(*symbol);
      for (size_t i = 0; options && i < symbol->options.size(); ++i)
        text += (i ? " | " : ": ") + std::string(name(symbol->options[i]));
      separator = ", ";
    }
    for (const VarRef& var : kernel.consts) {
      text += fmt::format("{}const {}: ", separator, names_.of(*var));
      type(var->type);
      separator = ", ";
    }
    if (*separator == ',') text += ">";
  }

  void params(const Kernel& kernel) {
    text += "(";
    for (size_t i = 0; i < kernel.params.size(); ++i) {
      const Param& param = kernel.params[i];
      if (i) text += ", ";
      if (!param.tensor) {
        text += names_.of(*param.scalar) + ": ";
        type(param.scalar->type);
        continue;
      }
      text += names_.of(*param.tensor) + ": ";
      if (param.tensor->direction != Direction::kIn)
        text += param.tensor->direction == Direction::kOut ? "out " : "inout ";
      type(param.tensor->type);
      list("[", param.tensor->shape, "]");
    }
    text += ")";
  }

  void grid(const Kernel& kernel) {
    if (kernel.grid.empty()) return;
    text += "grid ";
    iters(kernel.grid);
    text += "\n";
  }

  void block(const Block& block, int depth) {
    for (const Stmt& stmt : block) {
      text.append(2 * depth, ' ');
      std::visit([&](const auto& node) { statement(node, depth); }, stmt.node);
      text += "\n";
    }
  }

  void braces(const Block& body, int depth) {
    text += " {\n";
    block(body, depth + 1);
    text.append(2 * depth, ' ');
    text += "}";
  }

  void statement(const DeclStmt& stmt, int) {
    text += (stmt.buffer->scope == Scope::kFragment ? "fragment " : "shared ") + names_.of(*stmt.buffer) + ": ";
    type(stmt.buffer->type);
    list("[", stmt.buffer->shape, "]");
    if (stmt.init) {
      text += " = ";
      expr(stmt.init);
    }
  }
  void statement(const LetStmt& stmt, int) {
    text += "let " + names_.of(*stmt.var) + " = ";
    expr(stmt.value);
  }
  void statement(const CopyStmt& stmt, int) {
    atomic(stmt.atomic);
    tile(stmt.dst);
    text += stmt.atomic == AtomicOp::kAdd ? " += " : " = ";
    tile(stmt.src);
  }
  void statement(const FillStmt& stmt, int) {
    tile(stmt.dst);
    text += " = ";
    expr(stmt.value);
  }
  void statement(const GemmStmt& stmt, int) {
    tile(stmt.c);
    text += stmt.accumulate ? " += " : " = ";
    tile(stmt.a);
    text += stmt.transpose_a ? "^T @ " : " @ ";
    tile(stmt.b);
    if (stmt.transpose_b) text += "^T";
    if (stmt.precision == Precision::kTf32) text += " precision tf32";
    if (stmt.precision == Precision::kFast) text += " precision fast";
  }
  void statement(const ParallelStmt& stmt, int depth) {
    text += "parallel ";
    iters(stmt.iters);
    braces(stmt.body, depth);
  }
  void statement(const AssignStmt& stmt, int) {
    static constexpr const char* kOps[] = {" = ", " += ", " -= ", " *= ", " /= "};
    atomic(stmt.atomic);
    text += names_.of(*stmt.buffer);
    list("[", stmt.indices, "]");
    text += kOps[static_cast<int>(stmt.op)];
    expr(stmt.value);
  }
  void statement(const ForStmt& stmt, int depth) {
    text += (stmt.pipelined ? "pipelined " : "for ") + names_.of(*stmt.var);
    if (is_int(stmt.begin, 0)) {
      text += " < ";
    } else {
      text += " in ";
      expr(stmt.begin);
      text += " .. ";
    }
    expr(stmt.end);
    if (stmt.stages) {
      text += ", ";
      expr(stmt.stages);
    }
    braces(stmt.body, depth);
  }
  void statement(const IfStmt& stmt, int depth) {
    text += "if ";
    expr(stmt.condition);
    braces(stmt.then_body, depth);
    if (stmt.else_body.empty()) return;
    text += " else";
    if (stmt.else_body.size() == 1) {
      if (const auto* chained = std::get_if<IfStmt>(&stmt.else_body[0].node)) {
        text += " ";
        statement(*chained, depth);
        return;
      }
    }
    braces(stmt.else_body, depth);
  }

  void atomic(AtomicOp op) {
    if (op == AtomicOp::kNone) return;
    text += op == AtomicOp::kAdd ? "atomic " : op == AtomicOp::kMax ? "atomic max " : "atomic min ";
  }

  Names& names_;
};

}  // namespace

std::string print(const Module& module) {
  std::string text = fmt::format("tile {}\n", module.version);
  for (const Kernel& kernel : module.kernels) text += "\n" + print(kernel);
  for (const Program& program : module.programs) text += "\n" + print(program);
  return text;
}

std::string print(const Kernel& kernel) {
  Names names;
  Writer writer(names);
  writer.kernel(kernel);
  return std::move(writer.text);
}

std::string print(const Program& program) {
  Names names;
  Writer writer(names);
  writer.program(program);
  return std::move(writer.text);
}

std::string print(const ExprRef& expr) {
  Names names;
  Writer writer(names);
  writer.expr(expr);
  return std::move(writer.text);
}

std::string print(const TileRef& tile) {
  Names names;
  Writer writer(names);
  writer.tile(tile);
  return std::move(writer.text);
}

// `where` is left out beside `tune` and `key`: it refuses launches and prunes configurations, which happens before a
// binary is looked up; what a pass wants to assume from it must enter the key as a fact. The options of type symbols
// are left out because the key holds the types themselves. Constants and tunables are numbered by declared position,
// so that a configuration can be written down by position too.
std::string canonical_body(const Kernel& kernel) {
  Positions names;
  Writer writer(names);
  writer.canonical(kernel);
  return std::move(writer.text);
}

std::string canonical_body(const Module& module, const Program& program) {
  Positions names;
  Writer writer(names);
  std::vector<std::string> called;
  auto number_of = [&](const std::string& kernel) {
    const auto number = std::find(called.begin(), called.end(), kernel) - called.begin();
    if (number == std::ssize(called)) called.push_back(kernel);
    return fmt::format("f{}", number);
  };
  writer.canonical(program, number_of);
  for (const std::string& kernel : called)
    if (const Kernel* found = module.find(kernel)) writer.text += canonical_body(*found);
  return std::move(writer.text);
}

}  // namespace kachel::ir
