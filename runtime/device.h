// The device boundary: what the engine needs of a machine that runs kernels. CUDA, the CPU and the fake device of the
// tests implement it, and tests/runtime/device_conformance runs one suite on each.
//
// Threads: every method may be called from any thread at once. Streams are the caller's native handles (CUstream on
// CUDA; ignored on the CPU, where every call is synchronous). No method depends on thread-local state; on CUDA the
// primary context is retained per device and made current only where the driver demands it.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "support/status.h"

namespace kachel::runtime {

enum class DeviceKind : int32_t { kCpu = 1, kCuda = 2, kFake = 64 };  // the values of DLDeviceType; kFake is ours

struct DeviceProperties {
  DeviceKind kind = DeviceKind::kCpu;
  int32_t id = 0;
  std::string name;          // for people: "NVIDIA H200", "AMD EPYC 9B45"
  std::string architecture;  // everything a binary depends on: "sm_90a", "x86-64/znver4/+avx2,+avx512f,..."
  std::string model;         // what tuning results may be shared across: the name, and for a CPU its thread count
  std::string driver;        // driver version, part of tuning keys; "" on the CPU
  int32_t compute_major = 0, compute_minor = 0;  // CUDA only
  int32_t instructions = 0;  // CUDA: lowering uses those of this architecture, 10 * major + minor, at most the device's
  int32_t multiprocessors = 1;           // CPU: worker threads
  int32_t warp_size = 32;                // CPU: 1
  bool overlapping_launches = false;     // LaunchDims::overlaps may be set, and is wanted
  bool tensor_maps = false;              // Device::encode_map() works
  bool streaming_stores = true;          // CPU: lowering::Target::streaming_stores
  bool bounded_waits = false;            // CUDA: lowering::Target::bounded_waits
  int32_t max_threads_per_block = 1024;  // CPU: 1
  int64_t shared_bytes_per_block = 0;    // opt-in maximum; CPU: the per-worker arena limit
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
};

// What a compiler reports of one kernel. -1 where the compiler does not say.
struct ResourceUsage {
  int32_t registers = -1;
  int64_t spill_bytes = -1;
  int64_t shared_bytes = -1;
};

struct CompileRequest {
  std::string_view text;      // CUDA C++ or LLVM IR, self-contained
  std::string_view entry;     // the kernel's symbol
  std::string architecture;   // as in DeviceProperties
  int64_t time_limit_ns = 0;  // 0: none
};

struct CompileResult {
  std::string binary;  // a cubin, or a relocatable ELF object; what DeviceModule loads and the store keeps
  std::string log;
  ResourceUsage usage;
  std::vector<std::string> losses;  // what the compiler says costs the kernel much of its speed, a line each
  int64_t compile_ns = 0;
};

// Needs no device: a cubin for any architecture may be made on any machine that has the compiler. Opened on first use;
// absence is kNoDevice with a mend in the message.
class Compiler {
 public:
  virtual ~Compiler() = default;
  virtual Result<CompileResult> compile(const CompileRequest& request) = 0;
  // Name and version for records ("nvrtc 13.0"). Does not open the compiler: "" while it has not been opened.
  virtual std::string version() const = 0;
  virtual bool opened() const = 0;
};

// A tensor for the copy engine: boxes of `box` elements an axis, outermost axis first, whose rows are `swizzle` bytes
// with their 16-byte chunks exchanged in shared memory.
struct TensorMapRequest {
  const void* data = nullptr;  // 16-byte aligned
  int32_t element_bits = 8;    // 4, 8, 16, 32 or 64; of 4-bit elements a box counts bytes, pairs along the last axis
  int32_t rank = 0;            // 2 to 5
  const int64_t* extents = nullptr;
  const int64_t* strides = nullptr;  // in elements: the last is 1, the others whole multiples of 16 bytes
  const int32_t* box = nullptr;
  int32_t swizzle = 0;  // 32, 64 or 128
  // What elements are where boxes are added to them; else nobody asks.
  enum class Numbers : uint8_t { kOther, kF16, kBF16, kF32 } numbers = Numbers::kOther;
};
inline constexpr size_t kTensorMapWords = 16;  // of 8 bytes, at a multiple of 128 bytes

struct LaunchDims {
  uint32_t blocks = 0;        // one-dimensional; the kernel itself walks its tiles with a grid-stride loop
  uint32_t threads = 1;       // per block; 1 on the CPU
  uint32_t shared_bytes = 0;  // dynamic shared memory a block; on the CPU the arena handed to each worker
  bool overlaps = false;      // may begin before what precedes it on its stream has ended: the kernel itself waits
};

// A function of a loaded module. Valid as long as its module.
class DeviceFunction {
 public:
  virtual ~DeviceFunction() = default;
  // params: one struct passed by value, a multiple of 8 bytes. CUDA: `__global__ void f(const __grid_constant__ P p)`.
  // CPU: `void f(const void* params, int64_t block_begin, int64_t block_end, int64_t blocks, void* arena)`, called by
  // each worker for its share of the blocks. Enqueues and returns on CUDA; returns when done on the CPU. No locks and
  // no allocation on CUDA. blocks == 0 launches nothing and is OK.
  virtual Status launch(const LaunchDims& dims, const void* params, size_t params_bytes, void* stream) const = 0;
  // Blocks that one multiprocessor holds at once; CPU: 1.
  virtual Result<int32_t> occupancy(uint32_t threads, uint32_t shared_bytes) const = 0;
  // Clusters of `blocks` that the device runs at once: fewer than its multiprocessors would hold, since a cluster stays
  // within a part of it. kUnsupported where there are none.
  virtual Result<int32_t> resident_clusters(uint32_t threads, uint32_t shared_bytes, uint32_t blocks) const;
  virtual ResourceUsage usage() const = 0;
};

// A loaded binary. Released only when nothing launched from it can still run; the engine keeps modules until it ends.
class DeviceModule {
 public:
  virtual ~DeviceModule() = default;
  // Raises the kernel's dynamic shared memory limit to `shared_bytes` where the device needs to be told.
  virtual Result<std::unique_ptr<DeviceFunction>> function(const std::string& entry, uint32_t shared_bytes) = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceProperties& properties() const = 0;
  virtual Compiler& compiler() = 0;

