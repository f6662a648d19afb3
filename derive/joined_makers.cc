#include "derive/joined_makers.h"

#include <algorithm>
#include <set>
#include <string>

#include "derive/parts.h"
#include "ir/print.h"
#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

bool walk_alike(const Kernel& a, const Kernel& b) {
  const auto same_axis = [](const IterVar& x, const IterVar& y) { return x.var == y.var && same(x.extent, y.extent); };
  const auto same_values = [](const Tunable& x, const Tunable& y) {
    return x.var == y.var && x.values == y.values && x.automatic == y.automatic;
  };
  return std::equal(a.grid.begin(), a.grid.end(), b.grid.begin(), b.grid.end(), same_axis) &&
         std::equal(a.tunables.begin(), a.tunables.end(), b.tunables.begin(), b.tunables.end(), same_values);
}

std::set<const Buffer*> inputs_of(const Kernel& maker) {
  std::set<const Buffer*> inputs;
  for (const Param& param : maker.params)
    if (param.tensor && param.tensor->direction == Direction::kIn) inputs.insert(param.tensor.get());
  return inputs;
}

// What the statements give names to at the top.
std::set<std::string> names_of(const Block& body) {
  std::set<std::string> names;
  for (const Stmt& stmt : body) {
    if (const auto* decl = std::get_if<DeclStmt>(&stmt.node)) names.insert(decl->buffer->name);
    if (const auto* let = std::get_if<LetStmt>(&stmt.node)) names.insert(let->var->name);
  }
  return names;
}

// The maker's text but for what it stores, and its name.
std::string work_of(const OperandMaker& maker) {
  Kernel work = maker.kernel;
  work.name = "work";
  work.body.resize(work.body.size() - maker.made.size());
  std::erase_if(work.params, [&](const Param& param) {
    return std::any_of(maker.made.begin(), maker.made.end(),
                       [&](const BufferRef& made) { return param.tensor && param.tensor->name == made->name; });
  });
  return print(work);
}

}  // namespace

bool join(const Kernel& source, const OperandMaker& other, OperandMaker* maker) {
  if (!walk_alike(maker->kernel, other.kernel) || inputs_of(maker->kernel) != inputs_of(other.kernel)) return false;
  const auto split = [](const OperandMaker& one) {
    return one.kernel.body.begin() + static_cast<std::ptrdiff_t>(one.kernel.body.size() - one.made.size());
  };
  const OperandMaker& first = *maker;
  const Block work(first.kernel.body.begin(), split(first)), more(other.kernel.body.begin(), split(other));
  const std::set<std::string> own = names_of(work), further = names_of(more);
  const bool apart =
      std::none_of(further.begin(), further.end(), [&](const std::string& name) { return own.count(name) != 0; });
  if (!apart && work_of(first) != work_of(other)) return false;

  Kernel joined;
  joined.name = first.kernel.name;
  joined.grid = first.kernel.grid;
  joined.body = work;
  if (apart) joined.body.insert(joined.body.end(), more.begin(), more.end());
  joined.body.insert(joined.body.end(), split(first), first.kernel.body.end());
  joined.body.insert(joined.body.end(), split(other), other.kernel.body.end());
  maker->made.insert(maker->made.end(), other.made.begin(), other.made.end());
  std::vector<BufferRef> outputs;
  for (const BufferRef& made : maker->made) outputs.push_back(with_direction(made, Direction::kOut));
  complete(source, outputs, &joined);
  joined.tunables = maker->kernel.tunables;
  maker->kernel = std::move(joined);
  return true;
}

}  // namespace kachel::derive
