// Expressions of loop IR as CUDA C++. See emit_cuda_expr.h.
#include "lowering/emit/emit_cuda_expr.h"

#include <fmt/format.h>

#include <bit>
#include <optional>

#include "lowering/loop_ir/loop_build.h"
#include "lowering/machine/machine.h"

namespace kachel::lowering {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;
using namespace cuda_text;

namespace cuda_text {

const char* memory_type(DType type) {
  constexpr const char* kTypes[ir::kDTypeCount] = {"float", "u16", "u16", "u8",  "u8", "signed char", "u8", "short",
                                                   "int",   "u32", "i64", "u64", "u8", "u8",          "u8"};
  return kTypes[static_cast<int>(type)];
}

const char* value_type(DType type) {
  switch (ir::compute_type(type)) {
    case DType::F32:
      return "float";
    case DType::I32:
      return "int";
    case DType::U32:
      return "u32";
    case DType::I64:
      return "i64";
    case DType::U64:
      return "u64";
    default:
      return "bool";
  }
}

bool is_narrow_float(DType type) {
  return ir::is_float(type) && type != DType::F32;
}

}  // namespace cuda_text

namespace {

std::string integer(int64_t value, DType type) {
  switch (type) {
    case DType::U32:
      return fmt::format("{}u", static_cast<uint32_t>(value));
    case DType::U64:
      return fmt::format("{}ull", static_cast<uint64_t>(value));
    case DType::I64:
      return value == INT64_MIN ? "(-9223372036854775807ll - 1)"
             : value < 0        ? fmt::format("({}ll)", value)
                                : fmt::format("{}ll", value);
    default:
      return value == INT32_MIN ? "(-2147483647 - 1)"
             : value < 0        ? fmt::format("({})", value)
                                : fmt::format("{}", value);
  }
}

std::string floating(double value) {
  if (std::isnan(value)) return "__uint_as_float(0x7fc00000u)";
  if (std::isinf(value)) return value > 0 ? "__uint_as_float(0x7f800000u)" : "__uint_as_float(0xff800000u)";
  std::string digits = fmt::format("{:.9g}", value);
  if (digits.find_first_of(".e") == digits.npos) digits += ".0";
  return value < 0 || std::signbit(value) ? fmt::format("({}f)", digits) : digits + "f";
}

std::string wrap(const std::string& value) {
  bool simple = true;
  for (char c : value) simple &= std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
  return simple || value.front() == '(' ? (simple ? value : "(" + value + ")") : "(" + value + ")";
}

// The amount is unsigned in its own width.
std::string shift_amount(const ExprRef& amount, const std::string& text) {
  return ir::bits(amount->type) == 32 ? "(u32)" + wrap(text) : text;
}

std::string wrapping(DType type, const char* op, const std::vector<std::string>& args) {
  const char* word = ir::bits(type) == 64 ? "u64" : "u32";
  return fmt::format("({})(({}){} {} ({}){})", value_type(type), word, wrap(args[0]), op, word, wrap(args[1]));
}

std::string function(Op op, bool approx) {
  switch (op) {
    case Op::kMin:
    case Op::kMax:
    case Op::kAbs:
    case Op::kClamp:
    case Op::kCeilDiv:
    case Op::kPopcount:
    case Op::kRcp:
    case Op::kExp2:
    case Op::kTanh:
    case Op::kErf:
    case Op::kRaisedTanh:
    case Op::kRaisedErf:
      if (approx) break;
      return fmt::format("kachel_{}", ir::info(op).spelling);
    case Op::kFma:
      return "__fmaf_rn";
    case Op::kRound:
      return "rintf";
    case Op::kFloor:
    case Op::kCeil:
    case Op::kTrunc:
      return fmt::format("{}f", ir::info(op).spelling);
    default:
      break;
  }
  return approx ? fmt::format("kachel_approx_{}", ir::info(op).spelling) : fmt::format("{}f", ir::info(op).spelling);
}

// `a < b ? a : b` and its kin, which the prelude has a reason to write as instructions.
std::optional<Op> extremum(const ExprRef& select) {
  const ExprRef& condition = select->args[0];
  if (ir::is_float(select->type) || select->type == DType::Bool || condition->kind != ExprKind::kApply) return {};
  const Op op = condition->op;
  const bool less = op == Op::kLt || op == Op::kLe, more = op == Op::kGt || op == Op::kGe;
  if (!less && !more) return {};
  const auto &a = condition->args[0], &b = condition->args[1], &yes = select->args[1], &no = select->args[2];
  if (ir::same(a, yes) && ir::same(b, no)) return less ? Op::kMin : Op::kMax;
  if (ir::same(a, no) && ir::same(b, yes)) return less ? Op::kMax : Op::kMin;
  return {};
}

}  // namespace

CudaExpressions::CudaExpressions(const LoopKernel& kernel) : kernel_(kernel) {
  for (const LoopBuffer& buffer : kernel.buffers)
    if (buffer.buffer->scope == ir::Scope::kRegister && buffer.elements % 2 == 0 &&
        (buffer.buffer->type.dtype == DType::BF16 || buffer.buffer->type.dtype == DType::F16))
      in_words_.insert(buffer.buffer.get());
  for (const LoopBlock* body : {&kernel.body, &kernel.producer, &kernel.passed_over})
    for_each_statement(*body, [&](const LoopStmt& stmt) {
      if (const auto* store = std::get_if<LoopStore>(&stmt.node)) in_words_.erase(store->buffer.get());
      const auto* copy = std::get_if<LoopIntrinsic>(&stmt.node);
      if (copy && copy->kind == LoopIntrinsic::Kind::kCopyVector && copy->operands[0].elements % 2)
        in_words_.erase(copy->operands[0].buffer.get());
    });
}

std::string CudaExpressions::text(const ExprRef& e, bool address) {
  switch (e->kind) {
    case ExprKind::kInt:
      return integer(e->int_value, e->type);
    case ExprKind::kBool:
      return e->int_value ? "true" : "false";
    case ExprKind::kFloat:
      return floating(e->float_value);
    case ExprKind::kVar:
      return name(e->var);
    case ExprKind::kLoad:
      return load(e);
    case ExprKind::kCast:
      return cast(e->cast_type.dtype, e->args[0], address);
    case ExprKind::kApply:
      return apply(e, address);
    case ExprKind::kReduce:
    case ExprKind::kScan:
      break;
  }
  return "";
}

std::string CudaExpressions::load(const ExprRef& e) {
  const DType type = e->buffer->type.dtype;
  std::string at = text(e->args[0], true);
  if (ir::bits(type) == 4) return fmt::format("kachel_load_{}({}, {})", ir::name(type), name(e->buffer), at);
  if (in_words_.count(e->buffer.get()))
    return fmt::format("kachel_from_{}({}, {})", ir::name(type), name(e->buffer), at);
  std::string element = fmt::format("{}[{}]", name(e->buffer), at);
  if (is_narrow_float(type)) return fmt::format("kachel_from_{}({})", ir::name(type), element);
  if (type == DType::Bool) return fmt::format("({} != 0)", element);
  return value_type(type) == std::string_view(memory_type(type)) ? element
                                                                 : fmt::format("({}){}", value_type(type), element);
}

std::string CudaExpressions::cast(DType to, const ExprRef& arg, bool address) {
  std::string value = text(arg, address);
  const DType from = arg->type;
  if (to == DType::Bool) return from == DType::Bool ? value : fmt::format("({} != 0)", value);
  if (ir::is_float(to)) {
    if (from != DType::F32) value = fmt::format("(float){}", wrap(value));
    if (!is_narrow_float(to)) return value;
    return fmt::format("kachel_from_{0}(kachel_to_{0}({1}))", ir::name(to), value);
  }
  if (from == DType::F32) {
    switch (to) {
      case DType::I32:
      case DType::U32:
      case DType::I64:
      case DType::U64:
        return fmt::format("kachel_to_{}({})", ir::name(to), value);
      default: {
        const int width = ir::bits(to);
        const int lo = ir::is_signed(to) ? -(1 << (width - 1)) : 0,
                  hi = ir::is_signed(to) ? (1 << (width - 1)) - 1 : (1 << width) - 1;
        return fmt::format("kachel_saturate({}, {}, {})", value, lo, hi);
      }
    }
  }
  if (to == DType::U4) return fmt::format("((int){} & 15)", wrap(value));
  if (to == DType::I4) return fmt::format("((((int){} & 15) ^ 8) - 8)", wrap(value));
  if (ir::bits(to) < 32) return fmt::format("(int)({}){}", memory_type(to), wrap(value));
  if (to == from) return value;
  return fmt::format("({}){}", value_type(to), wrap(value));
}

std::string CudaExpressions::apply(const ExprRef& e, bool address) {
  const Op op = e->op;
  std::vector<std::string> args;
  for (const ExprRef& arg : e->args) args.push_back(text(arg, address && !ir::is_comparison(op) && op != Op::kSelect));
  const bool of_floats = ir::is_float(e->args.back()->type);
  const bool integral = !of_floats && e->args.back()->type != DType::Bool;
  switch (op) {
    case Op::kLt:
    case Op::kGt:
      if (of_floats) return fmt::format("kachel_less({}, {})", args[op == Op::kGt], args[op == Op::kLt]);
      break;
    case Op::kLe:
    case Op::kGe:
      if (of_floats) return fmt::format("kachel_at_most({}, {})", args[op == Op::kGe], args[op == Op::kLe]);
      break;
    case Op::kSelect:
      if (const auto op = extremum(e)) return fmt::format("{}({}, {})", function(*op, false), args[1], args[2]);
      return fmt::format("({} ? {} : {})", args[0], args[1], args[2]);
    case Op::kNot:
      return fmt::format("!{}", wrap(args[0]));
    case Op::kBitNot:
      return fmt::format("(~{})", wrap(args[0]));
    case Op::kNeg:
      if (!integral || address || kernel_.ranges.cannot_wrap(e)) return fmt::format("(-{})", wrap(args[0]));
      return wrapping(e->type, "-", {integer(0, e->type), args[0]});
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
      if (integral && !address && e->type != DType::U32 && e->type != DType::U64 && !kernel_.ranges.cannot_wrap(e))
        return wrapping(e->type, ir::info(op).spelling, args);
      break;
    case Op::kDiv:
    case Op::kMod:
      if (integral && e->args[1]->kind == ExprKind::kInt && kernel_.ranges.of(e->args[0]).lo >= 0 &&
          std::has_single_bit(static_cast<uint64_t>(e->args[1]->int_value))) {
        const auto divisor = static_cast<uint64_t>(e->args[1]->int_value);
        if (op == Op::kDiv && divisor == kGroupThreads && e->args[0]->kind == ExprKind::kVar &&
            e->args[0]->var == kernel_.thread && kernel_.threads % kGroupThreads == 0) {
          names_warp_group_ |= kernel_.threads > kGroupThreads;
          return kernel_.threads > kGroupThreads ? kWarpGroup : "0";
        }
        if (op == Op::kDiv) return fmt::format("({} >> {})", args[0], std::countr_zero(divisor));
        return fmt::format("({} & {})", args[0], integer(static_cast<int64_t>(divisor - 1), e->type));
      }
      if (integral && kernel_.ranges.of(e->args[1]).lo < 1)
        return fmt::format("kachel_{}({}, {})", op == Op::kDiv ? "div" : "mod", args[0], args[1]);
      if (op == Op::kDiv && e->type == DType::F32) return fmt::format("kachel_divide({}, {})", args[0], args[1]);
      break;
    case Op::kShl:
    case Op::kShr:
      return fmt::format("kachel_{}({}, (u64){})", op == Op::kShl ? "shl" : "shr", args[0],
                         wrap(shift_amount(e->args[1], args[1])));
    default:
      break;
  }
  if (ir::info(op).precedence && ir::info(op).arity == 2)
    return fmt::format("({} {} {})", args[0], ir::info(op).spelling, args[1]);
  std::string list = args[0];
  for (size_t i = 1; i < args.size(); ++i) list += ", " + args[i];
  return fmt::format("{}({})", function(op, e->approx || e->of_rounded), list);
}

}  // namespace kachel::lowering
