// What a thread does by itself: values, element accesses, loops.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "tests/lowering/simulated_machine.h"

namespace kachel::lowering {

using ir::DType;
using ir::Op;
using ir::Scalar;

namespace {

constexpr int64_t kMostSteps = int64_t{1} << 33;

// The common operations of index arithmetic, for speed; false for the others.
bool integer(Op op, DType type, int64_t a, int64_t b, Scalar* result) {
  if (type != DType::I64 && type != DType::I32) return false;
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  uint64_t value;
  switch (op) {
    case Op::kAdd:
      value = x + y;
      break;
    case Op::kSub:
      value = x - y;
      break;
    case Op::kMul:
      value = x * y;
      break;
    case Op::kBitAnd:
      value = x & y;
      break;
    case Op::kBitXor:
      value = x ^ y;
      break;
    case Op::kDiv:
    case Op::kMod:
      if (a < 0 || b < 1) return false;
      value = op == Op::kDiv ? x / y : x % y;
      break;
    case Op::kLt:
      *result = {DType::Bool, a < b, 0};
      return true;
    case Op::kGe:
      *result = {DType::Bool, a >= b, 0};
      return true;
    default:
      return false;
  }
  *result = {type, type == DType::I64 ? static_cast<int64_t>(value) : static_cast<int32_t>(value), 0};
  return true;
}

}  // namespace

uint8_t* Machine::element(int number, int64_t at, Thread& thread, Access kind) {
  if (++steps_ > kMostSteps) fail("the simulator's step limit is exceeded");
  return memory_.element(number, at, {thread.number, thread.registers.data(), false}, kind);
}

uint8_t* Machine::vector(const SimStmt::Operand& operand, int64_t at, int64_t alignment, Thread& thread, Access kind) {
  if (++steps_ > kMostSteps) fail("the simulator's step limit is exceeded");
  return memory_.vector(operand.buffer, at, operand.elements, alignment,
                        {thread.number, thread.registers.data(), false}, kind);
}

void Machine::execute(const SimBlock& block, Thread& thread) {
  for (const SimStmt& stmt : block) {
    if (stopped()) return;
    execute(stmt, thread);
  }
}

void Machine::execute(const SimStmt& stmt, Thread& thread) {
  using Kind = SimStmt::Kind;
  switch (stmt.kind) {
    case Kind::kLet:
      set(thread, stmt.slot, eval(stmt.a, thread));
      break;
    case Kind::kStore: {
      const int64_t at = eval(stmt.a, thread).i;
      const Scalar value = eval(stmt.b, thread);
      if (uint8_t* base = element(stmt.buffer, at, thread, produces(thread) ? Access::kMake : Access::kWrite))
        ir::store_element(type_of(stmt.buffer), base, at, value);
      break;
    }
    case Kind::kAtomic: {
      const int64_t at = eval(stmt.a, thread).i;
      const Scalar value = ir::convert(eval(stmt.b, thread), type_of(stmt.buffer));  // as the emitters do
      constexpr Op kOps[] = {Op::kAdd, Op::kAdd, Op::kMax, Op::kMin};
      if (uint8_t* base = element(stmt.buffer, at, thread, Access::kAtomic)) {
        const Scalar both[] = {ir::load_element(type_of(stmt.buffer), base, at), value};
        ir::store_element(type_of(stmt.buffer), base, at, ir::apply_op(kOps[static_cast<int>(stmt.atomic)], both));
      }
      break;
    }
    case Kind::kFor: {
      const int64_t begin = eval(stmt.a, thread).i, end = eval(stmt.b, thread).i;
      for (int64_t i = begin; i < end && !stopped(); i += stmt.step) {
        set(thread, stmt.slot, {stmt.type, i, 0});
        execute(stmt.body, thread);
      }
      break;
    }
    case Kind::kThreads:
      for (int64_t slot = 0, index = place_of(thread); index < stmt.extent && !stopped();
           ++slot, index += sharers(thread)) {
        set(thread, stmt.slot, {DType::I32, index, 0});
        set(thread, stmt.second, {DType::I32, slot, 0});
        execute(stmt.body, thread);
      }
      break;
    case Kind::kIf:
      execute(eval(stmt.a, thread).i ? stmt.body : stmt.otherwise, thread);
      break;
    case Kind::kCopy:
      copy_vector(stmt, thread);
      break;
    case Kind::kAddVector:
      add_vector(stmt, thread);
      break;
    case Kind::kCopyAsync:
      copy_async(stmt, thread);
      break;
    case Kind::kCommit:
      thread.groups.push_back(std::move(thread.open));
      thread.open.clear();
      break;
    case Kind::kWait:
      wait(thread, static_cast<size_t>(stmt.immediate));
      break;
    case Kind::kConvertPair:
      convert_pair(stmt, thread);
      break;
    case Kind::kDot4:
      dot4(stmt, thread);
      break;
    case Kind::kUnpack:
      unpack(stmt, thread);
      break;
    case Kind::kPackedMath:
      packed_math(stmt, thread);
      break;
    case Kind::kProxyFence:
      memory_.fence(thread.number);
      break;
    case Kind::kBulkCopy:
      if (first_producer(thread)) bulk_copy(stmt, thread);
      break;
    case Kind::kPhaseExpect:
      if (first_producer(thread)) phase_operation(stmt, thread);
      break;
    case Kind::kPhaseBytes:
      if (!first_producer(thread)) break;
      if (Phase* phase = phase_of(stmt.operands[0], thread)) phase->bytes += stmt.immediate;
      break;
    case Kind::kPhaseCopied:
      phase_copied(stmt, thread);
      break;
    case Kind::kInOrder:
      break;
    case Kind::kLoadShifted:
      load_shifted(stmt, thread);
      break;
    case Kind::kStoreShifted:
      store_shifted(stmt, thread);
      break;
    case Kind::kStoreRow:
      store_row(stmt, thread);
      break;
    case Kind::kBarrier:
    case Kind::kQuadExchange:
    case Kind::kQuadJoin:
    case Kind::kTurnMatrix:
    case Kind::kPhaseWait:
    case Kind::kPhaseArrive:
    case Kind::kGroupMma:
    case Kind::kGroupFence:
    case Kind::kGroupCommit:
    case Kind::kGroupWait:
    case Kind::kLoadMatrix:
    case Kind::kStoreMatrix:
    case Kind::kBulkStore:
    case Kind::kBulkStoreWait:
    case Kind::kMma:
    case Kind::kShuffle:
      fail("a barrier or an operation of the warp inside a thread loop");
      break;
  }
}

void Machine::add_vector(const SimStmt& stmt, Thread& thread) {
  const SimStmt::Operand &to = stmt.operands[0], &from = stmt.operands[1];
  const DType type = type_of(to.buffer);
  if (type_of(from.buffer) != type || stmt.type != type || !ir::is_float(type) || ir::bits(type) < 16)
    return fail("a vector of other than floats of one type is added");
  const int64_t bytes = to.elements * ir::bits(type) / 8;
  if (bytes != 4 && bytes != 8 && bytes != 16) return fail(fmt::format("an addition of {} bytes", bytes));
  uint8_t* sums = vector(to, eval(to.index, thread).i, bytes, thread, Access::kAtomic);
  const uint8_t* values = vector(from, eval(from.index, thread).i, 4, thread, Access::kRead);
  if (!sums || !values) return;
  for (int64_t i = 0; i < to.elements; ++i) {
    const Scalar both[] = {ir::load_element(type, sums, i), ir::load_element(type, values, i)};
    ir::store_element(type, sums, i, ir::apply_op(Op::kAdd, both));
  }
}

void Machine::store_row(const SimStmt& stmt, Thread& thread) {
  const SimStmt::Operand &to = stmt.operands[0], &from = stmt.operands[1];
  const int64_t to_at = eval(to.index, thread).i, from_at = eval(from.index, thread).i;
  const int64_t left = eval(stmt.coordinates[0], thread).i;
  if (from_at % 2) return fail("a row's vector that begins within a register");
  for (int64_t i = 0; i < stmt.immediate; ++i)
    for (int64_t j = 0; j < LoopIntrinsic::kRowVector && LoopIntrinsic::kRowColumns * i + j < left; ++j) {
      const int64_t source = from_at + LoopIntrinsic::kRowStep * i + j, at = to_at + LoopIntrinsic::kRowColumns * i + j;
      const uint8_t* value = element(from.buffer, source, thread, Access::kRead);
      uint8_t* target = element(to.buffer, at, thread, Access::kWrite);
      if (!value || !target) return;
      ir::store_element(stmt.type, target, at, ir::load_element(stmt.type, value, source));
    }
}

// One 32-bit store of two elements.
void Machine::convert_pair(const SimStmt& stmt, Thread& thread) {
  const SimStmt::Operand &to = stmt.operands[0], &from = stmt.operands[1];
  const int64_t to_at = eval(to.index, thread).i, from_at = eval(from.index, thread).i;
  if (type_of(from.buffer) != DType::F32 || type_of(to.buffer) != stmt.type)
    return fail("a pair is converted between other types than the statement says");
  const uint8_t* source = vector(from, from_at, 4, thread, Access::kRead);
  uint8_t* target = vector(to, to_at, ir::bits(stmt.type) / 4, thread, Access::kWrite);
  if (!source || !target) return;
  for (int64_t i = 0; i < 2; ++i) ir::store_element(stmt.type, target, i, ir::load_element(DType::F32, source, i));
}

// Of words, so operands begin at multiples of four elements.
void Machine::dot4(const SimStmt& stmt, Thread& thread) {
  const SimStmt::Operand &to = stmt.operands[0], &left = stmt.operands[1], &right = stmt.operands[2];
  if (type_of(to.buffer) != DType::I32 || ir::bits(type_of(left.buffer)) != 8 || ir::bits(type_of(right.buffer)) != 8 ||
      left.elements != 4 || right.elements != 4)
    return fail("dp4a of other than words of 8-bit integers");
  const int64_t at = eval(to.index, thread).i;
  const uint8_t* a = vector(left, eval(left.index, thread).i, 4, thread, Access::kRead);
  const uint8_t* b = vector(right, eval(right.index, thread).i, 4, thread, Access::kRead);
  uint8_t* c = element(to.buffer, at, thread, Access::kWrite);
  if (!a || !b || !c) return;
  int64_t sum = ir::load_element(DType::I32, c, at).i;
  for (int64_t i = 0; i < 4; ++i) sum += ir::load_element(stmt.type, a, i).i * ir::load_element(stmt.type_b, b, i).i;
  ir::store_element(DType::I32, c, at, {DType::I32, static_cast<int32_t>(sum), 0});
}

void Machine::unpack(const SimStmt& stmt, Thread& thread) {
  const SimStmt::Operand &to = stmt.operands[0], &from = stmt.operands[1];
  const uint8_t* bytes = vector(from, eval(from.index, thread).i, from.elements, thread, Access::kRead);
  uint8_t* target = vector(to, eval(to.index, thread).i, 4, thread, Access::kWrite);
  if (!bytes || !target) return;
  double less = 0;
  if (stmt.operands.size() > 2) {
    const SimStmt::Operand& one = stmt.operands[2];
    const int64_t at = eval(one.index, thread).i;
    const uint8_t* value = element(one.buffer, at, thread, Access::kRead);
    if (!value) return;
    less = ir::load_element(type_of(one.buffer), value, at).f;
  }
  const bool of_words = ir::bits(stmt.type_b) == 32;
  const int64_t own = stmt.immediate && !of_words ? thread.number % stmt.immediate : 0;
  for (int64_t i = 0; i < to.elements; ++i) {
    double result = 0;
    if (ir::bits(stmt.type_b) == 8) {
      const Scalar element = ir::load_element(stmt.type_b, bytes, i);
      result = (ir::is_float(stmt.type_b) ? element.f : static_cast<double>(element.i)) - less;
    } else if (of_words) {
      const int64_t sign = ir::is_signed(stmt.type_b) ? int64_t{1} << (stmt.immediate - 1) : 0;
      const int64_t field = ir::load_element(stmt.type_b, bytes, i).i & ((int64_t{1} << stmt.immediate) - 1);
      result = static_cast<double>((field ^ sign) - sign) - less;
    } else {
      const int nibble = bytes[own + i / 2] >> (i % 2 * 4) & 15;
      const double integer = stmt.type_b == DType::I4 ? (nibble ^ 8) - 8 : nibble;
      result = stmt.table.empty() ? integer - less : stmt.table[static_cast<size_t>(nibble)];
    }
    ir::store_element(stmt.type, target, i, {DType::F32, 0, static_cast<float>(result)});
    const bool exact = stmt.operands.size() < 3;  // else rounded once, as any difference
    if (exact && ir::load_element(stmt.type, target, i).f != result && !std::isnan(result))
      return fail("an unpacked number that the type does not have");
  }
}

void Machine::packed_math(const SimStmt& stmt, Thread& thread) {
  const SimStmt::Operand& to = stmt.operands[0];
  Scalar values[2];
  std::vector<Scalar> results;
  for (int64_t i = 0; i < to.elements; ++i) {
    for (size_t j = 0; j < 2; ++j) {
      const SimStmt::Operand& from = stmt.operands[j + 1];
      const int64_t at = eval(from.index, thread).i + (from.elements == 1 ? 0 : i);
      const uint8_t* value = element(from.buffer, at, thread, Access::kRead);
      if (!value) return;
      values[j] = ir::load_element(type_of(from.buffer), value, at);
      const double rounded = ir::decode_float(stmt.type, ir::encode_float(stmt.type, values[j].f));
      if (from.elements == 1 && rounded != values[j].f && !std::isnan(rounded))
        return fail("a number for all that the type does not have");
    }
    results.push_back(ir::apply_op(stmt.op, values));
  }
  uint8_t* target = vector(to, eval(to.index, thread).i, 4, thread, Access::kWrite);
  if (!target) return;
  for (int64_t i = 0; i < to.elements; ++i) ir::store_element(stmt.type, target, i, results[static_cast<size_t>(i)]);
}

Scalar Machine::eval(int number, Thread& thread) {
  const SimNode& node = program_.nodes[static_cast<size_t>(number)];
  switch (node.kind) {
    case ir::ExprKind::kInt:
    case ir::ExprKind::kBool:
    case ir::ExprKind::kFloat:
      return node.constant;
    case ir::ExprKind::kVar:
      return thread.values[static_cast<size_t>(node.slot)];
    case ir::ExprKind::kCast:
      return ir::convert(eval(node.args[0], thread), node.cast);
    case ir::ExprKind::kLoad: {
      const int64_t at = eval(node.args[0], thread).i;
      const DType type = type_of(node.buffer);
      const uint8_t* base = element(node.buffer, at, thread, Access::kRead);
      return base ? ir::load_element(type, base, at) : Scalar{ir::compute_type(type), 0, 0};
    }
    case ir::ExprKind::kApply:
      return apply(node, thread);
    case ir::ExprKind::kReduce:
    case ir::ExprKind::kScan:
      break;
  }
  fail("a reduction in loop IR");
  return {};
}

Scalar Machine::apply(const SimNode& node, Thread& thread) {
  const Scalar first = eval(node.args[0], thread);
  // The operands that are not needed are not evaluated: they may be guarded loads.
  if (node.op == Op::kSelect) return eval(node.args[first.i ? 1 : 2], thread);
  if ((node.op == Op::kAnd && !first.i) || (node.op == Op::kOr && first.i)) return first;
  Scalar args[3] = {first};
  for (int i = 1; i < node.arity; ++i) args[i] = eval(node.args[i], thread);
  Scalar result;
  if (node.arity == 2 && integer(node.op, first.type, first.i, args[1].i, &result)) return result;
  return ir::apply_op(node.op, {args, static_cast<size_t>(node.arity)});
}

}  // namespace kachel::lowering
