// Concrete kernel to InterpretedKernel. Besides giving out slots it decides two things, both from the text alone:
//
// - Forwards. In a region, a read that is ir::same() as an earlier assignment of the iteration sees what that assigned.
//   The element's Forward is set when the assignment is executed, so that conditions need no treatment here.
// - What a reduction depends on. `dependence_` holds for each slot the set of region and reduction variables that its
//   value may vary with; a reduction inside a region that varies with only some of them is evaluated once for each
//   combination of those. A row's sum costs a row, not a square.
//
// Private to interpret_compile.cc, which has the statements, and interpret_compile_expr.cc.
#pragma once
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/interpreted_kernel.h"

namespace kachel::ir {

class InterpreterCompiler {
 public:
  explicit InterpreterCompiler(const Kernel& kernel) : kernel_(kernel) {}
  InterpretedKernel run();

 private:
  // interpret_compile_expr.cc
  int new_slot(uint64_t dependence = 0);
  int slot_of(const VarRef& var);
  int constant(const ExprRef& expr);
  int memory_of(const BufferRef& buffer);
  int emit(Instruction instruction, uint64_t dependence);

  int expr(const ExprRef& expr);
  int apply(const ExprRef& expr);
  int load(const ExprRef& expr);
  int reduce(const ExprRef& expr);
  void memoise(uint64_t dependence, ReduceInfo* info);
  LoadInfo load_info(const BufferRef& buffer, const std::vector<ExprRef>& indices);
  Value value(const ExprRef& expr);
  int tile(const TileRef& ref);

  // interpret_compile.cc
  Nodes block(const Block& body);
  Node node(const DeclStmt& stmt);
  Node node(const LetStmt& stmt);
  Node node(const CopyStmt& stmt);
  Node node(const FillStmt& stmt);
  Node node(const GemmStmt& stmt);
  Node node(const ParallelStmt& stmt);
  Node node(const AssignStmt& stmt);
  Node node(const ForStmt& stmt);
  Node node(const IfStmt& stmt);

  struct Assigned {
    BufferRef buffer;
    std::vector<ExprRef> indices;
    int forward;
    uint64_t dependence;
  };
  Assigned* find_assigned(const BufferRef& buffer, const std::vector<ExprRef>& indices);

  const Kernel& kernel_;
  InterpretedKernel program_;
  Code* code_ = nullptr;
  std::vector<uint64_t> dependence_;  // by slot
  std::map<std::pair<DType, uint64_t>, int> constants_;
  std::unordered_map<const Buffer*, int> memories_;
  // Of the region in hand.
  bool in_region_ = false;
  std::vector<SlotExtent> region_;
  std::vector<Assigned> assigned_;
  uint64_t guard_ = 0;  // what the enclosing conditions depend on
  int variables_ = 0;   // bits given out
  int64_t cells_ = 0;  // of all tables
  int reductions_ = 0;  // nesting
};

}  // namespace kachel::ir
