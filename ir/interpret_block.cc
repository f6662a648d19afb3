// Control flow of one block. A condition or bound that is undecided taints everything written within instead.
#include "ir/interpreter.h"

namespace kachel::ir {

Interpreter::Interpreter(const InterpretedKernel& program, std::vector<Memory> memories, int64_t step_limit)
    : program_(program), memories_(std::move(memories)), steps_left_(step_limit) {
  frame_.assign(static_cast<size_t>(program.slots), Cell::undecided());
  for (const auto& [slot, value] : program.constants) set(slot, value);
  forward_set_.assign(program.forwards.size(), 0);
  deferred_.assign(memories_.size(), 0);
  for (size_t size : program.table_sizes) tables_.push_back({std::vector<Cell>(size), std::vector<uint32_t>(size, 0)});
}

bool Interpreter::spend(int64_t steps) {
  steps_left_ -= steps;
  stopped_ |= steps_left_ < 0;
  return !stopped_;
}

Status Interpreter::run_block(uint32_t block) {
  block_ = block;
  if (spend(1)) run(program_.body);
  if (stopped_) return unsupported("the interpreter's step limit is exceeded");
  return {};
}

void Interpreter::taint(const std::vector<int>& written) {
  for (int memory : written) memories_[static_cast<size_t>(memory)].taint(block_);
}

void Interpreter::loop(const Node& node) {
  evaluate(node.begin.code);
  const Cell begin = at(node.begin.slot);
  evaluate(node.value.code);
  const Cell end = at(node.value.slot);
  if (begin.e != 0 || end.e != 0) return taint(node.written);
  for (int64_t i = begin.i; i < end.i; ++i) {
    if (!spend(1)) return;
    at(node.slot) = Cell::integer(i);
    run(node.body);
  }
}

void Interpreter::run(const Nodes& nodes) {
  for (const Node& node : nodes) {
    if (stopped_) return;
    run(node);
  }
}

void Interpreter::run(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kDecl: {
      Memory& memory = memories_[static_cast<size_t>(node.memory)];
      if (!spend(memory.size())) return;
      if (node.value.slot < 0) return memory.reset();
      evaluate(node.value.code);
      memory.reset(convert_cell(at(node.value.slot), compute_type(memory.type()), memory.type()));
      break;
    }
    case Node::Kind::kLet:
      if (!spend(static_cast<int64_t>(node.value.code.size()))) return;
      evaluate(node.value.code);
      at(node.slot) = at(node.value.slot);
      break;
    case Node::Kind::kCopy:
      copy(node);
      break;
    case Node::Kind::kFill:
      fill(node);
      break;
    case Node::Kind::kGemm:
      gemm(node);
      break;
    case Node::Kind::kParallel:
      region(node);
      break;
    case Node::Kind::kFor:
      loop(node);
      break;
    case Node::Kind::kIf: {
      evaluate(node.value.code);
      const Cell& condition = at(node.value.slot);
      if (condition.e != 0)
        taint(node.written);
      else
        run(condition.i != 0 ? node.body : node.otherwise);
      break;
    }
    case Node::Kind::kAssign:
      break;  // within regions only
  }
}

}  // namespace kachel::ir
