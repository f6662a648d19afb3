// A device without a machine: deterministic, single-clocked, and breakable on demand. The engine's tests run on it, and
// it passes the conformance suite, which shows that the boundary in runtime/device.h is one that a third device can
// meet.
//
// Its compiler keeps the text in the binary, its kernels are host functions registered by name, and time passes only
// when a launch or a test says so. Every call is counted and may be made to fail.
//
// Thread-safe. Kernels run on the launching thread, outside of any lock.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "runtime/device.h"
#include "tests/runtime/fake_state.h"

namespace kachel::runtime {

struct FakeOptions {
  std::string architecture = "fake_1";
  std::string model = "Fake 1";
  int32_t multiprocessors = 4;
  int64_t shared_bytes_per_block = 96 << 10;
  int64_t memory_bytes = int64_t{1} << 30;  // allocations beyond it fail
  bool overlapping_launches = false;
  int32_t compute_major = 0;                // 9: there are rates, so that the cost model has something to say
};

class FakeDevice : public Device {
 public:
  explicit FakeDevice(FakeOptions options = {});
  ~FakeDevice() override;

  FakeState& state() { return *state_; }

  const DeviceProperties& properties() const override { return properties_; }
  Compiler& compiler() override { return *compiler_; }
  Result<std::unique_ptr<DeviceModule>> load(std::string_view binary) override;
  Result<void*> allocate(size_t bytes) override;
  void free(void* pointer) override;
  Result<void*> allocate_async(size_t bytes, void* stream) override;
  void free_async(void* pointer, void* stream) override;
  Status copy(void* to, const void* from, size_t bytes, void* stream) override;
  Status fill(void* to, uint8_t byte, size_t bytes, void* stream) override;
  Result<void*> create_stream() override;
  void destroy_stream(void* stream) override;
  Status synchronize(void* stream) override;
  Result<bool> is_capturing(void* stream) override;
  Result<std::unique_ptr<Timer>> create_timer() override;
  Status flush_cache(void* stream) override;

 private:
  std::shared_ptr<FakeState> state_;
  DeviceProperties properties_;
  std::unique_ptr<Compiler> compiler_;
};

// The binary that the fake compiler makes of a text; for tests that put one into a store by hand.
std::string make_fake_binary(std::string_view text, std::string_view entry, std::string_view architecture);

}  // namespace kachel::runtime
