// The other end of worker/: what a worker process does until its host goes.
#pragma once
#include <functional>

#include "runtime/engine/engine.h"

namespace kachel::runtime {

// Owns the socket. Returns where nobody there is a host (kInvalid), or one of another build (kUnsupported). Else this
// process ends as soon as the host closes its end, or ends itself. `adjust`, for tests, may replace devices.
Status serve_host(int socket, const std::function<void(EngineOptions&)>& adjust = {});

}  // namespace kachel::runtime
