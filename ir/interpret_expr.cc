#include "ir/interpreter.h"
#include "ir/numerics.h"

namespace kachel::ir {
namespace {

int64_t wrap32(int64_t value) {
  return static_cast<int32_t>(static_cast<uint32_t>(value));
}
uint64_t bits_of(int64_t value) {
  return static_cast<uint64_t>(value);
}

}  // namespace

void Interpreter::evaluate(const Code& code) {
  using Kind = Instruction::Kind;
  for (const Instruction& instruction : code) {
    switch (instruction.kind) {
      case Kind::kFloat:
        at(instruction.dst) = float_result(instruction);
        break;
      case Kind::kInteger:
        integer(instruction);
        break;
      case Kind::kCompareFloat:
        at(instruction.dst) = compare_floats(instruction.op, at(instruction.a), at(instruction.b));
        break;
      case Kind::kLogic:
        at(instruction.dst) = logic(instruction);
        break;
      case Kind::kSelectFloat:
      case Kind::kSelectInteger: {
        const Cell& condition = at(instruction.a);
        const Cell &yes = at(instruction.b), &no = at(instruction.c);
        if (condition.e == 0)
          at(instruction.dst) = condition.i != 0 ? yes : no;
        else
          at(instruction.dst) = instruction.kind == Kind::kSelectFloat ? hull(yes, no) : hull_integer(yes, no);
        break;
      }
      case Kind::kCast:
        at(instruction.dst) = convert_cell(at(instruction.a), instruction.type, instruction.to);
        break;
      case Kind::kLoad:
        at(instruction.dst) = load(program_.loads[static_cast<size_t>(instruction.a)]);
        break;
      case Kind::kReduce: {
        Cell result = reduce(program_.reduces[static_cast<size_t>(instruction.a)]);
        at(instruction.dst) = result;
        break;
      }
      case Kind::kScan: {
        Cell result = scan(program_.reduces[static_cast<size_t>(instruction.a)]);
        at(instruction.dst) = result;
        break;
      }
      case Kind::kMove:
        at(instruction.dst) = at(instruction.a);
        break;
    }
  }
}

void Interpreter::integer(const Instruction& instruction) {
  const Cell &a = at(instruction.a), &b = at(instruction.b);
  Cell& dst = at(instruction.dst);
  if (instruction.type == DType::I64) {  // index arithmetic
    int64_t result;
    switch (instruction.op) {
      case Op::kAdd:
        result = static_cast<int64_t>(bits_of(a.i) + bits_of(b.i));
        break;
      case Op::kSub:
        result = static_cast<int64_t>(bits_of(a.i) - bits_of(b.i));
        break;
      case Op::kMul:
        result = static_cast<int64_t>(bits_of(a.i) * bits_of(b.i));
        break;
      case Op::kLt:
        result = a.i < b.i;
        break;
      case Op::kLe:
        result = a.i <= b.i;
        break;
      default:
        goto general;
    }
    dst = Cell::integer(result, a.e + b.e);
    return;
  }
  if (instruction.type == DType::I32) {
    int64_t result;
    switch (instruction.op) {
      case Op::kAdd:
        result = wrap32(a.i + b.i);
        break;
      case Op::kSub:
        result = wrap32(a.i - b.i);
        break;
      case Op::kMul:
        result = wrap32(static_cast<int64_t>(bits_of(a.i) * bits_of(b.i)));
        break;
      default:
        goto general;
    }
    dst = Cell::integer(result, a.e + b.e);
    return;
  }
general:
  int arity = info(instruction.op).arity;
  double e = a.e;
  int64_t second = 0, third = 0;
  if (arity > 1) {
    e += b.e;
    second = b.i;
  }
  if (arity > 2) {
    e += at(instruction.c).e;
    third = at(instruction.c).i;
  }
  dst = Cell::integer(integer_op(instruction.op, instruction.type, a.i, second, third), e);
}

Cell Interpreter::float_result(const Instruction& instruction) {
  const Cell& a = at(instruction.a);
  switch (instruction.op) {
    case Op::kAdd:
      return add(a, at(instruction.b));
    case Op::kSub:
      return add(a, negate(at(instruction.b)));
    case Op::kMul:
      return multiply(a, at(instruction.b));
    case Op::kDiv:
      return divide(a, at(instruction.b));
    case Op::kNeg:
      return negate(a);
    case Op::kMin:
      return minimum(a, at(instruction.b));
    case Op::kMax:
      return maximum(a, at(instruction.b));
    case Op::kClamp:
      return minimum(maximum(a, at(instruction.b)), at(instruction.c));
    case Op::kFma:
      return fma(a, at(instruction.b), at(instruction.c));
    case Op::kRaisedTanh:
    case Op::kRaisedErf:
      return raised_function(instruction.op, a, at(instruction.b).v);
    default:
      return function(instruction.op, instruction.approx, a, instruction.of_rounded);
  }
}

Cell Interpreter::logic(const Instruction& instruction) {
  const Cell& a = at(instruction.a);
  if (instruction.op == Op::kNot) return Cell::integer(a.i == 0, a.e);
  const Cell& b = at(instruction.b);
  int64_t deciding = instruction.op == Op::kOr;  // the value that settles the result alone
  if ((a.e == 0 && (a.i != 0) == deciding) || (b.e == 0 && (b.i != 0) == deciding)) return Cell::integer(deciding);
  return Cell::integer(!deciding, a.e + b.e);
}

// False: outside the buffer. `unknown`: an index is undecided and none that is known lies outside.
bool Interpreter::offset_of(const LoadInfo& info, int64_t& offset, bool& unknown) {
  const Memory& memory = memories_[static_cast<size_t>(info.memory)];
  offset = 0;
  unknown = false;
  for (int axis = 0; axis < info.rank; ++axis) {
    const Cell& index = at(info.index[axis]);
    if (index.e != 0) {
      unknown = true;
      continue;
    }
    if (bits_of(index.i) >= bits_of(memory.extent(axis))) return false;
    offset += index.i * memory.stride(axis);
  }
  return true;
}

Cell Interpreter::load_memory(const LoadInfo& info) {
  int64_t offset;
  bool unknown;
  Memory& memory = memories_[static_cast<size_t>(info.memory)];
  if (!offset_of(info, offset, unknown)) return Cell::integer(0);  // 0 and 0.0 alike
  return unknown ? Cell::undecided() : memory.load(offset, block_);
}

Cell Interpreter::load(const LoadInfo& info) {
  if (info.forward >= 0 && forward_set_[static_cast<size_t>(info.forward)])
    return at(program_.forwards[static_cast<size_t>(info.forward)].slot);
  return load_memory(info);
}

}  // namespace kachel::ir
