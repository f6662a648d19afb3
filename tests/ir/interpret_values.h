// What tests of the interpreter expect and how they write it.
#pragma once
#include <limits>

#include "tests/ir/run_kernel.h"

namespace kachel::ir {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

inline std::vector<double> values(const std::vector<Expected>& expected) {
  std::vector<double> result;
  for (const Expected& e : expected) {
    CHECK(e.written);
    CHECK_FALSE(e.undecided);
    CHECK(e.bound == 0);
    result.push_back(e.value);
  }
  return result;
}
inline std::vector<int64_t> integers(const std::vector<Expected>& expected) {
  std::vector<int64_t> result;
  for (const Expected& e : expected) {
    CHECK(e.written);
    CHECK_FALSE(e.undecided);
    result.push_back(e.bits);
  }
  return result;
}
// One character an element: '.' not written, 'u' undecided, '=' decided.
inline std::string state(const std::vector<Expected>& expected) {
  std::string result;
  for (const Expected& e : expected) result += !e.written ? '.' : e.undecided ? 'u' : '=';
  return result;
}
using Doubles = std::vector<double>;
using Integers = std::vector<int64_t>;

inline TestTensor iota(DType type, std::vector<int64_t> shape, double first = 0) {
  TestTensor tensor(type, std::move(shape));
  for (int64_t at = 0; at < tensor.size(); ++at) tensor.set(at, first + static_cast<double>(at));
  return tensor;
}

// A kernel over X: in i32 or f32 [N] and Y: out of the same type [N], with x a tile of 8 loaded from X, stored to Y.
inline std::string region(const std::string& type, const std::string& body) {
  return "tile 1\nkernel k(X: " + type + "[N], Y: out " + type + "[N])\ngrid b < 1\n{\n  fragment x: " + type +
         "[8], y: " + type + "[8] = 0\n  x = X[0 +: 8]\n  " + body + "\n  Y[0 +: 8] = x\n}\n";
}
inline std::vector<Expected> run_region(const std::string& type, const std::string& body) {
  DType dtype = *dtype_from_name(type);
  return run_kernel(region(type, body), {iota(dtype, {8}), TestTensor(dtype, {8})});
}

}  // namespace kachel::ir
