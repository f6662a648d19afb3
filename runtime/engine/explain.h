// Words for people: what a launch would run and why.
#pragma once
#include <string>

#include "runtime/engine/kernel_handle.h"

namespace kachel::runtime {

enum class ExplainWhat : int32_t { kSummary = 0, kSource = 1, kTileIr = 2, kLoopIr = 3 };

// Runs the lowering, not the compiler, and tunes nothing.
Result<std::string> explain(Launchable& launchable, std::span<const Arg> args, const LaunchSettings& settings,
                            ExplainWhat what);

}  // namespace kachel::runtime
