// The CPU as a device: host memory, a thread pool, and calls that have finished when they return. Streams are names
// without a queue behind them.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

#include "runtime/cpu/cpu_features.h"
#include "runtime/cpu/cpu_info.h"
#include "runtime/cpu/cpu_module.h"
#include "runtime/device.h"

namespace kachel::runtime {
namespace {

constexpr size_t kMemoryAlignment = 256;
constexpr int64_t kFlushSliceBytes = int64_t{64} << 10;
constexpr int64_t kMinFlushBytes = int64_t{8} << 20, kMaxFlushBytes = int64_t{512} << 20;

class CpuTimer : public Device::Timer {
 public:
  Status start(void*) override {
    begin_ = end_ = Clock::now();
    return {};
  }
  Status stop(void*) override {
    end_ = Clock::now();
    return {};
  }
  Result<double> elapsed_ns() override {
    return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(end_ - begin_).count());
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_{}, end_{};
};

// An Intel core keeps a line that is stored past the caches in one of its few fill buffers until memory has taken it:
// 6.2 GB/s, where lines read for writing and written back later make 9.2 GB/s of a copy (measured, Cascade Lake at 2.5
// GHz). From some threads on it is memory that limits both, and reading the lines first costs half as much again.
bool streams_well(const CpuInfo& info, int32_t threads) {
  constexpr int32_t kManyThreads = 8;
  return info.vendor != "GenuineIntel" || threads >= kManyThreads;
}

DeviceProperties make_properties(const CpuInfo& info, std::string architecture, int32_t threads) {
  DeviceProperties properties;
  properties.kind = DeviceKind::kCpu;
  properties.name = info.name;
  properties.architecture = std::move(architecture);
  properties.model = fmt::format("{} x{}", info.name, threads);
  properties.multiprocessors = threads;
  properties.warp_size = 1;
  properties.max_threads_per_block = 1;
  properties.shared_bytes_per_block = CpuModule::kMaxArenaBytes;
  properties.streaming_stores = streams_well(info, threads);
  properties.l2_bytes = info.l2_bytes;
  properties.memory_bytes = info.memory_bytes;
  return properties;
}

class CpuDevice : public Device {
 public:
  CpuDevice(const DeviceOptions& options, const CpuInfo& info, std::string architecture, int32_t threads)
      : properties_(make_properties(info, std::move(architecture), threads)),
        compiler_(make_cpu_compiler(options)),
        pool_(std::make_shared<ThreadPool>(threads, threads <= info.threads)),
        // Half as much again as the last level: the replacement policy is not exactly least recently used.
        flush_bytes_(std::clamp(info.last_level_bytes * 3 / 2, kMinFlushBytes, kMaxFlushBytes)) {}

  const DeviceProperties& properties() const override { return properties_; }
  Compiler& compiler() override { return *compiler_; }

  Result<std::unique_ptr<DeviceModule>> load(std::string_view binary) override {
    KACHEL_ASSIGN(std::unique_ptr<LoadedObject> object, LoadedObject::load(binary));
    return std::unique_ptr<DeviceModule>(std::make_unique<CpuModule>(std::move(object), pool_));
  }

  Result<void*> allocate(size_t bytes) override;
  void free(void* pointer) override { std::free(pointer); }
  Result<void*> allocate_async(size_t bytes, void*) override { return allocate(bytes); }
  void free_async(void* pointer, void*) override { std::free(pointer); }
  Status copy(void* to, const void* from, size_t bytes, void*) override {
    if (bytes > 0) std::memmove(to, from, bytes);
    return {};
  }
  Status fill(void* to, uint8_t byte, size_t bytes, void*) override {
    if (bytes > 0) std::memset(to, byte, bytes);
    return {};
  }

  // A number that no other stream of this device has had. There is nothing behind it to release.
  Result<void*> create_stream() override { return reinterpret_cast<void*>(next_stream_.fetch_add(1)); }
  void destroy_stream(void*) override {}
  Status synchronize(void*) override { return {}; }
  Result<bool> is_capturing(void*) override { return false; }

  Result<std::unique_ptr<Timer>> create_timer() override {
    return std::unique_ptr<Timer>(std::make_unique<CpuTimer>());
  }
  Status flush_cache(void* stream) override;

 private:
  const DeviceProperties properties_;
  const std::unique_ptr<Compiler> compiler_;
  const std::shared_ptr<ThreadPool> pool_;
  std::atomic<uintptr_t> next_stream_{1};

  const int64_t flush_bytes_;
  std::mutex flush_mutex_;
  std::unique_ptr<char[]> flush_buffer_;
};

Result<void*> CpuDevice::allocate(size_t bytes) {
  const size_t rounded = (std::max<size_t>(bytes, 1) + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment;
  void* pointer = bytes <= SIZE_MAX - kMemoryAlignment ? std::aligned_alloc(kMemoryAlignment, rounded) : nullptr;
  if (!pointer) return Status(Code::kNoMemory, fmt::format("no memory for {} bytes", bytes));
  return pointer;
}

// All workers take part, since each has caches of its own. Writing every line, and a different value each time, leaves
// nothing that a core could keep or skip.
Status CpuDevice::flush_cache(void*) {
  std::lock_guard lock(flush_mutex_);
  if (!flush_buffer_) flush_buffer_.reset(new (std::nothrow) char[static_cast<size_t>(flush_bytes_)]());
  if (!flush_buffer_) return Status(Code::kNoMemory, fmt::format("no memory for {} bytes", flush_bytes_));
  auto write_slices = [](void* context, int64_t begin, int64_t end, void*) {
    constexpr int64_t kLine = 64;
    char* buffer = static_cast<char*>(context);
    for (int64_t at = begin * kFlushSliceBytes; at < end * kFlushSliceBytes; at += kLine) ++buffer[at];
  };
  return pool_->run(flush_bytes_ / kFlushSliceBytes, /*arena_bytes=*/0, write_slices, flush_buffer_.get());
}

}  // namespace

Result<std::unique_ptr<Device>> open_cpu_device(const DeviceOptions& options) {
  std::string architecture = host_cpu_architecture();
  if (architecture.empty()) return unsupported("the CPU device needs an x86-64 processor");
  if (options.cpu_threads < 0) return invalid("the number of CPU threads is negative; use 0 for all of them");
  CpuInfo info = read_cpu_info();
  int32_t threads = options.cpu_threads > 0 ? options.cpu_threads : info.threads;
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(options, info, std::move(architecture), threads));
}

}  // namespace kachel::runtime
