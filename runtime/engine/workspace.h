// Device scratch: from the host's callbacks where it has given some, else the device's own, stream-ordered.
#pragma once
#include <functional>

#include "runtime/device.h"
#include "runtime/engine/bind/arguments.h"

namespace kachel::runtime {

struct ScratchCallbacks {
  std::function<void*(DeviceRef device, size_t size, size_t align, void* stream)> alloc;
  std::function<void(DeviceRef device, void* pointer, void* stream)> free;
};

// Owns one piece of scratch and gives it back, in the order of its stream, when it goes.
class Workspace {
 public:
  Workspace() = default;
  // kNoMemory where there is none. REQUIRES: `stream` is not being captured.
  static Result<Workspace> allocate(Device& device, const ScratchCallbacks& callbacks, int64_t bytes, void* stream);
  // For several streams and calls: not stream-ordered where it is the device's own. REQUIRES: whoever uses it has
  // finished before it goes.
  static Result<Workspace> allocate_lasting(Device& device, const ScratchCallbacks& callbacks, int64_t bytes);
  Workspace(Workspace&& other) noexcept { *this = std::move(other); }
  Workspace& operator=(Workspace&& other) noexcept;
  ~Workspace() { reset(); }

  void* get() const { return pointer_; }
  void reset();
  void forget() { pointer_ = nullptr; }  // gives nothing back

 private:
  Device* device_ = nullptr;
  const ScratchCallbacks* callbacks_ = nullptr;
  void* pointer_ = nullptr;
  void* stream_ = nullptr;
  bool lasting_ = false;
};

}  // namespace kachel::runtime