  // Copies `binary`; a malformed one is an error, never a crash.
  virtual Result<std::unique_ptr<DeviceModule>> load(std::string_view binary) = 0;

  // At least 256-byte aligned. allocate(0) yields a distinct non-null pointer.
  virtual Result<void*> allocate(size_t bytes) = 0;
  virtual void free(void* pointer) = 0;
  // Stream-ordered scratch; under capture the engine does not call these.
  virtual Result<void*> allocate_async(size_t bytes, void* stream) = 0;
  virtual void free_async(void* pointer, void* stream) = 0;
  // Any direction between host and this device, stream-ordered; host memory must live until the stream has passed.
  virtual Status copy(void* to, const void* from, size_t bytes, void* stream) = 0;
  virtual Status fill(void* to, uint8_t byte, size_t bytes, void* stream) = 0;

  virtual Result<void*> create_stream() = 0;
  virtual void destroy_stream(void* stream) = 0;
  virtual Status synchronize(void* stream) = 0;
  virtual Result<bool> is_capturing(void* stream) = 0;

  // Device time between two marks on one stream.
  class Timer {
   public:
    virtual ~Timer() = default;
    virtual Status start(void* stream) = 0;
    virtual Status stop(void* stream) = 0;
    virtual Result<double> elapsed_ns() = 0;  // waits for the stop mark
  };
  virtual Result<std::unique_ptr<Timer>> create_timer() = 0;
  // Evicts the caches by writing a buffer larger than the last level, so that the next kernel starts cold.
  virtual Status flush_cache(void* stream) = 0;

  // What a kernel takes as a tensor map (lowering::TensorMap), and the same map for a tensor elsewhere. Any thread, no
  // locks. kUnsupported where there is no copy engine.
  virtual Status encode_map(const TensorMapRequest& request, uint64_t* words) const;
  virtual Status move_map(uint64_t* words, const void* data) const;

  // For RelaxedCapture: puts the calling thread into relaxed capture mode and says what to give back on leaving.
  virtual int enter_relaxed_capture() { return 0; }
  virtual void leave_relaxed_capture([[maybe_unused]] int previous) {}
};

// Threads of ours that touch a CUDA device construct one: it switches the thread to relaxed capture mode, so that a
// capture in another thread survives whatever the engine does. No effect elsewhere. Nests; leave on the same thread.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(Device& device);
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  Device& device_;
  int previous_ = 0;
};

// Where things are looked for. Empty means the documented default search.
struct DeviceOptions {
  std::string nvrtc_path;         // libnvrtc or its folder; env KACHEL_NVRTC overrides
  std::string cpu_compiler_path;  // libkachel_llvm.so or its folder; env KACHEL_LLVM overrides
  int32_t cpu_threads = 0;        // 0: all
  bool launches_apart = false;    // no launch overlaps; so it is with env KACHEL_LAUNCHES_APART=1, too
  std::string target;             // an engine's only CUDA device is one of this architecture that need not be there
};

Result<std::unique_ptr<Device>> open_cpu_device(const DeviceOptions& options);
// kNoDevice with a mend where there is no driver or no such GPU.
Result<std::unique_ptr<Device>> open_cuda_device(int32_t id, const DeviceOptions& options);
int32_t cuda_device_count();  // 0 without a driver
// Compilers without a device, for ahead-of-time use and tests.
std::unique_ptr<Compiler> make_cuda_compiler(const DeviceOptions& options);
std::unique_ptr<Compiler> make_cpu_compiler(const DeviceOptions& options);

}  // namespace kachel::runtime
