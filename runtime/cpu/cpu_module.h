// Stored or fresh CPU kernels, loaded and launched on a thread pool.
#pragma once
#include <memory>
#include <string>

#include "runtime/cpu/object_loader.h"
#include "runtime/cpu/thread_pool.h"
#include "runtime/device.h"

namespace kachel::runtime {

class CpuModule : public DeviceModule {
 public:
  // The most that a launch may ask for per worker.
  static constexpr int64_t kMaxArenaBytes = int64_t{64} << 20;

  // Keeps the pool alive.
  CpuModule(std::unique_ptr<LoadedObject> object, std::shared_ptr<ThreadPool> pool)
      : object_(std::move(object)), pool_(std::move(pool)) {}

  Result<std::unique_ptr<DeviceFunction>> function(const std::string& entry, uint32_t shared_bytes) override;

 private:
  std::unique_ptr<LoadedObject> object_;
  std::shared_ptr<ThreadPool> pool_;
};

}  // namespace kachel::runtime
