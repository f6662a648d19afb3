// What a thread sets up before it runs blocks of a CPU kernel.
#pragma once
#include <cstddef>
#include <cstdlib>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kachel::runtime {

// Kernels see round-to-nearest and subnormal numbers whatever the host has set, on every thread alike.
class DefaultFloatMode {
 public:
#if defined(__x86_64__)
  DefaultFloatMode() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~DefaultFloatMode() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#else
  DefaultFloatMode() {}
#endif
};

// Memory of a thread for the duration of a block: kept between launches, never shrunk.
class Arena {
 public:
  static constexpr size_t kAlignment = 64;

  Arena() = default;
  ~Arena() { std::free(data_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Contents are lost when it grows. False: no memory, and the arena is empty.
  bool reserve(size_t bytes) {
    if (bytes <= bytes_) return true;
    size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    std::free(data_);
    data_ = std::aligned_alloc(kAlignment, rounded);
    bytes_ = data_ ? rounded : 0;
    return data_ != nullptr;
  }
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace kachel::runtime
