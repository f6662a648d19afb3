#include "ir/bound_values.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/numerics.h"
#include "ir/tunable_role.h"

namespace kachel::ir {

Status cannot_instantiate(const Kernel& kernel, Loc loc, std::string_view message, std::string_view mend) {
  const std::string place = loc.line > 0 ? fmt::format("{}:{}:{}", kernel.name, loc.line, loc.column) : kernel.name;
  return invalid(fmt::format("{}: {}; {}", place, message, mend));
}

Result<TypeAssignment> choose_types(const Kernel& kernel, const Bindings& bindings) {
  TypeAssignment types;
  for (const TypeSymbolRef& symbol : kernel.type_symbols) {
    auto found = bindings.types.find(symbol->name);
    if (found == bindings.types.end())
      return invalid(fmt::format("{}: the type `{}` has no value; name it when the kernel is specialised", kernel.name,
                                 symbol->name));
    if (std::find(symbol->options.begin(), symbol->options.end(), found->second) == symbol->options.end()) {
      std::string options;
      for (DType type : symbol->options) options += fmt::format("{}{}", options.empty() ? "" : ", ", name(type));
      return invalid(fmt::format("{}: the type `{}` cannot be {}; use one of {}", kernel.name, symbol->name,
                                 name(found->second), options));
    }
    types[symbol.get()] = found->second;
  }
  return types;
}

Result<BoundValues> bind_values(const Kernel& typed, const Bindings& bindings, const std::vector<VarRef>& static_dims) {
  BoundValues values;
  auto fail = [&](Loc loc, const std::string& message, const std::string& mend) {
    return cannot_instantiate(typed, loc, message, mend);
  };
  for (const VarRef& var : typed.consts) {
    DType type = var->type.dtype;
    auto real = bindings.float_consts.find(var->name);
    auto whole = bindings.int_consts.find(var->name);
    bool has_real = real != bindings.float_consts.end(), has_whole = whole != bindings.int_consts.end();
    if (type == DType::F32 && (has_real || has_whole)) {
      double number = has_real ? real->second : static_cast<double>(whole->second);
      values[var.get()] = make_float(round_float(DType::F32, number));
    } else if (type == DType::Bool && has_whole) {
      values[var.get()] = make_bool(whole->second != 0);
    } else if (type != DType::F32 && has_whole) {
      if (wrap_integer(type, whole->second) != whole->second)
        return fail(var->loc,
                    fmt::format("{} is not a value of `{}`, which is {}", whole->second, var->name, name(type)),
                    "give one that fits");
      values[var.get()] = make_int(whole->second, type);
    } else {
      return fail(var->loc, fmt::format("the const `{}` ({}) has no value", var->name, name(type)),
                  "give it one when the kernel is specialised");
    }
  }
  const std::vector<TunableRole> roles = roles_of(typed);
  for (size_t i = 0; i < roles.size(); ++i) {
    const Tunable& tunable = typed.tunables[i];
    auto found = bindings.tunables.find(tunable.var->name);
    if (found == bindings.tunables.end())
      return fail(tunable.var->loc, fmt::format("the tunable `{}` has no value", tunable.var->name),
                  "give it one of those declared in `tune`");
    if (tunable.automatic) {
      const int64_t most = most_automatic(roles[i]);
      if (found->second < 1 || found->second > most)
        return fail(tunable.var->loc,
                    fmt::format("{} is not a value of the tunable `{}`", found->second, tunable.var->name),
                    fmt::format("use one of 1 to {}", most));
    } else if (std::find(tunable.values.begin(), tunable.values.end(), found->second) == tunable.values.end())
      return fail(tunable.var->loc,
                  fmt::format("{} is not a value of the tunable `{}`", found->second, tunable.var->name),
                  fmt::format("use one of {}", fmt::join(tunable.values, ", ")));
    values[tunable.var.get()] = make_int(found->second);
  }
  for (const VarRef& dim : static_dims) {
    auto found = bindings.dims.find(dim->name);
    if (found == bindings.dims.end())
      return fail(dim->loc, fmt::format("a tile extent depends on the dimension `{}`, which has no value", dim->name),
                  "give its value when the kernel is specialised");
    if (found->second < 0)
      return fail(dim->loc, fmt::format("the dimension `{}` is {}", dim->name, found->second), "dimensions are >= 0");
    values[dim.get()] = make_int(found->second);
  }
  return values;
}

}  // namespace kachel::ir
