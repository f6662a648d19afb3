// A kernel's other forms: programs in which operands of its gemms are made ahead, tensors laid out along what its
// products add up, its sums in parts, or several of these (derive/prepare_operands.h, derive/rows_along_k.h,
// derive/taps_outside.h, derive/split_sums.h).
//
// For which operands that may pay is read off the arguments: those that are computed, and on a GPU those that are
// converted, those whose rows the copy engine cannot move or that begin between lines of the L2, and those that tensor
// cores would read along the other axis. Sums are made in parts where a GPU has more multiprocessors than the grid has
// large tiles. Whether it does pay is measured: the choice of the derived program, stored as any other. What a form
// must cost at the memory's rate is asked first, so that most keys are not tuned twice.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/engine/programs/form_choice.h"
#include "runtime/engine/programs/program_handle.h"

namespace kachel::runtime {

// Thread-safe.
class PreparedForms final : public OtherForms {
 public:
  // Null where the kernel has neither operands that could be made ahead nor sums that could be in parts. `model`: of
  // the kernel with these constants.
  static std::unique_ptr<PreparedForms> create(std::shared_ptr<Engine> engine, const ir::Kernel& kernel,
                                               std::span<const ConstValue> consts,
                                               std::shared_ptr<const KernelModel> model);

  Result<Serving> serving(const BoundArguments& arguments, std::span<const Arg> args, const LaunchSettings& settings,
                          const Signature& signature, void* stream) override;
  Result<std::string> considered(const BoundArguments& arguments) const override;
  Result<const Specialisation*> alone(const BoundArguments& arguments, const LaunchSettings& settings,
                                      void* stream) override;

 private:
  struct Sums {
    ir::Kernel kernel;  // this one, or with fixed extents
    derive::SumLoop loop;
  };
  PreparedForms(std::shared_ptr<Engine> engine, std::unique_ptr<const FormChoice> choice, std::optional<Sums> sums);
  PartsOfSums parts_of(const Device& device, const BoundArguments& arguments) const;
  bool is_worth_trying(const Device& device, const BoundArguments& arguments, const ProgramModel& program,
                       const Form& form, const PartsOfSums& parts) const;
  // What a decision says that the winner takes, in ns; infinity: there is none.
  double measured(const Device& device, const BoundArguments& arguments, const KernelModel& model) const;
  // Null where it cannot be made, with a line in the log.
  ProgramHandle* program(const Form& form, const BoundArguments& arguments);

  std::shared_ptr<Engine> engine_;
  const std::unique_ptr<const FormChoice> choice_;
  const std::optional<Sums> sums_;
  DispatchTable<Specialisation> alone_;
  std::mutex mutex_;  // guards programs_
  std::map<Form, std::unique_ptr<ProgramHandle>> programs_;
};

}  // namespace kachel::runtime
