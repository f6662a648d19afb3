#include "ir/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ir/one_axis.h"
#include "ir/parse.h"
#include "ir/typecheck.h"
#include "ir/verify_rules.h"
#include "ir/visit.h"

namespace kachel::ir {
namespace {

constexpr size_t kMaxCombinations = 4096;

bool before(const Diagnostic& a, const Diagnostic& b) {
  return std::pair(a.loc.line, a.loc.column) < std::pair(b.loc.line, b.loc.column);
}

}  // namespace

// One message a place: what fails for several choices of types is shown for the first of them.
void check_all_types(const Kernel& kernel, Diagnostics& out) {
  size_t combinations = 1;
  for (const TypeSymbolRef& symbol : kernel.type_symbols) {
    combinations *= symbol->options.size();
    if (combinations <= kMaxCombinations) continue;
    out.push_back({symbol->loc, fmt::format("the type symbols have more than {} combinations", kMaxCombinations),
                   "list fewer types, or split the kernel"});
    return;
  }
  std::set<std::pair<int, int>> seen;
  for (size_t number = 0; number < combinations; ++number) {
    TypeAssignment types;
    size_t rest = number;
    for (const TypeSymbolRef& symbol : kernel.type_symbols) {
      types[symbol.get()] = symbol->options[rest % symbol->options.size()];
      rest /= symbol->options.size();
    }
    Diagnostics found = check_types(kernel, types);
    std::set<std::pair<int, int>> places;
    for (Diagnostic& diagnostic : found) {
      std::pair place(diagnostic.loc.line, diagnostic.loc.column);
      if (seen.count(place)) continue;
      places.insert(place);
      out.push_back(std::move(diagnostic));
    }
    seen.insert(places.begin(), places.end());
  }
}

std::vector<Diagnostic> verify(const Module& module) {
  Diagnostics all;
  if (module.version != 1)
    all.push_back({{}, fmt::format("version {} of the language is not known here", module.version), "write version 1"});
  auto add = [&](Diagnostics found) {
    std::stable_sort(found.begin(), found.end(), before);
    for (Diagnostic& diagnostic : found) {
      // Of several complaints about one place the first is the cause.
      const Loc& loc = diagnostic.loc;
      bool again =
          loc.line > 0 && !all.empty() && loc.line == all.back().loc.line && loc.column == all.back().loc.column;
      if (!again) all.push_back(std::move(diagnostic));
    }
  };
  std::set<std::string> names;
  for (const Kernel& kernel : module.kernels) {
    if (!names.insert(kernel.name).second)
      all.push_back({kernel.loc, fmt::format("there are two kernels `{}`", kernel.name), "rename one"});
    Diagnostics found;
    check_structure(kernel, found);
    if (found.empty()) {
      check_header(kernel, found);
      check_extents(kernel, found);
      check_automatic(kernel, roles_of(kernel), found);
    }
    if (found.empty()) {
      check_shapes(kernel, found);
      check_access(kernel, found);
      check_writes(kernel, found);
      check_expansion(kernel, found);
      check_scans(kernel, found);
      check_all_types(kernel, found);
    }
    add(std::move(found));
  }
  for (const Program& program : module.programs) {
    if (!names.insert(program.header.name).second)
      all.push_back({program.header.loc, fmt::format("there are two kernels or programs `{}`", program.header.name),
                     "rename one"});
    Diagnostics found;
    check_program(module, program, found);
    add(std::move(found));
  }
  return all;
}

namespace {

void note_divisors(Kernel* kernel) {
  const auto note = [kernel](const ExprRef& node) {
    if (node->kind != ExprKind::kApply || node->op != Op::kDiv) return;
    ExprRef by = node->args[1];
    while (by->kind == ExprKind::kCast) by = by->args[0];
    for (Param& param : kernel->params)
      param.divides |= by->kind == ExprKind::kVar && by->var == param.scalar && !is_float(param.scalar->type.dtype);
  };
  for_each_stmt(kernel->body,
                [&](const Stmt& stmt) { for_each_expr(stmt, [&](const ExprRef& expr) { visit(expr, note); }); });
}

}  // namespace

Result<Module> load(std::string_view text, std::string_view file) {
  ParseResult result = parse(text);
  if (result.diagnostics.empty()) result.diagnostics = verify(result.module);
  if (result.diagnostics.empty() && result.module.kernels.empty())
    result.diagnostics.push_back({{1, 1, 1}, "the program has no kernel", "write `kernel name(...) { ... }`"});
  if (!result.diagnostics.empty()) return to_status(result.diagnostics, file, text);
  for (Kernel& kernel : result.module.kernels) {
    note_divisors(&kernel);
    const OneAxis one_axis(kernel);
    for (Param& param : kernel.params) param.one_axis = param.tensor && one_axis.counts(*param.tensor);
  }
  return std::move(result.module);
}

}  // namespace kachel::ir
