#include "derive/text_without_names.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "ir/print.h"
#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

std::string text_without_names(const Kernel& kernel) {
  std::set<std::string> own{kernel.name};
  const auto note = [&own](const VarRef& var) { own.insert(var->name); };
  for (const IterVar& axis : kernel.grid) note(axis.var);
  for (const Tunable& tunable : kernel.tunables) note(tunable.var);
  for (const Param& param : kernel.params)
    if (param.tensor && param.tensor->direction == Direction::kOut) own.insert(param.tensor->name);
  for_each_stmt(kernel.body, [&](const Stmt& stmt) {
    if (const auto* decl = std::get_if<DeclStmt>(&stmt.node)) own.insert(decl->buffer->name);
    if (const auto* let = std::get_if<LetStmt>(&stmt.node)) note(let->var);
    if (const auto* loop = std::get_if<ForStmt>(&stmt.node)) note(loop->var);
    if (const auto* region = std::get_if<ParallelStmt>(&stmt.node))
      for (const IterVar& iter : region->iters) note(iter.var);
    for_each_expr(stmt, [&](const ExprRef& expr) {
      visit(expr, [&](const ExprRef& node) {
        for (const IterVar& iter : node->iters) note(iter.var);
      });
    });
  });
  Module module;
  module.kernels.push_back(kernel);
  const std::string text = print(module);
  std::map<std::string, size_t> numbers;
  std::string out;
  const auto in_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && in_name(text[end])) ++end;
    const std::string word = text.substr(at, end - at);
    if (own.count(word))
      out += '$' + std::to_string(numbers.try_emplace(word, numbers.size()).first->second);
    else
      out += end > at ? word : std::string(1, text[at]);
    at = std::max(end, at + 1);
  }
  return out;
}

}  // namespace kachel::derive
