// Concrete kernel to InterpretedKernel. Besides giving out slots it decides two things, both from the text alone:
//
// - Forwards. In a region, a read that is ir::same() as an earlier assignment of the iteration sees what that assigned.
//   The element's Forward is set when the assignment is executed, so that conditions need no treatment here.
// - What a reduction depends on. `dependence_` holds for each slot the set of region and reduction variables that its
//   value may vary with; a reduction inside a region that varies with only some of them is evaluated once for each
//   combination of those. A row's sum costs a row, not a square.
#include <cassert>
#include <map>

#include "ir/concrete.h"
#include "ir/interpreted_kernel.h"
#include "ir/numerics.h"

namespace kachel::ir {
namespace {

constexpr int64_t kLargestTable = int64_t{1} << 22;

class Compiler {
 public:
  explicit Compiler(const Kernel& kernel) : kernel_(kernel) {}
  InterpretedKernel run();

 private:
  int new_slot(uint64_t dependence = 0);
  int slot_of(const VarRef& var);
  int constant(const ExprRef& expr);
  int memory_of(const BufferRef& buffer);
  int emit(Instruction instruction, uint64_t dependence);

  int expr(const ExprRef& expr);
  int apply(const ExprRef& expr);
  int load(const ExprRef& expr);
  int reduce(const ExprRef& expr);
  LoadInfo load_info(const BufferRef& buffer, const std::vector<ExprRef>& indices);
  Value value(const ExprRef& expr);
  int tile(const TileRef& ref);

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
  int reductions_ = 0;  // nesting
};

int Compiler::new_slot(uint64_t dependence) {
  dependence_.push_back(dependence);
  return program_.slots++;
}

int Compiler::slot_of(const VarRef& var) {
  auto [found, is_new] = program_.variables.try_emplace(var.get(), 0);
  if (is_new) found->second = new_slot();
  return found->second;
}

int Compiler::constant(const ExprRef& expr) {
  Cell cell = expr->type == DType::F32 ? Cell::exact(round_float(DType::F32, expr->float_value))
                                       : Cell::integer(expr->int_value);
  auto [found, is_new] = constants_.try_emplace({expr->type, std::bit_cast<uint64_t>(cell.i)}, 0);
  if (is_new) {
    found->second = new_slot();
    program_.constants.emplace_back(found->second, cell);
  }
  return found->second;
}

int Compiler::memory_of(const BufferRef& buffer) {
  auto [found, is_new] = memories_.try_emplace(buffer.get(), static_cast<int>(program_.buffers.size()));
  if (is_new) program_.buffers.push_back(buffer);
  return found->second;
}

int Compiler::emit(Instruction instruction, uint64_t dependence) {
  instruction.dst = new_slot(dependence);
  code_->push_back(instruction);
  return instruction.dst;
}

int Compiler::expr(const ExprRef& expr) {
  assert(expr->typed);
  switch (expr->kind) {
    case ExprKind::kInt:
    case ExprKind::kFloat:
    case ExprKind::kBool:
      return constant(expr);
    case ExprKind::kVar:
      return slot_of(expr->var);
    case ExprKind::kApply:
      return apply(expr);
    case ExprKind::kLoad:
      return load(expr);
    case ExprKind::kReduce:
      return reduce(expr);
    case ExprKind::kCast: {
      Instruction cast{Instruction::Kind::kCast};
      cast.a = this->expr(expr->args[0]);
      cast.type = expr->args[0]->type;
      cast.to = expr->cast_type.dtype;
      return emit(cast, dependence_[cast.a]);
    }
  }
  return -1;
}

int Compiler::apply(const ExprRef& expr) {
  using Kind = Instruction::Kind;
  Instruction result{Kind::kInteger};
  int slots[3] = {};
  uint64_t dependence = 0;
  for (size_t i = 0; i < expr->args.size(); ++i) {
    slots[i] = this->expr(expr->args[i]);
    dependence |= dependence_[slots[i]];
  }
  result.op = expr->op;
  result.approx = expr->approx;
  result.a = slots[0];
  result.b = slots[1];
  result.c = slots[2];
  result.type = expr->args[0]->type;
  bool on_floats = result.type == DType::F32;
  if (expr->op == Op::kSelect)
    result.kind = expr->type == DType::F32 ? Kind::kSelectFloat : Kind::kSelectInteger;
  else if (expr->op == Op::kAnd || expr->op == Op::kOr || expr->op == Op::kNot)
    result.kind = Kind::kLogic;
  else if (on_floats)
    result.kind = is_comparison(expr->op) ? Kind::kCompareFloat : Kind::kFloat;
  return emit(result, dependence);
}

LoadInfo Compiler::load_info(const BufferRef& buffer, const std::vector<ExprRef>& indices) {
  LoadInfo info;
  info.memory = memory_of(buffer);
  info.rank = static_cast<int>(indices.size());
  for (int axis = 0; axis < info.rank; ++axis) info.index[axis] = expr(indices[axis]);
  return info;
}

Compiler::Assigned* Compiler::find_assigned(const BufferRef& buffer, const std::vector<ExprRef>& indices) {
  for (Assigned& assigned : assigned_) {
    bool equal = assigned.buffer == buffer;
    for (size_t i = 0; equal && i < indices.size(); ++i) equal = same(assigned.indices[i], indices[i]);
    if (equal) return &assigned;
  }
  return nullptr;
}

int Compiler::load(const ExprRef& expr) {
  LoadInfo info = load_info(expr->buffer, expr->args);
  uint64_t dependence = 0;
  for (int axis = 0; axis < info.rank; ++axis) dependence |= dependence_[info.index[axis]];
  if (const Assigned* assigned = find_assigned(expr->buffer, expr->args)) {
    info.forward = assigned->forward;
    dependence |= assigned->dependence;
  }
  Instruction instruction{Instruction::Kind::kLoad};
  instruction.a = static_cast<int>(program_.loads.size());
  program_.loads.push_back(info);
  return emit(instruction, dependence);
}

int Compiler::reduce(const ExprRef& expr) {
  ReduceInfo info;
  info.op = expr->reduce;
  info.type = expr->type;
  uint64_t own = 0;
  for (const IterVar& iter : expr->iters) {
    int slot = slot_of(iter.var);
    if (variables_ < 64) own |= uint64_t{1} << variables_;
    dependence_[slot] = variables_ < 64 ? uint64_t{1} << variables_ : ~uint64_t{0};
    ++variables_;
    info.iters.push_back({slot, constant_extent(iter.extent)});
  }
  ++reductions_;
  Code* outer = code_;
  code_ = &info.body.code;
  info.body.slot = this->expr(expr->args[0]);
  code_ = outer;
  --reductions_;
  uint64_t dependence = dependence_[info.body.slot] & ~own;
  uint64_t all = region_.size() < 64 ? (uint64_t{1} << region_.size()) - 1 : 0;
  if (in_region_ && (dependence & ~all) == 0 && (dependence != all || reductions_ > 0)) {
    int64_t size = 1;
    for (size_t i = 0; i < region_.size() && size <= kLargestTable; ++i) {
      if ((dependence >> i & 1) == 0) continue;
      info.depends.push_back(region_[i]);
      size *= region_[i].extent;
    }
    if (size <= kLargestTable) {
      info.memoised = true;
      info.table = program_.table_sizes.size();
      program_.table_sizes.push_back(static_cast<size_t>(size));
    }
  }
  program_.reduces.push_back(std::move(info));
  Instruction instruction{Instruction::Kind::kReduce};
  instruction.a = static_cast<int>(program_.reduces.size()) - 1;
  return emit(instruction, dependence);
}

Value Compiler::value(const ExprRef& expr) {
  Value result;
  Code* outer = code_;
  code_ = &result.code;
  result.slot = this->expr(expr);
  code_ = outer;
  return result;
}

int Compiler::tile(const TileRef& ref) {
  TileInfo info;
  info.memory = memory_of(ref.buffer);
  Code* outer = code_;
  code_ = &info.code;
  for (size_t i = 0; i < ref.axes.size(); ++i) {
    const AxisSpec& spec = ref.axes[i];
    TileAxis axis{spec.kind};
    if (spec.start) axis.start = expr(spec.start);
    if (spec.gather) axis.gather = tile(*spec.gather);
    if (is_tile_axis(spec)) {
      axis.extent = constant_extent(axis_extent(ref, i));
      info.extents.push_back(axis.extent);
    }
    info.axes.push_back(axis);
  }
  if (ref.within_first) info.within_first = expr(ref.within_first);
  if (ref.within_length) info.within_length = expr(ref.within_length);
  if (ref.pad) info.pad = expr(ref.pad);
  code_ = outer;
  program_.tiles.push_back(std::move(info));
  return static_cast<int>(program_.tiles.size()) - 1;
}

Nodes Compiler::block(const Block& body) {
  Nodes nodes;
  nodes.reserve(body.size());
  for (const Stmt& stmt : body)
    nodes.push_back(std::visit([this](const auto& specific) { return node(specific); }, stmt.node));
  return nodes;
}

Node Compiler::node(const DeclStmt& stmt) {
  Node result{Node::Kind::kDecl};
  result.memory = memory_of(stmt.buffer);
  if (stmt.init) result.value = value(stmt.init);
  return result;
}

Node Compiler::node(const LetStmt& stmt) {
  Node result{Node::Kind::kLet};
  result.value = value(stmt.value);
  result.slot = slot_of(stmt.var);
  dependence_[result.slot] = dependence_[result.value.slot];
  return result;
}

Node Compiler::node(const CopyStmt& stmt) {
  Node result{Node::Kind::kCopy};
  result.tiles[0] = tile(stmt.dst);
  result.tiles[1] = tile(stmt.src);
  result.atomic = stmt.atomic;
  return result;
}

Node Compiler::node(const FillStmt& stmt) {
  Node result{Node::Kind::kFill};
  result.tiles[0] = tile(stmt.dst);
  result.value = value(stmt.value);
  return result;
}

Node Compiler::node(const GemmStmt& stmt) {
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

Node Compiler::node(const ParallelStmt& stmt) {
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

Node Compiler::node(const AssignStmt& stmt) {
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

Node Compiler::node(const ForStmt& stmt) {
  Node result{Node::Kind::kFor};
  result.begin = value(stmt.begin);
  result.value = value(stmt.end);
  result.slot = slot_of(stmt.var);
  result.body = block(stmt.body);
  collect_written(result.body, program_, result.written);
  return result;
}

Node Compiler::node(const IfStmt& stmt) {
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

InterpretedKernel Compiler::run() {
  for (const Param& param : kernel_.params) {
    if (param.tensor) memory_of(param.tensor);
    if (param.scalar) slot_of(param.scalar);
  }
  for (const VarRef& dim : kernel_.dims) slot_of(dim);
  for (const IterVar& axis : kernel_.grid) program_.grid.push_back(slot_of(axis.var));
  program_.body = block(kernel_.body);
  return std::move(program_);
}

}  // namespace

InterpretedKernel compile(const Kernel& kernel) {
  return Compiler(kernel).run();
}

}  // namespace kachel::ir
