#include "lowering/loop_ir/range.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>

namespace kachel::lowering {
namespace {

using ir::DType;
using ir::ExprKind;
using ir::ExprRef;
using ir::Op;
using Wide = __int128;

struct WideInterval {
  Wide lo, hi;
};

Interval range_of_type(DType type) {
  switch (type) {
    case DType::Bool:
      return {0, 1};
    case DType::I4:
      return {-8, 7};
    case DType::U4:
      return {0, 15};
    case DType::I8:
      return {-128, 127};
    case DType::U8:
      return {0, 255};
    case DType::I16:
      return {-32768, 32767};
    case DType::I32:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    case DType::U32:
      return {0, std::numeric_limits<uint32_t>::max()};
    default:
      return {};  // I64; U64 is carried as its bit pattern, of which nothing is known
  }
}

// The result of an operation in `type`: itself where it fits, else the whole type.
Interval clip(WideInterval value, DType type, bool* wrapped) {
  Interval limit = range_of_type(type);
  if (value.lo < limit.lo || value.hi > limit.hi || type == DType::U64) {
    *wrapped = true;
    return limit;
  }
  return {static_cast<int64_t>(value.lo), static_cast<int64_t>(value.hi)};
}

WideInterval multiply(Interval a, Interval b) {
  Wide p[4] = {Wide(a.lo) * b.lo, Wide(a.lo) * b.hi, Wide(a.hi) * b.lo, Wide(a.hi) * b.hi};
  return {*std::min_element(p, p + 4), *std::max_element(p, p + 4)};
}

Interval hull(Interval a, Interval b) {
  return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)};
}

}  // namespace

void Ranges::set_value(const ir::VarRef& var, const ExprRef& value) {
  if (ir::is_float(value->type)) return;
  set(var, of(value));
  set_multiple(var, multiple_of(value));
  if (value->type == DType::I64 && value->kind == ExprKind::kApply && value->op == Op::kMul) products_[var] = value;
}

// False where a number among them is none that products of extents have.
bool Ranges::add_factors(const ExprRef& product, Product* out) const {
  if (product->kind == ExprKind::kApply && product->op == Op::kMul)
    return add_factors(product->args[0], out) && add_factors(product->args[1], out);
  if (product->kind == ExprKind::kInt)
    return product->int_value > 0 && !__builtin_mul_overflow(out->number, product->int_value, &out->number);
  if (product->kind == ExprKind::kVar)
    if (const auto named = products_.find(product->var); named != products_.end())
      return add_factors(named->second, out);
  out->factors.push_back(product);
  return true;
}

void Ranges::know_shape(const std::vector<ExprRef>& extents, int64_t limit) {
  Shape shape{{}, limit};
  for (const ExprRef& extent : extents)
    if (!add_factors(extent, &shape.elements)) return;
  if (extents.size() > 1 && !shape.elements.factors.empty()) shapes_.push_back(std::move(shape));
}

void Ranges::know_product(const ExprRef& product, int64_t limit) {
  Shape shape{{}, limit, true};
  if (add_factors(product, &shape.elements) && !shape.elements.factors.empty()) shapes_.push_back(std::move(shape));
}

int64_t Ranges::limit_of_product(const ExprRef& product) const {
  Product wanted;
  if (shapes_.empty() || product->type != DType::I64 || !add_factors(product, &wanted)) return 0;
  int64_t least = 0;
  for (const auto& [elements, limit, whole] : shapes_) {
    std::vector<ExprRef> left = elements.factors;
    const bool all = std::all_of(wanted.factors.begin(), wanted.factors.end(), [&](const ExprRef& factor) {
      const auto found =
          std::find_if(left.begin(), left.end(), [&](const ExprRef& each) { return ir::same(each, factor); });
      if (found == left.end()) return false;
      left.erase(found);
      return true;
    });
    if (!all || (whole && !left.empty())) continue;
    int64_t scaled = limit;  // the rest of the elements is so many numbers less
    if (wanted.number > elements.number) {
      const int64_t times = wanted.number / elements.number + (wanted.number % elements.number != 0);
      if (__builtin_mul_overflow(limit, times, &scaled)) continue;
    }
    if (least == 0 || scaled < least) least = scaled;
  }
  return least;
}

