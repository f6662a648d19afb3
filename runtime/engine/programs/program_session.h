// Runs of a program on private copies of what it writes: to make its kernels ready, and to choose a configuration of
// it.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "runtime/engine/programs/program_handle.h"
#include "runtime/engine/tuning/output_copies.h"
#include "runtime/engine/tuning/referenced_runner.h"
#include "runtime/engine/tuning_hooks.h"

namespace kachel::runtime {

// Kernels that are to be tuned are so by the first run that comes to them, when what they read has been computed.
class ProgramSession final : public ReferencedRunner {
 public:
  // Borrows everything but `candidates`. `stream`, the caller's, is not captured.
  ProgramSession(const ProgramHandle& program, Device& device, const BoundArguments& arguments,
                 std::span<const Arg> args, std::vector<TunableValues> candidates, const LaunchSettings& settings,
                 void* stream);
  ~ProgramSession() override;

  // Runs every candidate once, so that the time which their kernels' tuning takes is not taken from the program's own.
  // What fails is reported by prepare() and compile().
  void rehearse();

  Status compile(size_t index) override { return runs_[index].ran ? runs_[index].status : Status(); }
  // The outputs of the first candidate that runs are what the others are compared with: its kernels were each compared
  // with the generic lowering of their own.
  Status prepare() override;
  size_t first_attempt() const override { return candidates_.size(); }
  Status make_reference(size_t attempt) override;
  Status check(size_t index) override;
  void prepare_run(tuner::Caches caches) override;
  Result<double> time_once_ns(size_t index) override;
  Result<std::vector<double>> benchmark(size_t index) override;

 private:
  struct Run {
    ProgramLayout layout;
    bool ran = false;
    Status status;
  };
  Status open();
  TuningCase tuning() const { return {program_.model(), given_.device, given_.dims}; }
  Status run(size_t index);
  Roundings roundings() const;

  const ProgramHandle& program_;
  Device& device_;
  const BoundArguments& given_;
  BoundArguments arguments_;  // the caller's, with outputs redirected to the copies
  std::vector<Arg> args_;     // the same
  std::vector<TensorArg> tensors_;
  const std::vector<TunableValues> candidates_;
  LaunchSettings settings_;
  void* caller_stream_;
  std::vector<Run> runs_;
  OutputCopies outputs_;
  Workspace scratch_;
  std::unique_ptr<Device::Timer> timer_;
  void* stream_ = nullptr;
  bool opened_ = false, has_stream_ = false;
  Status opening_, prepared_;
  tuner::Caches caches_ = tuner::Caches::kEvicted;
};

}  // namespace kachel::runtime
