// A program with everything but pointers and scalars fixed, and temporaries of its own.
#pragma once
#include <memory>
#include <vector>

#include "runtime/engine/programs/program_handle.h"

namespace kachel::runtime {

class BoundProgram final : public BoundLaunch {
 public:
  // Reserves what the temporaries need. REQUIRES: the steps are prepared.
  static Result<std::unique_ptr<BoundProgram>> create(const ProgramHandle& handle,
                                                      std::shared_ptr<const ProgramModel> program, Device& device,
                                                      const BoundArguments& arguments, const TunableValues& values,
                                                      std::span<const Arg> args, const LaunchSettings& settings);

  Status launch(void* const* pointers, const int64_t* scalars, void* stream) const override;

 private:
  explicit BoundProgram(const BoundArguments& arguments) : arguments_(arguments) {}

  std::shared_ptr<const ProgramModel> program_;
  BoundArguments arguments_;
  TunableValues values_;
  ProgramLayout layout_;
  LastingScratch scratch_;
  std::vector<std::unique_ptr<BoundLaunch>> steps_;  // null: left out
  std::vector<int> position_;                        // by parameter: its place among the tensors
};

}  // namespace kachel::runtime
