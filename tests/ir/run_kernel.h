// Host tensors, and a kernel text run through parse, instantiate and interpret.
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string_view>
#include <vector>

#include "ir/instantiate.h"
#include "ir/interpret.h"
#include "ir/numerics.h"
#include "ir/parse.h"

namespace kachel::ir {

// Dense and row-major unless strides are given; owns its memory.
class TestTensor {
 public:
  TestTensor(DType type, std::vector<int64_t> shape) : TestTensor(type, shape, row_major(type, shape)) {}
  // `first`: offset of element [0, 0, ...], for negative strides.
  TestTensor(DType type, std::vector<int64_t> shape, std::vector<int64_t> strides, int64_t first = 0)
      : type_(type), shape_(std::move(shape)), strides_(std::move(strides)), first_(first) {
    int64_t last = 0;
    for (size_t axis = 0; axis < shape_.size(); ++axis)
      if (shape_[axis] > 0 && strides_[axis] > 0) last += (shape_[axis] - 1) * strides_[axis];
    bytes_.assign(static_cast<size_t>(storage_bytes(type, first + last + 1)), 0);
  }

  static std::vector<int64_t> row_major(DType type, const std::vector<int64_t>& shape) {
    std::vector<int64_t> strides(shape.size());
    int64_t step = 1;
    for (size_t axis = shape.size(); axis-- > 0;) {
      strides[axis] = step;
      step *= shape[axis] > 0 ? shape[axis] : 1;
      if (bits(type) == 4 && axis + 1 == shape.size()) step += step % 2;
    }
    return strides;
  }

  int64_t size() const {
    int64_t total = 1;
    for (int64_t extent : shape_) total *= extent;
    return total;
  }
  // Offset of the element with row-major logical number `at`.
  int64_t offset(int64_t at) const {
    int64_t result = first_;
    for (size_t axis = shape_.size(); axis-- > 0;) {
      result += at % shape_[axis] * strides_[axis];
      at /= shape_[axis];
    }
    return result;
  }
  double get(int64_t at) const {
    Scalar value = load_element(type_, bytes_.data(), offset(at));
    return is_float(type_) ? value.f : static_cast<double>(value.i);
  }
  std::vector<double> values() const {
    std::vector<double> all;
    for (int64_t at = 0; at < size(); ++at) all.push_back(get(at));
    return all;
  }
  void set(int64_t at, double value) {
    Scalar scalar{DType::F32, 0, value};
    if (!is_float(type_)) scalar = {type_ == DType::Bool ? DType::Bool : DType::I64, static_cast<int64_t>(value), 0};
    store_element(type_, bytes_.data(), offset(at), scalar);
  }
  void set_integer(int64_t at, int64_t value) {
    store_element(type_, bytes_.data(), offset(at), {DType::I64, value, 0});
  }
  TestTensor& fill(double value) {
    for (int64_t at = 0; at < size(); ++at) set(at, value);
    return *this;
  }
  TestTensor& random(uint32_t seed, double low = -1, double high = 1) {
    std::mt19937 engine(seed);
    for (int64_t at = 0; at < size(); ++at) set(at, low + (high - low) * (engine() / 4294967296.0));
    return *this;
  }
  TestTensor& list(const std::vector<double>& values) {
    for (size_t at = 0; at < values.size(); ++at) set(static_cast<int64_t>(at), values[at]);
    return *this;
  }
  HostTensor host() const {
    // 4-bit tensors begin at a whole byte.
    auto* data = const_cast<unsigned char*>(bytes_.data()) + storage_bytes(type_, first_);
    return {data, type_, shape_, strides_};
  }
  DType type() const { return type_; }
  operator Argument() const { return {host(), {}}; }

 private:
  DType type_;
  std::vector<int64_t> shape_, strides_;
  int64_t first_;
  std::vector<unsigned char> bytes_;
};

inline Argument f32_argument(double value) {
  return {{}, {value, 0}};
}
inline Argument integer_argument(int64_t value) {
  return {{}, {0, value}};
}

inline Kernel concrete_kernel(std::string_view text, const Bindings& bindings = {}, std::string_view name = {}) {
  ParseResult parsed = parse(text);
  for (const Diagnostic& diagnostic : parsed.diagnostics) FAIL(format(diagnostic, "test", text));
  const Kernel* kernel = name.empty() ? &parsed.module.kernels.at(0) : parsed.module.find(name);
  REQUIRE(kernel != nullptr);
  auto concrete = instantiate(*kernel, bindings);
  REQUIRE_MESSAGE(concrete.ok(), concrete.status().message());
  return *std::move(concrete);
}

inline std::vector<std::vector<Expected>> interpreted(const Kernel& kernel, const std::vector<Argument>& args) {
  auto result = interpret(kernel, args);
  REQUIRE_MESSAGE(result.ok(), result.status().message());
  return std::move(result->outputs);
}

// Expectations of the last written parameter.
inline std::vector<Expected> run_kernel(std::string_view text, const std::vector<Argument>& args,
                                        const Bindings& bindings = {}) {
  auto outputs = interpreted(concrete_kernel(text, bindings), args);
  for (size_t i = outputs.size(); i-- > 0;)
    if (!outputs[i].empty()) return outputs[i];
  return {};
}

}  // namespace kachel::ir
