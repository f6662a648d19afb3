// A kernel's other forms: programs in which operands of its gemms are made ahead (derive/prepare_operands.h).
//
// For which operands that may pay is read off the arguments: those that are computed, and on a GPU those that are
// converted, and those whose rows the copy engine cannot move or that begin between lines of the L2. Whether it does
// pay is measured: the choice of the derived program, stored as any other. What making the operands must cost at the
// memory's rate is asked first, so that most keys are not tuned twice.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "derive/operand_slice.h"
#include "runtime/engine/programs/program_handle.h"

namespace kachel::runtime {

// Thread-safe.
class PreparedForms final : public OtherForms {
 public:
  // Null where the kernel has no operand that could be made ahead. `model`: of the kernel with these constants.
  static std::unique_ptr<PreparedForms> create(std::shared_ptr<Engine> engine, const ir::Kernel& kernel,
                                               std::span<const ConstValue> consts,
                                               std::shared_ptr<const KernelModel> model);

  Result<Serving> serving(const BoundArguments& arguments, std::span<const Arg> args, const LaunchSettings& settings,
                          const Signature& signature, void* stream) override;
  Result<const Specialisation*> alone(const BoundArguments& arguments, const LaunchSettings& settings,
                                      void* stream) override;

 private:
  PreparedForms(std::shared_ptr<Engine> engine, const ir::Kernel& kernel, std::span<const ConstValue> consts,
                std::shared_ptr<const KernelModel> model, std::vector<derive::OperandSlice> slices);
  // Bit i: slice i.
  struct Operands {
    uint64_t made = 0;
    uint64_t turned = 0;  // of those, the ones that are read along k then
    auto operator<=>(const Operands&) const = default;
  };
  Operands wanted(const Device& device, const BoundArguments& arguments) const;
  bool is_worth_trying(const Device& device, const BoundArguments& arguments, const ProgramModel& program,
                       const Operands& operands) const;
  // Null where it cannot be made, with a line in the log.
  ProgramHandle* program(const Operands& operands);
  // With those of the operands with which it can be made.
  Result<std::shared_ptr<const ProgramModel>> derive(const Operands& operands) const;
  ir::DType type_of(const ir::Buffer& tile, const BoundArguments& arguments) const;
  const BoundTensor& tensor(const BoundArguments& arguments, const ir::Buffer& buffer) const;

  std::shared_ptr<Engine> engine_;
  const ir::Kernel kernel_;
  const std::vector<ConstValue> consts_;
  std::shared_ptr<const KernelModel> model_;
  const std::vector<derive::OperandSlice> slices_;
  DispatchTable<Specialisation> alone_;
  std::mutex mutex_;  // guards programs_
  std::map<Operands, std::unique_ptr<ProgramHandle>> programs_;
};

}  // namespace kachel::runtime
