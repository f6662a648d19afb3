#include "tuner/policy.h"

#include <fmt/format.h>

namespace kachel::tuner {
namespace {

constexpr Policy kPolicies[] = {Policy::kOff, Policy::kCachedOnly, Policy::kBackground, Policy::kBlocking};

}  // namespace

std::string_view policy_name(Policy policy) {
  switch (policy) {
    case Policy::kOff:
      return "off";
    case Policy::kCachedOnly:
      return "cached_only";
    case Policy::kBackground:
      return "background";
    case Policy::kBlocking:
      return "blocking";
  }
  return "unknown";
}

Result<Policy> parse_policy(std::string_view text) {
  for (Policy policy : kPolicies)
    if (policy_name(policy) == text) return policy;
  return invalid(fmt::format("'{}' is not a tuning policy; use one of off, cached_only, background, blocking", text));
}

}  // namespace kachel::tuner
