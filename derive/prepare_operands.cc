#include "derive/prepare_operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "ir/print.h"
#include "ir/visit.h"

namespace kachel::derive {
namespace {

using namespace ir;

constexpr int64_t kRowElements = 128;          // rows begin at multiples of 128 bytes, whatever the type
constexpr int64_t kTileRows = 32, kTileColumns = 128;  // of the kernels that prepare

bool is_tunable(const ExprRef& expr) { return expr->kind == ExprKind::kVar && expr->var->kind == VarKind::kTunable; }

ExprRef plus(const ExprRef& a, int64_t b) { return b == 0 ? a : make_apply(Op::kAdd, {a, make_int(b)}); }
ExprRef times(const ExprRef& a, const ExprRef& b) { return make_apply(Op::kMul, {a, b}); }
ExprRef ceil_div(const ExprRef& a, const ExprRef& b) { return make_apply(Op::kCeilDiv, {a, b}); }

AxisSpec index_axis(const ExprRef& at) { return {AxisSpec::Kind::kIndex, at, nullptr, nullptr}; }
AxisSpec range_axis(const ExprRef& start, const ExprRef& extent) {
  return {AxisSpec::Kind::kRange, start, extent, nullptr};
}
AxisSpec whole_axis() { return {}; }

// Names that the kernel's text does not have.
class FreshNames {
 public:
  explicit FreshNames(const Kernel& kernel) : text_(print(kernel)) {}
  std::string operator()(std::string name) {
    while (text_.find(name) != text_.npos) name += "_";
    text_ += " " + name;
    return name;
  }

 private:
  std::string text_;
};

class Preparer {
 public:
  Preparer(const Kernel& kernel, const std::vector<OperandSlice>& slices)
      : kernel_(kernel), slices_(slices), fresh_(kernel) {}

  std::string run() {
    module_.kernels.push_back(kernel_);
    Program program;
    program.header = kernel_;
    program.header.name = fresh_(kernel_.name + "_forms");
    program.header.body.clear();
    program.header.grid.clear();
    program.header.where.clear();
    for (const ExprRef& condition : kernel_.where)
      if (!mentions_tunables(condition)) program.header.where.push_back(condition);
    const auto prepared =
        std::make_shared<Var>(Var{VarKind::kTunable, fresh_(kPrepared), {DType::I64, nullptr, false}, {}});
    program.header.tunables = {{prepared, {0, 1}}};
    const ExprRef chosen = make_apply(Op::kEq, {make_var(prepared), make_int(1)});

    Kernel reader = kernel_;
    reader.name = fresh_(kernel_.name + "_prepared");
    std::vector<CallArg> tensors;
    for (const OperandSlice& slice : slices_) {
      const BufferRef tensor = tensor_of(slice);
      program.temps.push_back(tensor);
      module_.kernels.push_back(maker_of(slice, tensor));
      program.calls.push_back(call_of(module_.kernels.back(), {chosen, true}));
      reader.params.push_back({with_direction(tensor, Direction::kIn), nullptr});
    }
    reader.body = without_slices(reader);
    module_.kernels.push_back(reader);
    program.calls.push_back(call_of(reader, {chosen, true}));
    program.calls.push_back(call_of(kernel_, {chosen, false}));
    module_.programs.push_back(std::move(program));
    return print(module_);
  }

 private:
  static bool mentions_tunables(const ExprRef& expr) {
    bool found = false;
    visit(expr, [&](const ExprRef& node) { found |= is_tunable(node); });
    return found;
  }

  int64_t largest(const ExprRef& extent) const {
    for (const Tunable& tunable : kernel_.tunables)
      if (is_tunable(extent) && tunable.var == extent->var)
        return *std::max_element(tunable.values.begin(), tunable.values.end());
    return 0;
  }

  static BufferRef with_direction(const BufferRef& tensor, Direction direction) {
    auto copy = std::make_shared<Buffer>(*tensor);
    copy->direction = direction;
    return copy;
  }

  // As large as the largest tiles reach.
  BufferRef tensor_of(const OperandSlice& slice) {
    auto tensor = std::make_shared<Buffer>();
    tensor->name = fresh_(slice.tile->name + "_all");
    tensor->direction = Direction::kInOut;
    tensor->type = slice.tile->type;
    for (const IterVar& var : slice.free) tensor->shape.push_back(var.extent);
    for (size_t axis = 0; axis < slice.axes.size(); ++axis) {
      const ExprRef& extent = slice.tile->shape[axis];
      ExprRef all = slice.axes[axis].all;
      if (slice.axes[axis].var) {
        if (is_tunable(extent))
          all = plus(all, largest(extent) - 1);
        else
          all = make_apply(Op::kAdd, {all, plus(extent, -1)});
        // A loop may be empty for a number of tiles below 0, a tensor not.
        if (slice.axes[axis].all->kind != ExprKind::kVar) all = make_apply(Op::kMax, {all, make_int(0)});
      }
      if (axis + 1 == slice.axes.size()) all = times(ceil_div(all, make_int(kRowElements)), make_int(kRowElements));
      tensor->shape.push_back(all);
    }
    return tensor;
  }

