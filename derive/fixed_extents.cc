#include "derive/fixed_extents.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>

#include "derive/free_tunables.h"
#include "ir/instantiate.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/tunable_role.h"
#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

// Whether no condition that names this tunable alone excludes the value.
bool is_allowed(const Kernel& kernel, const VarRef& tunable, int64_t value) {
  return std::all_of(kernel.where.begin(), kernel.where.end(), [&](const ExprRef& condition) {
    bool alone = mentions(condition, tunable);
    visit(condition, [&](const ExprRef& node) { alone &= node->kind != ExprKind::kVar || node->var == tunable; });
    if (!alone) return true;
    const Result<HostValue> holds = evaluate(condition, {{tunable.get(), {.i = value}}});
    return holds.ok() && holds->i != 0;
  });
}

std::optional<int64_t> chosen(const Kernel& kernel, const Tunable& tunable, int64_t most) {
  std::vector<int64_t> values = tunable.values;
  std::erase_if(values, [&](int64_t value) { return !is_allowed(kernel, tunable.var, value); });
  if (values.empty()) return std::nullopt;
  int64_t best = *std::min_element(values.begin(), values.end());
  for (int64_t value : values)
    if (value <= most) best = std::max(best, value);
  return best;
}

// With numbers in the places of whole names.
std::string replaced(const std::string& text, const std::map<std::string, int64_t>& values) {
  std::string out;
  const auto is_letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && is_letter(text[end])) ++end;
    if (end == at) {
      out += text[at++];
      continue;
    }
    const std::string word = text.substr(at, end - at);
    const auto found = values.find(word);
    out += found == values.end() ? word : std::to_string(found->second);
    at = end;
  }
  return out;
}

}  // namespace

std::optional<Kernel> with_fixed_extents(const Kernel& kernel, int64_t most) {
  const std::set<const Var*> free = free_tunables(kernel);
  std::set<const Var*> extents;
  for_each_stmt(kernel.body, [&](const Stmt& stmt) {
    const auto* gemm = std::get_if<GemmStmt>(&stmt.node);
    if (!gemm || !gemm->accumulate) return;
    for (const ExprRef& extent : gemm->c.buffer->shape)
      if (extent->kind == ExprKind::kVar && !free.count(extent->var.get())) extents.insert(extent->var.get());
  });
  std::map<std::string, int64_t> values;
  Kernel open = kernel;
  open.tunables.clear();
  for (const Tunable& tunable : kernel.tunables) {
    if (!extents.count(tunable.var.get())) {
      open.tunables.push_back(tunable);
      continue;
    }
    if (tunable.automatic) return std::nullopt;
    const std::optional<int64_t> value = chosen(kernel, tunable, most);
    if (!value) return std::nullopt;
    values[tunable.var->name] = *value;
  }
  if (values.empty()) return std::nullopt;
  Module module;
  module.kernels.push_back(std::move(open));
  const auto made = load(replaced(print(module), values), "fixed.tile");
  return made.ok() ? std::optional(made->kernels.at(0)) : std::nullopt;
}

}  // namespace kachel::derive
