#include "derive/split_sums.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "derive/adder.h"
#include "derive/free_tunables.h"
#include "derive/parts.h"
#include "derive/uses.h"
#include "ir/tunable_role.h"
#include "ir/visit.h"

namespace kachel::derive {

using namespace ir;

namespace {

// Of blocks that add parts up, where extents are free: so small that there are many.
constexpr int64_t kRows[] = {8, 32}, kColumns[] = {128, 64}, kBoth[] = {16, 32};

// Those of the statements that `rest` has need of, with the declarations of all tiles that are left.
Block needed(const Block& statements, const Block& rest) {
  Uses wanted;
  for (const Stmt& stmt : rest) wanted.add(find_uses(stmt));
  Block out;
  for (auto stmt = statements.rbegin(); stmt != statements.rend(); ++stmt) {
    if (std::holds_alternative<DeclStmt>(stmt->node)) continue;
    const Uses uses = find_uses(*stmt);
    const auto* let = std::get_if<LetStmt>(&stmt->node);
    const bool writes = std::any_of(uses.written.begin(), uses.written.end(), [&](const Buffer* tile) {
      return wanted.read.count(tile) || wanted.written.count(tile);
    });
    if (!writes && !(let && wanted.vars.count(let->var.get()))) continue;
    wanted.add(uses);
    out.push_back(*stmt);
  }
  std::reverse(out.begin(), out.end());
  // By name: a tile that is declared for another place in memory is another one.
  std::set<std::string> names;
  for (const auto* buffers : {&wanted.read, &wanted.written})
    for (const Buffer* buffer : *buffers) names.insert(buffer->name);
  Block declared;
  std::copy_if(statements.begin(), statements.end(), std::back_inserter(declared), [&](const Stmt& stmt) {
    const auto* decl = std::get_if<DeclStmt>(&stmt.node);
    return decl && names.count(decl->buffer->name);
  });
  out.insert(out.begin(), declared.begin(), declared.end());
  return out;
}

class Splitter {
 public:
  Splitter(const Kernel& kernel, const SumLoop& loop, const SumParts& parts,
           const std::function<std::string(std::string)>& fresh)
      : kernel_(kernel), loop_(loop), parts_(parts), fresh_(fresh), free_(free_tunables(kernel)) {}

  std::optional<SplitKernels> run() {
    for (const SumLoop::Sum& sum : loop_.sums) {
      auto tensor = std::make_shared<Buffer>();
      tensor->name = fresh_(sum.tile->name + "_parts");
      tensor->direction = Direction::kInOut;
      tensor->type = {parts_.type ? parts_.type(*sum.tile) : sum.tile->type.dtype, nullptr, false};
      tensor->shape.push_back(make_int(parts_.parts));
      for (const IterVar& axis : sum.free) tensor->shape.push_back(at_least_zero(axis.extent));
      for (const SumLoop::Axis& axis : sum.axes) tensor->shape.push_back(at_least_zero(axis.all));
      made_.sums.push_back(std::move(tensor));
    }
    for (size_t i = 0; i < loop_.sums.size(); ++i) totals_.push_back(total_of(i));
    make_part();
    make_combine();
    for (const BufferRef& total : totals_)
      if (total) made_.sums.push_back(total);
    return loses_ ? std::nullopt : std::optional(std::move(made_));
  }

 private:
  VarRef variable(VarKind kind, const char* name) const {
    return std::make_shared<Var>(Var{kind, fresh_(name), {DType::I64, nullptr, false}, {}});
  }
  Block before() const { return {kernel_.body.begin(), kernel_.body.begin() + static_cast<std::ptrdiff_t>(loop_.at)}; }
  // The sum of all parts, with the kernel that makes it; null: the last kernel adds them up.
  BufferRef total_of(size_t number) {
    const SumLoop::Sum& sum = loop_.sums[number];
    const auto free = [this](const Var& tunable) { return free_.count(&tunable) != 0; };
    if (sum.axes.size() != 2 || is_cut_at_will(sum, free)) return nullptr;
    auto total = std::make_shared<Buffer>(*made_.sums[number]);
    total->name = fresh_(sum.tile->name + "_total");
    total->shape.erase(total->shape.begin());
    made_.adders.push_back(adder_of(kernel_, sum, made_.sums[number], total, fresh_));
    return total;
  }