  std::vector<AxisSpec> place_of(const OperandSlice& slice) const {
    std::vector<AxisSpec> axes;
    for (const IterVar& var : slice.free) axes.push_back(index_axis(make_var(var.var)));
    for (size_t axis = 0; axis < slice.axes.size(); ++axis) {
      const ExprRef& extent = slice.tile->shape[axis];
      const VarRef& var = slice.axes[axis].var;
      axes.push_back(range_axis(var ? times(make_var(var), extent) : make_int(0), extent));
    }
    return axes;
  }

  // The kernel that makes the tensor. Loops become axes of the grid, which the text says by the name alone.
  Kernel maker_of(const OperandSlice& slice, const BufferRef& tensor) {
    Kernel maker;
    maker.name = fresh_(kernel_.name + "_" + slice.tile->name);
    Block body;
    for (size_t at : slice.outer) body.push_back(kernel_.body[at]);
    const Block& home = slice.in_loop ? std::get<ForStmt>(kernel_.body[slice.home].node).body : kernel_.body;
    for (size_t at : slice.inner) body.push_back(home[at]);
    std::set<const Buffer*> written;
    for_each_stmt(body, [&](const Stmt& stmt) {
      for_each_tile(stmt, [&](const TileRef& tile, bool writes) {
        if (writes) written.insert(tile.buffer.get());
      });
      if (const auto* assign = std::get_if<AssignStmt>(&stmt.node)) written.insert(assign->buffer.get());
    });
    for (const Stmt& stmt : kernel_.body)
      if (const auto* decl = std::get_if<DeclStmt>(&stmt.node); decl && written.count(decl->buffer.get()))
        maker.body.push_back(declaration(decl->buffer, decl->buffer == slice.tile ? Scope::kFragment : decl->buffer->scope));
    maker.body.insert(maker.body.end(), body.begin(), body.end());
    CopyStmt store;
    store.dst = {tensor, place_of(slice), nullptr, nullptr, nullptr, {}};
    store.src = {slice.tile, std::vector<AxisSpec>(slice.axes.size(), whole_axis()), nullptr, nullptr, nullptr, {}};
    maker.body.push_back({{}, store});

    for (const IterVar& var : slice.free) maker.grid.push_back(var);
    for (size_t axis = 0; axis < slice.axes.size(); ++axis)
      if (slice.axes[axis].var)
        maker.grid.push_back({slice.axes[axis].var, ceil_div(tensor->shape[slice.free.size() + axis], slice.tile->shape[axis])});
    complete(maker, with_direction(tensor, Direction::kOut));
    for (const Tunable& tunable : kernel_.tunables) {
      int64_t tile = 0;
      for (size_t axis = 0; axis < slice.axes.size(); ++axis)
        if (slice.tile->shape[axis]->kind == ExprKind::kVar && slice.tile->shape[axis]->var == tunable.var)
          tile = axis + 1 == slice.axes.size() ? kTileColumns : kTileRows;
      if (tile) maker.tunables.push_back({tunable.var, {tile}});
    }
    return maker;
  }

  // Parameters, constants, types and dimensions that the body and the grid name.
  void complete(Kernel& maker, const BufferRef& tensor) {
    std::set<const Var*> vars;
    std::set<const Buffer*> buffers;
    auto note = [&](const ExprRef& expr) {
      visit(expr, [&](const ExprRef& node) {
        if (node->kind == ExprKind::kVar) vars.insert(node->var.get());
        if (node->kind == ExprKind::kLoad) buffers.insert(node->buffer.get());
      });
    };
    for_each_stmt(maker.body, [&](const Stmt& stmt) {
      for_each_expr(stmt, note);
      for_each_tile(stmt, [&](const TileRef& tile, bool) { buffers.insert(tile.buffer.get()); });
      if (const auto* decl = std::get_if<DeclStmt>(&stmt.node))
        for (const ExprRef& extent : decl->buffer->shape) note(extent);
    });
    for (const IterVar& axis : maker.grid) note(axis.extent);
    std::set<const TypeSymbol*> types;
    for (const Param& param : kernel_.params) {
      if (!(param.tensor ? buffers.count(param.tensor.get()) : vars.count(param.scalar.get()))) continue;
      maker.params.push_back(param);
      if (!param.tensor) continue;
      for (const ExprRef& extent : param.tensor->shape) note(extent);
      types.insert(param.tensor->type.symbol.get());
    }
    maker.params.push_back({tensor, nullptr});
    types.insert(tensor->type.symbol.get());
    for (const TypeSymbolRef& symbol : kernel_.type_symbols)
      if (types.count(symbol.get())) maker.type_symbols.push_back(symbol);
    for (const VarRef& constant : kernel_.consts)
      if (vars.count(constant.get())) maker.consts.push_back(constant);
    for (const VarRef& dim : kernel_.dims)
      if (vars.count(dim.get())) maker.dims.push_back(dim);
  }

  static Stmt declaration(const BufferRef& buffer, Scope scope) {
    auto copy = std::make_shared<Buffer>(*buffer);
    copy->scope = scope;
    return {{}, DeclStmt{copy, nullptr}};
  }

