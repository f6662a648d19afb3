// One tuning of one key on a device: gives the tuner its candidates to compile, check and time.
//
// Nothing of the caller's is written. Inputs are read in place; each out and inout tensor has a private copy, restored
// from the caller's before a check, and inout ones before every timed run, so that no candidate sees what another left.
// The reference is the first candidate's output, made by the same generic lowering; a candidate whose output differs by
// more than reordering explains (output_check.h) is never timed. All work runs on a stream of the session's own.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/engine/specialise/plan_builder.h"
#include "runtime/engine/tuning/output_copies.h"
#include "runtime/engine/tuning/referenced_runner.h"
#include "runtime/engine/tuning/rotation.h"
#include "runtime/engine/tuning_hooks.h"
#include "runtime/engine/workspace.h"

namespace kachel::runtime {

class TuneSession final : public ReferencedRunner {
 public:
  struct Setup {
    const EngineServices& services;
    PlanBuilder& plans;
    const ScratchCallbacks& scratch;
    Device& device;
    const KernelModel& model;
    const Point& point;
    const BoundArguments& arguments;
    const std::vector<TunableValues>& candidates;
    void* stream;      // the caller's; not captured
    double share = 1;  // LaunchSettings::share
    const TuningHooks* hooks = nullptr;
    int64_t spare_bytes = 0;  // of memory, for copies that only make measurements better
  };
  // Borrows everything in `setup`.
  explicit TuneSession(const Setup& setup);
  ~TuneSession() override;

  tuner::Forecast forecast(size_t index) override;
  double expected_compile_ns(size_t index) override;
  Status compile(size_t index) override;
  void compile_reference() override;
  bool checks_beside_compiling() const override { return true; }
  std::string flaw(size_t index) override;
  Status prepare() override;
  Status check(size_t index) override;
  void prepare_run(tuner::Caches caches) override;
  bool rotate(double run_ns) override;
  Result<double> time_once_ns(size_t index) override;
  Result<std::vector<double>> benchmark(size_t index) override;

  // The attempts of the first half are the generic lowering's.
  size_t first_attempt() const override;
  Status make_reference(size_t attempt) override;

 private:
  Status open();
  Status open_once();
  TuningCase tuning() const { return {setup_.model, setup_.arguments.device, setup_.arguments.dims}; }
  Status run(const Specialisation& specialisation) { return run(specialisation, arguments_); }
  Status run(const Specialisation& specialisation, const BoundArguments& arguments);
  Status run_ahead(const Specialisation& specialisation);
  Result<const Specialisation*> build(size_t index);
  Result<const Specialisation*> build_generic(size_t index);
  // By output, the share of elements that candidates may have otherwise than the reference; empty: none of any.
  Result<std::vector<Apart>> spare();

  Setup setup_;
  BoundArguments arguments_;  // the caller's, with outputs redirected to the copies
  std::vector<std::atomic<const Specialisation*>> loaded_;
  OutputCopies outputs_;
  Rotation rotation_;
  std::optional<Rotation::Launches> launches_;  // of one sample, where operands rotate
  Workspace workspace_;
  int64_t workspace_bytes_ = 0;
  Roundings roundings_;
  size_t reference_ = 0;  // the attempt that made it
  std::optional<std::vector<Apart>> spare_;
  std::unique_ptr<Device::Timer> timer_;
  void* stream_ = nullptr;
  bool has_stream_ = false;
  std::optional<Status> opened_;
  Status prepared_;  // of the last prepare_run(), reported by the run that follows
  tuner::Caches caches_ = tuner::Caches::kEvicted;
};

}  // namespace kachel::runtime