  // In the tensor of the parts or, without one of them, of their sum.
  TileRef place(size_t number, const VarRef& part) const {
    const SumLoop::Sum& sum = loop_.sums[number];
    TileRef tile{part ? made_.sums[number] : totals_[number], {}, nullptr, nullptr, nullptr, {}};
    if (part) tile.axes.push_back({AxisSpec::Kind::kIndex, make_var(part), nullptr, nullptr});
    for (const IterVar& axis : sum.free)
      tile.axes.push_back({AxisSpec::Kind::kIndex, make_var(axis.var), nullptr, nullptr});
    for (size_t axis = 0; axis < sum.axes.size(); ++axis) {
      const ExprRef& extent = sum.tile->shape[axis];
      const VarRef& var = sum.axes[axis].var;
      tile.axes.push_back({AxisSpec::Kind::kRange, var ? times(make_var(var), extent) : make_int(0), extent, nullptr});
    }
    return tile;
  }

  void make_part() {
    Kernel& part = made_.part;
    part.name = fresh_(kernel_.name + "_part");
    const VarRef number = variable(VarKind::kGrid, "part");
    part.grid = kernel_.grid;
    part.grid.insert(part.grid.begin(), {number, make_int(parts_.parts)});
    ForStmt loop = std::get<ForStmt>(kernel_.body[loop_.at].node);
    const VarRef steps = variable(VarKind::kLet, "steps"), share = variable(VarKind::kLet, "share");
    const bool from_zero = is_int(loop.begin, 0);
    const auto wide = [](const ExprRef& bound) { return make_cast({DType::I64, nullptr, false}, bound); };
    const auto apply = [](Op op, ExprRef a, ExprRef b) { return make_apply(op, {std::move(a), std::move(b)}); };
    Block rest;
    rest.push_back(
        {{},
         LetStmt{steps, from_zero ? loop.end
                                  : apply(Op::kMax, apply(Op::kSub, wide(loop.end), wide(loop.begin)), make_int(0))}});
    ExprRef of_part = ceil_div(make_untyped_var(steps), make_int(parts_.parts));
    if (loop_.each) {
      const ExprRef unit = make_int(loop_.unit);
      of_part = apply(Op::kDiv, times(ceil_div(ceil_div(loop_.all, make_int(parts_.parts)), unit), unit), loop_.each);
    }
    rest.push_back({{}, LetStmt{share, of_part}});
    const ExprRef first = times(make_var(number), make_untyped_var(share));
    const ExprRef last = apply(Op::kMin, make_untyped_var(steps),
                               times(apply(Op::kAdd, make_var(number), make_int(1)), make_untyped_var(share)));
    const ExprRef begin = loop.begin;
    loop.begin = from_zero ? first : apply(Op::kAdd, begin, first);
    loop.end = from_zero ? last : apply(Op::kAdd, begin, last);
    rest.push_back({{}, std::move(loop)});
    for (size_t i = 0; i < loop_.sums.size(); ++i)
      rest.push_back({{}, CopyStmt{place(i, number), whole(loop_.sums[i].tile)}});
    finish(&part, std::move(rest), Direction::kOut);
  }

  void make_combine() {
    Kernel& combine = made_.combine;
    combine.name = fresh_(kernel_.name + "_sums");
    combine.grid = kernel_.grid;
    ForStmt loop;
    loop.var = variable(VarKind::kLoop, "part");
    loop.begin = make_int(0);
    loop.end = make_int(parts_.parts);
    Block rest;
    for (size_t i = 0; i < loop_.sums.size(); ++i) {
      const BufferRef& tile = loop_.sums[i].tile;
      if (totals_[i]) {
        rest.push_back({{}, CopyStmt{whole(tile), place(i, nullptr)}});
        continue;
      }
      auto part = std::make_shared<Buffer>(*tile);
      part->name = fresh_(tile->name + "_part");
      combine.body.push_back({{}, DeclStmt{part, nullptr}});
      loop.body.push_back({{}, CopyStmt{whole(part), place(i, loop.var)}});
      loop.body.push_back(
          {{}, added_up(loop_.sums[i].op, tile, part, [this] { return variable(VarKind::kParallel, "i"); })});
    }
    if (!loop.body.empty()) rest.push_back({{}, std::move(loop)});
    rest.insert(rest.end(), kernel_.body.begin() + static_cast<std::ptrdiff_t>(loop_.at) + 1, kernel_.body.end());
    finish(&combine, std::move(rest), Direction::kIn);
    for (Tunable& tunable : combine.tunables) {
      const auto is_extent = [&](bool of_rows) {
        return std::any_of(loop_.sums.begin(), loop_.sums.end(), [&](const SumLoop::Sum& sum) {
          for (size_t axis = 0; axis < sum.axes.size(); ++axis)
            if ((axis + 1 < sum.axes.size()) == of_rows && sum.axes[axis].var &&
                sum.tile->shape[axis]->var == tunable.var)
              return true;
          return false;
        });
      };
      const bool rows = is_extent(true), columns = is_extent(false);
      if ((!rows && !columns) || tied(combine, tunable.var)) continue;
      const auto& values = rows && columns ? kBoth : rows ? kRows : kColumns;
      tunable = {tunable.var, {std::begin(values), std::end(values)}};
    }
  }
  static bool tied(const Kernel& kernel, const VarRef& tunable) {
    return std::any_of(kernel.where.begin(), kernel.where.end(),
                       [&](const ExprRef& condition) { return mentions(condition, tunable); });
  }

