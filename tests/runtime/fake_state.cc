#include "tests/runtime/fake_state.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace kachel::runtime {
namespace {

constexpr size_t kGuardBytes = 256;  // before and after each allocation; also keeps the alignment
constexpr unsigned char kGuard = 0xa5, kFresh = 0xcd;

bool all_guard(const char* bytes) {
  return std::all_of(bytes, bytes + kGuardBytes, [](char c) { return static_cast<unsigned char>(c) == kGuard; });
}

}  // namespace

void FakeState::fail(FakeCall call, int64_t nth, Status status, int64_t times) {
  std::lock_guard lock(mutex_);
  int64_t first = counts_[static_cast<size_t>(call)] + nth;
  failures_[call] = Failure{first, first + times - 1, std::move(status)};
}

void FakeState::lose() {
  std::lock_guard lock(mutex_);
  lost_ = true;
}

int64_t FakeState::count(FakeCall call) const {
  std::lock_guard lock(mutex_);
  return counts_[static_cast<size_t>(call)];
}

void FakeState::advance_ns(int64_t ns) {
  std::lock_guard lock(mutex_);
  now_ns_ += ns;
}

int64_t FakeState::now_ns() const {
  std::lock_guard lock(mutex_);
  return now_ns_;
}

void FakeState::set_capturing(void* stream, bool capturing) {
  std::lock_guard lock(mutex_);
  if (capturing)
    capturing_.insert(stream);
  else
    capturing_.erase(stream);
}

int64_t FakeState::capture_violations() const {
  std::lock_guard lock(mutex_);
  return capture_violations_;
}

void FakeState::set_kernel(const std::string& entry, FakeKernel kernel) {
  std::lock_guard lock(mutex_);
  kernels_[entry] = std::move(kernel);
}

void FakeState::set_default_kernel(FakeKernel kernel) {
  std::lock_guard lock(mutex_);
  default_kernel_ = std::move(kernel);
}

void FakeState::set_cost(FakeCost cost) {
  std::lock_guard lock(mutex_);
  cost_ = std::move(cost);
}

void FakeState::reject_texts_with(const std::string& needle) {
  std::lock_guard lock(mutex_);
  rejected_.push_back(needle);
}

void FakeState::report_usage(const std::string& needle, ResourceUsage usage) {
  std::lock_guard lock(mutex_);
  usages_.emplace_back(needle, usage);
}

void FakeState::report_loss(const std::string& needle, const std::string& line) {
  std::lock_guard lock(mutex_);
  losses_.emplace_back(needle, line);
}

int64_t FakeState::live_modules() const {
  std::lock_guard lock(mutex_);
  return live_modules_;
}

int64_t FakeState::live_allocations() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(allocations_.size());
}

int64_t FakeState::live_bytes() const {
  std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (const auto& [pointer, size] : allocations_) bytes += static_cast<int64_t>(size);
  return bytes;
}

bool FakeState::guards_intact() const {
  std::lock_guard lock(mutex_);
  return guards_intact_ && std::all_of(allocations_.begin(), allocations_.end(), [](const auto& allocation) {
           const char* data = static_cast<const char*>(allocation.first);
           return all_guard(data - kGuardBytes) && all_guard(data + allocation.second);
         });
}

Status FakeState::enter(FakeCall call) {
  std::lock_guard lock(mutex_);
  int64_t nth = ++counts_[static_cast<size_t>(call)];
  if (lost_) return {Code::kDeviceLost, "the fake device is lost"};
  auto failure = failures_.find(call);
  if (failure != failures_.end() && nth >= failure->second.first && nth <= failure->second.last)
    return failure->second.status;
  return {};
}

Status FakeState::enter_on_stream(FakeCall call, void* stream) {
  {
    std::lock_guard lock(mutex_);
    if (capturing_.count(stream)) {
      ++counts_[static_cast<size_t>(call)];
      ++capture_violations_;
      return {Code::kBusy, "the fake stream is being captured"};
    }
  }
  return enter(call);
}

Result<void*> FakeState::allocate(size_t bytes) {
  size_t rounded = (bytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes;
  auto* block = static_cast<char*>(std::aligned_alloc(kGuardBytes, rounded + 2 * kGuardBytes));
  if (!block) return Status(Code::kNoMemory, "no memory");
  // Zeros would hide a read of what was never written.
  std::memset(block, kFresh, rounded + 2 * kGuardBytes);
  std::memset(block, kGuard, kGuardBytes);
  std::memset(block + kGuardBytes + bytes, kGuard, kGuardBytes);
  void* data = block + kGuardBytes;
  std::lock_guard lock(mutex_);
  allocations_[data] = bytes;
  return data;
}

void FakeState::free(void* pointer) {
  if (!pointer) return;
  auto* data = static_cast<char*>(pointer);
  std::lock_guard lock(mutex_);
  auto found = allocations_.find(pointer);
  if (found == allocations_.end()) {
    guards_intact_ = false;  // freed twice, or never allocated
    return;
  }
  if (!all_guard(data - kGuardBytes) || !all_guard(data + found->second)) guards_intact_ = false;
  allocations_.erase(found);
  std::free(data - kGuardBytes);
}

void FakeState::run(const FakeLaunch& launch) {
  FakeKernel kernel;
  FakeCost cost;
  {
    std::lock_guard lock(mutex_);
    auto found = kernels_.find(launch.entry);
    kernel = found != kernels_.end() ? found->second : default_kernel_;
    cost = cost_;
  }
  if (kernel) kernel(launch);
  if (cost) advance_ns(cost(launch));
}

void FakeState::free_all() {
  std::lock_guard lock(mutex_);
  for (const auto& [pointer, size] : allocations_) std::free(static_cast<char*>(pointer) - kGuardBytes);
  allocations_.clear();
}

}  // namespace kachel::runtime
