// Expressions of loop IR as LLVM IR text. See emit_llvm_expr.h.
#include "lowering/emit/emit_llvm_expr.h"

#include <bit>

namespace kachel::lowering {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;
using namespace llvm_text;

namespace llvm_text {

const char* value_type(DType type) {
  switch (ir::compute_type(type)) {
    case DType::F32:
      return "float";
    case DType::I64:
    case DType::U64:
      return "i64";
    case DType::Bool:
      return "i1";
    default:
      return "i32";
  }
}

const char* memory_type(DType type) {
  switch (type) {
    case DType::F32:
      return "float";
    case DType::F16:
      return "half";
    case DType::BF16:
    case DType::I16:
      return "i16";
    case DType::I32:
    case DType::U32:
      return "i32";
    case DType::I64:
    case DType::U64:
      return "i64";
    default:
      return "i8";
  }
}

}  // namespace llvm_text

namespace {

bool loads_memory(const ExprRef& expr) {
  bool found = false;
  ir::visit(expr, [&](const ExprRef& node) { found |= node->kind == ExprKind::kLoad; });
  return found;
}

}  // namespace

// Metadata ids: 0 the domain; 1 + i scope i; 1 + n + i the list {i}; 1 + 2n + i the list of all others.
std::string LlvmExpressions::alias_of(const ir::BufferRef& buffer) {
  const size_t n = kernel_.params.size() + kernel_.buffers.size() + 1;
  int scope = scopes_.at(buffer.get());
  return fmt::format(", !alias.scope !{}, !noalias !{}", 1 + n + scope, 1 + 2 * n + scope);
}

std::string LlvmExpressions::address(const ir::BufferRef& buffer, const ExprRef& index) {
  std::string at = index64(index);
  return value("getelementptr {}, ptr {}, i64 {}", memory_type(buffer->type.dtype), bases_.at(buffer.get()), at);
}
std::string LlvmExpressions::index64(const ExprRef& index) {
  std::string at = expr(index);
  return index->type == DType::I64 ? at : value("sext i32 {} to i64", at);
}
std::string LlvmExpressions::load(const ExprRef& e) {
  const DType type = e->buffer->type.dtype;
  if (ir::bits(type) == 4)
    return value("call i32 @kachel_load_{}(ptr {}, i64 {})", ir::name(type), bases_.at(e->buffer.get()),
                 index64(e->args[0]));
  std::string at = address(e->buffer, e->args[0]);
  std::string raw =
      value("load {}, ptr {}, align {}{}", memory_type(type), at, ir::bits(type) / 8, alias_of(e->buffer));
  return from_memory(type, raw);
}
std::string LlvmExpressions::from_memory(DType type, const std::string& raw) {
  switch (type) {
    case DType::F16:
      return value("fpext half {} to float", raw);
    case DType::BF16:
      return value("call float @kachel_from_bf16(i16 {})", raw);
    case DType::F8E4M3:
    case DType::F8E5M2:
      return value("call float @kachel_from_{}(i8 {})", ir::name(type), raw);
    case DType::I8:
      return value("sext i8 {} to i32", raw);
    case DType::U8:
      return value("zext i8 {} to i32", raw);
    case DType::I16:
      return value("sext i16 {} to i32", raw);
    case DType::Bool:
      return value("icmp ne i8 {}, 0", raw);
    default:
      return raw;
  }
}
std::string LlvmExpressions::to_memory(DType type, const std::string& v) {
  switch (type) {
    case DType::F16:
      return value("fptrunc float {} to half", v);
    case DType::BF16:
      return value("call i16 @kachel_to_bf16(float {})", v);
    case DType::F8E4M3:
    case DType::F8E5M2:
      return value("call i8 @kachel_to_{}(float {})", ir::name(type), v);
    case DType::I8:
    case DType::U8:
      return value("trunc i32 {} to i8", v);
    case DType::I16:
      return value("trunc i32 {} to i16", v);
    case DType::Bool:
      return value("zext i1 {} to i8", v);
    default:
      return v;
  }
}

std::string LlvmExpressions::expr(const ExprRef& e) {
  switch (e->kind) {
    case ExprKind::kInt:
      return e->type == DType::U32 ? fmt::format("{}", static_cast<int32_t>(e->int_value))
                                   : fmt::format("{}", e->int_value);
    case ExprKind::kBool:
      return e->int_value ? "true" : "false";
    case ExprKind::kFloat:
      return fmt::format("0x{:016X}", std::bit_cast<uint64_t>(static_cast<double>(static_cast<float>(e->float_value))));
    case ExprKind::kVar:
      return values_.at(e->var.get());
    case ExprKind::kLoad:
      return load(e);
    case ExprKind::kCast:
      return cast(e->cast_type.dtype, e->args[0]);
    case ExprKind::kApply:
      return apply(e);
    case ExprKind::kReduce:
    case ExprKind::kScan:
      break;
  }
  return "";
}

// A u32 or u64 as float, rounded once, of numbers with a sign: LLVM 19 makes `uitofp` of what was `sext i8` a vector of
// bytes without one. Of a u32 both halves and the upper one times 2^16 are exact; the half of a u64 that has no room is
// odd where any bit is lost, so that it is rounded as the whole would be.
std::string LlvmExpressions::unsigned_as_float(const std::string& number, DType type) {
  if (type == DType::U32) {
    const std::string high = value("sitofp i32 {} to float", value("lshr i32 {}, 16", number));
    const std::string low = value("sitofp i32 {} to float", value("and i32 {}, 65535", number));
    return value("fadd float {}, {}", value("fmul float {}, 65536.0", high), low);
  }
  const std::string half = value("or i64 {}, {}", value("lshr i64 {}, 1", number), value("and i64 {}, 1", number));
  const std::string large = value("icmp slt i64 {}, 0", number);
  const std::string of_half = value("sitofp i64 {} to float", half), whole = value("sitofp i64 {} to float", number);
  return value("select i1 {}, float {}, float {}", large, value("fmul float {}, 2.0", of_half), whole);
}

std::string LlvmExpressions::cast(DType to, const ExprRef& arg) {
  const DType from = arg->type;
  std::string v = expr(arg);
  const char* from_type = value_type(from);
  if (to == DType::Bool) {
    if (from == DType::Bool) return v;
    return from == DType::F32 ? value("fcmp une float {}, 0.0", v) : value("icmp ne {} {}, 0", from_type, v);
  }
  if (ir::is_float(to)) {
    if (from == DType::U32 || from == DType::U64)
      v = unsigned_as_float(v, from);
    else if (from != DType::F32)
      v = value("{} {} {} to float", ir::is_signed(from) ? "sitofp" : "uitofp", from_type, v);
    return to == DType::F32 ? v : from_memory(to, to_memory(to, v));
  }
  const int width = ir::bits(to);
  if (from == DType::F32) {
    const char* sign = ir::is_signed(to) ? "s" : "u";
    v = value("call i{0} @llvm.fpto{1}i.sat.i{0}.f32(float {2})", width, sign, v);
    return width >= 32 ? v : value("{}ext i{} {} to i32", ir::is_signed(to) ? "s" : "z", width, v);
  }
  if (from == DType::Bool) return value("zext i1 {} to {}", v, value_type(to));
  const int from_width = ir::bits(from);
  if (width == from_width) return v;
  if (width > from_width) return value("{} i{} {} to i{}", ir::is_signed(from) ? "sext" : "zext", from_width, v, width);
  v = value("trunc i{} {} to i{}", from_width, v, width);
  return width >= 32 ? v : value("{}ext i{} {} to i32", ir::is_signed(to) ? "s" : "z", width, v);
}

// `value_if` is evaluated only where `condition` is `when`; else the result is `other`.
std::string LlvmExpressions::lazily(const std::string& condition, bool when, const char* type,
                                    const std::function<std::string()>& value_if,
                                    const std::function<std::string()>& other) {
  std::string run = new_label("run"), skip = new_label("skip"), join = new_label("join");
  line("br i1 {}, label %{}, label %{}", condition, when ? run : skip, when ? skip : run);
  start(run);
  std::string a = value_if(), a_from = block_label_;
  jump(join);
  start(skip);
  std::string b = other(), b_from = block_label_;
  jump(join);
  start(join);
  return value("phi {} [ {}, %{} ], [ {}, %{} ]", type, a, a_from, b, b_from);
}

std::string LlvmExpressions::apply(const ExprRef& e) {
  const Op op = e->op;
  const auto& args = e->args;
  const char* type = value_type(e->type);
  if (op == Op::kSelect) {
    std::string condition = expr(args[0]);
    if (loads_memory(args[1]) || loads_memory(args[2]))
      return lazily(
          condition, true, type, [&] { return expr(args[1]); }, [&] { return expr(args[2]); });
    std::string a = expr(args[1]), b = expr(args[2]);
    return value("select i1 {}, {} {}, {} {}", condition, type, a, type, b);
  }
  if (op == Op::kAnd || op == Op::kOr) {
    std::string a = expr(args[0]);
    if (loads_memory(args[1]))
      return lazily(
          a, op == Op::kAnd, "i1", [&] { return expr(args[1]); },
          [&] { return std::string(op == Op::kAnd ? "false" : "true"); });
    std::string b = expr(args[1]);
    return value("{} i1 {}, {}", op == Op::kAnd ? "and" : "or", a, b);
  }
  std::vector<std::string> v;
  for (const ExprRef& arg : args) v.push_back(expr(arg));
  const DType operand = args[0]->type;
  if (ir::is_comparison(op)) return compare(op, operand, v[0], v[1]);
  return ir::is_float(operand) ? float_op(e, v) : integer_op(e, v);
}

std::string LlvmExpressions::compare(Op op, DType type, const std::string& a, const std::string& b) {
  const size_t which = static_cast<size_t>(op) - static_cast<size_t>(Op::kEq);
  if (ir::is_float(type)) {
    constexpr const char* kNames[] = {"oeq", "une", "olt", "ole", "ogt", "oge"};
    return value("fcmp {} float {}, {}", kNames[which], a, b);
  }
  constexpr const char* kSigned[] = {"eq", "ne", "slt", "sle", "sgt", "sge"};
  constexpr const char* kUnsigned[] = {"eq", "ne", "ult", "ule", "ugt", "uge"};
  const bool is_signed = type == DType::I32 || type == DType::I64;
  return value("icmp {} {} {}, {}", is_signed ? kSigned[which] : kUnsigned[which], value_type(type), a, b);
}

std::string LlvmExpressions::float_op(const ExprRef& e, const std::vector<std::string>& v) {
  switch (e->op) {
    case Op::kNeg:
      return value("fneg float {}", v[0]);
    case Op::kAdd:
      return value("fadd contract float {}, {}", v[0], v[1]);
    case Op::kSub:
      return value("fsub contract float {}, {}", v[0], v[1]);
    case Op::kMul:
      return value("fmul contract float {}, {}", v[0], v[1]);
    case Op::kDiv:
      return value("fdiv float {}, {}", v[0], v[1]);
    case Op::kMin:
      return value("call float @llvm.minnum.f32(float {}, float {})", v[0], v[1]);
    case Op::kMax:
      return value("call float @llvm.maxnum.f32(float {}, float {})", v[0], v[1]);
    case Op::kClamp: {
      std::string raised = value("call float @llvm.maxnum.f32(float {}, float {})", v[0], v[1]);
      return value("call float @llvm.minnum.f32(float {}, float {})", raised, v[2]);
    }
    case Op::kFma:
      return value("call float @llvm.fma.f32(float {}, float {}, float {})", v[0], v[1], v[2]);
    case Op::kAbs:
      return value("call float @llvm.fabs.f32(float {})", v[0]);
    case Op::kRcp:
      return value("fdiv float 1.0, {}", v[0]);
    case Op::kRsqrt:
      return value("fdiv float 1.0, {}", value("call float @llvm.sqrt.f32(float {})", v[0]));
    case Op::kSqrt:
    case Op::kFloor:
    case Op::kCeil:
    case Op::kTrunc:
      return value("call float @llvm.{}.f32(float {})", ir::info(e->op).spelling, v[0]);
    case Op::kRaisedTanh:
    case Op::kRaisedErf: {
      const std::string name = e->op == Op::kRaisedErf ? "erf" : "tanh";
      const std::string whole = value("call float @kachel_{}(float {})", name, v[0]);
      return value("fadd contract float {}, {}", value("fmul contract float {}, {}", whole, v[1]), v[1]);
    }
    case Op::kRound:
      return value("call float @llvm.rint.f32(float {})", v[0]);
    default:
      return value("call float @kachel_{}(float {})", ir::info(e->op).spelling, v[0]);
  }
}

std::string LlvmExpressions::integer_op(const ExprRef& e, const std::vector<std::string>& v) {
  const DType operand = e->args[0]->type;
  const char* type = value_type(operand);
  const char* sign = operand == DType::I32 || operand == DType::I64 ? "s" : "u";
  auto binary = [&](const char* name) { return value("{} {} {}, {}", name, type, v[0], v[1]); };
  auto extreme = [&](const char* name, const std::string& a, const std::string& b) {
    return value("call {0} @llvm.{1}{2}.{0}({0} {3}, {0} {4})", type, sign, name, a, b);
  };
  switch (e->op) {
    case Op::kNot:
      return value("xor i1 {}, true", v[0]);
    case Op::kNeg:
      return value("sub {} 0, {}", type, v[0]);
    case Op::kBitNot:
      return value("xor {} {}, -1", type, v[0]);
    case Op::kAdd:
      return binary("add");
    case Op::kSub:
      return binary("sub");
    case Op::kMul:
      return binary("mul");
    case Op::kBitAnd:
      return binary("and");
    case Op::kBitOr:
      return binary("or");
    case Op::kBitXor:
      return binary("xor");
    case Op::kDiv:
    case Op::kMod:
      return divide(e->op == Op::kDiv, e, v);
    case Op::kCeilDiv: {
      std::string quotient = divide(true, e, v), rest = divide(false, e, v);
      std::string inexact = value("icmp ne {} {}, 0", type, rest);
      if (*sign == 's') {
        std::string rest_negative = value("icmp slt {} {}, 0", type, rest),
                    divisor_negative = value("icmp slt {} {}, 0", type, v[1]);
        std::string same_sign = value("icmp eq i1 {}, {}", rest_negative, divisor_negative);
        inexact = value("and i1 {}, {}", inexact, same_sign);
      }
      return value("add {} {}, {}", type, quotient, value("zext i1 {} to {}", inexact, type));
    }
    case Op::kShl:
    case Op::kShr:
      return shift(e, v);
    case Op::kMin:
      return extreme("min", v[0], v[1]);
    case Op::kMax:
      return extreme("max", v[0], v[1]);
    case Op::kClamp:
      return extreme("min", extreme("max", v[0], v[1]), v[2]);
    case Op::kAbs:
      return *sign == 's' ? value("call {0} @llvm.abs.{0}({0} {1}, i1 false)", type, v[0]) : v[0];
    case Op::kPopcount:
      return value("call {0} @llvm.ctpop.{0}({0} {1})", type, v[0]);
    default:
      return v[0];
  }
}

std::string LlvmExpressions::divide(bool quotient, const ExprRef& e, const std::vector<std::string>& v) {
  const DType operand = e->args[0]->type;
  const char* type = value_type(operand);
  const char* sign = operand == DType::I32 || operand == DType::I64 ? "s" : "u";
  const char* name = quotient ? "div" : "rem";
  if (operand != DType::U64 && kernel_.ranges.of(e->args[1]).lo >= 1)
    return value("{}{} {} {}, {}", sign, name, type, v[0], v[1]);
  return value("call {0} @kachel_{1}{2}_{0}({0} {3}, {0} {4})", type, sign, name, v[0], v[1]);
}

// The amount counts as unsigned; from the width on, everything is shifted out.
std::string LlvmExpressions::shift(const ExprRef& e, const std::vector<std::string>& v) {
  const DType operand = e->args[0]->type, amount_type = e->args[1]->type;
  const int width = ir::bits(operand);
  const char *type = value_type(operand), *from = value_type(amount_type);
  const bool arithmetic = e->op == Op::kShr && (operand == DType::I32 || operand == DType::I64);
  std::string inside = value("icmp ult {} {}, {}", from, v[1], width);
  std::string amount = value("select i1 {}, {} {}, {} {}", inside, from, v[1], from, arithmetic ? width - 1 : 0);
  if (ir::bits(amount_type) < width) amount = value("zext i32 {} to i64", amount);
  if (ir::bits(amount_type) > width) amount = value("trunc i64 {} to i32", amount);
  std::string result = value("{} {} {}, {}",
                             e->op == Op::kShl ? "shl"
                             : arithmetic      ? "ashr"
                                               : "lshr",
                             type, v[0], amount);
  return arithmetic ? result : value("select i1 {}, {} {}, {} 0", inside, type, result, type);
}

}  // namespace kachel::lowering
