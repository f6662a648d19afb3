// What a worker has to know to run a program as this process would: the plans of its kernels, and by which decisions
// they serve. Before that the kernels are made ready here, each tuned in a worker of its own, so that this process runs
// none of them.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine/programs/program_handle.h"
#include "runtime/engine/worker/cargo.h"

namespace kachel::runtime {

// Whether a kernel reads integers that one before it has made: those decide what it does, so it can be tuned only after
// the others have run.
bool passes_integers(const ProgramModel& program, const BoundArguments& arguments);

class ProgramCargo final : public WorkerCargo {
 public:
  // REQUIRES: the policy of `settings` is to tune, !passes_integers(), `stream` is not captured.
  static Result<std::unique_ptr<ProgramCargo>> create(const ProgramHandle& program, Device& device,
                                                      const BoundArguments& arguments, std::span<const Arg> args,
                                                      const std::vector<TunableValues>& candidates,
                                                      const LaunchSettings& settings, void* stream);

  std::string text() const override { return text_; }
  Result<std::string> outgoing(size_t index) override { return entries_[index]; }

 private:
  ProgramCargo() = default;

  std::string text_;
  std::vector<Result<std::string>> entries_;  // of the store, as encode_entries() has them; by candidate
};

std::string encode_entries(std::span<const cache::Entry> entries);
// Into the store. False for bytes that encode_entries() cannot have written.
bool keep_entries(cache::Store& store, std::string_view bytes);

}  // namespace kachel::runtime
