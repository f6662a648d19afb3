#include "runtime/engine/device_registry.h"

#include <fmt/format.h>

#include "runtime/engine/target_device.h"

namespace kachel::runtime {
namespace {

std::vector<DeviceRef> system_devices(const DeviceOptions& options) {
  std::vector<DeviceRef> list;
  for (int32_t id = 0, count = options.target.empty() ? cuda_device_count() : 1; id < count; ++id)
    list.push_back({static_cast<int32_t>(DeviceKind::kCuda), id});
  list.push_back({static_cast<int32_t>(DeviceKind::kCpu), 0});
  return list;
}

}  // namespace

DeviceRegistry::DeviceRegistry(const DeviceOptions& options)
    : DeviceRegistry(system_devices(options), [options](DeviceRef device) -> Result<std::unique_ptr<Device>> {
        if (device.type == static_cast<int32_t>(DeviceKind::kCpu)) return open_cpu_device(options);
        if (!options.target.empty()) return open_target_device(options.target, options);
        return open_cuda_device(device.id, options);
      }) {}

DeviceRegistry::DeviceRegistry(std::vector<DeviceRef> list, Open open)
    : list_(std::move(list)), open_(std::move(open)), slots_(list_.size()) {
  for (size_t i = 0; i < list_.size(); ++i) slots_[i].ref = list_[i];
}

Result<Device*> DeviceRegistry::open_slot(DeviceRef wanted) {
  for (Slot& slot : slots_) {
    if (!(slot.ref == wanted)) continue;
    std::lock_guard lock(mutex_);
    if (Device* found = slot.device.load(std::memory_order_acquire)) return found;
    KACHEL_ASSIGN(std::unique_ptr<Device> opened, open_(wanted));
    owned_.push_back(std::move(opened));
    slot.device.store(owned_.back().get(), std::memory_order_release);
    return owned_.back().get();
  }
  std::string known;
  for (const DeviceRef& device : list_)
    known += fmt::format("{}{} {}", known.empty() ? "" : ", ",
                         device.type == 1   ? "CPU"
                         : device.type == 2 ? "CUDA"
                                            : "type",
                         device.type <= 2 ? device.id : device.type);
  return Status(
      Code::kNoDevice,
      fmt::format("there is no device of type {} with id {}; there is {}. Put the tensors on one of these, or "
                  "install the driver",
                  wanted.type, wanted.id, known.empty() ? "none" : known));
}

std::vector<Device*> DeviceRegistry::opened() const {
  std::vector<Device*> result;
  for (const Slot& slot : slots_)
    if (Device* device = slot.device.load(std::memory_order_acquire)) result.push_back(device);
  return result;
}

}  // namespace kachel::runtime
