// What a test sees and steers of a fake device: its clock, counters, kernels, memory and failures. Thread-safe.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/device.h"

namespace kachel::runtime {

// What a host function sees of its launch. Views are valid during the call.
struct FakeLaunch {
  std::string_view entry;
  std::string_view text;  // that the binary was compiled from
  LaunchDims dims;
  const void* params = nullptr;
  size_t params_bytes = 0;
  void* stream = nullptr;
};
using FakeKernel = std::function<void(const FakeLaunch&)>;
// The nanoseconds that the launch takes on the fake clock.
using FakeCost = std::function<int64_t(const FakeLaunch&)>;

enum class FakeCall {
  kCompile,
  kLoad,
  kFunction,
  kLaunch,
  kAllocate,
  kFree,
  kCopy,
  kFill,
  kCreateStream,
  kDestroyStream,
  kSynchronize,
  kCreateTimer,
  kFlush,
  kCount,
};

// Shared by a device and its modules, functions and timers, which may outlive it.
class FakeState {
 public:
  // Makes calls `nth` to `nth + times - 1` of a kind from now on fail, 1 being the next. Replaces an earlier request.
  void fail(FakeCall call, int64_t nth, Status status, int64_t times = 1);
  // From now on everything but free and the destructors answers kDeviceLost.
  void lose();
  // Every successful or failed attempt counts.
  int64_t count(FakeCall call) const;

  void advance_ns(int64_t ns);
  int64_t now_ns() const;

  // A stream under capture: calls that would allocate, synchronise or copy on it fail with kBusy and are counted.
  void set_capturing(void* stream, bool capturing);
  int64_t capture_violations() const;

  void set_kernel(const std::string& entry, FakeKernel kernel);
  // For entries without a kernel of their own. Without it such a launch does nothing.
  void set_default_kernel(FakeKernel kernel);
  void set_cost(FakeCost cost);
  // Texts that contain `needle` do not compile.
  void reject_texts_with(const std::string& needle);
  // What the compiler reports for texts that contain `needle`.
  void report_usage(const std::string& needle, ResourceUsage usage);
  void report_loss(const std::string& needle, const std::string& line);

  int64_t live_modules() const;
  int64_t live_allocations() const;
  int64_t live_bytes() const;
  // True while no kernel has written beside an allocation, freed ones included.
  bool guards_intact() const;

 private:
  friend class FakeDevice;
  friend class FakeCompiler;
  friend class FakeModule;
  friend class FakeFunction;
  friend class FakeTimer;

  struct Failure {
    int64_t first = 0, last = -1;  // in counts
    Status status;
  };

  // Counts the call and says whether it is to fail.
  Status enter(FakeCall call);
  // The same for a call on a stream that capture forbids.
  Status enter_on_stream(FakeCall call, void* stream);
  Result<void*> allocate(size_t bytes);
  void free(void* pointer);
  void free_all();
  void run(const FakeLaunch& launch);

  mutable std::mutex mutex_;
  std::array<int64_t, static_cast<size_t>(FakeCall::kCount)> counts_{};
  std::map<FakeCall, Failure> failures_;
  bool lost_ = false;
  int64_t now_ns_ = 0;
  std::set<void*> capturing_;
  int64_t capture_violations_ = 0;
  std::map<std::string, FakeKernel, std::less<>> kernels_;
  FakeKernel default_kernel_;
  FakeCost cost_;
  std::vector<std::string> rejected_;
  std::vector<std::pair<std::string, ResourceUsage>> usages_;
  std::vector<std::pair<std::string, std::string>> losses_;
  int64_t live_modules_ = 0;
  std::map<void*, size_t> allocations_;
  bool guards_intact_ = true;
  uintptr_t next_stream_ = 0x1000;
};

}  // namespace kachel::runtime