Interval Ranges::of(const ExprRef& expr) const {
  const DType type = expr->type;
  bool wrapped = false;
  switch (expr->kind) {
    case ExprKind::kInt:
    case ExprKind::kBool:
      return {expr->int_value, expr->int_value};
    case ExprKind::kVar: {
      auto it = intervals_.find(expr->var);
      return it == intervals_.end() ? range_of_type(type) : it->second;
    }
    case ExprKind::kLoad:
      return ir::is_float(expr->buffer->type.dtype) ? Interval{} : range_of_type(expr->buffer->type.dtype);
    case ExprKind::kCast: {
      if (ir::is_float(expr->cast_type.dtype)) return {};
      Interval limit = range_of_type(expr->cast_type.dtype);
      const ExprRef& arg = expr->args[0];
      if (ir::is_float(arg->type) || expr->cast_type.dtype == DType::Bool) return limit;
      if (expr->cast_type.dtype == DType::U64) return {};
      Interval from = of(arg);
      if (arg->type == DType::U64) return limit;
      return from.lo >= limit.lo && from.hi <= limit.hi ? from : limit;
    }
    case ExprKind::kApply:
      break;
    default:
      return range_of_type(type);
  }
  if (ir::is_comparison(expr->op) || type == DType::Bool) return {0, 1};
  if (ir::is_float(type) || type == DType::U64) return {};
  if (type == DType::I64)
    for (const auto& [known, interval] : known_)
      if (known->op == expr->op && ir::same(known, expr)) return interval;
  const auto& args = expr->args;
  switch (expr->op) {
    case Op::kAdd: {
      Interval a = of(args[0]), b = of(args[1]);
      return clip({Wide(a.lo) + b.lo, Wide(a.hi) + b.hi}, type, &wrapped);
    }
    case Op::kSub: {
      Interval a = of(args[0]), b = of(args[1]);
      return clip({Wide(a.lo) - b.hi, Wide(a.hi) - b.lo}, type, &wrapped);
    }
    case Op::kNeg: {
      Interval a = of(args[0]);
      return clip({-Wide(a.hi), -Wide(a.lo)}, type, &wrapped);
    }
    case Op::kMul:
      if (const int64_t limit = limit_of_product(expr)) return {0, limit - 1};
      return clip(multiply(of(args[0]), of(args[1])), type, &wrapped);
    case Op::kDiv:
    case Op::kCeilDiv: {
      Interval a = of(args[0]), b = of(args[1]);
      if (a.lo >= 0 && b.lo == 0) return {0, a.hi};  // by zero gives 0
      if (b.lo < 1) {
        if (a.lo == range_of_type(type).lo) break;  // by -1
        const int64_t most = std::max(std::abs(a.lo), std::abs(a.hi));
        return {-most, most};
      }
      // Quotients of negative numbers are cut towards zero either way.
      auto up = [&](int64_t x, int64_t y) { return x / y + (expr->op == Op::kCeilDiv && x > 0 && x % y != 0); };
      return {up(a.lo, a.lo < 0 ? b.lo : b.hi), up(a.hi, a.hi < 0 ? b.hi : b.lo)};
    }
    case Op::kMod: {
      Interval a = of(args[0]), b = of(args[1]);
      if (a.lo < 0 || b.lo < 0) return {std::min<int64_t>(a.lo, 0), std::max<int64_t>(a.hi, 0)};
      return {0, std::max<int64_t>(std::min(a.hi, b.hi - 1), 0)};  // by zero gives 0
    }
    case Op::kMin: {
      Interval a = of(args[0]), b = of(args[1]);
      return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
    }
    case Op::kMax: {
      Interval a = of(args[0]), b = of(args[1]);
      return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
    }
    case Op::kSelect:
      return hull(of(args[1]), of(args[2]));
    case Op::kBitAnd: {
      Interval a = of(args[0]), b = of(args[1]);
      if (a.lo >= 0 && b.lo >= 0) return {0, std::min(a.hi, b.hi)};
      if (a.lo >= 0) return {0, a.hi};
      if (b.lo >= 0) return {0, b.hi};
      break;
    }
    case Op::kShr: {
      // What an amount that is no number of bits leaves is the sign, as of a large one.
      constexpr int64_t kMost = 63;
      const Interval a = of(args[0]), by = of(args[1]);
      const int64_t least = by.lo < 0 ? 0 : std::min(by.lo, kMost), most = by.lo < 0 ? kMost : std::min(by.hi, kMost);
      return {a.lo >> (a.lo < 0 ? least : most), a.hi >> (a.hi < 0 ? most : least)};
    }
    case Op::kShl: {
      const ExprRef& amount = args[1];
      if (amount->kind != ExprKind::kInt || amount->int_value < 0 || amount->int_value > 31) break;
      const int64_t factor = int64_t{1} << amount->int_value;
      return clip(multiply(of(args[0]), {factor, factor}), type, &wrapped);
    }
    case Op::kBitOr:
    case Op::kBitXor: {
      Interval a = of(args[0]), b = of(args[1]);
      if (a.lo < 0 || b.lo < 0) break;
      const uint64_t bits = std::bit_ceil(static_cast<uint64_t>(std::max(a.hi, b.hi)) + 1) - 1;
      return {0, static_cast<int64_t>(bits)};
    }
    case Op::kPopcount:
      return {0, 64};
    default:
      break;
  }
  return range_of_type(type);
}

