#include <bit>
#include <cassert>
#include <optional>

#include "ir/concrete.h"
#include "ir/interpreter_compiler.h"
#include "ir/numerics.h"

namespace kachel::ir {
namespace {

constexpr int64_t kLargestTable = int64_t{1} << 22, kMostCells = int64_t{1} << 24;

}  // namespace

int InterpreterCompiler::new_slot(uint64_t dependence) {
  dependence_.push_back(dependence);
  return program_.slots++;
}

int InterpreterCompiler::slot_of(const VarRef& var) {
  auto [found, is_new] = program_.variables.try_emplace(var.get(), 0);
  if (is_new) found->second = new_slot();
  return found->second;
}

int InterpreterCompiler::constant(const ExprRef& expr) {
  Cell cell = expr->type == DType::F32 ? Cell::exact(round_float(DType::F32, expr->float_value))
                                       : Cell::integer(expr->int_value);
  auto [found, is_new] = constants_.try_emplace({expr->type, std::bit_cast<uint64_t>(cell.i)}, 0);
  if (is_new) {
    found->second = new_slot();
    program_.constants.emplace_back(found->second, cell);
  }
  return found->second;
}

int InterpreterCompiler::memory_of(const BufferRef& buffer) {
  auto [found, is_new] = memories_.try_emplace(buffer.get(), static_cast<int>(program_.buffers.size()));
  if (is_new) program_.buffers.push_back(buffer);
  return found->second;
}

int InterpreterCompiler::emit(Instruction instruction, uint64_t dependence) {
  instruction.dst = new_slot(dependence);
  code_->push_back(instruction);
  return instruction.dst;
}

int InterpreterCompiler::expr(const ExprRef& expr) {
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
    case ExprKind::kScan:
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

int InterpreterCompiler::apply(const ExprRef& expr) {
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
  result.of_rounded = expr->of_rounded;
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

LoadInfo InterpreterCompiler::load_info(const BufferRef& buffer, const std::vector<ExprRef>& indices) {
  LoadInfo info;
  info.memory = memory_of(buffer);
  info.rank = static_cast<int>(indices.size());
  for (int axis = 0; axis < info.rank; ++axis) info.index[axis] = expr(indices[axis]);
  return info;
}

InterpreterCompiler::Assigned* InterpreterCompiler::find_assigned(const BufferRef& buffer,
                                                                  const std::vector<ExprRef>& indices) {
  for (Assigned& assigned : assigned_) {
    bool equal = assigned.buffer == buffer;
    for (size_t i = 0; equal && i < indices.size(); ++i) equal = same(assigned.indices[i], indices[i]);
    if (equal) return &assigned;
  }
  return nullptr;
}

int InterpreterCompiler::load(const ExprRef& expr) {
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

int InterpreterCompiler::reduce(const ExprRef& expr) {
  ReduceInfo info;
  info.op = expr->reduce;
  info.type = expr->args[0]->type;
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
  const bool scan = expr->kind == ExprKind::kScan;
  if (scan) {
    info.index = this->expr(expr->args[1]);
    info.inclusive = expr->inclusive;
    dependence |= dependence_[info.index];
  }
  memoise(dependence, &info);
  program_.reduces.push_back(std::move(info));
  Instruction instruction{scan ? Instruction::Kind::kScan : Instruction::Kind::kReduce};
  instruction.a = static_cast<int>(program_.reduces.size()) - 1;
  return emit(instruction, dependence);
}

void InterpreterCompiler::memoise(uint64_t dependence, ReduceInfo* info) {
  const uint64_t all = region_.size() < 64 ? (uint64_t{1} << region_.size()) - 1 : 0;
  const bool again = dependence != all || reductions_ > 0 || info->index >= 0;  // wanted more than once
  if (!in_region_ || (dependence & ~all) != 0 || !again) return;
  int64_t size = 1;
  std::optional<SlotExtent> last;
  for (size_t i = 0; i < region_.size() && size <= kLargestTable; ++i) {
    if ((dependence >> i & 1) == 0) continue;
    if (region_[i].slot == info->index)
      last = region_[i];
    else
      info->depends.push_back(region_[i]);
    size *= region_[i].extent;
  }
  if (last) info->depends.push_back(*last);
  if (size > kLargestTable || cells_ + size > kMostCells) return;
  cells_ += size;
  info->memoised = true;
  info->table = program_.table_sizes.size();
  program_.table_sizes.push_back(static_cast<size_t>(size));
}

Value InterpreterCompiler::value(const ExprRef& expr) {
  Value result;
  Code* outer = code_;
  code_ = &result.code;
  result.slot = this->expr(expr);
  code_ = outer;
  return result;
}

int InterpreterCompiler::tile(const TileRef& ref) {
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

}  // namespace kachel::ir
