#include <algorithm>
#include <numeric>
#include <set>

#include "derive/parts.h"
#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

// What is read once is best read into registers; elements narrower than a byte have none of their own.
Scope scope_of(const Buffer& tile) {
  const auto narrow = [](DType type) { return bits(type) < 8; };
  const TypeRef& type = tile.type;
  const bool packed =
      type.symbol ? std::any_of(type.symbol->options.begin(), type.symbol->options.end(), narrow) : narrow(type.dtype);
  return packed ? tile.scope : Scope::kFragment;
}

// Those that are multiples, or the first one rounded up.
std::vector<int64_t> multiples_of(int64_t number, std::vector<int64_t> values) {
  const int64_t rounded = (values[0] + number - 1) / number * number;
  std::erase_if(values, [number](int64_t value) { return value % number != 0; });
  return values.empty() ? std::vector{rounded} : values;
}

// Names that begin as the tensor's does are as new as that one.
Buffer turned_tile(const OperandSlice& slice, const std::string& prefix) {
  Buffer tile = *ordered_tile(slice);
  tile.name = prefix + "_tile";
  tile.scope = Scope::kFragment;
  return tile;
}

ParallelStmt turning(const OperandSlice& slice, const BufferRef& to) {
  ParallelStmt region;
  std::vector<ExprRef> places;
  for (size_t axis = 0; axis < 2; ++axis) {
    const auto var = std::make_shared<Var>(
        Var{VarKind::kParallel, to->name + (axis ? "_j" : "_i"), {DType::I64, nullptr, false}, {}});
    region.iters.push_back({var, to->shape[axis]});
    places.push_back(make_var(var));
  }
  region.body.push_back(
      {{}, AssignStmt{to, places, AssignOp::kSet, AtomicOp::kNone, make_load(slice.tile, {places[1], places[0]})}});
  return region;
}

}  // namespace

Kernel maker_of(const Kernel& kernel, const OperandSlice& slice, const BufferRef& tensor, std::string name) {
  Kernel maker;
  maker.name = std::move(name);
  Block body;
  for (const Stmt* stmt : slice.statements_of(kernel)) body.push_back(*stmt);
  std::vector<const Stmt*> statements;
  for (const Stmt& stmt : body) statements.push_back(&stmt);
  Lets lets(kernel, statements);
  body = in_digits(std::move(body), slice.digits, lets);
  const std::set<const Buffer*> written = written_by(body);
  for (const Stmt& stmt : kernel.body)
    if (const auto* decl = std::get_if<DeclStmt>(&stmt.node); decl && written.count(decl->buffer.get()))
      maker.body.push_back(declaration(decl->buffer, scope_of(*decl->buffer)));
  maker.body.insert(maker.body.end(), body.begin(), body.end());
  BufferRef made = slice.tile;
  if (slice.turned) {
    made = std::make_shared<Buffer>(turned_tile(slice, tensor->name));
    maker.body.insert(maker.body.begin(), {{}, DeclStmt{made, nullptr}});
    maker.body.push_back({{}, turning(slice, made)});
  }
  maker.body.push_back({{}, store_of(slice, tensor, made)});

  const std::vector<size_t> order = order_of(slice);  // two axes exchanged, or none: its own inverse
  for (const IterVar& var : slice.free) maker.grid.push_back(var);
  for (size_t axis = 0; axis < slice.axes.size(); ++axis)
    if (slice.axes[axis].var)
      maker.grid.push_back(
          {slice.axes[axis].var, ceil_div(tensor->shape[slice.free.size() + order[axis]], slice.tile->shape[axis])});
  complete(kernel, {with_direction(tensor, Direction::kOut)}, &maker);
  for (const Tunable& tunable : kernel.tunables) {
    std::vector<int64_t> values;
    int64_t multiple = 1;  // of all axes that extend so far
    for (size_t axis = 0; axis < slice.axes.size(); ++axis) {
      if (slice.tile->shape[axis]->kind != ExprKind::kVar || slice.tile->shape[axis]->var != tunable.var) continue;
      multiple = std::lcm(multiple, slice.axes[axis].multiple);
      values = axis + 1 == slice.axes.size() ? std::vector{kTileColumns} : std::vector{kTileRows, kFewTileRows};
    }
    if (!values.empty()) maker.tunables.push_back({tunable.var, multiples_of(multiple, std::move(values))});
  }
  return maker;
}

}  // namespace kachel::derive
