// What may serve a kernel's launches in place of the kernel as it is: programs that compute the same.
#pragma once
#include <span>
#include <string>

#include "runtime/engine/bind/signature.h"
#include "runtime/engine/launchable.h"
#include "runtime/engine/specialise/specialisation.h"

namespace kachel::runtime {

// Thread-safe.
class OtherForms {
 public:
  virtual ~OtherForms() = default;

  struct Serving {
    Launchable* program = nullptr;          // serves instead of the kernel; lives as long as this object
    const Specialisation* alone = nullptr;  // under capture: the kernel as it is, known to work for these arguments
    bool decided = true;                    // the same under every policy
  };
  // What serves a launch without a configuration of its own. Tunes as the policy allows, first the kernel as it is.
  virtual Result<Serving> serving(const BoundArguments& arguments, std::span<const Arg> args,
                                  const LaunchSettings& settings, const Signature& signature, void* stream) = 0;
  // Which of them a tuning would consider, for people; "" if none.
  virtual Result<std::string> considered(const BoundArguments& arguments) const = 0;
  // The kernel as it is, where the program has no memory.
  virtual Result<const Specialisation*> alone(const BoundArguments& arguments, const LaunchSettings& settings,
                                              void* stream) = 0;
};

}  // namespace kachel::runtime
