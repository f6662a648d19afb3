// Threads that a call begins and waits for.
#pragma once
#include <cstddef>
#include <functional>

namespace kachel::runtime {

// Runs `work` on `count` threads, the caller's among them, and waits for all; on fewer where the process can have no
// more. Handlers of the host's signals do not run on them.
void on_threads(size_t count, const std::function<void()>& work);

}  // namespace kachel::runtime