bool Ranges::cannot_wrap(const ExprRef& expr) const {
  if (ir::is_float(expr->type)) return true;
  for (const ExprRef& arg : expr->args)
    if (!cannot_wrap(arg)) return false;
  if (expr->kind != ExprKind::kApply) return true;
  bool wrapped = false;
  switch (expr->op) {
    case Op::kAdd: {
      Interval a = of(expr->args[0]), b = of(expr->args[1]);
      clip({Wide(a.lo) + b.lo, Wide(a.hi) + b.hi}, expr->type, &wrapped);
      break;
    }
    case Op::kSub: {
      Interval a = of(expr->args[0]), b = of(expr->args[1]);
      clip({Wide(a.lo) - b.hi, Wide(a.hi) - b.lo}, expr->type, &wrapped);
      break;
    }
    case Op::kNeg: {
      Interval a = of(expr->args[0]);
      clip({-Wide(a.hi), -Wide(a.lo)}, expr->type, &wrapped);
      break;
    }
    case Op::kMul:
      if (limit_of_product(expr)) break;
      clip(multiply(of(expr->args[0]), of(expr->args[1])), expr->type, &wrapped);
      break;
    default:
      break;
  }
  return !wrapped;
}

int64_t Ranges::multiple_of(const ExprRef& expr) const {
  if (expr->kind == ExprKind::kInt)
    return expr->int_value == std::numeric_limits<int64_t>::min() ? 1 : std::abs(expr->int_value);
  if (expr->kind == ExprKind::kVar) {
    auto it = multiples_.find(expr->var);
    return it == multiples_.end() ? 1 : it->second;
  }
  if (expr->kind == ExprKind::kCast && !ir::is_float(expr->args[0]->type) && ir::bits(expr->cast_type.dtype) >= 32)
    return multiple_of(expr->args[0]);
  if (expr->kind != ExprKind::kApply || ir::is_float(expr->type)) return 1;
  switch (expr->op) {
    case Op::kMul: {
      int64_t product = 0;
      if (__builtin_mul_overflow(multiple_of(expr->args[0]), multiple_of(expr->args[1]), &product)) return 1;
      return product;
    }
    case Op::kAdd:
    case Op::kSub:
    case Op::kMin:
    case Op::kMax:
      return std::gcd(multiple_of(expr->args[0]), multiple_of(expr->args[1]));
    case Op::kNeg:
      return multiple_of(expr->args[0]);
    case Op::kBitXor: {  // the powers of two
      const int64_t common = std::gcd(multiple_of(expr->args[0]), multiple_of(expr->args[1]));
      return common & -common;
    }
    case Op::kDiv: {
      const ExprRef& divisor = expr->args[1];
      if (divisor->kind != ExprKind::kInt || divisor->int_value <= 0) return 1;
      const int64_t multiple = multiple_of(expr->args[0]);
      return multiple % divisor->int_value ? 1 : multiple / divisor->int_value;
    }
    case Op::kSelect:
      return std::gcd(multiple_of(expr->args[1]), multiple_of(expr->args[2]));
    default:
      return 1;
  }
}

