// A case with its arguments in host memory and what the interpreter expects of them: run it as often as you like.
#pragma once
#include <memory>

#include "tests/conformance/runner.h"

namespace kachel::conformance {

class Prepared {
 public:
  // Borrows `test`. Errors are those of instantiate() and interpret().
  static Result<std::unique_ptr<Prepared>> make(const Case& test);
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  const Case& test() const { return test_; }
  const ir::Kernel& kernel() const { return concrete_; }
  // Those that hold for the arguments and that the case allows.
  uint64_t facts() const;
  bool row_fact(const lowering::Fact& fact) const;
  bool joined_fact(const lowering::Fact& fact) const;
  bool one_axis_fact(const lowering::Fact& fact) const;

  // The tensors before the launch, one a parameter; empty where it is a scalar.
  std::vector<OwnedTensor> arguments() const { return before_; }
  struct Launch {
    std::vector<int64_t> params;  // one a slot
    int64_t tiles = 1;
  };
  // `pointers`: to the first element of each tensor, by parameter.
  Result<Launch> launch(const std::vector<lowering::Slot>& slots, const lowering::ClusterShape& cluster,
                        const std::vector<void*>& pointers, void* workspace) const;
  // Blocks to launch for that many tiles.
  uint32_t blocks(int64_t tiles) const;
  // Compares the tensors after the launch.
  Report judge(std::vector<OwnedTensor>& after) const;

 private:
  explicit Prepared(const Case& test) : test_(test) {}

  const Case& test_;
  ir::Kernel concrete_;
  mutable std::vector<OwnedTensor> before_;  // views of it are handed out, nothing writes to it
  std::vector<ir::Argument> arguments_;      // of before_
  ir::InterpretResult expected_;
};

}  // namespace kachel::conformance
