// Derived programs run by the reference interpreter, beside the kernel that they come from.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "derive/prepare_operands.h"
#include "derive/split_regions.h"
#include "derive/taps_outside.h"
#include "tests/ir/run_kernel.h"

namespace kachel::derive {

using ir::DType;
using ir::Kernel;
using ir::TestTensor;

struct Form {
  bool operands = true;  // made ahead
  bool turned = false;   // those that products read with k down their rows alone
  int64_t parts = 1;     // of sums
  bool crossed = false;  // tensors laid out along k
  bool taps = false;     // k in the order of taps
  bool copies = true;    // that operands are made of and that others read
};

// Runs a derived program call by call, on tensors by name.
class Interpreted {
 public:
  Interpreted(std::string_view text, ir::Bindings bindings, std::map<std::string, int64_t> dims, const Form& form = {})
      : bindings_(std::move(bindings)), dims_(std::move(dims)) {
    auto module = ir::load(text);
    REQUIRE_MESSAGE(module.ok(), module.status().message());
    kernel_ = module->kernels.at(0);
    source_ = split_regions(kernel_);
    if (form.taps) {
      const auto other = taps_outside(source_);
      REQUIRE(other);
      source_ = *other;
    }
    if (form.operands) slices_ = operand_slices(source_);
    if (!form.copies) std::erase_if(slices_, [](const OperandSlice& slice) { return !slice.fed.empty(); });
    for (OperandSlice& slice : slices_) slice.turned = form.turned && slice.k_down;
    const auto tile_type = [&](const ir::Buffer& tile) {
      const DType type = type_of(tile);
      return tile.type.accumulator ? ir::accumulator_type(type) : type;
    };
    if (form.crossed) crossed_ = crossed_tensors(source_);
    for (const CrossedTensor& one : crossed_)
      std::erase_if(slices_, [&](const OperandSlice& slice) {
        return std::count(slice.tensors.begin(), slice.tensors.end(), one.tensor) > 0;
      });
    auto derived =
        ir::load(prepare_operands(kernel_, slices_, {form.parts, kMostExtent, tile_type}, crossed_, &source_));
    REQUIRE_MESSAGE(derived.ok(), derived.status().message());
    derived_ = *std::move(derived);
    know(kernel_);
    know(derived_.programs.at(0).header);
    uint32_t seed = 7;
    for (const ir::Param& param : kernel_.params) {
      if (!param.tensor) continue;
      add(*param.tensor)
          .random(++seed, ir::is_float(type_of(*param.tensor)) ? -1 : 0, ir::is_float(type_of(*param.tensor)) ? 1 : 15);
    }
  }

  size_t operands() const { return slices_.size(); }
  size_t crossed() const { return crossed_.size(); }
  const ir::Module& derived() const { return derived_; }
  const TestTensor& tensor(const std::string& name) const { return tensors_.at(name); }

  // The same within both bounds, which are narrow.
  void check() {
    const auto expected = run(kernel_);
    const ir::Program& program = derived_.programs.at(0);
    for (const ir::BufferRef& temp : program.temps) add(*temp).fill(std::nan(""));
    std::vector<ir::Expected> actual;
    for (const ir::Call& call : program.calls) {
      REQUIRE(call.guards.size() == 1);
      if (call.guards[0].holds) actual = run(*derived_.find(call.kernel));
    }
    REQUIRE(actual.size() == expected.size());
    int64_t off = 0;
    for (size_t i = 0; i < actual.size(); ++i) {
      CHECK(expected[i].bound < 0.05);
      off += !(std::abs(actual[i].value - expected[i].value) <= actual[i].bound + expected[i].bound) ||
             actual[i].bits != expected[i].bits;
    }
    CHECK(off == 0);
  }

 private:
  DType type_of(const ir::Buffer& tensor) const {
    return tensor.type.symbol ? bindings_.types.at(tensor.type.symbol->name) : tensor.type.dtype;
  }

  TestTensor& add(const ir::Buffer& tensor) {
    std::vector<int64_t> shape;
    for (const ir::ExprRef& extent : tensor.shape) {
      const auto value = ir::evaluate_int(extent, values_);
      REQUIRE_MESSAGE(value.ok(), value.status().message());
      shape.push_back(*value);
    }
    return tensors_.insert_or_assign(tensor.name, TestTensor(type_of(tensor), shape)).first->second;
  }
  void know(const Kernel& header) {
    for (const ir::VarRef& dim : header.dims) values_[dim.get()] = {false, dims_.at(dim->name), 0};
    for (const ir::VarRef& constant : header.consts)
      if (bindings_.int_consts.count(constant->name))
        values_[constant.get()] = {false, bindings_.int_consts.at(constant->name), 0};
  }

  // The last output; what it writes is kept in the tensors.
  std::vector<ir::Expected> run(const Kernel& kernel) {
    ir::Bindings bindings = bindings_;
    bindings.dims = dims_;
    for (const ir::Tunable& tunable : kernel.tunables) {
      int64_t& value = bindings.tunables[tunable.var->name];
      const auto& listed = tunable.values;
      if (!tunable.automatic && std::find(listed.begin(), listed.end(), value) == listed.end()) value = listed[0];
    }
    auto concrete = ir::instantiate(kernel, bindings);
    REQUIRE_MESSAGE(concrete.ok(), concrete.status().message());
    std::vector<ir::Argument> args;
    for (const ir::Param& param : kernel.params)
      args.push_back(param.tensor ? ir::Argument(tensors_.at(param.name())) : ir::f32_argument(0.75));
    auto outputs = ir::interpreted(*concrete, args);
    std::vector<ir::Expected> last;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].empty()) continue;
      TestTensor& tensor = tensors_.at(kernel.params[i].name());
      for (size_t at = 0; at < outputs[i].size(); ++at) {
        if (!outputs[i][at].written) continue;
        if (ir::is_float(tensor.type()))
          tensor.set(static_cast<int64_t>(at), outputs[i][at].value);
        else
          tensor.set_integer(static_cast<int64_t>(at), outputs[i][at].bits);
      }
      last = std::move(outputs[i]);
    }
    return last;
  }

  ir::Bindings bindings_;
  std::map<std::string, int64_t> dims_;
  ir::HostEnv values_;
  Kernel kernel_;
  Kernel source_;  // that is derived from
  std::vector<OperandSlice> slices_;
  std::vector<CrossedTensor> crossed_;
  ir::Module derived_;
  std::map<std::string, TestTensor> tensors_;
};

inline ir::Bindings bindings(DType type, int64_t bm, int64_t bn, int64_t bk) {
  ir::Bindings made;
  made.types["T"] = type;
  made.tunables = {{"BM", bm}, {"BN", bn}, {"BK", bk}};
  return made;
}

}  // namespace kachel::derive
