// The features that 500 programs must have.
#include <fmt/format.h>

#include "tests/conformance/coverage.h"

namespace kachel::conformance {
namespace {

using ir::DType;
using ir::Op;

std::string named(DType type) {
  return std::string(ir::name(type));
}

}  // namespace

std::string feature_name(Op op) {
  if (op == Op::kNeg) return "negate";
  return ir::info(op).spelling;
}

std::set<std::string> required_features(const std::string& group) {
  std::set<std::string> names;
  const std::vector<DType> integers{DType::I32, DType::U32, DType::I64, DType::U64};
  std::vector<DType> numbers = integers;
  numbers.push_back(DType::F32);
  auto by_type = [&](std::initializer_list<Op> ops, const std::vector<DType>& types) {
    for (Op op : ops)
      for (DType type : types) names.insert(fmt::format("{}:{}", feature_name(op), ir::name(type)));
  };
  auto every_type = [&](const std::string& prefix) {
    for (int i = 0; i < ir::kDTypeCount; ++i) names.insert(prefix + named(static_cast<DType>(i)));
  };
  if (group == "op") {
    for (int i = 0; i < ir::kOpCount; ++i) names.insert(feature_name(static_cast<Op>(i)));
    for (Op op : {Op::kExp, Op::kExp2, Op::kLog, Op::kLog2, Op::kRsqrt, Op::kRcp, Op::kTanh, Op::kSin, Op::kCos})
      names.insert("approx " + feature_name(op));
  } else if (group == "op by type") {
    by_type({Op::kNeg, Op::kAdd, Op::kSub, Op::kMul, Op::kDiv, Op::kMin, Op::kMax, Op::kAbs, Op::kClamp, Op::kSelect,
             Op::kEq, Op::kNe, Op::kLt, Op::kLe, Op::kGt, Op::kGe},
            numbers);
    by_type(
        {Op::kBitNot, Op::kMod, Op::kBitAnd, Op::kBitOr, Op::kBitXor, Op::kShl, Op::kShr, Op::kCeilDiv, Op::kPopcount},
        integers);
    by_type({Op::kNot, Op::kAnd, Op::kOr, Op::kEq, Op::kNe, Op::kSelect}, {DType::Bool});
  } else if (group == "cast to" || group == "copy from tensor" || group == "copy to tensor") {
    every_type("");
  } else if (group == "cast from") {
    for (DType type : numbers) names.insert(named(type));
    names.insert("bool");
  } else if (group == "copy scopes") {
    const char* scopes[] = {"global", "shared", "fragment"};
    for (int from = 0; from < 3; ++from)
      for (int to = 0; to < 3; ++to) names.insert(fmt::format("{}>{}", scopes[from], scopes[to]));
  } else if (group == "tile type") {
    every_type("shared ");
    every_type("fragment ");
  } else if (group == "element read") {
    every_type("global ");
    every_type("shared ");
    every_type("fragment ");
    names.insert("index from memory");
  } else if (group == "element written") {
    every_type("shared ");
    every_type("fragment ");
    every_type("global ");
    names.erase("global i4"), names.erase("global u4");  // two share a byte
  } else if (group == "statement") {
    names = {"declaration",
             "declaration with a value",
             "let",
             "copy",
             "atomic copy",
             "fill",
             "gemm",
             "parallel",
             "for",
             "pipelined",
             "pipelined with stages",
             "loop from a first index",
             "loop bound from memory",
             "if",
             "if else",
             "if in a loop"};
  } else if (group == "region") {
    names = {"let",
             "if",
             "if else",
             "atomic",
             "=",
             "+=",
             "-=",
             "*=",
             "/=",
             "written again",
             "two places of one buffer",
             "reads elsewhere what it writes",
             "reads back",
             "reads as before"};
  } else if (group == "slice") {
    names = {"written index",
             "written range",
             "written whole",
             "written gather",
             "written within",
             "written bare",
             "read index",
             "read range",
             "read whole",
             "read gather",
             "read within",
             "read bare",
             "pad"};
  } else if (group == "gemm") {
    for (const char* order : {"nn", "nt", "tn", "tt"})
      for (const char* kind : {"float", "integer"})
        for (const char* op : {"=", "+="}) names.insert(fmt::format("{} {} {}", order, kind, op));
    names.insert({"into f32", "into i32", "into i64", "tf32", "fast", "slice as operand", "slice as result", "chained",
                  "operand in shared", "operand in fragment", "result in shared", "result in fragment", "in a loop",
                  "in a pipeline"});
  } else if (group == "reduce") {
    for (const char* op : {"sum", "prod", "max", "min", "argmax", "argmin"})
      for (DType type : numbers) names.insert(fmt::format("{}:{}", op, ir::name(type)));
    names.insert({"at block level", "in a region", "nested", "several indices", "axis 0 of 1", "axis 0 of 2",
                  "axis 1 of 2", "axis 0 of 3", "axis 1 of 3", "axis 2 of 3"});
  } else if (group == "scan") {
    for (const char* op : {"sum", "prod", "max", "min"})
      for (DType type : numbers) names.insert(fmt::format("{}:{}", op, ir::name(type)));
    names.insert({"with the element", "without the element"});
  } else if (group == "atomic") {
    for (const char* op : {"add", "max", "min"})
      for (DType type : numbers) names.insert(fmt::format("{}:{}", op, ir::name(type)));
    names.insert({"add:f16", "add:bf16"});
  } else if (group == "parameter") {
    for (const char* kind : {"scalar ", "const "}) {
      for (DType type : numbers) names.insert(kind + named(type));
      names.insert(std::string(kind) + "bool");
    }
    names.insert({"in", "out", "inout", "tunable", "type symbol", "where", "key", "empty dimension"});
  } else if (group == "rank") {
    for (const char* what : {"tensor", "tile", "parallel"})
      for (int rank = 1; rank <= 5; ++rank) names.insert(fmt::format("{} {}", what, rank));
    for (int rank = 0; rank <= 3; ++rank) names.insert(fmt::format("grid {}", rank));
  } else if (group == "loop depth") {
    names = {"1", "2", "3"};
  } else if (group == "lowered") {
    names = {"mma f16",
             "mma bf16",
             "mma f32",
             "mma i8",
             "mma u8",
             "A in registers",
             "matrix",
             "matrix transposed",
             "swizzle",
             "pair",
             "shuffle",
             "reduction across warps",
             "vector of 16 bytes",
             "vector of 8 bytes",
             "vector of 4 bytes",
             "guarded vector",
             "asynchronous copies",
             "2 stages",
             "3 stages",
             "4 stages",
             "wgmma f16",
             "wgmma bf16",
             "wgmma i8",
             "wgmma u8",
             "wgmma f32",
             "wgmma f8e4m3",
             "wgmma f8e5m2",
             "sums of runs",
             "mma f8e4m3",
             "widened",
             "A of wgmma in registers",
             "wgmma with k down the rows",
             "wgmma left under way",
             "bulk copies",
             "exchange in quads",
             "copies by the producer's threads",
             "copies from any address",
             "cluster",
             "one tile a block",
             "bulk stores"};
  }
  return names;
}

}  // namespace kachel::conformance
