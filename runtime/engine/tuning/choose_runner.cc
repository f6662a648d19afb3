#include "runtime/engine/tuning/choose_runner.h"

#include <fmt/format.h>

namespace kachel::runtime {

Result<Ranking::Runner> choose_runner(Engine& engine, const TuningHooks* hooks,
                                      const std::function<Result<std::unique_ptr<tuner::CandidateRunner>>()>& in_worker,
                                      const std::function<std::unique_ptr<tuner::CandidateRunner>()>& here) {
  const Workers& workers = engine.workers();
  const bool takes_part = hooks && (hooks->benchmark || hooks->before_run || hooks->after_run);
  if (takes_part && workers.wanted() && workers.options().required)
    return unsupported(
        "the host's hooks take part in runs, which are to happen in a worker alone; leave out "
        "`benchmark`, `before_run` and `after_run`, or `worker_required`");
  if (workers.wanted() && !takes_part) {
    auto session = in_worker();
    if (session.ok()) return Ranking::Runner{*std::move(session), true};
    const Code code = session.status().code();
    if (workers.options().required || code == Code::kNoMemory || code == Code::kCancelled) return session.status();
    engine.log().once(
        "worker", {.kind = EventKind::kWorkerUnusable,
                   .level = LogLevel::kWarning,
                   .message = fmt::format("configurations are tried in this process: {}", session.status().message())});
  }
  return Ranking::Runner{here()};
}

}  // namespace kachel::runtime
