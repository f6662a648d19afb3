// A program with its consts fixed, prepared for launching: its signature, its temporaries, and what each call passes.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/module.h"
#include "runtime/engine/bind/argument_binder.h"

namespace kachel::runtime {

// Immutable.
struct ProgramModel {
  static constexpr size_t kMaxTemps = 32, kMaxSteps = 64;  // steps are bits of a word

  // kInvalid for consts as KernelModel::create() says, here and of the kernels that are called, and for scalars that a
  // kernel does not take; kUnsupported past the limits. `derived`: as KernelModel has it, the kernels too. REQUIRES:
  // verify() has passed `module`.
  static Result<std::shared_ptr<const ProgramModel>> create(const ir::Module& module, const ir::Program& program,
                                                            std::span<const ConstValue> consts, bool derived = false);

  struct Temp {
    std::string name;
    ir::TypeRef type;
    int symbol = -1;  // index of its type symbol
    std::vector<HostProgram> shape;
    uint64_t users = 0;  // bit s: step s is passed it
  };
  struct Argument {
    enum class Kind : uint8_t { kParam, kTemp, kScalar } kind = Kind::kParam;
    int index = 0;      // of the parameter or the temporary
    HostProgram value;  // kScalar
  };
  struct Guard {
    HostProgram condition;
    bool holds = true;  // or its opposite
  };
  struct Step {
    std::vector<Guard> guards;                  // all must hold, else the step is left out
    std::shared_ptr<const KernelModel> kernel;  // one object for all calls of a kernel with the same constants
    std::vector<Argument> arguments;
  };

  std::shared_ptr<const KernelModel> header;
  std::string text;  // a module with the program and the kernels that it may call
  std::vector<Temp> temps;
  std::vector<Step> steps;

  ir::DType type_of(const Temp& temp, const BoundArguments& arguments) const;
};

// Which steps one launch consists of, and where its temporaries are, in one piece of scratch.
struct ProgramLayout {
  static constexpr int64_t kAlign = 256;
  uint64_t steps = 0;  // bit s: step s runs
  bool runs(size_t step) const { return steps >> step & 1; }
  int64_t bytes = 0;
  struct Temp {  // valid where a step that runs uses it
    int64_t offset;
    int64_t shape[kMaxRank];
  } temps[ProgramModel::kMaxTemps];
};
// kInvalid where an extent is negative or a size cannot be.
Status lay_out(const ProgramModel& model, const BoundArguments& arguments, const TunableValues& values,
               ProgramLayout& out);

// The arguments of one step, on the stack of a launch.
class StepArguments {
 public:
  // `args`: of the program, and `arguments` what they were bound to. Borrows them and `layout`.
  StepArguments(const ProgramModel& model, const BoundArguments& arguments, const TunableValues& values,
                const ProgramLayout& layout, void* scratch, std::span<const Arg> args)
      : model_(model), arguments_(arguments), values_(values), layout_(layout), scratch_(scratch), given_(args) {}

  // Until the next call.
  std::span<const Arg> of(const ProgramModel::Step& step);

 private:
  const ProgramModel& model_;
  const BoundArguments& arguments_;
  const TunableValues& values_;
  const ProgramLayout& layout_;
  void* scratch_;
  std::span<const Arg> given_;
  Arg args_[kMaxParams];
  TensorArg tensors_[kMaxParams];
};

}  // namespace kachel::runtime
