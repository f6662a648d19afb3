#include "runtime/engine/workspace.h"

#include <fmt/format.h>

#include <utility>

namespace kachel::runtime {
namespace {

constexpr size_t kAlign = 256;

DeviceRef ref_of(const Device& device) {
  return {static_cast<int32_t>(device.properties().kind), device.properties().id};
}

}  // namespace

Result<Workspace> Workspace::allocate(Device& device, const ScratchCallbacks& callbacks, int64_t bytes, void* stream) {
  Workspace made;
  made.device_ = &device;
  made.stream_ = stream;
  if (!callbacks.alloc) {
    KACHEL_ASSIGN(made.pointer_, device.allocate_async(static_cast<size_t>(bytes), stream));
    return made;
  }
  made.callbacks_ = &callbacks;
  made.pointer_ = callbacks.alloc(ref_of(device), static_cast<size_t>(bytes), kAlign, stream);
  if (!made.pointer_)
    return Status(Code::kNoMemory,
                  fmt::format("the host's scratch allocator has no {} bytes; let it give more", bytes));
  if (reinterpret_cast<uintptr_t>(made.pointer_) % kAlign != 0)
    return invalid(fmt::format("the host's scratch allocator returned {}, which is not {}-byte aligned; honour `align`",
                               made.pointer_, kAlign));
  return made;
}

Result<Workspace> Workspace::allocate_lasting(Device& device, const ScratchCallbacks& callbacks, int64_t bytes) {
  if (callbacks.alloc) return allocate(device, callbacks, bytes, nullptr);
  Workspace made;
  made.device_ = &device;
  made.lasting_ = true;
  KACHEL_ASSIGN(made.pointer_, device.allocate(static_cast<size_t>(bytes)));
  return made;
}

Workspace& Workspace::operator=(Workspace&& other) noexcept {
  if (this == &other) return *this;
  reset();
  device_ = other.device_;
  callbacks_ = other.callbacks_;
  stream_ = other.stream_;
  lasting_ = other.lasting_;
  pointer_ = std::exchange(other.pointer_, nullptr);
  return *this;
}

void Workspace::reset() {
  void* pointer = std::exchange(pointer_, nullptr);
  if (!pointer) return;
  if (lasting_)
    device_->free(pointer);
  else if (!callbacks_)
    device_->free_async(pointer, stream_);
  else if (callbacks_->free)
    callbacks_->free(ref_of(*device_), pointer, stream_);
}

}  // namespace kachel::runtime
