#include "ir/numerics.h"

#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

namespace kachel::ir {
namespace {

// A binary float format with subnormals. `digits` counts the hidden bit.
struct Format {
  int digits, min_exponent, exponent_bits, bias;
  double largest;
  bool saturates;
  uint32_t infinity, nan;  // bits without sign; infinity 0: there is none
};

const Format& format_of(DType type) {
  static const Format f32 = {24, -126, 8, 127, std::numeric_limits<float>::max(), false, 0x7F800000, 0x7FC00000};
  static const Format f16 = {11, -14, 5, 15, 65504, false, 0x7C00, 0x7E00};
  static const Format bf16 = {8, -126, 8, 127, 0x1.FEp127, false, 0x7F80, 0x7FC0};
  static const Format e4m3 = {4, -6, 4, 7, 448, true, 0, 0x7F};
  static const Format e5m2 = {3, -14, 5, 15, 57344, true, 0x7C, 0x7F};
  switch (type) {
    case DType::F16:
      return f16;
    case DType::BF16:
      return bf16;
    case DType::F8E4M3:
      return e4m3;
    case DType::F8E5M2:
      return e5m2;
    default:
      assert(type == DType::F32);
      return f32;
  }
}

// Exponent of |value|, for a finite normal double; zero and double subnormals give something very small.
int exponent_of(double value) {
  return static_cast<int>((std::bit_cast<uint64_t>(value) >> 52) & 0x7FF) - 1023;
}

double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

uint64_t mask_of(int width) {
  return width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
}

int64_t divide(bool is_signed_type, int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (!is_signed_type) return static_cast<int64_t>(static_cast<uint64_t>(a) / static_cast<uint64_t>(b));
  if (b == -1) return static_cast<int64_t>(-static_cast<uint64_t>(a));
  return a / b;
}

int64_t remainder(bool is_signed_type, int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (!is_signed_type) return static_cast<int64_t>(static_cast<uint64_t>(a) % static_cast<uint64_t>(b));
  if (b == -1) return 0;
  return a % b;
}

// The least q with q * b >= a for b > 0; truncation is already that for a quotient that is not positive.
int64_t ceil_divide(bool is_signed_type, int64_t a, int64_t b) {
  int64_t quotient = divide(is_signed_type, a, b);
  int64_t rest = remainder(is_signed_type, a, b);
  bool rounds_up = rest != 0 && (!is_signed_type || (rest < 0) == (b < 0));
  return static_cast<int64_t>(static_cast<uint64_t>(quotient) + (rounds_up ? 1 : 0));
}

bool less(bool is_signed_type, int64_t a, int64_t b) {
  return is_signed_type ? a < b : static_cast<uint64_t>(a) < static_cast<uint64_t>(b);
}

int64_t next_power_of_two(int64_t value) {
  if (value <= 1) return 1;
  if (value > int64_t{1} << 62) return int64_t{1} << 62;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(value)));
}

}  // namespace

double round_float(DType type, double value) {
  if (type == DType::F32) return static_cast<double>(static_cast<float>(value));
  const Format& format = format_of(type);
  if (value != value) return value;
  double magnitude = std::abs(value);
  if (magnitude == std::numeric_limits<double>::infinity())
    return format.saturates ? std::copysign(format.largest, value) : value;
  int exponent = std::max(exponent_of(magnitude), format.min_exponent);
  if (exponent > 200) return std::copysign(format.saturates ? format.largest : HUGE_VAL, value);
  // Adding and subtracting 1.5 * 2^52 quanta leaves a multiple of the quantum, rounded to nearest even.
  double shifter = 1.5 * power_of_two(exponent - (format.digits - 1) + 52);
  double rounded = (magnitude + shifter) - shifter;
  if (rounded > format.largest) rounded = format.saturates ? format.largest : HUGE_VAL;
  return std::copysign(rounded, value);
}

double largest_finite(DType type) {
  return format_of(type).largest;
}

