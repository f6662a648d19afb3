#include "ir/dtype.h"

namespace kachel::ir {
namespace {

struct Row {
  std::string_view name;
  int bits;
  bool is_float, is_integer, is_signed;
  DType compute;
};

constexpr Row kRows[kDTypeCount] = {
    {"f32", 32, true, false, true, DType::F32},    {"f16", 16, true, false, true, DType::F32},
    {"bf16", 16, true, false, true, DType::F32},   {"f8e4m3", 8, true, false, true, DType::F32},
    {"f8e5m2", 8, true, false, true, DType::F32},  {"i8", 8, false, true, true, DType::I32},
    {"u8", 8, false, true, false, DType::I32},     {"i16", 16, false, true, true, DType::I32},
    {"i32", 32, false, true, true, DType::I32},    {"u32", 32, false, true, false, DType::U32},
    {"i64", 64, false, true, true, DType::I64},    {"u64", 64, false, true, false, DType::U64},
    {"i4", 4, false, true, true, DType::I32},      {"u4", 4, false, true, false, DType::I32},
    {"bool", 8, false, false, false, DType::Bool},
};

const Row& row(DType type) {
  return kRows[static_cast<int>(type)];
}

}  // namespace

int bits(DType type) {
  return row(type).bits;
}
bool is_float(DType type) {
  return row(type).is_float;
}
bool is_integer(DType type) {
  return row(type).is_integer;
}
bool is_signed(DType type) {
  return row(type).is_signed;
}
std::string_view name(DType type) {
  return row(type).name;
}
DType compute_type(DType type) {
  return row(type).compute;
}
DType accumulator_type(DType type) {
  if (is_float(type)) return DType::F32;
  return type == DType::I64 || type == DType::U64 ? DType::I64 : DType::I32;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (kRows[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

int64_t storage_bytes(DType type, int64_t elements) {
  return (elements * bits(type) + 7) / 8;
}

}  // namespace kachel::ir
