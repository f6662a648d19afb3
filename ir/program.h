// Programs: kernels that run one after another, with temporary tensors between them. See GRAMMAR.md, "Programs".
#pragma once
#include "ir/kernel.h"

namespace kachel::ir {

// What a call passes: exactly one is set.
struct CallArg {
  BufferRef tensor;  // a parameter of the program or one of its temporaries, whole
  ExprRef value;     // of a scalar; host-evaluated
  Loc loc;
};

// What an `if` around a call demands: the condition, or behind `else` its opposite.
struct Guard {
  ExprRef condition;  // host-evaluated, without scalars
  bool holds = true;
};

struct Call {
  struct Const {
    std::string name;
    ExprRef value;  // of constants and numbers
    Loc loc;
  };
  std::string kernel;  // by name, of the same module
  std::vector<Const> consts;
  std::vector<CallArg> args;  // in the order of the kernel's parameters
  std::vector<Guard> guards;  // of the blocks around it, outermost first; all must hold, else the call is left out
  Loc loc;
};

struct Program {
  // The name, what stands in the angle brackets, the parameters, `where`, `key` and `tune`, as a kernel has them; no
  // grid and no body.
  Kernel header;
  std::vector<BufferRef> temps;  // kGlobal, kInOut; shapes are host-evaluated and may name tunables
  std::vector<Call> calls;
};

}  // namespace kachel::ir
