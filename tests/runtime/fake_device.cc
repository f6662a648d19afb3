#include "tests/runtime/fake_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "support/bytes.h"

namespace kachel::runtime {
namespace {

constexpr uint64_t kMagic = 0x314b4146454b4146;

uint64_t checksum(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

struct FakeBinary {
  std::string text, entry, architecture;
};

Result<FakeBinary> read_binary(std::string_view bytes) {
  ByteReader reader(bytes);
  bool is_ours = reader.get<uint64_t>() == kMagic;
  auto sum = reader.get<uint64_t>();
  std::string_view body = reader.get_bytes();
  if (!is_ours || !reader.at_end() || checksum(body) != sum) return invalid("not a binary of the fake device");
  ByteReader fields(body);
  FakeBinary binary;
  binary.architecture = fields.get_bytes();
  binary.entry = fields.get_bytes();
  binary.text = fields.get_bytes();
  if (!fields.at_end()) return invalid("not a binary of the fake device");
  return binary;
}

}  // namespace

std::string make_fake_binary(std::string_view text, std::string_view entry, std::string_view architecture) {
  ByteWriter body;
  body.put_bytes(architecture);
  body.put_bytes(entry);
  body.put_bytes(text);
  ByteWriter binary;
  binary.put<uint64_t>(kMagic);
  binary.put<uint64_t>(checksum(body.bytes()));
  binary.put_bytes(body.bytes());
  return binary.take();
}

class FakeCompiler : public Compiler {
 public:
  explicit FakeCompiler(std::shared_ptr<FakeState> state) : state_(std::move(state)) {}

  Result<CompileResult> compile(const CompileRequest& request) override {
    opened_ = true;
    KACHEL_TRY(state_->enter(FakeCall::kCompile));
    CompileResult result;
    {
      std::lock_guard lock(state_->mutex_);
      for (const std::string& needle : state_->rejected_)
        if (request.text.find(needle) != std::string_view::npos)
          return Status(Code::kCompile, fmt::format("the fake compiler refuses '{}'", request.entry),
                        fmt::format("error: '{}' in the text", needle));
      for (const auto& [needle, usage] : state_->usages_)
        if (request.text.find(needle) != std::string_view::npos) result.usage = usage;
      for (const auto& [needle, line] : state_->losses_)
        if (request.text.find(needle) != std::string_view::npos) result.losses.push_back(line);
    }
    result.binary = make_fake_binary(request.text, request.entry, request.architecture);
    result.compile_ns = 1000;
    state_->advance_ns(result.compile_ns);
    return result;
  }
  std::string version() const override { return opened_ ? "fake 1" : ""; }
  bool opened() const override { return opened_; }

 private:
  std::shared_ptr<FakeState> state_;
  std::atomic<bool> opened_{false};
};

class FakeFunction : public DeviceFunction {
 public:
  FakeFunction(std::shared_ptr<FakeState> state, std::shared_ptr<const FakeBinary> binary, DeviceProperties properties,
               uint32_t shared_bytes)
      : state_(std::move(state)),
        binary_(std::move(binary)),
        properties_(std::move(properties)),
        shared_bytes_(shared_bytes) {}

  Status launch(const LaunchDims& dims, const void* params, size_t params_bytes, void* stream) const override {
    if (dims.blocks == 0) return {};
    KACHEL_TRY(state_->enter(FakeCall::kLaunch));
    if (dims.threads == 0 || dims.threads > static_cast<uint32_t>(properties_.max_threads_per_block))
      return Status(Code::kLaunch, "the number of threads is not between 1 and the limit");
    if (dims.shared_bytes > shared_bytes_)
      return Status(Code::kLaunch, "the launch wants more shared memory than the function was made for");
    state_->run({binary_->entry, binary_->text, dims, params, params_bytes, stream});
    return {};
  }
  Result<int32_t> occupancy(uint32_t, uint32_t shared_bytes) const override {
    if (shared_bytes == 0) return 8;
    return static_cast<int32_t>(std::min<int64_t>(8, properties_.shared_bytes_per_block / shared_bytes));
  }
  ResourceUsage usage() const override {
    std::lock_guard lock(state_->mutex_);
    for (const auto& [needle, usage] : state_->usages_)
      if (binary_->text.find(needle) != std::string::npos) return usage;
    return {};
  }

 private:
  std::shared_ptr<FakeState> state_;
  std::shared_ptr<const FakeBinary> binary_;
  DeviceProperties properties_;
  uint32_t shared_bytes_;
};

class FakeModule : public DeviceModule {
 public:
  FakeModule(std::shared_ptr<FakeState> state, FakeBinary binary, DeviceProperties properties)
      : state_(std::move(state)),
        binary_(std::make_shared<const FakeBinary>(std::move(binary))),
        properties_(std::move(properties)) {
    std::lock_guard lock(state_->mutex_);
    ++state_->live_modules_;
  }
  ~FakeModule() override {
    std::lock_guard lock(state_->mutex_);
    --state_->live_modules_;
  }

