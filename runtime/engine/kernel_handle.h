// A kernel with its consts, ready for launches. The warm path of a launch is here: check and bind the arguments, make a
// signature, look it up, fill the slots, launch. It takes no lock, allocates nothing and makes no text.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "runtime/engine/bound_call.h"
#include "runtime/engine/dispatch_table.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/resolver.h"

namespace kachel::runtime {

// Thread-safe.
class alignas(64) KernelHandle {
 public:
  KernelHandle(std::shared_ptr<Engine> engine, std::shared_ptr<const KernelModel> model);

  Engine& engine() const { return *engine_; }
  const std::shared_ptr<Engine>& shared_engine() const { return engine_; }
  const KernelModel& model() const { return *model_; }
  // What holds where a call says nothing: the engine's settings.
  const LaunchSettings& defaults() const { return defaults_; }

  Status launch(std::span<const Arg> args, const LaunchSettings& settings, void* stream);
  // All of launch() but its last step.
  Status prepare(std::span<const Arg> args, const LaunchSettings& settings, void* stream);
  // Resolves once; see BoundCall. `stream` orders nothing but what tuning waits for.
  Result<std::unique_ptr<BoundCall>> bind(std::span<const Arg> args, const LaunchSettings& settings);

  // Binds the arguments and names the device they are on.
  Status bind_arguments(std::span<const Arg> args, BoundArguments& out) const;

 private:
  // Null: the grid is empty.
  [[gnu::cold]] Result<const Specialisation*> resolve(const BoundArguments& arguments, const LaunchSettings& settings,
                                                      Signature& signature, void* stream);
  Status launch_one(const Specialisation& specialisation, const BoundArguments& arguments, void* stream);
  Status launch_with_workspace(const Specialisation& specialisation, const BoundArguments& arguments, void* stream);
  [[gnu::cold]] Status launch_failed(const Specialisation& failed, const BoundArguments& arguments,
                                     const LaunchSettings& settings, Signature& signature, void* stream, Status why);
  [[gnu::cold]] Status launch_another(const Specialisation& failed, const BoundArguments& arguments,
                                      const LaunchSettings& settings, Signature& signature, void* stream, Status why);

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<const KernelModel> model_;
  LaunchSettings defaults_;
  DispatchTable table_;
};

}  // namespace kachel::runtime
