// Which other forms of a kernel may pay for a launch, and the programs that they are. Private to programs/.
#pragma once
#include <bit>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "derive/operand_slice.h"
#include "derive/rows_along_k.h"
#include "runtime/device.h"
#include "runtime/engine/programs/parts_of_sums.h"
#include "runtime/engine/programs/program_model.h"

namespace kachel::runtime {

struct Form {
  uint64_t made = 0;       // operands made ahead; bit i: slice i
  uint64_t turned = 0;     // of those, the ones that are read along k then
  uint64_t laid_out = 0;   // tensors; bit i: crossed tensor i
  bool reordered = false;  // k is walked through in another order; all of this is of that kernel
  int64_t parts = 1;       // of sums
  int64_t extent = 0;      // where they are in parts: the most of their tiles, and
  uint64_t types = 0;      // of the launch
  auto operator<=>(const Form&) const = default;
  // Kernels that make something, at most: operands may be made together.
  int steps() const { return std::popcount(made) + std::popcount(laid_out); }
};

// Immutable, so thread-safe.
class FormChoice {
 public:
  // `model`: of the kernel with these constants.
  FormChoice(const ir::Kernel& kernel, std::span<const ConstValue> consts, std::shared_ptr<const KernelModel> model);

  const ir::Kernel& kernel() const { return kernel_; }
  const KernelModel& model() const { return *model_; }
  // Whether there may be any, but for sums in parts.
  bool any() const { return !plain_.slices.empty() || !plain_.crossed.empty() || reordered_; }
  // In the order in which they are asked about. `parts`: of sums, if they were made so.
  std::vector<Form> forms(const Device& device, const BoundArguments& arguments, const PartsOfSums& parts) const;
  // With those of the operands with which it can be made.
  Result<std::shared_ptr<const ProgramModel>> derive(const Form& form, const BoundArguments& arguments) const;

  // "k tap by tap, `f` made ahead, `X` laid out along k, sums in 4 parts"
  std::string text(const Form& form) const;

  // Of the tensors that the form makes others of, and of all that the kernel has.
  int64_t bytes_read(const Form& form, const BoundArguments& arguments) const;
  int64_t bytes_of_all(const BoundArguments& arguments) const;

 private:
  // What operands are made ahead for: the kernel with a region for each tile, or another one that computes the same.
  struct Source {
    ir::Kernel kernel;
    std::vector<derive::OperandSlice> slices;
    std::vector<derive::CrossedTensor> crossed;
  };
  static Source source_of(const ir::Kernel& kernel);
  // What `form` makes and lays out is of this.
  const Source& source(const Form& form) const { return form.reordered ? *reordered_ : plain_; }
  // `spared`: operands of at most so many bytes may outgrow what they are made of.
  Form operands(const Device& device, const BoundArguments& arguments, const Source& source, double spared) const;
  Form copies_alone(Form form) const;
  Form rows(const Device& device, const BoundArguments& arguments) const;
  // Whether making the operand writes far more than there is to read, as all windows of an image do: more than `most`
  // times as much, and more than `spared` bytes.
  bool outgrows_sources(const derive::OperandSlice& slice, const BoundArguments& arguments, double spared,
                        double most) const;
  // Whether rows of the crossed axis would be worth having, and hold little else than elements.
  bool may_lay_out(const derive::CrossedTensor& crossed, const BoundArguments& arguments) const;
  const BoundTensor& tensor(const BoundArguments& arguments, const ir::Buffer& buffer) const;

  const std::vector<ConstValue> consts_;
  const std::shared_ptr<const KernelModel> model_;
  const ir::Kernel kernel_;
  const Source plain_;
  std::optional<Source> reordered_;  // whose rows can be copied, if the kernel's cannot
};

}  // namespace kachel::runtime
