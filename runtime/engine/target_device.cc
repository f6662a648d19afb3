#include "runtime/engine/target_device.h"

#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <string_view>

#include "lowering/machine/machine.h"

namespace kachel::runtime {
namespace {

constexpr uintptr_t kFirstAddress = uintptr_t{1} << 32, kAddressUnit = 256;

class TargetDevice final : public Device {
 public:
  TargetDevice(int architecture, std::string name, const DeviceOptions& options)
      : compiler_(make_cuda_compiler(options)) {
    const lowering::Machine& machine = lowering::machine_of(architecture);
    properties_.kind = DeviceKind::kCuda;
    properties_.name = properties_.model = name + ", not there";
    properties_.architecture = std::move(name);
    properties_.compute_major = architecture / 10;
    properties_.compute_minor = architecture % 10;
    properties_.instructions = architecture;
    properties_.multiprocessors = machine.multiprocessors;
    properties_.tensor_maps = properties_.overlapping_launches = architecture >= 90;
    properties_.shared_bytes_per_block = machine.shared_per_block;
    properties_.l2_bytes = machine.l2_bytes;
  }

  const DeviceProperties& properties() const override { return properties_; }
  Compiler& compiler() override { return *compiler_; }
  Result<std::unique_ptr<DeviceModule>> load(std::string_view) override { return absent(); }

  Result<void*> allocate(size_t bytes) override {
    constexpr size_t kMost = size_t{1} << 44;
    if (bytes > kMost) return Status(Code::kNoMemory, fmt::format("{} bytes are more than any device has", bytes));
    const uintptr_t size = (bytes / kAddressUnit + 1) * kAddressUnit;
    return reinterpret_cast<void*>(next_.fetch_add(size, std::memory_order_relaxed));
  }
  void free(void*) override {}
  Result<void*> allocate_async(size_t bytes, void*) override { return allocate(bytes); }
  void free_async(void*, void*) override {}
  Status copy(void*, const void*, size_t, void*) override { return absent(); }
  Status fill(void*, uint8_t, size_t, void*) override { return absent(); }

  Result<void*> create_stream() override { return absent(); }
  void destroy_stream(void*) override {}
  Status synchronize(void*) override { return absent(); }
  Result<bool> is_capturing(void*) override { return false; }
  Result<std::unique_ptr<Timer>> create_timer() override { return absent(); }
  Status flush_cache(void*) override { return absent(); }

 private:
  Status absent() const {
    return unsupported(
        fmt::format("the engine was made to compile for {}, and nothing runs on it; make one without a "
                    "target where that device is",
                    properties_.architecture));
  }
  DeviceProperties properties_;
  std::unique_ptr<Compiler> compiler_;
  std::atomic<uintptr_t> next_{kFirstAddress};
};

}  // namespace

Result<std::unique_ptr<Device>> open_target_device(const std::string& architecture, const DeviceOptions& options) {
  int number = 0;
  std::string_view suffix;
  if (architecture.starts_with("sm_")) {
    const char* end = architecture.data() + architecture.size();
    const auto [rest, error] = std::from_chars(architecture.data() + 3, end, number);
    suffix = {rest, static_cast<size_t>(end - rest)};
    if (error != std::errc()) number = 0;
  }
  // From Hopper on, the instructions that matter exist only under the architecture-specific name.
  if (number < 10 || number > 999 || suffix != (number >= 90 ? "a" : ""))
    return invalid(
        fmt::format("\"{}\" is no target; write sm_80, sm_86, sm_89, sm_90a, sm_100a or sm_120a", architecture));
  if (number < 80) return unsupported(fmt::format("{} is too old; sm_80 is the oldest target", architecture));
  return std::unique_ptr<Device>(std::make_unique<TargetDevice>(number, architecture, options));
}

}  // namespace kachel::runtime
