// One function a command; each prints its result and says how the process ends.
#pragma once
#include "options.h"
#include "outcome.h"
#include "session.h"

namespace kachel::cli {

Outcome<Exit> run(const Options& options);
Outcome<Exit> tune(const Options& options);
Outcome<Exit> explain(const Options& options);
Outcome<Exit> compile(const Options& options);
Outcome<Exit> check(const Options& options);
Outcome<Exit> cache(const Options& options);  // ls, stat, clear and the like
Outcome<Exit> cache_log(const Session& session, const Options& options);
Outcome<Exit> devices(const Options& options);

}  // namespace kachel::cli
