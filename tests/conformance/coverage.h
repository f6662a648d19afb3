// What a set of programs exercises: counted from the programs themselves, not from what their generator meant to write.
#pragma once
#include <map>
#include <set>

#include "lowering/loop_ir/loop_ir.h"
#include "tests/conformance/runner.h"

namespace kachel::conformance {

class Coverage {
 public:
  // `concrete`: of `test`.
  void add(const Case& test, const ir::Kernel& concrete);
  // What the program was lowered to for a GPU.
  void add(const lowering::LoopKernel& loops);
  // A line a group: each feature with the number of times it occurs.
  std::string report() const;
  // Features that every suite of this size must have and this one has not, as "group: feature".
  std::vector<std::string> missing() const;

 private:
  std::map<std::string, std::map<std::string, int64_t>> counts_;  // by group and feature
  int64_t programs_ = 0;
};

// Of coverage_features.cc.
std::string feature_name(ir::Op op);
std::set<std::string> required_features(const std::string& group);

}  // namespace kachel::conformance