double ulp_at(DType type, double value) {
  const Format& format = format_of(type);
  double magnitude = std::min(std::abs(value), format.largest);
  return power_of_two(std::max(exponent_of(magnitude), format.min_exponent) - (format.digits - 1));
}

uint32_t encode_float(DType type, double value) {
  const Format& format = format_of(type);
  if (value != value) return format.nan;
  if (type == DType::F32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  double rounded = round_float(type, value);
  uint32_t sign = std::signbit(rounded) ? uint32_t{1} << (bits(type) - 1) : 0;
  double magnitude = std::abs(rounded);
  if (magnitude == HUGE_VAL) return sign | format.infinity;
  int exponent = std::max(exponent_of(magnitude), format.min_exponent);
  auto quanta = static_cast<uint32_t>(magnitude / power_of_two(exponent - (format.digits - 1)));
  // A subnormal has no hidden bit, and its exponent field is one less: both fall out of the addition.
  uint32_t biased = static_cast<uint32_t>(exponent + format.bias - 1);
  return sign | ((biased << (format.digits - 1)) + quanta);
}

double decode_float(DType type, uint32_t raw) {
  if (type == DType::F32) return std::bit_cast<float>(raw);
  if (type == DType::BF16) return std::bit_cast<float>(raw << 16);
  const Format& format = format_of(type);
  uint32_t magnitude = raw & static_cast<uint32_t>(mask_of(bits(type) - 1));
  bool negative = (raw >> (bits(type) - 1)) & 1;
  double value;
  if (format.infinity != 0 && magnitude == format.infinity) {
    value = HUGE_VAL;
  } else if (format.infinity != 0 ? magnitude > format.infinity : magnitude == format.nan) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    uint32_t mantissa = magnitude & ((1u << (format.digits - 1)) - 1);
    int field = static_cast<int>(magnitude >> (format.digits - 1));
    if (field != 0) mantissa |= 1u << (format.digits - 1);
    value = mantissa * power_of_two(std::max(field, 1) - format.bias - (format.digits - 1));
  }
  return negative ? -value : value;
}

int64_t wrap_integer(DType type, int64_t value) {
  if (type == DType::Bool) return value != 0;
  int width = bits(type);
  if (width == 64) return value;
  uint64_t low = static_cast<uint64_t>(value) & mask_of(width);
  if (is_signed(type) && (low >> (width - 1)) != 0) low |= ~mask_of(width);
  return static_cast<int64_t>(low);
}

int64_t float_to_integer(DType type, double value) {
  if (type == DType::Bool) return value != 0;
  if (value != value) return 0;
  int width = bits(type);
  double limit = std::ldexp(1.0, is_signed(type) ? width - 1 : width);  // one past the largest
  double whole = std::trunc(value);
  if (is_signed(type)) {
    if (whole < -limit) return static_cast<int64_t>(~uint64_t{0} << (width - 1));
    if (whole >= limit) return static_cast<int64_t>(mask_of(width - 1));
    return static_cast<int64_t>(whole);
  }
  if (whole <= 0) return 0;
  if (whole >= limit) return static_cast<int64_t>(mask_of(width));
  return static_cast<int64_t>(static_cast<uint64_t>(whole));
}

bool is_power_of_two(double value) {
  int exponent = 0;
  return std::abs(std::frexp(value, &exponent)) == 0.5 && std::abs(exponent) < 100;
}

double integer_to_float(DType from, int64_t value) {
  if (from == DType::U64) return static_cast<float>(static_cast<uint64_t>(value));
  return static_cast<float>(value);
}

Scalar load_element(DType type, const void* data, int64_t index) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  Scalar result;
  result.type = compute_type(type);
  int width = bits(type);
  uint64_t raw = 0;
  if (width == 4) {
    raw = bytes[index >> 1] >> (index & 1 ? 4 : 0) & 15;
  } else {
    std::memcpy(&raw, bytes + index * (width / 8), static_cast<size_t>(width / 8));
  }
  if (is_float(type))
    result.f = decode_float(type, static_cast<uint32_t>(raw));
  else
    result.i = wrap_integer(type, static_cast<int64_t>(raw));
  return result;
}

