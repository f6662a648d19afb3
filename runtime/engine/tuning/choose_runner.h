// Where the candidates of a tuning run.
#pragma once
#include <functional>
#include <memory>

#include "runtime/engine/tuning/ranking.h"
#include "runtime/engine/tuning_hooks.h"

namespace kachel::runtime {

// In a worker where the host wants that; else, or where there is none, here. Hooks (may be null) that take part in runs
// are the host's own code, and run where it does.
Result<Ranking::Runner> choose_runner(Engine& engine, const TuningHooks* hooks,
                                      const std::function<Result<std::unique_ptr<tuner::CandidateRunner>>()>& in_worker,
                                      const std::function<std::unique_ptr<tuner::CandidateRunner>()>& here);

}  // namespace kachel::runtime
