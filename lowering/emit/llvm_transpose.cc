// A block of `lanes` by `lanes` elements transposed in registers. In step d the rows i and i + d exchange the elements
// whose column numbers differ from their row numbers in bit d; after all bits every element is in its place.
#include <fmt/format.h>

#include "lowering/emit/emit.h"

namespace kachel::lowering {

std::string emit_transpose(ir::DType from, int64_t lanes, const std::string& name) {
  std::string text;
  int next = 0;
  auto line = [&]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    text += "  " + fmt::format(format, std::forward<Args>(args)...) + "\n";
  };
  auto value = [&]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    std::string result = fmt::format("%v{}", next++);
    text += "  " + result + " = " + fmt::format(format, std::forward<Args>(args)...) + "\n";
    return result;
  };
  // Two bytes become two i16, which move as one f32 would: nothing is computed with it.
  const bool pairs = !ir::is_float(from);
  const char* memory = pairs ? "i8" : from == ir::DType::F32 ? "float" : from == ir::DType::F16 ? "half" : "i16";
  std::vector<std::string> rows;
  for (int64_t i = 0; i < lanes; ++i) {
    std::string offset = value("mul i64 %from_row, {}", i);
    std::string at = value("getelementptr {}, ptr %from, i64 {}", memory, offset);
    std::string row =
        value("load <{} x {}>, ptr {}, align {}", pairs ? 2 * lanes : lanes, memory, at, ir::bits(from) / 8);
    if (pairs) {
      row = value("{}ext <{} x i8> {} to <{} x i16>", ir::is_signed(from) ? "s" : "z", 2 * lanes, row, 2 * lanes);
      row = value("bitcast <{} x i16> {} to <{} x float>", 2 * lanes, row, lanes);
    }
    if (from == ir::DType::F16) row = value("fpext <{0} x half> {1} to <{0} x float>", lanes, row);
    if (from == ir::DType::BF16) {
      row = value("zext <{0} x i16> {1} to <{0} x i32>", lanes, row);
      row = value("shl <{} x i32> {}, splat (i32 16)", lanes, row);
      row = value("bitcast <{0} x i32> {1} to <{0} x float>", lanes, row);
    }
    rows.push_back(row);
  }
  for (int64_t d = 1; d < lanes; d *= 2) {
    std::string low, high;  // shuffle masks; the second operand's elements are numbered from `lanes` on
    for (int64_t k = 0; k < lanes; ++k) {
      const char* comma = k ? ", " : "";
      low += fmt::format("{}i32 {}", comma, k & d ? lanes + k - d : k);
      high += fmt::format("{}i32 {}", comma, k & d ? lanes + k : k + d);
    }
    for (int64_t i = 0; i < lanes; ++i) {
      if (i & d) continue;
      const std::string a = rows[static_cast<size_t>(i)], b = rows[static_cast<size_t>(i + d)];
      auto shuffle = [&](const std::string& mask) {
        return value("shufflevector <{0} x float> {1}, <{0} x float> {2}, <{0} x i32> <{3}>", lanes, a, b, mask);
      };
      rows[static_cast<size_t>(i)] = shuffle(low);
      rows[static_cast<size_t>(i + d)] = shuffle(high);
    }
  }
  for (int64_t i = 0; i < lanes; ++i) {
    std::string offset = value("mul i64 %to_row, {}", i);
    std::string at = value("getelementptr float, ptr %to, i64 {}", offset);
    line("store <{} x float> {}, ptr {}, align 4", lanes, rows[static_cast<size_t>(i)], at);
  }
  return fmt::format(
      "\ndefine internal void @{}(ptr noalias %to, i64 %to_row, ptr noalias readonly %from, i64 "
      "%from_row) #3 {{\n{}  ret void\n}}\n",
      name, text);
}

}  // namespace kachel::lowering
