#include "tests/runtime/device_conformance.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace kachel::runtime {
namespace {

#define REQUIRE_OK(expr)     \
  do {                       \
    Status status_ = (expr); \
    INFO(status_.message()); \
    INFO(status_.log());     \
    REQUIRE(status_.ok());   \
  } while (0)

template <class T>
T take(Result<T> result) {
  INFO(result.status().message());
  INFO(result.status().log());
  REQUIRE(result.ok());
  return *std::move(result);
}

// int32 values on the device, with a way to get them there and back.
class Buffer {
 public:
  Buffer(Device& device, const std::vector<int32_t>& values) : device_(device), count_(values.size()) {
    data_ = static_cast<int32_t*>(take(device.allocate(count_ * sizeof(int32_t))));
    REQUIRE_OK(device.copy(data_, values.data(), count_ * sizeof(int32_t), nullptr));
    REQUIRE_OK(device.synchronize(nullptr));
  }
  ~Buffer() { device_.free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  int32_t* data() const { return data_; }
  std::vector<int32_t> read(void* stream) const {
    std::vector<int32_t> values(count_, -1);
    REQUIRE_OK(device_.copy(values.data(), data_, count_ * sizeof(int32_t), stream));
    REQUIRE_OK(device_.synchronize(stream));
    return values;
  }

 private:
  Device& device_;
  size_t count_;
  int32_t* data_ = nullptr;
};

// A loaded probe. The function goes before its module.
struct Probe {
  Probe(Device& device, const std::string& text, const std::string& entry, uint32_t shared_bytes = 0) {
    CompileResult compiled = take(compile_probe(device, text, entry));
    module = take(device.load(compiled.binary));
    function = take(module->function(entry, shared_bytes));
  }
  std::unique_ptr<DeviceModule> module;
  std::unique_ptr<DeviceFunction> function;
};

constexpr int32_t kGuardWord = 0x5eed;
constexpr int64_t kGuardWords = 16;

std::vector<int32_t> make_input(int64_t count) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i * 2654435761u % 100'003);
  return values;
}

// Launches the scale probe `launches` times and returns how many words are wrong, those beside the output included.
int64_t wrong_after_scale(Device& device, const DeviceFunction& function, uint32_t threads, uint32_t blocks,
                          int64_t count, int launches, void* stream) {
  std::vector<int32_t> input = make_input(count), initial(static_cast<size_t>(count + kGuardWords), kGuardWord);
  Buffer in(device, input), out(device, initial);
  ScaleParams params{in.data(), out.data(), count, 3, -7};
  for (int i = 0; i < launches; ++i)
    if (!function.launch({blocks, threads, 0}, &params, sizeof(params), stream).ok()) return -1;
  std::vector<int32_t> result = out.read(stream);
  int64_t wrong = 0;
  for (size_t i = 0; i < result.size(); ++i) {
    int32_t expected = kGuardWord;
    if (i < input.size() && blocks > 0) expected += launches * (input[i] * 3 - 7);
    wrong += result[i] != expected;
  }
  return wrong;
}

int64_t wrong_after_arena(Device& device, const DeviceFunction& function, uint32_t threads, uint32_t blocks,
                          uint32_t bytes, void* stream) {
  Buffer out(device, std::vector<int32_t>(blocks, -1));
  ArenaParams params{out.data(), bytes};
  if (!function.launch({blocks, threads, bytes}, &params, sizeof(params), stream).ok()) return -1;
  int64_t wrong = 0;
  for (int32_t value : out.read(stream)) wrong += value != 0;
  return wrong;
}

void check_properties(const ConformanceTarget&, Device& device) {
  const DeviceProperties& properties = device.properties();
  CHECK(!properties.name.empty());
  CHECK(!properties.architecture.empty());
  CHECK(!properties.model.empty());
  CHECK(properties.multiprocessors >= 1);
  CHECK(properties.warp_size >= 1);
  CHECK(properties.max_threads_per_block >= 1);
  CHECK(properties.shared_bytes_per_block > 0);
  CHECK(properties.memory_bytes > 0);
}

void check_compiler(const ConformanceTarget& target, Device& device) {
  Compiler& compiler = device.compiler();
  CHECK(!compiler.opened());
  CHECK(compiler.version().empty());
  CompileResult first = take(compile_probe(device, target.scale_text, "probe_scale"));
  CHECK(compiler.opened());
  CHECK(!compiler.version().empty());
  CHECK(!first.binary.empty());
  CHECK(first.compile_ns > 0);
  CHECK(take(compile_probe(device, target.scale_text, "probe_scale")).binary == first.binary);

  Result<CompileResult> broken = compile_probe(device, target.broken_text, "probe_scale");
  REQUIRE(!broken.ok());
  CHECK(broken.status().code() == Code::kCompile);
  CHECK(!broken.status().message().empty());
  CHECK(!broken.status().log().empty());
}

void check_malformed_binaries(const ConformanceTarget& target, Device& device) {
  CompileResult good = take(compile_probe(device, target.scale_text, "probe_scale"));
  CHECK(!device.load("").ok());
  CHECK(!device.load("not a binary").ok());
  CHECK(!device.load(std::string(4096, '\0')).ok());
  CHECK(!device.load(std::string_view(good.binary).substr(0, good.binary.size() / 2)).ok());
  CHECK(!device.load(std::string_view(good.binary).substr(0, 16)).ok());
  // A failure leaves the device as it was.
  auto module = take(device.load(good.binary));
  Result<std::unique_ptr<DeviceFunction>> absent = module->function("no_such_kernel", 0);
  CHECK(!absent.ok());
  CHECK(module->function("probe_scale", 0).ok());
}

void check_launches(const ConformanceTarget& target, Device& device) {
  Probe probe(device, target.scale_text, "probe_scale");
  for (uint32_t blocks : {0u, 1u, 2u, 7u, 64u, 1000u, 70'000u})
    for (int64_t count : {1, 5, 100, 80'001}) {
      CAPTURE(blocks);
      CAPTURE(count);
      CHECK(wrong_after_scale(device, *probe.function, target.threads, blocks, count, 1, nullptr) == 0);
    }
  CHECK(wrong_after_scale(device, *probe.function, target.threads, 16, 1000, 50, nullptr) == 0);

  // Several functions of one module, several modules of one binary.
  auto again = take(probe.module->function("probe_scale", 0));
  CHECK(wrong_after_scale(device, *again, target.threads, 3, 100, 1, nullptr) == 0);
  Probe other(device, target.scale_text, "probe_scale");
  again.reset();
  CHECK(wrong_after_scale(device, *other.function, target.threads, 3, 100, 1, nullptr) == 0);
  CHECK(wrong_after_scale(device, *probe.function, target.threads, 3, 100, 1, nullptr) == 0);
}

void check_arena(const ConformanceTarget& target, Device& device) {
  const int64_t limit = device.properties().shared_bytes_per_block;
  REQUIRE(limit <= UINT32_MAX - 64);
  const auto most = static_cast<uint32_t>(limit);
  Probe probe(device, target.arena_text, "probe_arena", most);
  CHECK(wrong_after_arena(device, *probe.function, target.threads, 5, 0, nullptr) == 0);
  for (uint32_t bytes : {1u, 64u, 1000u, 40'000u}) {
    CAPTURE(bytes);
    CHECK(wrong_after_arena(device, *probe.function, target.threads, 300, bytes, nullptr) == 0);
  }
  // The limit itself, with few enough blocks to be quick where it is large.
  CHECK(wrong_after_arena(device, *probe.function, target.threads, 2, most - (limit % 16), nullptr) == 0);
  CHECK(!probe.module->function("probe_arena", most + 64).ok());

  CHECK(take(probe.function->occupancy(target.threads, 0)) >= 1);
  CHECK(take(probe.function->occupancy(target.threads, 1024)) >= 1);
}

void check_memory(const ConformanceTarget&, Device& device) {
  std::set<void*> pointers;
  for (size_t bytes : {0, 0, 1, 255, 256, 257, 100'000}) {
    void* pointer = take(device.allocate(bytes));
    CHECK(pointer != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(pointer) % 256 == 0);
    CHECK(pointers.insert(pointer).second);
  }
  for (void* pointer : pointers) device.free(pointer);
  device.free(nullptr);
  Result<void*> impossible = device.allocate(size_t{1} << 60);
  REQUIRE(!impossible.ok());
  CHECK(impossible.status().code() == Code::kNoMemory);
  CHECK(!device.allocate(SIZE_MAX).ok());

  void* stream = take(device.create_stream());
  void* scratch = take(device.allocate_async(1000, stream));
  REQUIRE_OK(device.fill(scratch, 0x3c, 1000, stream));
  std::vector<char> seen(1000), expected(1000, 0x3c);
  REQUIRE_OK(device.copy(seen.data(), scratch, 1000, stream));
  REQUIRE_OK(device.synchronize(stream));
  CHECK(seen == expected);
  device.free_async(scratch, stream);
  REQUIRE_OK(device.synchronize(stream));
  device.destroy_stream(stream);
}

void check_copies(const ConformanceTarget&, Device& device) {
  auto* a = static_cast<char*>(take(device.allocate(4096)));
  auto* b = static_cast<char*>(take(device.allocate(4096)));
  std::vector<char> pattern(4096), seen(4096);
  for (size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<char>(i * 31 + 7);
  REQUIRE_OK(device.copy(a, pattern.data(), 4096, nullptr));
  REQUIRE_OK(device.fill(b, 0xee, 4096, nullptr));
  REQUIRE_OK(device.copy(b + 3, a + 1, 1001, nullptr));  // within the device, at odd addresses
  REQUIRE_OK(device.fill(b + 2000, 0x11, 33, nullptr));
  REQUIRE_OK(device.copy(a, b, 0, nullptr));
  REQUIRE_OK(device.copy(nullptr, nullptr, 0, nullptr));
  REQUIRE_OK(device.fill(nullptr, 1, 0, nullptr));
  REQUIRE_OK(device.copy(seen.data(), b, 4096, nullptr));
  REQUIRE_OK(device.synchronize(nullptr));
  std::vector<char> expected(4096, static_cast<char>(0xee));
  std::memcpy(expected.data() + 3, pattern.data() + 1, 1001);
  std::memset(expected.data() + 2000, 0x11, 33);
  CHECK(seen == expected);
  device.free(a);
  device.free(b);
}

void check_streams(const ConformanceTarget& target, Device& device) {
  Probe probe(device, target.scale_text, "probe_scale");
  void* first = take(device.create_stream());
  void* second = take(device.create_stream());
  CHECK(first != nullptr);
  CHECK(second != nullptr);
  CHECK(first != second);
  for (void* stream : {first, second, static_cast<void*>(nullptr)}) {
    CHECK(take(device.is_capturing(stream)) == false);
    CHECK(wrong_after_scale(device, *probe.function, target.threads, 32, 3000, 4, stream) == 0);
  }
  REQUIRE_OK(device.synchronize(first));
  device.destroy_stream(first);
  device.destroy_stream(second);
}

void check_timer(const ConformanceTarget& target, Device& device) {
  Probe probe(device, target.scale_text, "probe_scale");
  void* stream = take(device.create_stream());
  {
    Buffer in(device, make_input(1 << 16)), out(device, make_input(1 << 16));
    ScaleParams params{in.data(), out.data(), 1 << 16, 1, 1};
    auto inner = take(device.create_timer()), outer = take(device.create_timer());
    for (int round = 0; round < 3; ++round) {
      REQUIRE_OK(device.flush_cache(stream));
      REQUIRE_OK(outer->start(stream));
      REQUIRE_OK(inner->start(stream));
      REQUIRE_OK(probe.function->launch({8, target.threads, 0}, &params, sizeof(params), stream));
      REQUIRE_OK(inner->stop(stream));
      REQUIRE_OK(probe.function->launch({8, target.threads, 0}, &params, sizeof(params), stream));
      REQUIRE_OK(outer->stop(stream));
      double inner_ns = take(inner->elapsed_ns()), outer_ns = take(outer->elapsed_ns());
      CHECK(inner_ns > 0);
      CHECK(outer_ns >= inner_ns);
      CHECK(outer_ns < 60e9);
    }
  }
  device.destroy_stream(stream);
}

void check_concurrency(const ConformanceTarget& target, Device& device) {
  constexpr uint32_t kArenaBytes = 4096;
  Probe scale(device, target.scale_text, "probe_scale");
  Probe arena(device, target.arena_text, "probe_arena", kArenaBytes);
  std::atomic<int64_t> wrong{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      Result<void*> stream = device.create_stream();
      if (!stream.ok()) {
        ++wrong;
        return;
      }
      for (uint32_t round = 0; round < 12; ++round) {
        wrong += wrong_after_scale(device, *scale.function, target.threads, 1 + t * 37 + round, 5000, 3, *stream) != 0;
        wrong += wrong_after_arena(device, *arena.function, target.threads, 20 + t, kArenaBytes, *stream) != 0;
      }
      device.destroy_stream(*stream);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

void check_independence(const ConformanceTarget& target, Device& device) {
  Probe probe(device, target.scale_text, "probe_scale");
  {
    std::unique_ptr<Device> other = take(target.open());
    Probe others(*other, target.scale_text, "probe_scale");
    CHECK(wrong_after_scale(*other, *others.function, target.threads, 40, 1000, 1, nullptr) == 0);
  }
  CHECK(wrong_after_scale(device, *probe.function, target.threads, 40, 1000, 1, nullptr) == 0);
  // A binary does not belong to the device that made it.
  std::string binary = take(compile_probe(device, target.scale_text, "probe_scale")).binary;
  std::unique_ptr<Device> other = take(target.open());
  auto module = take(other->load(binary));
  auto function = take(module->function("probe_scale", 0));
  binary.assign(binary.size(), 'x');
  CHECK(wrong_after_scale(*other, *function, target.threads, 40, 1000, 1, nullptr) == 0);
}

}  // namespace

Result<CompileResult> compile_probe(Device& device, const std::string& text, const std::string& entry) {
  return device.compiler().compile({text, entry, device.properties().architecture, 0});
}

void check_device_conformance(const ConformanceTarget& target) {
  Result<std::unique_ptr<Device>> opened = target.open();
  if (!opened.ok() && opened.status().code() == Code::kNoDevice) {
    MESSAGE("SKIPPED: no ", target.name, " device here: ", opened.status().message());
    return;
  }
  std::unique_ptr<Device> device = take(std::move(opened));
  SUBCASE("properties") {
    check_properties(target, *device);
  }
  SUBCASE("compiler") {
    check_compiler(target, *device);
  }
  SUBCASE("malformed binaries") {
    check_malformed_binaries(target, *device);
  }
  SUBCASE("launches") {
    check_launches(target, *device);
  }
  SUBCASE("arena and occupancy") {
    check_arena(target, *device);
  }
  SUBCASE("memory") {
    check_memory(target, *device);
  }
  SUBCASE("copies") {
    check_copies(target, *device);
  }
  SUBCASE("streams") {
    check_streams(target, *device);
  }
  SUBCASE("timer") {
    check_timer(target, *device);
  }
  SUBCASE("concurrent launches") {
    check_concurrency(target, *device);
  }
  SUBCASE("devices are independent") {
    check_independence(target, *device);
  }
}

}  // namespace kachel::runtime
