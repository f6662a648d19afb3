#include "derive/prepare_operands.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "derive/fixed_extents.h"
#include "derive/free_tunables.h"
#include "derive/fresh_names.h"
#include "derive/joined_makers.h"
#include "derive/parts.h"
#include "derive/text_without_names.h"
#include "ir/print.h"
#include "ir/tunable_role.h"

namespace kachel::derive {
namespace {

using namespace ir;

constexpr int64_t kRowElements = 128;  // rows begin at multiples of 128 bytes, whatever the type

ExprRef plus(const ExprRef& a, int64_t b) {
  return b == 0 ? a : make_apply(Op::kAdd, {a, make_int(b)});
}

class Preparer {
 public:
  Preparer(const Kernel& kernel, const std::vector<OperandSlice>& slices, const SumParts& parts,
           const std::vector<CrossedTensor>& crossed, const Kernel& source)
      : kernel_(kernel),
        source_(source),
        slices_(slices),
        parts_(parts),
        crossed_(crossed),
        fresh_(source),
        base_(source) {
    for (const CrossedTensor& one : crossed_) {
      auto rows = std::make_shared<Buffer>();
      rows->name = fresh_(one.tensor->name + "_rows");
      rows->direction = Direction::kInOut;
      rows->type = one.tensor->type;
      rows->shape = shape_of_rows(one);
      base_.params.push_back({with_direction(rows, Direction::kIn), nullptr});
      rows_.push_back(std::move(rows));
    }
    base_ = with_rows(base_, crossed_, read_rows());
    std::vector<BufferRef> tensors;
    for (const OperandSlice& slice : slices_) tensors.push_back(tensor_of(slice, slice.tile->name));
    free_ = free_tunables(reader_of(tensors));
  }

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

    for (size_t i = 0; i < crossed_.size(); ++i) {
      program.temps.push_back(rows_[i]);
      const std::string name = fresh_(kernel_.name + "_" + crossed_[i].tensor->name);
      module_.kernels.push_back(layer_of(source_, crossed_[i], rows_[i], name, std::ref(fresh_)));
      program.calls.push_back(call_of(module_.kernels.back(), {chosen, true}));
    }
    std::vector<BufferRef> tensors;
    std::map<std::string, BufferRef> made;  // by what makes it
    std::vector<OperandMaker> makers;
    for (const OperandSlice& slice : slices_) {
      const BufferRef tensor = tensor_of(slice, fresh_(slice.tile->name + "_all"));
      OperandMaker maker{maker_of(source_, slice, tensor, fresh_(kernel_.name + "_" + slice.tile->name)), {tensor}};
      const auto [known, fresh] =
          made.try_emplace(text_without_names(maker.kernel), with_direction(tensor, Direction::kIn));
      tensors.push_back(known->second);
      if (!fresh) continue;
      program.temps.push_back(tensor);
      if (std::none_of(makers.begin(), makers.end(), [&](OperandMaker& other) { return join(source_, maker, &other); }))
        makers.push_back(std::move(maker));
    }
    for (const OperandMaker& maker : makers) {
      module_.kernels.push_back(maker.kernel);
      program.calls.push_back(call_of(maker.kernel, {chosen, true}));
    }
    Kernel reader = reader_of(tensors);
    reader.name = fresh_(kernel_.name + "_prepared");
    derive_values(reader);
    const auto add = [&](const Kernel& kernel) {
      module_.kernels.push_back(kernel);
      program.calls.push_back(call_of(kernel, {chosen, true}));
    };
    std::optional<SumLoop> sums = parts_.parts > 1 ? sum_loop(reader) : std::nullopt;
    if (const auto fixed = parts_.parts > 1 && !sums ? with_fixed_extents(reader, parts_.most_extent) : std::nullopt) {
      sums = sum_loop(*fixed);
      if (sums) reader = *fixed;
    }
    if (const auto split = sums ? split_sums(reader, *sums, parts_, std::ref(fresh_)) : std::nullopt) {
      program.temps.insert(program.temps.end(), split->sums.begin(), split->sums.end());
      add(split->part);
      for (const Kernel& adder : split->adders) add(adder);
      add(split->combine);
    } else {
      add(reader);
    }
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

