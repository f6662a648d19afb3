// A program with its consts, ready for launches. Its kernels are tuned each under its own key; of the program's own
// tunables the configuration is chosen that makes the whole of it fastest, under the program's key.
#pragma once
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "runtime/engine/launch/kernel_handle.h"
#include "runtime/engine/programs/program_model.h"

namespace kachel::runtime {

// Thread-safe.
class ProgramHandle final : public Launchable {
 public:
  ProgramHandle(std::shared_ptr<Engine> engine, std::shared_ptr<const ProgramModel> program);

  // Temporaries are scratch of the launch, in the order of its stream. kBusy where that would have to be allocated in a
  // capture; a bound call has its own.
  Status launch(std::span<const Arg> args, const LaunchSettings& settings, void* stream) override;
  Status prepare(std::span<const Arg> args, const LaunchSettings& settings, void* stream) override;
  Result<std::unique_ptr<BoundLaunch>> bind(std::span<const Arg> args, const LaunchSettings& settings) override;
  Result<CompiledAhead> compile(std::span<const Arg> args, const LaunchSettings& settings, size_t most) override;
  Result<std::string> explain(std::span<const Arg> args, const LaunchSettings& settings, ExplainWhat what) override;

  const ProgramModel& program() const { return *program_; }
  KernelHandle& step(size_t index) const { return *steps_[index]; }

  // What an earlier call has chosen; null: nothing yet.
  const TunableValues* known(const BoundArguments& arguments, const LaunchSettings& settings) const;
  // The configuration that serves: known, given, or chosen as the policy allows. Lives as long as this handle.
  // `fresh` (may be null): whether that had to be found out.
  Result<const TunableValues*> resolve(const BoundArguments& arguments, std::span<const Arg> args,
                                       const LaunchSettings& settings, void* stream, bool* fresh = nullptr);
  // Launches the steps one after another. `scratch`: what `layout` asks for.
  Status run(const BoundArguments& arguments, const TunableValues& values, const ProgramLayout& layout, void* scratch,
             std::span<const Arg> args, const LaunchSettings& settings, void* stream) const;

 private:
  Result<const TunableValues*> choose(const BoundArguments& arguments, std::span<const Arg> args,
                                      const LaunchSettings& settings, Signature& signature, void* stream,
                                      bool* decided);
  Result<Ranking::Runner> runner(Device& device, const Point& point, const BoundArguments& arguments,
                                 std::span<const Arg> args, const std::vector<TunableValues>& candidates,
                                 const LaunchSettings& settings, void* stream) const;
  // Of those that nothing has decided between: the first with which each kernel has a configuration that its `where` is
  // content with.
  size_t first_that_fits(const BoundArguments& arguments, const std::vector<TunableValues>& order,
                         std::span<const Arg> args, const LaunchSettings& settings) const;
  Result<bool> tune(std::span<const Arg> args, const LaunchSettings& settings, void* stream);
  // Makes all steps ready to be launched. Where they must be tuned, they are on private copies of what they write, once
  // what they read has been computed: now, or all of it in the background.
  // `decided` (may be null) becomes false where a tuning leaves one of them undecided.
  Status prepare_steps(Device& device, const BoundArguments& arguments, const TunableValues& values,
                       std::span<const Arg> args, const LaunchSettings& settings, void* stream,
                       bool* decided = nullptr);
  // Side by side, since each may have to be compiled. The first failure in their order.
  Status prepare_together(const BoundArguments& arguments, const TunableValues& values, const ProgramLayout& layout,
                          void* scratch, std::span<const Arg> args, const LaunchSettings& settings, void* stream);
  const TunableValues* keep(TunableValues values);

  std::shared_ptr<const ProgramModel> program_;
  std::vector<std::shared_ptr<KernelHandle>> steps_;
  DispatchTable<TunableValues> table_;
  std::mutex mutex_;  // guards choices_
  std::set<TunableValues> choices_;
  Deferred deferred_;  // uses the others
};

// What the steps of a program are launched with where they are not told a configuration.
LaunchSettings step_settings(const LaunchSettings& settings, size_t steps);

// The same while one of several candidates is chosen, `index` of `candidates`: the kernels of the first one are tuned,
// for half of the budget, and those of the others take what is decided for the nearest key, which is the first one's,
// mostly. Those of the chosen one are tuned when it is launched.
LaunchSettings candidate_settings(const LaunchSettings& settings, size_t steps, size_t index, size_t candidates);

}  // namespace kachel::runtime
