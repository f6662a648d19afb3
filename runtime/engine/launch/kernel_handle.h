// A kernel with its consts, ready for launches. The warm path of a launch is here: check and bind the arguments, make a
// signature, look it up, fill the slots, launch. It takes no lock, allocates nothing and makes no text.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "runtime/engine/launch/bound_call.h"
#include "runtime/engine/launch/dispatch_table.h"
#include "runtime/engine/launch/other_forms.h"
#include "runtime/engine/tuning/deferred.h"
#include "runtime/engine/tuning/drift_watch.h"
#include "runtime/engine/tuning/resolver.h"

namespace kachel::runtime {

// Thread-safe.
class alignas(64) KernelHandle final : public Launchable {
 public:
  // `forms` null: the kernel serves as it is.
  KernelHandle(std::shared_ptr<Engine> engine, std::shared_ptr<const KernelModel> model,
               std::unique_ptr<OtherForms> forms = nullptr)
      : Launchable(std::move(engine), std::move(model)),
        forms_(std::move(forms)),
        deferred_(
            *engine_, *model_, [this](auto args, auto& settings, void* stream) { return tune(args, settings, stream); },
            [this](const Signature& signature) { table_.publish(signature, nullptr); }),
        drift_(
            *engine_, [this](auto args, auto& settings, void* stream) { return recheck(args, settings, stream); },
            [this](const Signature& signature) { table_.publish(signature, nullptr); }) {}

  Status launch(std::span<const Arg> args, const LaunchSettings& settings, void* stream) override;
  Status prepare(std::span<const Arg> args, const LaunchSettings& settings, void* stream) override;
  Result<std::unique_ptr<BoundLaunch>> bind(std::span<const Arg> args, const LaunchSettings& settings) override;
  Result<CompiledAhead> compile(std::span<const Arg> args, const LaunchSettings& settings, size_t most) override;
  Result<std::string> explain(std::span<const Arg> args, const LaunchSettings& settings, ExplainWhat what) override;
  // Whether a launch would tune under the policy blocking.
  Result<bool> needs_tuning(std::span<const Arg> args, const LaunchSettings& settings);

 private:
  // What serves where the table has nothing: a program, else a specialisation; neither: the grid is empty.
  struct Served {
    Launchable* program = nullptr;
    const Specialisation* specialisation = nullptr;
    bool decided = true;  // every policy would choose the same
  };
  Result<bool> tune(std::span<const Arg> args, const LaunchSettings& settings, void* stream);
  Result<bool> recheck(std::span<const Arg> args, const LaunchSettings& settings, void* stream);
  [[gnu::cold]] Result<Served> resolve(const BoundArguments& arguments, std::span<const Arg> args,
                                       const LaunchSettings& settings, Signature& signature, void* stream);
  [[gnu::cold]] Status launch_unknown(const BoundArguments& arguments, std::span<const Arg> args,
                                      const LaunchSettings& settings, Signature& signature, void* stream);
  Status launch_found(const Specialisation& found, const BoundArguments& arguments, const LaunchSettings& settings,
                      Signature& signature, void* stream);
  Status launch_one(const Specialisation& specialisation, const BoundArguments& arguments, bool follows, void* stream);
  Status launch_with_workspace(const Specialisation& specialisation, const BoundArguments& arguments, bool follows,
                               void* stream);
  [[gnu::cold]] Status launch_failed(const Specialisation& failed, const BoundArguments& arguments,
                                     const LaunchSettings& settings, Signature& signature, void* stream, Status why);
  [[gnu::cold]] Status launch_another(const Specialisation& failed, const BoundArguments& arguments,
                                      const LaunchSettings& settings, Signature& signature, void* stream, Status why);

  DispatchTable<Specialisation> table_;
  const std::unique_ptr<OtherForms> forms_;
  Deferred deferred_;  // uses the others, as does
  DriftWatch drift_;
};

}  // namespace kachel::runtime
