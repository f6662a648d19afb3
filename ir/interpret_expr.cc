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

Cell undecided_integer() {
  return Cell::integer(0, kUndecided);
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
    default:
      return function(instruction.op, instruction.approx, a);
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

Cell Interpreter::reduce(const ReduceInfo& info) {
  if (!info.memoised) return reduce_now(info);
  size_t index = 0;
  for (const SlotExtent& depends : info.depends)
    index = index * static_cast<size_t>(depends.extent) + static_cast<size_t>(at(depends.slot).i);
  Table& table = tables_[info.table];
  if (table.serials[index] != serial_) {
    table.values[index] = reduce_now(info);
    table.serials[index] = serial_;
  }
  return table.values[index];
}

// The sum of n floats in any order: every addition rounds a partial sum of at most the sum of magnitudes.
Cell Interpreter::reduce_now(const ReduceInfo& info) {
  int64_t count = 1;
  for (const SlotExtent& iter : info.iters) {
    count *= iter.extent;
    at(iter.slot) = Cell::integer(0);
  }
  if (!spend(count * static_cast<int64_t>(info.body.code.size() + 1))) return Cell::undecided();
  const bool floats = info.type == DType::F32;
  const bool sums = info.op == ReduceOp::kSum;
  Op integer = sums ? Op::kAdd : info.op == ReduceOp::kMax ? Op::kMax : Op::kMin;
  Cell result = Cell::integer(0);
  double magnitude = 0, finite = 0;
  for (int64_t step = 0; step < count; ++step) {
    evaluate(info.body.code);
    const Cell& value = at(info.body.slot);
    if (std::isfinite(value.v)) finite += std::abs(value.v) + value.e;
    if (step == 0) {
      result = value;
      magnitude = std::abs(value.v) + value.e;
    } else if (!floats) {
      double e = result.e + value.e;
      result = Cell::integer(integer_op(integer, info.type, result.i, value.i), e);
    } else if (sums) {
      result = Cell::of(result.v + value.v, result.e + value.e);
      magnitude += std::abs(value.v) + value.e;
    } else {
      result = info.op == ReduceOp::kMax ? maximum(result, value) : minimum(result, value);
    }
    for (size_t axis = info.iters.size(); axis-- > 0;) {
      Cell& index = at(info.iters[axis].slot);
      if (++index.i < info.iters[axis].extent) break;
      index.i = 0;
    }
  }
  if (!floats) return result.e == 0 ? result : undecided_integer();
  if (!sums || count == 1) return result;
  if (result.e == kUndecided) return Cell::undecided();
  // An infinity meets the opposite one where the finite terms may overflow to it.
  if (std::isinf(result.v) && finite * (1 + static_cast<double>(count) * 0x1p-23) > kLargestF32)
    return Cell::undecided();
  if (!std::isfinite(result.v)) return Cell::exact(result.v);
  double roundings = static_cast<double>(count - 1);
  double e = result.e + roundings * 0x1p-24 * magnitude * (1 + roundings * 0x1p-24) * (1 + 0x1p-20);
  return magnitude + e <= kLargestF32 ? Cell::of(result.v, e) : Cell::undecided();
}

}  // namespace kachel::ir
