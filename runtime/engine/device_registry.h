// The devices of an engine: CUDA devices first, then the CPU. Opened when they are first needed, closed with the
// engine.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/device.h"
#include "runtime/engine/bind/arguments.h"

namespace kachel::runtime {

// Thread-safe.
class DeviceRegistry {
 public:
  using Open = std::function<Result<std::unique_ptr<Device>>(DeviceRef)>;

  explicit DeviceRegistry(const DeviceOptions& options);
  // With devices of the caller's own, for tests.
  DeviceRegistry(std::vector<DeviceRef> list, Open open);

  const std::vector<DeviceRef>& list() const { return list_; }
  // kNoDevice for one that is not there, with what there is; a failure to open it is not remembered.
  Result<Device*> get(DeviceRef device) {
    if (Device* found = find(device)) return found;
    return open_slot(device);
  }
  // Null unless it is open. No lock.
  Device* find(DeviceRef device) const {
    for (const Slot& slot : slots_)
      if (slot.ref == device) return slot.device.load(std::memory_order_acquire);
    return nullptr;
  }
  // Every device that is open.
  std::vector<Device*> opened() const;

 private:
  struct Slot {
    DeviceRef ref;
    std::atomic<Device*> device{nullptr};
  };
  Result<Device*> open_slot(DeviceRef device);

  std::vector<DeviceRef> list_;
  Open open_;
  std::vector<Slot> slots_;
  std::mutex mutex_;  // guards opening
  std::vector<std::unique_ptr<Device>> owned_;
};

}  // namespace kachel::runtime
