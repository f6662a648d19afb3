#include "runtime/cpu/cpu_module.h"

#include <fmt/format.h>

#include <atomic>

namespace kachel::runtime {
namespace {

// The C signature of every CPU kernel; see DeviceFunction::launch.
using Kernel = void (*)(const void* params, int64_t block_begin, int64_t block_end, int64_t blocks, void* arena);

// Work that the caller alone finishes in this time is done by the time that a helper would have woken.
constexpr double kHandOverNs = 10'000;

Status check_arena(uint32_t shared_bytes) {
  if (shared_bytes <= CpuModule::kMaxArenaBytes) return {};
  return unsupported(
      fmt::format("a CPU kernel wants an arena of {} bytes; the limit is {}", shared_bytes, CpuModule::kMaxArenaBytes));
}

class CpuFunction : public DeviceFunction {
 public:
  CpuFunction(Kernel kernel, ThreadPool& pool) : kernel_(kernel), pool_(pool) {}

  Status launch(const LaunchDims& dims, const void* params, size_t params_bytes, void* stream) const override;
  Result<int32_t> occupancy(uint32_t, uint32_t shared_bytes) const override {
    KACHEL_TRY(check_arena(shared_bytes));
    return 1;
  }
  ResourceUsage usage() const override { return {}; }

 private:
  const Kernel kernel_;
  ThreadPool& pool_;
  // Of the last launch; negative before the first. Only decides who works, so that a stale value costs time, no more.
  mutable std::atomic<double> ns_per_block_{-1};
};

struct Launch {
  Kernel kernel;
  const void* params;
  int64_t blocks;
};

Status CpuFunction::launch(const LaunchDims& dims, const void* params, size_t params_bytes, void*) const {
  if (dims.blocks == 0) return {};
  if (dims.threads != 1) return invalid(fmt::format("a CPU block has one thread, not {}", dims.threads));
  if (params_bytes % 8 != 0) return invalid("the size of the parameters is not a multiple of 8");
  KACHEL_TRY(check_arena(dims.shared_bytes));

  Launch launch{kernel_, params, dims.blocks};
  auto work = [](void* context, int64_t begin, int64_t end, void* arena) {
    const auto& launch = *static_cast<const Launch*>(context);
    launch.kernel(launch.params, begin, end, launch.blocks, arena);
  };
  const double ns_per_block = ns_per_block_.load(std::memory_order_relaxed);
  const bool brief = ns_per_block >= 0 && ns_per_block * dims.blocks < kHandOverNs;
  CallerShare share;
  KACHEL_TRY(brief ? pool_.run_inline(dims.blocks, dims.shared_bytes, work, &launch, &share)
                   : pool_.run(dims.blocks, dims.shared_bytes, work, &launch, &share));
  if (share.blocks > 0)
    ns_per_block_.store(static_cast<double>(share.ns) / static_cast<double>(share.blocks), std::memory_order_relaxed);
  return {};
}

}  // namespace

Result<std::unique_ptr<DeviceFunction>> CpuModule::function(const std::string& entry, uint32_t shared_bytes) {
  KACHEL_TRY(check_arena(shared_bytes));
  const void* address = object_->find(entry);
  if (!address) return invalid(fmt::format("the CPU object has no kernel '{}'", entry));
  return std::unique_ptr<DeviceFunction>(
      std::make_unique<CpuFunction>(reinterpret_cast<Kernel>(const_cast<void*>(address)), *pool_));
}

}  // namespace kachel::runtime
