// Element types of the tile language and the scalar types its arithmetic is done in.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace kachel::ir {

// Values are stored in records and keys: append only.
enum class DType : uint8_t { F32, F16, BF16, F8E4M3, F8E5M2, I8, U8, I16, I32, U32, I64, U64, I4, U4, Bool };
inline constexpr int kDTypeCount = 15;

int bits(DType type);  // 4 for I4 and U4, 8 for Bool
bool is_float(DType type);
constexpr bool is_float8(DType type) {
  return type == DType::F8E4M3 || type == DType::F8E5M2;
}
bool is_integer(DType type);  // not Bool
bool is_signed(DType type);   // floats and signed integers
std::string_view name(DType type);
std::optional<DType> dtype_from_name(std::string_view name);

// The type that arithmetic on a value of `type` is done in: F32 for floats; I32 for I4 U4 I8 U8 I16 I32; U32, I64, U64
// and Bool for themselves. GRAMMAR.md, "Numerics".
DType compute_type(DType type);
// The type in which products of two elements of `type` are summed: F32 for floats, I64 for I64 and U64, else I32.
DType accumulator_type(DType type);

// Bytes that `elements` consecutive elements occupy; 4-bit types are packed two a byte, low nibble first.
int64_t storage_bytes(DType type, int64_t elements);

}  // namespace kachel::ir
