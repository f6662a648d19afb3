// What a call does when its key has not been tuned.
#pragma once
#include <string_view>

#include "support/status.h"

namespace kachel::tuner {

enum class Policy : int32_t {
  kOff = 0,     // the best known configuration or the default; never measures
  kCachedOnly,  // a miss is an error
  kBackground,  // serves the default now, swaps when measured
  kBlocking,    // the first caller tunes and waits, up to its budget
};

// "off", "cached_only", "background", "blocking".
std::string_view policy_name(Policy policy);
Result<Policy> parse_policy(std::string_view text);

}  // namespace kachel::tuner
