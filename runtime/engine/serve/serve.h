// The other end of remote/: what a worker process does until its host goes.
#pragma once
#include <functional>

#include "runtime/engine/engine.h"

namespace kachel::runtime {

// Owns the socket. Returns once the host has closed its end between two tasks, which is the usual end, or where it is
// of another build. Otherwise it does not outlive the host: as soon as that closes its end, or ends, this process does.
// `adjust`, for tests, may replace devices.
Status serve_host(int socket, const std::function<void(EngineOptions&)>& adjust = {});

}  // namespace kachel::runtime
