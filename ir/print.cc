// One writer for canonical text and for canonical bodies; they differ in the names it is given and in the header.
//
// A fixed point of print and parse needs three things: parentheses are decided by precedence alone, negative constants
// print as the parser reads them back, and every number is printed as the shortest text that denotes its f32.
#include "ir/print.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/writer.h"

namespace kachel::ir {
namespace {

class ModuleWriter : public Writer {
 public:
  using Writer::Writer;

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

 private:
  void line(const char* word, const std::vector<ExprRef>& exprs) { list(word, exprs, "\n"); }

  void header(const Kernel& kernel) {
    text += kernel.name;
    angle_params(kernel, true);
    params(kernel);
    text += "\n";
    if (!kernel.where.empty()) line("where ", kernel.where);
    if (!kernel.key.empty()) line("key ", kernel.key);
    for (size_t i = 0; i < kernel.tunables.size(); ++i) {
      const Tunable& tunable = kernel.tunables[i];
      if (i == 0 || tunable.automatic != kernel.tunables[i - 1].automatic)
        text += fmt::format("{}tune {}", i ? "\n" : "", tunable.automatic ? "auto " : "");
      else
        text += ", ";
      text += names_.of(*tunable.var);
      if (!tunable.automatic) text += fmt::format(" = {}", fmt::join(tunable.values, " | "));
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
    std::vector<Guard> open;
    for (const Call& call : program.calls) {
      move_to(call.guards, open);
      this->call(call, name_of(call.kernel));
    }
    move_to({}, open);
    text += "}\n";
  }

  void indent(size_t depth) { text.append(2 * depth, ' '); }

  // Closes blocks and opens others, so that exactly these are around what follows.
  void move_to(const std::vector<Guard>& guards, std::vector<Guard>& open) {
    size_t common = 0;
    while (common < guards.size() && common < open.size() && guards[common].holds == open[common].holds &&
           same(guards[common].condition, open[common].condition))
      ++common;
    while (open.size() > common) {
      indent(open.size());
      text += "}\n";
      open.pop_back();
    }
    while (open.size() < guards.size()) {
      const Guard& guard = guards[open.size()];
      indent(open.size() + 1);
      text += guard.holds ? "if " : "if !(";
      expr(guard.condition);
      text += guard.holds ? " {\n" : ") {\n";
      open.push_back(guard);
    }
  }

  void call(const Call& call, const std::string& kernel) {
    indent(call.guards.size() + 1);
    text += kernel;
    const char* separator = "<";
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
      if (arg.tensor)
        text += names_.of(*arg.tensor);
      else
        expr(arg.value);
      separator = ", ";
    }
    text += ")\n";
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
  ModuleWriter writer(names);
  writer.kernel(kernel);
  return std::move(writer.text);
}

std::string print(const Program& program) {
  Names names;
  ModuleWriter writer(names);
  writer.program(program);
  return std::move(writer.text);
}

std::string print(const ExprRef& expr) {
  Names names;
  ModuleWriter writer(names);
  writer.expr(expr);
  return std::move(writer.text);
}

std::string print(const TileRef& tile) {
  Names names;
  ModuleWriter writer(names);
  writer.tile(tile);
  return std::move(writer.text);
}

// `where` is left out beside `tune` and `key`: it refuses launches and prunes configurations, which happens before a
// binary is looked up; what a pass wants to assume from it must enter the key as a fact. The options of type symbols
// are left out because the key holds the types themselves. Constants and tunables are numbered by declared position,
// so that a configuration can be written down by position too.
std::string canonical_body(const Kernel& kernel) {
  Positions names;
  ModuleWriter writer(names);
  writer.canonical(kernel);
  return std::move(writer.text);
}

std::string canonical_body(const Module& module, const Program& program) {
  Positions names;
  ModuleWriter writer(names);
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
