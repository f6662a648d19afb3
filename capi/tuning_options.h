// What a host may decide in tunings, from its C callbacks.
#pragma once
#include <memory>

#include "capi/boundary.h"
#include "runtime/engine/tuning_hooks.h"

namespace kachel::capi {

// Null where `given` is. kInvalid where numbers contradict each other.
Result<std::shared_ptr<const runtime::TuningHooks>> tuning_hooks(const kachel_tuning_options* given);

}  // namespace kachel::capi
