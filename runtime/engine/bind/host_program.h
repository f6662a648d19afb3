// Host expressions (grid extents, `key`, `where`, shapes) compiled once to flat code, so that a launch evaluates them
// without maps or allocation. Agrees with ir::evaluate() on every input.
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "ir/instantiate.h"
#include "runtime/engine/bind/host_form.h"
#include "support/status.h"

namespace kachel::runtime {

// Where the variables of a kernel's host expressions are.
struct HostScope {
  std::unordered_map<const ir::Var*, int> dims, scalars, tunables;
  std::unordered_map<const ir::Var*, ir::HostValue> consts;
};

class HostProgram {
 public:
  // kInvalid where the expression has no value on the host, kUnsupported where it is nested too deeply.
  static Result<HostProgram> compile(const ir::ExprRef& expr, const HostScope& scope);

  // Integers and bools as they are, f32 as the bits of the double that holds it.
  int64_t run(const HostInputs& inputs) const {
    return form_.kind == HostForm::Kind::kProgram ? run_code(inputs) : form_.run(inputs);
  }
  // The same with values for the tunables.
  HostProgram with_tunables(const int64_t* values) const;
  // What is run where no pointer is to be followed. It may refer to this object.
  HostForm form() const;
  bool is_float() const { return is_float_; }
  bool mentions_scalars() const { return mentions_scalars_; }
  bool mentions_tunables() const { return mentions_tunables_; }
  bool mentions_dims() const { return mentions_dims_; }
  // Calls fn(position) for each dimension that it mentions, as often as it does.
  template <class Fn>
  void for_each_dim(const Fn& fn) const {
    for (const Instruction& instruction : code_)
      if (instruction.kind == Kind::kDim) fn(static_cast<size_t>(instruction.value));
  }

 private:
  enum class Kind : uint8_t {
    kConst,
    kDim,
    kIntScalar,
    kFloatScalar,
    kTunable,
    kIntOp,
    kFloatOp,
    kFloatCompare,
    kFloatSelect,
    kCast
  };
  struct Instruction {
    Kind kind;
    ir::Op op;
    ir::DType type;  // of the operands; of a cast, its source
    ir::DType to;    // of a cast
    int8_t arity;
    int64_t value;  // a constant, or a position
  };
  static constexpr int kStack = 24;

  Status emit(const ir::ExprRef& expr, const HostScope& scope, int depth);
  static int64_t load(const Instruction& instruction, const HostInputs& inputs);
  static int64_t apply(const Instruction& instruction, int64_t a, int64_t b, int64_t c);
  int64_t run_code(const HostInputs& inputs) const;
  void find_form();

  HostForm form_;
  std::vector<Instruction> code_;  // postfix
  bool is_float_ = false, mentions_scalars_ = false, mentions_tunables_ = false, mentions_dims_ = false;
};

}  // namespace kachel::runtime
