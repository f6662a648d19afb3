// The C API with owners and exceptions: what a C++ host writes once.
#pragma once
#include <kachel.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace serve {

inline void must(kachel_status status, kachel_error* error) {
  if (status == KACHEL_OK) return;
  std::string message = error ? kachel_error_message(error) : kachel_status_name(status);
  if (error && *kachel_error_log(error)) message += std::string("\n") + kachel_error_log(error);
  kachel_error_release(error);
  throw std::runtime_error(message);
}

// Calls fn(&error) and throws what it reports.
template <class Fn>
void must(const Fn& fn) {
  kachel_error* error = nullptr;
  const kachel_status status = fn(&error);
  must(status, error);
}

template <class T>
T sized() {
  T made;
  std::memset(&made, 0, sizeof made);
  made.struct_size = sizeof made;
  return made;
}

struct Release {
  void operator()(kachel_engine* handle) const { kachel_engine_release(handle); }
  void operator()(kachel_module* handle) const { kachel_module_release(handle); }
  void operator()(kachel_kernel* handle) const { kachel_kernel_release(handle); }
  void operator()(kachel_call* handle) const { kachel_call_release(handle); }
};
template <class T>
using Handle = std::unique_ptr<T, Release>;

// A contiguous tensor in the memory of a device.
class Tensor {
 public:
  Tensor() = default;
  Tensor(kachel_engine* engine, kachel_device device, const char* type, std::vector<int64_t> extents)
      : engine_(engine), shape_(std::move(extents)) {
    must(kachel_dtype_parse(type, &view_.dtype), nullptr);
    int64_t bytes = view_.dtype.bits / 8;
    for (int64_t extent : shape_) bytes *= extent;
    view_.device = device;
    view_.ndim = static_cast<int32_t>(shape_.size());
    view_.shape = shape_.data();
    must([&](kachel_error** error) {
      return kachel_memory_alloc(engine, device, static_cast<size_t>(bytes), &view_.data, error);
    });
  }
  Tensor(Tensor&& other) noexcept { *this = std::move(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(engine_, other.engine_), std::swap(shape_, other.shape_), std::swap(view_, other.view_);
    return *this;
  }
  ~Tensor() {
    if (engine_) kachel_memory_free(engine_, view_.device, view_.data);
  }

  // The first `rows` of it.
  kachel_tensor first(int64_t* shape, int64_t rows) const {
    kachel_tensor part = view_;
    std::copy(shape_.begin(), shape_.end(), shape);
    shape[0] = rows;
    part.shape = shape;
    return part;
  }
  const kachel_tensor* view() const { return &view_; }
  void* data() const { return view_.data; }
  void upload(const void* from, size_t bytes, void* stream) {
    must([&](kachel_error** error) {
      return kachel_memory_copy(engine_, view_.device, view_.data, from, bytes, stream, error);
    });
  }
  void download(void* to, size_t bytes, void* stream) const {
    must([&](kachel_error** error) {
      return kachel_memory_copy(engine_, view_.device, to, view_.data, bytes, stream, error);
    });
  }

 private:
  kachel_engine* engine_ = nullptr;
  std::vector<int64_t> shape_;
  kachel_tensor view_{};
};

inline kachel_arg arg(const kachel_tensor* tensor) {
  kachel_arg made{};
  made.u.tensor = tensor;
  return made;
}
inline kachel_arg arg(int64_t value) {
  kachel_arg made{};
  made.kind = KACHEL_ARG_INT;
  made.u.i = value;
  return made;
}

}  // namespace serve
