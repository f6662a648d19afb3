#include "runtime/engine/bind/kernel_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>

#include "ir/numerics.h"
#include "ir/print.h"
#include "ir/tunable_role.h"
#include "ir/verify.h"

namespace kachel::runtime {
namespace {

using ir::DType;

class Builder {
 public:
  Builder(const ir::Kernel& kernel, bool derived) : model_(std::make_shared<KernelModel>()) {
    model_->kernel = kernel;
    model_->derived = derived;
  }

  // Of a program, whose body is given.
  Result<std::shared_ptr<const KernelModel>> build(std::span<const ConstValue> consts, std::string body) {
    model_->is_program = true;
    model_->body = std::move(body);
    return build(consts);
  }

  Result<std::shared_ptr<const KernelModel>> build(std::span<const ConstValue> consts) {
    KACHEL_TRY(bind_consts(consts));
    const ir::Kernel& kernel = model_->kernel;
    if (kernel.params.size() > kMaxParams) return too_many("parameters", kMaxParams, "merge tensors or scalars");
    if (kernel.type_symbols.size() > kMaxTypes)
      return too_many("type symbols", kMaxTypes, "use one for several tensors");
    for (size_t i = 0; i < kernel.dims.size(); ++i) {
      model_->scope.dims[kernel.dims[i].get()] = static_cast<int>(i);
      model_->dims.push_back(kernel.dims[i]->name);
    }
    model_->dim_slots = static_cast<int>(kernel.dims.size());
    for (const ir::TypeSymbolRef& symbol : kernel.type_symbols) {
      model_->types.push_back(symbol->name);
      model_->type_options.push_back(symbol->options);
    }
    add_tunables();
    for (size_t i = 0; i < kernel.params.size(); ++i)
      if (kernel.params[i].scalar) model_->scope.scalars[kernel.params[i].scalar.get()] = static_cast<int>(i);
    for (const ir::Param& param : kernel.params) KACHEL_TRY(add_param(param));
    if (model_->dim_slots > kMaxDims) return too_many("dimensions", kMaxDims, "use fewer names in shapes");
    for (const ir::ExprRef& expr : kernel.where) KACHEL_TRY(add_where(expr, ir::print(expr)));
    for (const ir::ExprRef& expr : kernel.key) {
      KACHEL_ASSIGN(HostProgram program, HostProgram::compile(expr, model_->scope));
      if (program.mentions_tunables())
        return invalid(
            fmt::format("kernel `{}`: `key {}` mentions a tunable; tuning is what chooses them, so key on "
                        "dimensions, scalars and consts",
                        kernel.name, ir::print(expr)));
      model_->keys.push_back(std::move(program));
    }
    if (kernel.grid.size() > kMaxGrid) return too_many("grid axes", kMaxGrid, "merge some");
    for (const ir::IterVar& axis : kernel.grid) {
      KACHEL_ASSIGN(HostProgram program, HostProgram::compile(axis.extent, model_->scope));
      model_->grid.push_back(std::move(program));
    }
    const std::vector<ir::VarRef> static_dims = ir::static_dims(kernel);
    for (size_t i = 0; i < kernel.dims.size(); ++i)
      if (std::find(static_dims.begin(), static_dims.end(), kernel.dims[i]) != static_dims.end())
        model_->static_dims.push_back(static_cast<int>(i));
    for (const ir::VarRef& hidden : hidden_) model_->scope.dims.erase(hidden.get());
    model_->facts = lowering::facts_of(kernel);
    if (!model_->is_program) model_->body = ir::canonical_body(kernel);
    size_t words = 4 + model_->static_dims.size() + model_->keys.size() + model_->condition_dims.size() +
                   model_->condition_scalars.size();
    if (words > kMaxSignature)
      return too_many("values in `key`, static dimensions and `where` on tunables", kMaxSignature - 4,
                      "name fewer values in `key`");
    model_->table.fill(*model_);
    return std::shared_ptr<const KernelModel>(std::move(model_));
  }

 private:
  Status too_many(const char* what, int limit, const char* mend) {
    return unsupported(fmt::format("kernel `{}` has more than {} {}; {}", model_->kernel.name, limit, what, mend));
  }

