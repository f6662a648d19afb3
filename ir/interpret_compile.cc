#include "ir/concrete.h"
#include "ir/interpreter_compiler.h"

namespace kachel::ir {
namespace {

// Memories that statements write, found from what they compiled to.
void collect_written(const Nodes& nodes, const InterpretedKernel& program, std::vector<int>& written) {
  for (const Node& node : nodes) {
    if (node.kind == Node::Kind::kAssign) written.push_back(node.memory);
    if (node.kind == Node::Kind::kCopy || node.kind == Node::Kind::kFill || node.kind == Node::Kind::kGemm)
      written.push_back(program.tiles[node.tiles[0]].memory);
    collect_written(node.body, program, written);
    collect_written(node.otherwise, program, written);
  }
}

}  // namespace

Nodes InterpreterCompiler::block(const Block& body) {
  Nodes nodes;
  nodes.reserve(body.size());
  for (const Stmt& stmt : body)
    nodes.push_back(std::visit([this](const auto& specific) { return node(specific); }, stmt.node));
  return nodes;
}

Node InterpreterCompiler::node(const DeclStmt& stmt) {
  Node result{Node::Kind::kDecl};
  result.memory = memory_of(stmt.buffer);
  if (stmt.init) result.value = value(stmt.init);
  return result;
}

Node InterpreterCompiler::node(const LetStmt& stmt) {
  Node result{Node::Kind::kLet};
  result.value = value(stmt.value);
  result.slot = slot_of(stmt.var);
  dependence_[result.slot] = dependence_[result.value.slot];
  return result;
}

Node InterpreterCompiler::node(const CopyStmt& stmt) {
  Node result{Node::Kind::kCopy};
  result.tiles[0] = tile(stmt.dst);
  result.tiles[1] = tile(stmt.src);
  result.atomic = stmt.atomic;
  return result;
}

Node InterpreterCompiler::node(const FillStmt& stmt) {
  Node result{Node::Kind::kFill};
  result.tiles[0] = tile(stmt.dst);
  result.value = value(stmt.value);
  return result;
}

Node InterpreterCompiler::node(const GemmStmt& stmt) {
  Node result{Node::Kind::kGemm};
  result.tiles[0] = tile(stmt.c);
  result.tiles[1] = tile(stmt.a);
  result.tiles[2] = tile(stmt.b);
  result.transpose_a = stmt.transpose_a;
  result.transpose_b = stmt.transpose_b;
  result.accumulate = stmt.accumulate;
  result.precision = stmt.precision;
  return result;
}

Node InterpreterCompiler::node(const ParallelStmt& stmt) {
  Node result{Node::Kind::kParallel};
  region_.clear();
  assigned_.clear();
  variables_ = 0;
  guard_ = 0;
  for (const IterVar& iter : stmt.iters) {
    int slot = slot_of(iter.var);
    dependence_[slot] = variables_ < 64 ? uint64_t{1} << variables_ : ~uint64_t{0};
    ++variables_;
    region_.push_back({slot, constant_extent(iter.extent)});
  }
  size_t first_load = program_.loads.size();
  in_region_ = true;
  result.body = block(stmt.body);
  in_region_ = false;
  result.iters = region_;
  for (const Assigned& assigned : assigned_) result.region_forwards.push_back(assigned.forward);
  assigned_.clear();
  region_.clear();
  std::vector<int> written;
  collect_written(result.body, program_, written);
  for (int memory : written)
    for (size_t i = first_load; i < program_.loads.size(); ++i)
      if (program_.loads[i].memory == memory) {
        result.deferred.push_back(memory);
        break;
      }
  return result;
}

Node InterpreterCompiler::node(const AssignStmt& stmt) {
  Node result{Node::Kind::kAssign};
  result.memory = memory_of(stmt.buffer);
  result.atomic = stmt.atomic;
  code_ = &result.value.code;
  result.element = static_cast<int>(program_.elements.size());
  const LoadInfo element = load_info(stmt.buffer, stmt.indices);
  program_.elements.push_back(element);
  result.value.slot = expr(stmt.value);
  code_ = nullptr;
  if (stmt.atomic != AtomicOp::kNone) return result;
  uint64_t dependence = dependence_[result.value.slot] | guard_;
  for (int axis = 0; axis < element.rank; ++axis) dependence |= dependence_[element.index[axis]];
  Assigned* assigned = find_assigned(stmt.buffer, stmt.indices);
  if (!assigned) {
    assigned_.push_back({stmt.buffer, stmt.indices, static_cast<int>(program_.forwards.size()), 0});
    assigned = &assigned_.back();
    program_.forwards.push_back({new_slot(), result.element});
  }
  assigned->dependence |= dependence;
  result.forward = assigned->forward;
  return result;
}

Node InterpreterCompiler::node(const ForStmt& stmt) {
  Node result{Node::Kind::kFor};
  result.begin = value(stmt.begin);
  result.value = value(stmt.end);
  result.slot = slot_of(stmt.var);
  result.body = block(stmt.body);
  collect_written(result.body, program_, result.written);
  return result;
}

Node InterpreterCompiler::node(const IfStmt& stmt) {
  Node result{Node::Kind::kIf};
  result.value = value(stmt.condition);
  uint64_t outer = guard_;
  guard_ |= dependence_[result.value.slot];
  result.body = block(stmt.then_body);
  result.otherwise = block(stmt.else_body);
  guard_ = outer;
  if (!in_region_) {
    collect_written(result.body, program_, result.written);
    collect_written(result.otherwise, program_, result.written);
  }
  return result;
}

InterpretedKernel InterpreterCompiler::run() {
  for (const Param& param : kernel_.params) {
    if (param.tensor) memory_of(param.tensor);
    if (param.scalar) slot_of(param.scalar);
  }
  for (const VarRef& dim : kernel_.dims) slot_of(dim);
  for (const IterVar& axis : kernel_.grid) program_.grid.push_back(slot_of(axis.var));
  program_.body = block(kernel_.body);
  return std::move(program_);
}

InterpretedKernel compile(const Kernel& kernel) {
  return InterpreterCompiler(kernel).run();
}

}  // namespace kachel::ir