  // The kernel's statements with each slice replaced by a copy from its tensor, at the last of its statements.
  Block without_slices(const Kernel& reader) const {
    std::set<const Stmt*> gone;
    std::set<const Buffer*> tiles;
    std::map<const Stmt*, const OperandSlice*> last;
    for (const OperandSlice& slice : slices_) {
      const Block& home = slice.in_loop ? std::get<ForStmt>(kernel_.body[slice.home].node).body : kernel_.body;
      auto drop = [&](const Stmt& stmt) {
        gone.insert(&stmt);
        for_each_stmt({stmt}, [&](const Stmt& inside) {
          for_each_tile(inside, [&](const TileRef& tile, bool writes) {
            if (writes) tiles.insert(tile.buffer.get());
          });
          if (const auto* assign = std::get_if<AssignStmt>(&inside.node)) tiles.insert(assign->buffer.get());
        });
      };
      for (size_t at : slice.outer) drop(kernel_.body[at]);
      for (size_t at : slice.inner) drop(home[at]);
      last[&home[slice.inner.back()]] = &slice;
    }
    keep_names(gone);
    return rebuilt(kernel_.body, reader, gone, tiles, last);
  }

  // Those that other statements use too, and what they are made from.
  void keep_names(std::set<const Stmt*>& gone) const {
    std::set<const Var*> used;
    auto note = [&](const Stmt& stmt) {
      for_each_stmt({stmt}, [&](const Stmt& inside) {
        for_each_expr(inside, [&](const ExprRef& expr) {
          visit(expr, [&](const ExprRef& node) {
            if (node->kind == ExprKind::kVar) used.insert(node->var.get());
          });
        });
      });
    };
    std::vector<const Stmt*> lets;
    auto walk = [&](const Block& block, auto&& self) -> void {
      for (const Stmt& stmt : block) {
        const auto* loop = std::get_if<ForStmt>(&stmt.node);
        if (loop)
          self(loop->body, self);
        else if (!gone.count(&stmt))
          note(stmt);
        else if (std::holds_alternative<LetStmt>(stmt.node))
          lets.push_back(&stmt);
        if (loop)
          for (const ExprRef& bound : {loop->begin, loop->end})
            visit(bound, [&](const ExprRef& node) {
              if (node->kind == ExprKind::kVar) used.insert(node->var.get());
            });
      }
    };
    walk(kernel_.body, walk);
    for (auto let = lets.rbegin(); let != lets.rend(); ++let) {
      if (!used.count(std::get<LetStmt>((*let)->node).var.get())) continue;
      gone.erase(*let);
      note(**let);
    }
  }

  Block rebuilt(const Block& block, const Kernel& reader, const std::set<const Stmt*>& gone,
                const std::set<const Buffer*>& tiles, const std::map<const Stmt*, const OperandSlice*>& last) const {
    Block out;
    for (const Stmt& stmt : block) {
      if (const auto* decl = std::get_if<DeclStmt>(&stmt.node); decl && tiles.count(decl->buffer.get())) {
        // Tiles that only slices have are gone, operands are where copies may run ahead.
        if (operand(decl->buffer)) out.push_back(declaration(decl->buffer, Scope::kShared));
        continue;
      }
      if (const auto found = last.find(&stmt); found != last.end()) out.push_back(read(*found->second, reader));
      if (gone.count(&stmt)) continue;
      out.push_back(stmt);
      if (auto* loop = std::get_if<ForStmt>(&out.back().node))
        loop->body = rebuilt(std::get<ForStmt>(stmt.node).body, reader, gone, tiles, last);
    }
    return out;
  }

  bool operand(const BufferRef& tile) const {
    return std::any_of(slices_.begin(), slices_.end(), [&](const OperandSlice& slice) { return slice.tile == tile; });
  }

  Stmt read(const OperandSlice& slice, const Kernel& reader) const {
    const auto at = static_cast<size_t>(&slice - slices_.data());
    CopyStmt copy;
    copy.dst = {slice.tile, std::vector<AxisSpec>(slice.axes.size(), whole_axis()), nullptr, nullptr, nullptr, {}};
    copy.src = {reader.params[kernel_.params.size() + at].tensor, place_of(slice), nullptr, nullptr, nullptr, {}};
    return {{}, copy};
  }

  // Everything is passed under its own name.
  Call call_of(const Kernel& kernel, Guard guard) const {
    Call call;
    call.kernel = kernel.name;
    call.guards = {std::move(guard)};
    for (const VarRef& constant : kernel.consts) call.consts.push_back({constant->name, make_var(constant), {}});
    for (const Param& param : kernel.params) {
      CallArg arg;
      if (param.tensor)
        arg.tensor = param.tensor;
      else
        arg.value = make_var(param.scalar);
      call.args.push_back(std::move(arg));
    }
    return call;
  }

  const Kernel& kernel_;
  const std::vector<OperandSlice>& slices_;
  FreshNames fresh_;
  Module module_;
};

}  // namespace

std::string prepare_operands(const Kernel& kernel, const std::vector<OperandSlice>& slices) {
  return Preparer(kernel, slices).run();
}

}  // namespace kachel::derive