  Status bind_consts(std::span<const ConstValue> given) {
    const std::string& kernel = model_->kernel.name;
    std::vector<std::string> names;
    for (const ir::VarRef& var : model_->kernel.consts) {
      names.push_back(var->name);
      auto found = std::find_if(given.begin(), given.end(), [&](const ConstValue& c) { return c.name == var->name; });
      if (found == given.end())
        return invalid(
            fmt::format("kernel `{}`: const `{}` has no value; give one when getting the kernel", kernel, var->name));
      DType type = var->type.dtype;
      ir::HostValue value;
      value.is_float = ir::is_float(type);
      if (value.is_float) {
        value.f = ir::round_float(DType::F32, found->f);
        model_->float_consts[var->name] = value.f;
      } else {
        value.i = found->i;
        if (ir::wrap_integer(type, value.i) != value.i)
          return invalid(fmt::format("kernel `{}`: {} is not a value of const `{}`, which is {}; give one that fits",
                                     kernel, value.i, var->name, ir::name(type)));
        model_->int_consts[var->name] = value.i;
      }
      model_->scope.consts[var.get()] = value;
    }
    for (size_t i = 0; i < given.size(); ++i) {
      const std::string& name = given[i].name;
      if (std::find(names.begin(), names.end(), name) == names.end())
        return invalid(fmt::format("kernel `{}` has no const `{}`; it has {}", kernel, name,
                                   names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
      for (size_t j = 0; j < i; ++j)
        if (given[j].name == name)
          return invalid(fmt::format("kernel `{}`: const `{}` is given twice; give it once", kernel, name));
    }
    return {};
  }

  void add_tunables() {
    const std::vector<ir::TunableRole> roles = ir::roles_of(model_->kernel);
    for (const ir::Tunable& tunable : model_->kernel.tunables) {
      int index = static_cast<int>(model_->tunables.size());
      model_->scope.tunables[tunable.var.get()] = index;
      if (tunable.var->name == "threads") model_->threads_tunable = index;
      if (tunable.var->name == "cluster") model_->cluster_tunable = index;
      if (tunable.var->name == "cluster_columns") model_->columns_tunable = index;
      TunableModel& model = model_->tunables.emplace_back(TunableModel{tunable.var->name, tunable.values});
      if (tunable.automatic) {
        const ir::TunableRole role = roles[static_cast<size_t>(index)];
        model.most = ir::most_automatic(model_->is_program ? ir::TunableRole::kParts : role);
        model_->automatic = true;
      } else if (__builtin_mul_overflow(model_->configurations, tunable.values.size(), &model_->configurations))
        model_->configurations = SIZE_MAX;
    }
  }

  Status add_param(const ir::Param& param) {
    ParamModel model;
    model.name = param.name();
    model.is_tensor = param.tensor != nullptr;
    const ir::TypeRef& type = param.tensor ? param.tensor->type : param.scalar->type;
    if (type.symbol) {
      auto found = std::find(model_->types.begin(), model_->types.end(), type.symbol->name);
      model.symbol = static_cast<int>(found - model_->types.begin());
    } else {
      model.dtype = type.dtype;
    }
    int index = static_cast<int>(model_->params.size());
    (param.tensor ? model_->tensors : model_->scalars).push_back(index);
    if (param.tensor) {
      model.direction = param.tensor->direction;
      for (const ir::ExprRef& extent : param.tensor->shape) {
        KACHEL_TRY(add_axis(model, extent));
        model.shape += (model.shape.empty() ? "" : ", ") + model.axes.back().text;
      }
    }
    model_->params.push_back(std::move(model));
    return {};
  }

  Status add_axis(ParamModel& param, const ir::ExprRef& extent) {
    AxisModel axis;
    axis.text = ir::print(extent);
    if (extent->kind == ir::ExprKind::kVar && extent->var->kind == ir::VarKind::kDim) {
      axis.dim = model_->scope.dims.at(extent->var.get());
      axis.kind = bound_.insert(axis.dim).second ? AxisModel::Kind::kBind : AxisModel::Kind::kCheck;
      param.axes.push_back(std::move(axis));
      return {};
    }
    KACHEL_ASSIGN(axis.program, HostProgram::compile(extent, model_->scope));
    axis.kind = AxisModel::Kind::kValue;
    if (axis.program.mentions_tunables()) {
      axis.kind = AxisModel::Kind::kTuned;
      axis.dim = model_->dim_slots++;
      auto hidden =
          std::make_shared<ir::Var>(ir::Var{ir::VarKind::kDim, "", ir::TypeRef{DType::I64, nullptr}, extent->loc});
      model_->scope.dims[hidden.get()] = axis.dim;
      hidden_.push_back(hidden);
      KACHEL_TRY(
          add_where(ir::make_apply(ir::Op::kEq, {extent, ir::make_var(hidden)}),
                    fmt::format("{} == the extent of axis {} of `{}`", axis.text, param.axes.size(), param.name)));
    }
    param.axes.push_back(std::move(axis));
    return {};
  }

  Status add_where(const ir::ExprRef& expr, std::string text) {
    KACHEL_ASSIGN(HostProgram program, HostProgram::compile(expr, model_->scope));
    if (!program.mentions_tunables()) {
      model_->where.push_back({std::move(program), std::move(text)});
      return {};
    }
    ir::visit(expr, [&](const ir::ExprRef& node) {
      if (node->kind != ir::ExprKind::kVar) return;
      if (auto dim = model_->scope.dims.find(node->var.get()); dim != model_->scope.dims.end())
        add_once(model_->condition_dims, dim->second);
      if (auto scalar = model_->scope.scalars.find(node->var.get()); scalar != model_->scope.scalars.end())
        add_once(model_->condition_scalars, scalar->second);
    });
    model_->conditions.push_back({std::move(program), std::move(text)});
    return {};
  }

  static void add_once(std::vector<int>& list, int value) {
    if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
  }

  std::shared_ptr<KernelModel> model_;
  std::set<int> bound_;
  std::vector<ir::VarRef> hidden_;  // kept until the programs that mention them are compiled
};

}  // namespace

bool TunableModel::allows(int64_t value) const {
  return automatic() ? value >= 1 && value <= most : std::find(values.begin(), values.end(), value) != values.end();
}

Result<std::shared_ptr<const KernelModel>> KernelModel::create(const ir::Kernel& kernel,
                                                               std::span<const ConstValue> consts, bool derived) {
  return Builder(kernel, derived).build(consts);
}

Result<std::shared_ptr<const KernelModel>> KernelModel::create_header(const ir::Kernel& header,
                                                                      std::span<const ConstValue> consts,
                                                                      std::string body, bool derived) {
  return Builder(header, derived).build(consts, std::move(body));
}

std::vector<uint64_t> KernelModel::const_words() const {
  std::vector<uint64_t> words;
  for (const ir::VarRef& var : kernel.consts) {
    const ir::HostValue& value = scope.consts.at(var.get());
    words.push_back(value.is_float ? std::bit_cast<uint64_t>(value.f) : static_cast<uint64_t>(value.i));
  }
  return words;
}

}  // namespace kachel::runtime
