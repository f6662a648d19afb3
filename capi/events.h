// Events of an engine as a host sees them.
#pragma once
#include "capi/kachel.h"
#include "runtime/engine/engine.h"

namespace kachel::capi {

// kInvalid for a number that cannot be kept.
Status event_options(const kachel_engine_options& given, runtime::EngineOptions& options);

}  // namespace kachel::capi