  Result<std::unique_ptr<DeviceFunction>> function(const std::string& entry, uint32_t shared_bytes) override {
    KACHEL_TRY(state_->enter(FakeCall::kFunction));
    if (entry != binary_->entry) return invalid(fmt::format("the binary has no kernel '{}'", entry));
    if (shared_bytes > properties_.shared_bytes_per_block)
      return unsupported(fmt::format("{} bytes of shared memory are more than a block has", shared_bytes));
    return std::unique_ptr<DeviceFunction>(std::make_unique<FakeFunction>(state_, binary_, properties_, shared_bytes));
  }

 private:
  std::shared_ptr<FakeState> state_;
  std::shared_ptr<const FakeBinary> binary_;
  DeviceProperties properties_;
};

class FakeTimer : public Device::Timer {
 public:
  explicit FakeTimer(std::shared_ptr<FakeState> state) : state_(std::move(state)) {}
  Status start(void*) override {
    begin_ns_ = end_ns_ = state_->now_ns();
    return {};
  }
  Status stop(void*) override {
    end_ns_ = state_->now_ns();
    return {};
  }
  Result<double> elapsed_ns() override { return static_cast<double>(end_ns_ - begin_ns_); }

 private:
  std::shared_ptr<FakeState> state_;
  int64_t begin_ns_ = 0, end_ns_ = 0;
};

FakeDevice::FakeDevice(FakeOptions options) : state_(std::make_shared<FakeState>()) {
  properties_.kind = DeviceKind::kFake;
  properties_.name = options.model;
  properties_.architecture = options.architecture;
  properties_.model = options.model;
  properties_.driver = "fake driver 1";
  properties_.multiprocessors = options.multiprocessors;
  properties_.overlapping_launches = options.overlapping_launches;
  properties_.compute_major = options.compute_major;
  properties_.shared_bytes_per_block = options.shared_bytes_per_block;
  properties_.l2_bytes = 1 << 20;
  properties_.memory_bytes = options.memory_bytes;
  compiler_ = std::make_unique<FakeCompiler>(state_);
}

FakeDevice::~FakeDevice() {
  state_->free_all();
}

Result<std::unique_ptr<DeviceModule>> FakeDevice::load(std::string_view bytes) {
  KACHEL_TRY(state_->enter(FakeCall::kLoad));
  KACHEL_ASSIGN(FakeBinary binary, read_binary(bytes));
  if (binary.architecture != properties_.architecture)
    return invalid(
        fmt::format("the binary is for {}, the device is {}", binary.architecture, properties_.architecture));
  return std::unique_ptr<DeviceModule>(std::make_unique<FakeModule>(state_, std::move(binary), properties_));
}

Result<void*> FakeDevice::allocate(size_t bytes) {
  KACHEL_TRY(state_->enter(FakeCall::kAllocate));
  if (bytes > static_cast<size_t>(std::max<int64_t>(0, properties_.memory_bytes - state_->live_bytes())))
    return Status(Code::kNoMemory, fmt::format("the fake device has no {} bytes left", bytes));
  return state_->allocate(bytes);
}

void FakeDevice::free(void* pointer) {
  (void)state_->enter(FakeCall::kFree);
  state_->free(pointer);
}

Result<void*> FakeDevice::allocate_async(size_t bytes, void* stream) {
  KACHEL_TRY(state_->enter_on_stream(FakeCall::kAllocate, stream));
  if (bytes > static_cast<size_t>(std::max<int64_t>(0, properties_.memory_bytes - state_->live_bytes())))
    return Status(Code::kNoMemory, fmt::format("the fake device has no {} bytes left", bytes));
  return state_->allocate(bytes);
}

void FakeDevice::free_async(void* pointer, void* stream) {
  (void)state_->enter_on_stream(FakeCall::kFree, stream);
  state_->free(pointer);
}

Status FakeDevice::copy(void* to, const void* from, size_t bytes, void* stream) {
  KACHEL_TRY(state_->enter_on_stream(FakeCall::kCopy, stream));
  if (bytes > 0) std::memmove(to, from, bytes);
  return {};
}

Status FakeDevice::fill(void* to, uint8_t byte, size_t bytes, void* stream) {
  KACHEL_TRY(state_->enter(FakeCall::kFill));
  (void)stream;  // a memset may be captured
  if (bytes > 0) std::memset(to, byte, bytes);
  return {};
}

Result<void*> FakeDevice::create_stream() {
  KACHEL_TRY(state_->enter(FakeCall::kCreateStream));
  std::lock_guard lock(state_->mutex_);
  return reinterpret_cast<void*>(state_->next_stream_++);
}

void FakeDevice::destroy_stream(void*) {
  (void)state_->enter(FakeCall::kDestroyStream);
}

Status FakeDevice::synchronize(void* stream) {
  return state_->enter_on_stream(FakeCall::kSynchronize, stream);
}

Result<bool> FakeDevice::is_capturing(void* stream) {
  std::lock_guard lock(state_->mutex_);
  if (state_->lost_) return Status(Code::kDeviceLost, "the fake device is lost");
  return state_->capturing_.count(stream) > 0;
}

Result<std::unique_ptr<Device::Timer>> FakeDevice::create_timer() {
  KACHEL_TRY(state_->enter(FakeCall::kCreateTimer));
  return std::unique_ptr<Timer>(std::make_unique<FakeTimer>(state_));
}

Status FakeDevice::flush_cache(void* stream) {
  return state_->enter_on_stream(FakeCall::kFlush, stream);
}

}  // namespace kachel::runtime
