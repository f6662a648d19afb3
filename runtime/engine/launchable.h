// What a host launches: a kernel or a program of several. Both have a signature, which a KernelModel describes.
#pragma once
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/engine/engine.h"

namespace kachel::runtime {

inline constexpr uint32_t kAutomaticTrials = 16, kAllTrials = 0xffff;

// Of one call; nothing is left to default.
struct LaunchSettings {
  tuner::Policy policy = tuner::Policy::kBlocking;
  int64_t tune_budget_ns = 0;
  // How many configurations a tuning measures, those from which most is expected; 0: all that are listed, and
  // kAutomaticTrials where values are derived; kAllTrials: all.
  uint32_t tune_trials = 0;
  std::shared_ptr<const TuningHooks> hooks;  // tuning_hooks.h; null: none
  bool has_configuration = false;
  std::string_view configuration;  // exactly this one, whatever the policy
  bool follows = false;     // a launch of this library's on its stream, as the steps of a program do
  bool needs_code = false;  // resolve even where the grid is empty now: scalars may give it blocks later

  // Of a tuning in the background: the part of the device's time that its runs may take, and what ends it.
  double share = 1;
  const std::atomic<bool>* cancelled = nullptr;
  // What the policy serves is made, and nothing else: no key is filed to be tuned, and the next launch asks anew.
  bool quiet = false;

  // What of the settings a signature tells apart.
  uint32_t mode() const { return mode(policy); }
  uint32_t mode(tuner::Policy as) const { return static_cast<uint32_t>(as) | std::min(tune_trials, kAllTrials) << 8; }
};

// A launch with everything but pointers and scalars fixed. Thread-safe where it needs no scratch; else not to be
// launched from two threads at once, nor on a second stream before the first has passed. REQUIRES: its launches have
// finished before it goes.
class BoundLaunch {
 public:
  virtual ~BoundLaunch() = default;
  // pointers: of the tensor parameters, in order; scalars: likewise, as in launch slots. No locks, no allocation.
  virtual Status launch(void* const* pointers, const int64_t* scalars, void* stream) const = 0;
};

// What became of the configurations that were to be compiled.
struct CompiledAhead {
  size_t compiled = 0, present = 0;  // now; before, in the store
  size_t refused = 0;                // that cannot be built

  void add(const CompiledAhead& other);
};

enum class ExplainWhat : int32_t { kSummary = 0, kSource = 1, kTileIr = 2, kLoopIr = 3, kConfiguration = 4 };

// Thread-safe.
class Launchable {
 public:
  // What holds where a call says nothing is the engine's settings.
  Launchable(std::shared_ptr<Engine> engine, std::shared_ptr<const KernelModel> model);
  virtual ~Launchable() = default;
  Launchable(const Launchable&) = delete;
  Launchable& operator=(const Launchable&) = delete;

  Engine& engine() const { return *engine_; }
  const std::shared_ptr<Engine>& shared_engine() const { return engine_; }
  const KernelModel& model() const { return *model_; }
  const LaunchSettings& defaults() const { return defaults_; }
  // REQUIRES: no other thread uses this object yet.
  void set_policy(tuner::Policy policy) { defaults_.policy = policy; }

  virtual Status launch(std::span<const Arg> args, const LaunchSettings& settings, void* stream) = 0;
  // All of launch() but its last step: nothing of the caller's is written.
  virtual Status prepare(std::span<const Arg> args, const LaunchSettings& settings, void* stream) = 0;
  // Resolves once. The stream that tuning waits for is the device's default one.
  virtual Result<std::unique_ptr<BoundLaunch>> bind(std::span<const Arg> args, const LaunchSettings& settings) = 0;

  // Puts what a launch may run into the store, and loads nothing: the configuration that the settings give, else the
  // `most` that are expected to be the quickest; 0: all. The first failure if nothing can be built. Contents of tensors
  // are not looked at.
  virtual Result<CompiledAhead> compile(std::span<const Arg> args, const LaunchSettings& settings, size_t most) = 0;

  // Words for people: what a launch would run and why. Runs the lowering, not the compiler, and tunes nothing.
  virtual Result<std::string> explain(std::span<const Arg> args, const LaunchSettings& settings, ExplainWhat what) = 0;

  // Binds the arguments and names the device they are on.
  Status bind_arguments(std::span<const Arg> args, BoundArguments& out) const {
    KACHEL_TRY(runtime::bind_arguments(*model_, args, out));
    if (out.device.type == 0 && !engine_->devices().list().empty()) [[unlikely]]
      out.device = engine_->devices().list().front();
    return {};
  }

 protected:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<const KernelModel> model_;
  LaunchSettings defaults_;
};

// What would have to happen while a stream is captured, and may not.
Status busy_in_capture(const KernelModel& model, std::string_view what);

}  // namespace kachel::runtime
