// The engine's counters as Prometheus reads them. Format: "Exposition formats", text, version 0.0.4.
#pragma once
#include <string>

#include "runtime/engine/engine.h"

namespace kachel::runtime {

std::string metrics_text(Engine& engine);

}  // namespace kachel::runtime