bool Ranges::proves_less(const ExprRef& expr, const ExprRef& limit) const {
  if (of(expr).hi < of(limit).lo) return true;
  if (expr->kind != ExprKind::kVar) return false;
  auto it = limits_.find(expr->var);
  return it != limits_.end() && ir::same(it->second, limit);
}

namespace {

void note_names(const ir::Block& body, Ranges* multiples) {
  for (const ir::Stmt& stmt : body) {
    if (const auto* let = std::get_if<ir::LetStmt>(&stmt.node))
      multiples->set_multiple(let->var, multiples->multiple_of(let->value));
    if (const auto* loop = std::get_if<ir::ForStmt>(&stmt.node)) note_names(loop->body, multiples);
    if (const auto* branch = std::get_if<ir::IfStmt>(&stmt.node)) {
      note_names(branch->then_body, multiples);
      note_names(branch->else_body, multiples);
    }
  }
}

// K == 128 * G and K % 128 == 0, either way round.
void note_condition(const ExprRef& condition, Ranges* ranges) {
  if (condition->kind != ExprKind::kApply) return;
  if (condition->op == Op::kAnd)
    for (const ExprRef& arg : condition->args) note_condition(arg, ranges);
  if (condition->op != Op::kEq) return;
  for (size_t side = 0; side < 2; ++side) {
    const ExprRef &one = condition->args[side], &other = condition->args[1 - side];
    const bool rest = one->kind == ExprKind::kApply && one->op == Op::kMod && ir::is_int(other, 0) &&
                      one->args[1]->kind == ExprKind::kInt && one->args[1]->int_value > 0;
    const ExprRef& dimension = rest ? one->args[0] : one;
    if (dimension->kind != ExprKind::kVar) continue;
    if (!rest) {
      const Interval known = ranges->of(dimension), equal = ranges->of(other);
      const Interval both{std::max(known.lo, equal.lo), std::min(known.hi, equal.hi)};
      if (both.lo <= both.hi) ranges->set(dimension->var, both);
      const bool product = other->kind == ExprKind::kApply && other->op == Op::kMul;
      if (product && 0 <= both.lo && both.lo <= both.hi && both.hi < kMaxDim) ranges->know_product(other, both.hi + 1);
    }
    const int64_t multiple = rest ? one->args[1]->int_value : ranges->multiple_of(other);
    if (multiple <= 1) continue;
    const int64_t known = std::max<int64_t>(ranges->multiple_of(dimension), 1);
    int64_t both;
    if (!__builtin_mul_overflow(known, multiple / std::gcd(known, multiple), &both))
      ranges->set_multiple(dimension->var, both);
  }
}

}  // namespace

void note_dimensions(const ir::Kernel& kernel, Ranges* ranges) {
  constexpr int kRounds = 2;  // a condition may follow from one behind it
  for (int round = 0; round < kRounds; ++round)
    for (const ExprRef& condition : kernel.where) note_condition(condition, ranges);
}

void note_multiples(const ir::Kernel& kernel, Ranges* multiples) {
  note_dimensions(kernel, multiples);
  note_names(kernel.body, multiples);
}

}  // namespace kachel::lowering