  // With what of the kernel stands in front of the loop and is needed, and all that the header says of what is left.
  void finish(Kernel* kernel, Block rest, Direction direction) {
    const Block front = needed(before(), rest);
    kernel->body.insert(kernel->body.end(), front.begin(), front.end());
    kernel->body.insert(kernel->body.end(), rest.begin(), rest.end());
    std::vector<BufferRef> tensors;
    for (size_t i = 0; i < loop_.sums.size(); ++i)
      tensors.push_back(
          with_direction(direction == Direction::kIn && totals_[i] ? totals_[i] : made_.sums[i], direction));
    complete(kernel_, tensors, kernel);
    // Tiles whose type no tensor of this kernel has are of the launch's.
    for (Stmt& stmt : kernel->body) {
      auto* decl = std::get_if<DeclStmt>(&stmt.node);
      if (!decl || !decl->buffer->type.symbol || !parts_.type ||
          std::count(kernel->type_symbols.begin(), kernel->type_symbols.end(), decl->buffer->type.symbol))
        continue;
      auto typed = std::make_shared<Buffer>(*decl->buffer);
      typed->type = {parts_.type(*decl->buffer), nullptr, false};
      decl->buffer = std::move(typed);
    }
    std::set<const Var*> known, tunables;
    const auto note = [&](const ExprRef& expr) {
      visit(expr, [&](const ExprRef& node) {
        if (is_tunable(node)) tunables.insert(node->var.get());
      });
    };
    for_each_stmt(kernel->body, [&](const Stmt& stmt) {
      for_each_expr(stmt, note);
      for_each_extent(stmt, note);
    });
    for (const IterVar& axis : kernel->grid) note(axis.extent);
    for (const Tunable& tunable : kernel_.tunables)
      if (tunables.count(tunable.var.get())) kernel->tunables.push_back(tunable), known.insert(tunable.var.get());
    for (const VarRef& dim : kernel->dims) known.insert(dim.get());
    for (const VarRef& constant : kernel->consts) known.insert(constant.get());
    for (const Param& param : kernel->params)
      if (!param.tensor) known.insert(param.scalar.get());
    const auto is_known = [&](const ExprRef& expr) {
      bool all = true;
      visit(expr, [&](const ExprRef& node) { all &= node->kind != ExprKind::kVar || known.count(node->var.get()); });
      return all;
    };
    for (const ExprRef& condition : kernel_.where) {
      if (is_known(condition)) kernel->where.push_back(condition);
      // What is left out may be what kept a tunable to values for which the kernel is right.
      else
        visit(condition, [&](const ExprRef& node) {
          loses_ |= is_tunable(node) && known.count(node->var.get()) && !free_.count(node->var.get());
        });
    }
    std::copy_if(kernel_.key.begin(), kernel_.key.end(), std::back_inserter(kernel->key), is_known);
  }

  const Kernel& kernel_;
  const SumLoop& loop_;
  const SumParts& parts_;
  const std::function<std::string(std::string)>& fresh_;
  const std::set<const Var*> free_;
  SplitKernels made_;
  std::vector<BufferRef> totals_;  // by sum; null: there is none
  bool loses_ = false;
};

}  // namespace

std::optional<SplitKernels> split_sums(const Kernel& kernel, const SumLoop& loop, const SumParts& parts,
                                       const std::function<std::string(std::string)>& fresh) {
  return Splitter(kernel, loop, parts, fresh).run();
}

}  // namespace kachel::derive
