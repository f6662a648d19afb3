// Kernels and tensors for what binds arguments.
#pragma once
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {

inline std::shared_ptr<const KernelModel> model_of(const std::string& text, std::vector<ConstValue> consts = {}) {
  auto module = ir::load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  auto model = KernelModel::create(module->kernels[0], consts);
  REQUIRE_MESSAGE(model.ok(), model.status().message());
  return *model;
}

// A tensor of any type, shape and strides over memory that nobody reads.
struct Tensor {
  Tensor(ir::DType type, std::vector<int64_t> extents, std::vector<int64_t> steps = {}, uintptr_t address = 0x10000)
      : shape(std::move(extents)), strides(std::move(steps)) {
    arg.data = reinterpret_cast<void*>(address);
    arg.device = kFakeRef;
    arg.dtype = to_data_type(type);
  }
  std::vector<int64_t> shape, strides;
  TensorArg arg;
  operator Arg() {
    arg.ndim = static_cast<int32_t>(shape.size());
    arg.shape = shape.data();
    arg.strides = strides.empty() ? nullptr : strides.data();
    return Arg{Arg::kTensor, 0, {&arg}};
  }
};

}  // namespace kachel::runtime
