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

#include "derive/operand_slice.h"
#include "derive/rows_along_k.h"
#include "runtime/engine/programs/parts_of_sums.h"
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
  Result<const Specialisation*> alone(const BoundArguments& arguments, const LaunchSettings& settings,
                                      void* stream) override;

 private:
  // What operands are made ahead for: this kernel, or one that computes the same.
  struct Source {
    ir::Kernel kernel;
    std::vector<derive::OperandSlice> slices;
    std::vector<derive::CrossedTensor> crossed;
  };
  struct Sums {
    ir::Kernel kernel;  // this one, or with fixed extents
    derive::SumLoop loop;
  };
  PreparedForms(std::shared_ptr<Engine> engine, std::span<const ConstValue> consts,
                std::shared_ptr<const KernelModel> model, Source plain, std::optional<Source> reordered,
                std::optional<Sums> sums);
  struct Form {
    uint64_t made = 0;      // operands made ahead; bit i: slice i
    uint64_t turned = 0;    // of those, the ones that are read along k then
    uint64_t laid_out = 0;  // tensors; bit i: crossed tensor i
    int64_t parts = 1;      // of sums
    int64_t extent = 0;     // where they are in parts: the most of their tiles, and
    uint64_t types = 0;     // of the launch
    auto operator<=>(const Form&) const = default;
  };
  // What `form` makes and lays out is of this.
  const Source& source(const Form& form) const { return form.laid_out && reordered_ ? *reordered_ : plain_; }
  Form operands(const Device& device, const BoundArguments& arguments, const Source& source) const;
  Form rows(const Device& device, const BoundArguments& arguments) const;
  // In the order in which they are asked about. `parts`: of sums, if they were made so.
  std::vector<Form> forms(const Device& device, const BoundArguments& arguments, const PartsOfSums& parts) const;
  // Whether making the operand writes far more than there is to read, as all windows of an image do.
  bool outgrows_sources(const derive::OperandSlice& slice, const BoundArguments& arguments) const;
  // Whether rows of the crossed axis would be worth having, and hold little else than elements.
  bool may_lay_out(const derive::CrossedTensor& crossed, const BoundArguments& arguments) const;
  bool is_worth_trying(const Device& device, const BoundArguments& arguments, const ProgramModel& program,
                       const Form& form, const PartsOfSums& parts) const;
  // What a decision says that the winner takes, in ns; infinity: there is none.
  double measured(const Device& device, const BoundArguments& arguments, const KernelModel& model) const;
  // Null where it cannot be made, with a line in the log.
  ProgramHandle* program(const Form& form, const BoundArguments& arguments);
  // With those of the operands with which it can be made.
  Result<std::shared_ptr<const ProgramModel>> derive(const Form& form, const BoundArguments& arguments) const;
  const BoundTensor& tensor(const BoundArguments& arguments, const ir::Buffer& buffer) const;

  std::shared_ptr<Engine> engine_;
  const std::vector<ConstValue> consts_;
  std::shared_ptr<const KernelModel> model_;
  const Source plain_;
  const std::optional<Source> reordered_;  // whose tensors can be laid out, if the kernel's cannot
  const std::optional<Sums> sums_;
  DispatchTable<Specialisation> alone_;
  std::mutex mutex_;  // guards programs_
  std::map<Form, std::unique_ptr<ProgramHandle>> programs_;
};

}  // namespace kachel::runtime
