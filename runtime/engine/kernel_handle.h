// A kernel with its consts, ready for launches. The warm path of a launch is here: check and bind the arguments, make a
// signature, look it up, fill the slots, launch. It takes no lock, allocates nothing and makes no text.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "runtime/engine/bound_call.h"
#include "runtime/engine/dispatch_table.h"
#include "runtime/engine/launchable.h"
#include "runtime/engine/resolver.h"

namespace kachel::runtime {

// Thread-safe.
class alignas(64) KernelHandle final : public Launchable {
 public:
  using Launchable::Launchable;

  Status launch(std::span<const Arg> args, const LaunchSettings& settings, void* stream) override;
  Status prepare(std::span<const Arg> args, const LaunchSettings& settings, void* stream) override;
  Result<std::unique_ptr<BoundLaunch>> bind(std::span<const Arg> args, const LaunchSettings& settings) override;

 private:
  // Null: the grid is empty.
  [[gnu::cold]] Result<const Specialisation*> resolve(const BoundArguments& arguments, const LaunchSettings& settings,
                                                      Signature& signature, void* stream);
  Status launch_one(const Specialisation& specialisation, const BoundArguments& arguments, bool overlaps, void* stream);
  Status launch_with_workspace(const Specialisation& specialisation, const BoundArguments& arguments, bool overlaps,
                               void* stream);
  [[gnu::cold]] Status launch_failed(const Specialisation& failed, const BoundArguments& arguments,
                                     const LaunchSettings& settings, Signature& signature, void* stream, Status why);
  [[gnu::cold]] Status launch_another(const Specialisation& failed, const BoundArguments& arguments,
                                      const LaunchSettings& settings, Signature& signature, void* stream, Status why);

  DispatchTable<Specialisation> table_;
};

}  // namespace kachel::runtime
