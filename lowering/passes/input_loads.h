// Loads of tensors that nothing writes, which passes bring forward: into registers, where what needed them finds them.
#pragma once
#include <vector>

#include "lowering/loop_ir/loop_ir.h"

namespace kachel::lowering {

// registers[number * width +: width] holds what iteration `number` of those that are loaded together needs.
struct InputLoad {
  const ir::Expr* read = nullptr;         // an expression, input_read(); or
  const LoopIntrinsic* vector = nullptr;  // a copy to registers that nothing else is copied to
  int64_t width = 1;
  ir::BufferRef registers = nullptr;

  ir::DType type() const { return vector ? vector->operands[0].buffer->type.dtype : read->type; }
  int64_t words() const;  // of 32 bits, an iteration
};

bool is_input(const ir::BufferRef& buffer);
// A load of an input, or one that its bounds guard: the load. Null: it is neither.
const ir::Expr* input_read(const ir::Expr& expr);
// Whether the copy may be an InputLoad, as far as itself goes.
bool copies_input(const LoopIntrinsic& intrinsic);

// The load of an iteration, of so many words. I32.
LoopStmt load_early(const InputLoad& load, const ir::ExprRef& number);
ir::ExprRef loaded(const InputLoad& load, const ir::ExprRef& number);
// Has the statement itself, not those inside it, find in registers what the copy would have loaded.
void use_vector(const InputLoad& load, const ir::ExprRef& number, LoopStmt* stmt);

}  // namespace kachel::lowering
