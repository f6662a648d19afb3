// The rules of GRAMMAR.md, "Programs".
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "ir/print.h"
#include "ir/typecheck.h"
#include "ir/verify_rules.h"

namespace kachel::ir {
namespace {

constexpr int kMostSplits = 8;  // conditions that is_written() takes both ways; GRAMMAR.md, section 8

class ProgramRules {
 public:
  ProgramRules(const Module& module, const Program& program, Diagnostics& out)
      : module_(module), program_(program), out_(out) {}

  void run() {
    const Kernel all = as_kernel();
    check_structure(all, out_);
    if (out_.empty()) check_header(program_.header, out_);
    if (!program_.header.grid.empty() || !program_.header.body.empty())
      report(program_.header.loc, "a program has neither grid nor statements", "put them into a kernel that it calls");
    if (!out_.empty()) return;
    check_automatic(program_.header, roles_of(program_), out_);
    for (const BufferRef& temp : program_.temps) temporary(*temp);
    for (const Call& call : program_.calls)
      for (const Guard& guard : call.guards) check_host(guard.condition, false, "the condition of a call", out_);
    if (program_.calls.empty())
      report(program_.header.loc, fmt::format("the program `{}` calls no kernel", program_.header.name),
             "call one: `name(A, B)`");
    for (const Call& call : program_.calls) this->call(call);
    for (const Param& param : program_.header.params)
      if (param.tensor && param.tensor->direction != Direction::kIn && !touched_.count(param.tensor.get()))
        report(param.tensor->loc, fmt::format("no call writes `{}`", param.tensor->name),
               "pass it to a kernel that does, or declare it without a direction");
    if (out_.empty()) check_all_types(all, out_);
    if (out_.empty())
      for (const Call& call : program_.calls) scalars(call);
  }

 private:
  void report(Loc loc, std::string message, std::string mend) {
    out_.push_back({loc, std::move(message), std::move(mend)});
  }

  // Temporaries as parameters, conditions of calls as `where` and their scalars as keys, so that the rules for kernels
  // judge them.
  Kernel as_kernel() const {
    Kernel kernel = program_.header;
    for (const BufferRef& temp : program_.temps) kernel.params.push_back({temp, nullptr});
    for (const Call& call : program_.calls) {
      for (const Guard& guard : call.guards) kernel.where.push_back(guard.condition);
      for (const Call::Const& value : call.consts) kernel.key.push_back(value.value);
      for (const CallArg& arg : call.args)
        if (!arg.tensor) kernel.key.push_back(arg.value);
    }
    return kernel;
  }

  void temporary(const Buffer& temp) {
    for (DType type : possible_types(temp.type))
      if (bits(type) < 8) {
        report(temp.loc, fmt::format("the temporary tensor `{}` has elements of 4 bits", temp.name),
               "use u8, two elements in each");
        break;
      }
    for (const ExprRef& extent : temp.shape) {
      check_host(extent, false, "the shape of a temporary tensor", out_);
      if (is_const(extent) && (extent->kind != ExprKind::kInt || extent->int_value < 1))
        report(extent->loc, "the extent of a tensor must be a positive integer", "write a number of at least 1");
    }
  }

  void call(const Call& call) {
    const Kernel* kernel = module_.find(call.kernel);
    if (!kernel)
      return module_.find_program(call.kernel)
                 ? report(call.loc, fmt::format("`{}` is a program; programs call kernels only", call.kernel),
                          "call its kernels here")
                 : report(call.loc, fmt::format("there is no kernel `{}` in this text", call.kernel),
                          "define it, before or behind the program");
    consts(call, *kernel);
    if (call.args.size() != kernel->params.size())
      return report(
          call.loc,
          fmt::format("`{}` has {} parameters, {} are given", call.kernel, kernel->params.size(), call.args.size()),
          "pass one for each, in their order");
    std::map<const TypeSymbol*, TypeRef> types;
    std::map<const Buffer*, bool> passed;  // and whether it is written
    for (size_t i = 0; i < call.args.size(); ++i) {
      const CallArg& arg = call.args[i];
      const Param& param = kernel->params[i];
      if (!arg.tensor != !param.tensor) {
        report(arg.loc,
               fmt::format("`{}` of `{}` is a {}", param.name(), call.kernel, param.tensor ? "tensor" : "scalar"),
               param.tensor ? "pass a parameter or a temporary tensor of the program" : "pass a number or a scalar");
        continue;
      }
      if (!arg.tensor) {
        check_host(arg.value, true, "the argument of a call", out_);
        continue;
      }
      tensor(call, arg, *param.tensor, &types, &passed);
    }
    for (const auto& [tensor, written] : passed)
      if (written) touched_[tensor].push_back(call.guards);
  }

  // Whether some call has written the tensor wherever `known` holds.
  bool is_written(const Buffer& tensor, std::vector<Guard> known, int splits = 0) const {
    const auto found = touched_.find(&tensor);
    if (found == touched_.end()) return false;
    const Guard* open = nullptr;  // neither known to hold nor known not to
    for (const std::vector<Guard>& guards : found->second) {
      const Guard* missing = nullptr;
      bool never = false;
      for (const Guard& guard : guards) {
        const auto about = std::find_if(known.begin(), known.end(),
                                        [&](const Guard& other) { return ir::same(other.condition, guard.condition); });
        if (about == known.end())
          missing = &guard;
        else
          never |= about->holds != guard.holds;
      }
      if (never) continue;
      if (!missing) return true;
      open = missing;
    }
    if (!open || splits == kMostSplits) return false;
    known.push_back({open->condition, true});
    if (!is_written(tensor, known, splits + 1)) return false;
    known.back().holds = false;
    return is_written(tensor, known, splits + 1);
  }