void store_element(DType type, void* data, int64_t index, const Scalar& value) {
  auto* bytes = static_cast<unsigned char*>(data);
  Scalar stored = convert(value, type);
  uint64_t raw = is_float(type) ? encode_float(type, stored.f) : static_cast<uint64_t>(stored.i);
  int width = bits(type);
  if (width == 4) {
    unsigned char& byte = bytes[index >> 1];
    int shift = index & 1 ? 4 : 0;
    byte = static_cast<unsigned char>((byte & ~(15 << shift)) | ((raw & 15) << shift));
  } else {
    std::memcpy(bytes + index * (width / 8), &raw, static_cast<size_t>(width / 8));
  }
}

Scalar convert(const Scalar& value, DType to) {
  Scalar result;
  result.type = compute_type(to);
  if (is_float(to))
    result.f = round_float(to, value.type == DType::F32 ? value.f : integer_to_float(value.type, value.i));
  else if (value.type == DType::F32)
    result.i = float_to_integer(to, value.f);
  else
    result.i = wrap_integer(to, value.i);
  return result;
}

int64_t least_integer(DType type) {
  return type == DType::I32 ? INT32_MIN : type == DType::I64 ? INT64_MIN : 0;
}
int64_t greatest_integer(DType type) {
  return type == DType::I32   ? INT32_MAX
         : type == DType::U32 ? int64_t{UINT32_MAX}
         : type == DType::I64 ? INT64_MAX
                              : -1;
}

int64_t integer_op(Op op, DType type, int64_t a, int64_t b, int64_t c) {
  const bool sign = is_signed(type);
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  const auto wrap = [type](uint64_t value) { return wrap_integer(type, static_cast<int64_t>(value)); };
  const auto width = static_cast<uint64_t>(bits(type));
  switch (op) {
    case Op::kNeg:
      return wrap(-ua);
    case Op::kNot:
      return a == 0;
    case Op::kBitNot:
      return wrap(~ua);
    case Op::kAdd:
      return wrap(ua + ub);
    case Op::kSub:
      return wrap(ua - ub);
    case Op::kMul:
      return wrap(ua * ub);
    case Op::kDiv:
      return wrap(static_cast<uint64_t>(divide(sign, a, b)));
    case Op::kMod:
      return remainder(sign, a, b);
    case Op::kBitAnd:
      return a & b;
    case Op::kBitOr:
      return a | b;
    case Op::kBitXor:
      return a ^ b;
    case Op::kShl:
      return ub >= width ? 0 : wrap(ua << ub);
    case Op::kShr:
      if (ub >= width) return sign && a < 0 ? -1 : 0;
      return sign ? a >> b : static_cast<int64_t>(ua >> ub);
    case Op::kAnd:
      return a != 0 && b != 0;
    case Op::kOr:
      return a != 0 || b != 0;
    case Op::kEq:
      return a == b;
    case Op::kNe:
      return a != b;
    case Op::kLt:
      return less(sign, a, b);
    case Op::kLe:
      return !less(sign, b, a);
    case Op::kGt:
      return less(sign, b, a);
    case Op::kGe:
      return !less(sign, a, b);
    case Op::kSelect:
      return a != 0 ? b : c;
    case Op::kMin:
      return less(sign, b, a) ? b : a;
    case Op::kMax:
      return less(sign, a, b) ? b : a;
    case Op::kAbs:
      return sign && a < 0 ? wrap(-ua) : a;
    case Op::kClamp: {
      int64_t raised = less(sign, a, b) ? b : a;
      return less(sign, c, raised) ? c : raised;
    }
    case Op::kCeilDiv:
      return wrap(static_cast<uint64_t>(ceil_divide(sign, a, b)));
    case Op::kPopcount:
      return std::popcount(ua & mask_of(static_cast<int>(width)));
    case Op::kBucket:
      return next_power_of_two(a);
    default:
      assert(false && "not an operation on integers");
      return 0;
  }
}

