#include "runtime/engine/report/entry_label.h"

#include "runtime/engine/specialise/plan_record.h"
#include "runtime/engine/tuning/tuning_store.h"

namespace kachel::runtime {

cache::Label entry_label(cache::Kind kind, std::string_view payload) {
  if (kind == cache::Kind::kPlan) {
    const auto plan = summarise_plan(payload);
    if (!plan.ok()) return {};
    return {plan->kernel, plan->configuration + (plan->configuration.empty() ? "" : " for ") + plan->architecture};
  }
  auto tuning = summarise_tuning(payload);
  if (!tuning.ok()) return {};
  return {std::move(tuning->kernel), std::move(tuning->description)};
}

}  // namespace kachel::runtime