  // Floats and integers are not converted by themselves.
  void scalars(const Call& call) {
    const Kernel& kernel = *module_.find(call.kernel);
    for (size_t i = 0; i < call.args.size(); ++i) {
      if (call.args[i].tensor) continue;
      const Result<ExprRef> typed = type_expr(call.args[i].value);
      const VarRef& wanted = kernel.params[i].scalar;
      if (!typed.ok() || is_float((*typed)->type) == is_float(wanted->type.dtype)) continue;
      const std::string given = print(call.args[i].value);
      report(call.args[i].loc,
             fmt::format("`{}` of `{}` is {}, `{}` is {}", wanted->name, call.kernel, name(wanted->type.dtype), given,
                         name((*typed)->type)),
             fmt::format("convert it: `{}({})`", name(wanted->type.dtype), given));
    }
  }

  void consts(const Call& call, const Kernel& kernel) {
    std::set<std::string> given;
    for (const Call::Const& value : call.consts) {
      const bool known = std::any_of(kernel.consts.begin(), kernel.consts.end(),
                                     [&](const VarRef& var) { return var->name == value.name; });
      if (!known) report(value.loc, fmt::format("`{}` has no constant `{}`", call.kernel, value.name), "remove it");
      if (!given.insert(value.name).second)
        report(value.loc, fmt::format("the constant `{}` is given twice", value.name), "remove one");
      visit(value.value, [&](const ExprRef& node) {
        if (node->kind == ExprKind::kLoad || is_reduction(*node) ||
            (node->kind == ExprKind::kVar && node->var->kind != VarKind::kConst))
          report(node->loc.line > 0 ? node->loc : value.loc,
                 fmt::format("the constant `{}` must be known when the program is got", value.name),
                 "use numbers and constants of the program");
      });
    }
    for (const VarRef& var : kernel.consts)
      if (!given.count(var->name))
        report(call.loc, fmt::format("the constant `{}` of `{}` has no value", var->name, call.kernel),
               fmt::format("write `{}<{} = ...>(...)`", call.kernel, var->name));
  }

  void tensor(const Call& call, const CallArg& arg, const Buffer& param, std::map<const TypeSymbol*, TypeRef>* types,
              std::map<const Buffer*, bool>* passed) {
    const Buffer& tensor = *arg.tensor;
    if (tensor.shape.size() != param.shape.size())
      report(arg.loc,
             fmt::format("`{}` has {} axes, `{}` of `{}` has {}", tensor.name, tensor.shape.size(), param.name,
                         call.kernel, param.shape.size()),
             "pass a tensor of as many axes");
    if (!agree(tensor.type, param.type, types))
      report(arg.loc,
             fmt::format("`{}` is of {}, `{}` of `{}` of {}", tensor.name, show_type(tensor.type), param.name,
                         call.kernel, show_type(param.type)),
             "give both the same type; a type symbol of the kernel must allow every choice of the program's");
    const bool writes = param.direction != Direction::kIn, is_temp = is_temporary(tensor);
    if (writes && tensor.direction == Direction::kIn)
      report(arg.loc, fmt::format("`{}` writes `{}`, which the program only reads", call.kernel, tensor.name),
             fmt::format("declare it `{}: out ...` or `inout`", tensor.name));
    if (param.direction != Direction::kOut && (is_temp || tensor.direction == Direction::kOut) &&
        !is_written(tensor, call.guards))
      report(arg.loc, fmt::format("`{}` is read before a call has written it", tensor.name),
             is_temp ? "call the kernel that writes it first"
                     : "call the kernel that writes it first, or declare it `inout`");
    const auto [found, fresh] = passed->try_emplace(&tensor, writes);
    if (fresh) return;
    if (found->second || writes)
      report(arg.loc, fmt::format("`{}` is passed twice and written", tensor.name),
             "pass another tensor where it is read");
    found->second |= writes;
  }

  bool is_temporary(const Buffer& tensor) const {
    return std::any_of(program_.temps.begin(), program_.temps.end(),
                       [&](const BufferRef& temp) { return temp.get() == &tensor; });
  }

  // Whether what the program passes is, for every choice of its types, what the kernel takes.
  bool agree(const TypeRef& given, const TypeRef& wanted, std::map<const TypeSymbol*, TypeRef>* types) const {
    if (!wanted.symbol) return !given.symbol && given.dtype == wanted.dtype;
    const auto [found, fresh] = types->try_emplace(wanted.symbol.get(), given);
    if (!fresh) return same(found->second, given);
    const std::vector<DType> choices = possible_types(given);
    return std::all_of(choices.begin(), choices.end(), [&](DType type) {
      return std::find(wanted.symbol->options.begin(), wanted.symbol->options.end(), type) !=
             wanted.symbol->options.end();
    });
  }
  static bool same(const TypeRef& a, const TypeRef& b) {
    return a.symbol == b.symbol && a.accumulator == b.accumulator && (a.symbol || a.dtype == b.dtype);
  }

  const Module& module_;
  const Program& program_;
  Diagnostics& out_;

  std::map<const Buffer*, std::vector<std::vector<Guard>>> touched_;  // by a call so far, and where
};

}  // namespace

void check_program(const Module& module, const Program& program, Diagnostics& out) {
  ProgramRules(module, program, out).run();
}

}  // namespace kachel::ir