double float_op(Op op, double a, double b, double c) {
  const auto f32 = [](double value) { return static_cast<double>(static_cast<float>(value)); };
  switch (op) {
    case Op::kNeg:
      return -a;
    case Op::kAdd:
      return f32(a + b);
    case Op::kSub:
      return f32(a - b);
    case Op::kMul:
      return f32(a * b);
    case Op::kDiv:
      return f32(a / b);
    case Op::kSelect:
      return a != 0 ? b : c;
    case Op::kMin:
      return std::fmin(a, b);
    case Op::kMax:
      return std::fmax(a, b);
    case Op::kAbs:
      return std::abs(a);
    case Op::kClamp:
      return std::fmin(std::fmax(a, b), c);
    case Op::kFma:
      return std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c));
    case Op::kExp:
      return f32(std::exp(a));
    case Op::kExp2:
      return f32(std::exp2(a));
    case Op::kLog:
      return f32(std::log(a));
    case Op::kLog2:
      return f32(std::log2(a));
    case Op::kRsqrt:
      return f32(1 / std::sqrt(a));
    case Op::kRcp:
      return f32(1 / a);
    case Op::kSqrt:
      return f32(std::sqrt(a));
    case Op::kTanh:
      return f32(std::tanh(a));
    case Op::kErf:
      return f32(std::erf(a));
    case Op::kRaisedTanh:
      return f32(b * (1 + std::tanh(a)));
    case Op::kRaisedErf:
      return f32(b * std::erfc(-a));
    case Op::kSin:
      return f32(std::sin(a));
    case Op::kCos:
      return f32(std::cos(a));
    case Op::kFloor:
      return std::floor(a);
    case Op::kCeil:
      return std::ceil(a);
    case Op::kTrunc:
      return std::trunc(a);
    case Op::kRound:
      return std::nearbyint(a);
    default:
      assert(false && "not an operation on floats");
      return 0;
  }
}

bool float_compare(Op op, double a, double b) {
  switch (op) {
    case Op::kEq:
      return a == b;
    case Op::kNe:
      return a != b;
    case Op::kLt:
      return a < b;
    case Op::kLe:
      return a <= b;
    case Op::kGt:
      return a > b;
    default:
      return a >= b;
  }
}

bool is_exact(Op op) {
  switch (op) {
    case Op::kExp:
    case Op::kExp2:
    case Op::kLog:
    case Op::kLog2:
    case Op::kRsqrt:
    case Op::kRcp:
    case Op::kTanh:
    case Op::kErf:
    case Op::kSin:
    case Op::kCos:
    case Op::kRaisedTanh:
    case Op::kRaisedErf:
      return false;
    default:
      return true;
  }
}

Op operation_of(ReduceOp op) {
  constexpr Op kOps[] = {Op::kAdd, Op::kMax, Op::kMin, Op::kMul};
  return kOps[static_cast<int>(op)];
}

Scalar apply_op(Op op, std::span<const Scalar> args) {
  Scalar result;
  if (op == Op::kSelect) return args[0].i != 0 ? args[1] : args[2];
  const Scalar zero;
  const Scalar& b = args.size() > 1 ? args[1] : zero;
  const Scalar& c = args.size() > 2 ? args[2] : zero;
  DType type = args[0].type;
  if (type == DType::F32) {
    if (is_comparison(op)) {
      result.type = DType::Bool;
      result.i = float_compare(op, args[0].f, b.f);
    } else {
      result.type = DType::F32;
      result.f = float_op(op, args[0].f, b.f, c.f);
    }
    return result;
  }
  bool logical = is_comparison(op) || op == Op::kAnd || op == Op::kOr || op == Op::kNot;
  result.type = logical ? DType::Bool : type;
  result.i = integer_op(op, type, args[0].i, b.i, c.i);
  return result;
}

}  // namespace kachel::ir
