#include "lowering/machine/thread_conditions.h"

#include <cmath>

namespace kachel::lowering {

using ir::ExprKind;
using ir::ExprRef;

std::optional<ThreadConditions::Share> ThreadConditions::share_of(const ExprRef& condition) const {
  std::set<const ir::Var*> free, seen;
  if (!free_variables(condition, &free, &seen) || free.size() != 1) return std::nullopt;
  const int64_t count = domains_.at(*free.begin());
  double threads = 0;
  std::set<int64_t> warps, others;
  for (int64_t at = 0; at < count; ++at) {
    ir::HostEnv env{{*free.begin(), {.i = at}}};
    const auto holds = evaluate(condition, &env);
    if (!holds) return std::nullopt;
    threads += *holds != 0;
    (*holds ? warps : others).insert(at / kWarp);
  }
  const double all = std::ceil(static_cast<double>(count) / kWarp);
  return Share{threads / static_cast<double>(count), static_cast<double>(warps.size()) / all,
               static_cast<double>(others.size()) / all};
}

void ThreadConditions::add_let(const LoopLet& let) {
  lets_[let.var.get()] = let.value;
  if (asks_for_thread(let.value)) asking_.insert(let.var.get());
}

bool ThreadConditions::asks_for_thread(const ExprRef& expr) const {
  bool asks = false;
  ir::visit(expr, [&](const ExprRef& part) {
    asks |= part->kind == ExprKind::kVar && (domains_.count(part->var.get()) || asking_.count(part->var.get()));
  });
  return asks;
}

bool ThreadConditions::free_variables(const ExprRef& expr, std::set<const ir::Var*>* free,
                                      std::set<const ir::Var*>* seen) const {
  bool known = true;
  ir::visit(expr, [&](const ExprRef& part) {
    if (part->kind == ExprKind::kLoad || ir::is_reduction(*part)) known = false;
    if (part->kind != ExprKind::kVar || !known) return;
    const ir::Var* var = part->var.get();
    if (!seen->insert(var).second) return;
    if (domains_.count(var))
      free->insert(var);
    else if (auto let = lets_.find(var); let == lets_.end() || !free_variables(let->second, free, seen))
      known = false;
  });
  return known;
}

std::optional<int64_t> ThreadConditions::evaluate(const ExprRef& expr, ir::HostEnv* env) const {
  ir::visit(expr, [&](const ExprRef& part) {
    if (part->kind != ExprKind::kVar || env->count(part->var.get())) return;
    if (const auto number = evaluate(lets_.at(part->var.get()), env)) (*env)[part->var.get()] = {.i = *number};
  });
  const auto number = ir::evaluate_int(expr, *env);
  return number.ok() ? std::optional(*number) : std::nullopt;
}

}  // namespace kachel::lowering