  Kernel reader_of(const std::vector<BufferRef>& tensors) const {
    Kernel reader = base_;
    std::set<const Buffer*> known;  // operands may share one
    for (const BufferRef& tensor : tensors)
      if (known.insert(tensor.get()).second) reader.params.push_back({tensor, nullptr});
    reader.body = body_of_reader(base_, slices_, tensors);
    return reader;
  }
  // The tensors that are laid out, as the reader has them.
  std::vector<BufferRef> read_rows() const {
    std::vector<BufferRef> rows;
    for (size_t i = base_.params.size() - crossed_.size(); i < base_.params.size(); ++i)
      rows.push_back(base_.params[i].tensor);
    return rows;
  }

  // What was listed was listed for another kernel. A condition says which values go together, and is its author's.
  void derive_values(Kernel& reader) const {
    const std::vector<TunableRole> roles = roles_of(reader);
    for (size_t i = 0; i < roles.size(); ++i) {
      Tunable& tunable = reader.tunables[i];
      const bool derivable = roles[i] == TunableRole::kStages || roles[i] == TunableRole::kProduct;
      const bool tied = std::any_of(reader.where.begin(), reader.where.end(),
                                    [&](const ExprRef& condition) { return mentions(condition, tunable.var); });
      if (derivable && !tied && free_.count(tunable.var.get())) tunable = {tunable.var, {}, true};
    }
  }

  int64_t largest(const ExprRef& extent) const {
    for (size_t i = 0; is_tunable(extent) && i < source_.tunables.size(); ++i) {
      const Tunable& tunable = source_.tunables[i];
      if (tunable.var != extent->var) continue;
      return tunable.automatic ? most_automatic(roles_of(source_)[i])
                               : *std::max_element(tunable.values.begin(), tunable.values.end());
    }
    return 0;
  }

  // As large as the largest tiles reach, along axes where what lies beyond the edge may matter.
  BufferRef tensor_of(const OperandSlice& slice, std::string name) const {
    auto tensor = std::make_shared<Buffer>();
    tensor->name = std::move(name);
    tensor->direction = Direction::kInOut;
    tensor->type = slice.tile->type;
    for (const IterVar& var : slice.free) tensor->shape.push_back(at_least_zero(var.extent));
    const std::vector<size_t> order = order_of(slice);
    for (size_t axis : order) {
      const ExprRef& extent = slice.tile->shape[axis];
      ExprRef all = slice.axes[axis].all;
      if (slice.axes[axis].var) {
        if (is_tunable(extent))
          all = plus(all, free_.count(extent->var.get()) ? 0 : largest(extent) - 1);
        else
          all = make_apply(Op::kAdd, {all, plus(extent, -1)});
        if (slice.axes[axis].all->kind != ExprKind::kVar) all = at_least_zero(all);
      }
      if (axis == order.back()) all = times(ceil_div(all, make_int(kRowElements)), make_int(kRowElements));
      tensor->shape.push_back(all);
    }
    return tensor;
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
  const Kernel& source_;  // of slices_ and crossed_
  const std::vector<OperandSlice>& slices_;
  const SumParts& parts_;
  const std::vector<CrossedTensor>& crossed_;
  FreshNames fresh_;
  Kernel base_;                  // the source, that reads rows_
  std::vector<BufferRef> rows_;  // of crossed_
  std::set<const Var*> free_;    // of the reader's tunables
  Module module_;
};

}  // namespace

std::string prepare_operands(const Kernel& kernel, const std::vector<OperandSlice>& slices, const SumParts& parts,
                             const std::vector<CrossedTensor>& crossed, const Kernel* source) {
  return Preparer(kernel, slices, parts, crossed, source ? *source : kernel).run();
}

}  // namespace kachel::derive
