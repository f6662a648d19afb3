// Entries from one store to another: what a deployment ships, or takes over.
#pragma once
#include "cache/store.h"

namespace kachel::cache {

// Copies every sound entry of `from`, its layers' included, replacing what `to` has under the same key. How many.
// kStore where `to` could not keep one on disk; those before it are there. `to` counts those that `from` would not give
// for want of a MAC, and its remote has been given the others. `describe` names them for the journal; may be empty.
using Describe = std::function<Label(Kind kind, std::string_view payload)>;
Result<uint64_t> copy_entries(Store& from, Store& to, const Describe& describe = {});

}  // namespace kachel::cache
