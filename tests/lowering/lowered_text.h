// Small programs lowered for a target, with what the passes print.
#pragma once
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "ir/instantiate.h"
#include "ir/parse.h"
#include "lowering/lower.h"

namespace kachel::lowering {

struct Request {
  std::string text;
  std::map<std::string, int64_t> tunables = {};
  Target target = {.kind = Target::Kind::kCuda, .architecture = 89, .shared_limit = 227 * 1024};
  uint64_t facts = ~uint64_t{0};
};

inline Lowered lowered(const Request& request) {
  auto module = ir::load(request.text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  const ir::Kernel& kernel = module->kernels[0];
  ir::Bindings bindings;
  for (const ir::TypeSymbolRef& symbol : kernel.type_symbols) bindings.types[symbol->name] = symbol->options[0];
  for (const ir::Tunable& tunable : kernel.tunables) bindings.tunables[tunable.var->name] = tunable.values[0];
  for (const auto& [name, value] : request.tunables) bindings.tunables[name] = value;
  for (const ir::VarRef& dim : kernel.dims) bindings.dims[dim->name] = 128;
  auto concrete = ir::instantiate(kernel, bindings);
  REQUIRE_MESSAGE(concrete.ok(), concrete.status().message());
  auto result = lower(*concrete, request.target, request.facts, {.keep_stages = true});
  REQUIRE_MESSAGE(result.ok(), result.status().message());
  return *std::move(result);
}

inline size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}
inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

}  // namespace kachel::lowering
