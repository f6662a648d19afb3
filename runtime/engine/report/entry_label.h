// The names that an entry of the store carries for people.
#pragma once
#include <string_view>

#include "cache/journal.h"

namespace kachel::runtime {

// Empty where the payload is of a version that is not understood.
cache::Label entry_label(cache::Kind kind, std::string_view payload);

}  // namespace kachel::runtime
