// The CUDA device on the fake driver: contexts, errors, ownership; with a current driver and with an old one.
#include <dlfcn.h>

#include <thread>
#include <vector>

#include "runtime/cuda/cuda_device.h"
#include "tests/runtime/cuda/cuda_test_support.h"
#include "tests/runtime/cuda/fake_driver.h"

namespace kachel::runtime::cuda {
namespace {

struct FakeSetup {
  const DriverApi* api;
  FakeDriver* fake;
};

FakeSetup open_fake(const char* name) {
  const std::string path = beside_this_program(name);
  static auto& opened = *new std::map<std::string, FakeSetup>;  // a driver is never given back
  auto [entry, fresh] = opened.try_emplace(path);
  if (fresh) {
    void* library = dlopen(path.c_str(), RTLD_NOW);
    REQUIRE(library != nullptr);
    auto access = reinterpret_cast<FakeDriverAccess>(dlsym(library, "kachel_fake_driver"));
    REQUIRE(static_cast<bool>(access));
    entry->second = {value_of(open_driver_api(path)), access()};
  }
  entry->second.fake->launches.clear();
  entry->second.fake->maps.clear();
  entry->second.fake->fail_next.clear();
  entry->second.fake->dynamic_shared_limit = 48 * 1024;
  return entry->second;
}

// PTX passes the check of binaries, and the fake driver does not look at it.
constexpr const char* kBinary = "// fake\n.version 8.0\n.target sm_90a\n";

void check_balance(const FakeSetup& setup) {
  CHECK(setup.fake->retained == 0);
  CHECK(setup.fake->modules == 0);
  CHECK(setup.fake->streams == 0);
  CHECK(setup.fake->events == 0);
  CHECK(setup.fake->pools == 0);
  CHECK(setup.fake->allocations == 0);
}

ContextRef current_context(const FakeSetup& setup) {
  ContextRef context = nullptr;
  (void)setup.api->ctx_get_current(&context);
  return context;
}

// Uses everything once; the caller's current context must be what it was after each step.
void use_everything(const FakeSetup& setup, ContextRef expected) {
  auto device = value_of(CudaDevice::open(*setup.api, 1, {}));
  void* stream = value_of(device->create_stream());
  CHECK(current_context(setup) == expected);
  auto module = value_of(device->load(kBinary));
  auto function = value_of(module->function(FakeDriver::kKernel, 60'000));
  CHECK(setup.fake->dynamic_shared_limit == 60'000);
  CHECK(current_context(setup) == expected);

  const uint64_t params[2] = {0x1234, 0};
  require_ok(function->launch({5, 64, 60'000}, params, sizeof(params), stream));
  require_ok(function->launch({6, 32, 0}, params, sizeof(params), nullptr));
  require_ok(function->launch({0, 32, 0}, params, sizeof(params), nullptr));
  REQUIRE(setup.fake->launches.size() == 2);
  CHECK(setup.fake->launches[0].blocks == 5);
  CHECK(setup.fake->launches[0].threads == 64);
  CHECK(setup.fake->launches[0].shared_bytes == 60'000);
  CHECK(setup.fake->launches[0].stream == static_cast<void*>(stream));
  CHECK(setup.fake->launches[0].first_param == 0x1234);
  CHECK(setup.fake->launches[1].stream == nullptr);
  CHECK(current_context(setup) == expected);
  CHECK(value_of(function->occupancy(256, 0)) == 8);
  CHECK(value_of(function->resident_clusters(256, 0, 4)) == 16);
  CHECK(function->usage().registers == 40);
  CHECK(function->usage().spill_bytes == 8);
  CHECK(function->usage().shared_bytes == 256);

  void* a = value_of(device->allocate(100));
  void* empty = value_of(device->allocate(0));
  void* b = value_of(device->allocate_async(100, stream));
  CHECK(empty != nullptr);
  std::vector<char> seen(100);
  require_ok(device->fill(a, 7, 100, stream));
  require_ok(device->copy(b, a, 100, stream));
  require_ok(device->copy(seen.data(), b, 100, nullptr));
  require_ok(device->synchronize(stream));
  CHECK(seen == std::vector<char>(100, 7));
  device->free(a);
  device->free(empty);
  device->free(nullptr);
  device->free_async(b, stream);
  CHECK(current_context(setup) == expected);

  auto timer = value_of(device->create_timer());
  require_ok(timer->start(stream));
  require_ok(device->flush_cache(stream));
  require_ok(device->flush_cache(stream));
  require_ok(timer->stop(stream));
  CHECK(value_of(timer->elapsed_ns()) == doctest::Approx(250'000));
  CHECK(setup.fake->allocations == 1);  // one flush buffer for both
  for (void* any : {stream, static_cast<void*>(nullptr)}) {
    setup.fake->capturing = false;
    CHECK(!value_of(device->is_capturing(any)));
    setup.fake->capturing = true;
    CHECK(value_of(device->is_capturing(any)));
    setup.fake->capturing = false;
  }
  device->destroy_stream(stream);
  device->destroy_stream(nullptr);
  CHECK(current_context(setup) == expected);
  // Module and timer may outlive the device.
  device.reset();
  function.reset();
  CHECK(setup.fake->retained == 1);
}

}  // namespace

TEST_CASE("every call leaves the caller's context as it was and every object is given back") {
  for (const std::string driver : {KACHEL_FAKE_DRIVER, KACHEL_FAKE_OLD_DRIVER}) {
    CAPTURE(driver);
    FakeSetup setup = open_fake(driver.c_str());
    use_everything(setup, nullptr);
    check_balance(setup);
    CHECK(setup.fake->function_loaded == (driver == KACHEL_FAKE_DRIVER));

    setup.fake->launches.clear();
    ContextRef foreign = nullptr;
    char elsewhere;
    REQUIRE(setup.api->ctx_push_current(reinterpret_cast<ContextRef>(&elsewhere)) == DriverResult::kSuccess);
    use_everything(setup, reinterpret_cast<ContextRef>(&elsewhere));
    REQUIRE(setup.api->ctx_pop_current(&foreign) == DriverResult::kSuccess);
    CHECK(current_context(setup) == nullptr);
    check_balance(setup);
  }
}

TEST_CASE("an old driver frees in stream order by waiting") {
  FakeSetup setup = open_fake(KACHEL_FAKE_OLD_DRIVER);
  CHECK(!setup.api->has_libraries());
  auto device = value_of(CudaDevice::open(*setup.api, 0, {}));
  const int before = setup.fake->synchronizations;
  device->free_async(value_of(device->allocate_async(10, nullptr)), nullptr);
  CHECK(setup.fake->synchronizations == before + 1);
}

TEST_CASE("the properties are the driver's") {
  FakeSetup setup = open_fake(KACHEL_FAKE_DRIVER);
  auto device = value_of(CudaDevice::open(*setup.api, 1, {}));
  const DeviceProperties& properties = device->properties();
  CHECK(properties.kind == DeviceKind::kCuda);
  CHECK(properties.id == 1);
  CHECK(properties.name == "Fake H300");
  CHECK(properties.model == "Fake H300");
  CHECK(properties.architecture == "sm_90a");
  CHECK(properties.driver.ends_with("cuda-13.2"));
  CHECK(properties.multiprocessors == 77);
  CHECK(properties.shared_bytes_per_block == FakeDriver::kSharedLimit);
  CHECK(properties.l2_bytes == 4096);
  CHECK(properties.memory_bytes == int64_t{1} << 30);
}

TEST_CASE("launches overlap where device, driver and host allow it, and the caller asks for it") {
  auto overlaps = [](const char* driver, bool apart, const char* instructions, bool wanted) {
    FakeSetup setup = open_fake(driver);
    DeviceOptions options;
    options.launches_apart = apart;
    if (instructions) REQUIRE(setenv("KACHEL_INSTRUCTIONS", instructions, 1) == 0);
    auto device = value_of(CudaDevice::open(*setup.api, 0, options));
    REQUIRE(unsetenv("KACHEL_INSTRUCTIONS") == 0);
    auto module = value_of(device->load(kBinary));
    auto function = value_of(module->function(FakeDriver::kKernel, 0));
    char params[FakeDriver::kParamsBytes] = {};
    const bool may = device->properties().overlapping_launches;
    require_ok(function->launch({1, 32, 0, may && wanted}, params, sizeof(params), nullptr));
    CHECK(setup.fake->launches.back().overlaps == (may && wanted));
    return may;
  };
  CHECK(overlaps(KACHEL_FAKE_DRIVER, false, nullptr, true));
  CHECK(overlaps(KACHEL_FAKE_DRIVER, false, nullptr, false));
  CHECK(!overlaps(KACHEL_FAKE_DRIVER, true, nullptr, true));
  CHECK(!overlaps(KACHEL_FAKE_DRIVER, false, "80", true));  // kernels that do not wait by themselves
  CHECK(!overlaps(KACHEL_FAKE_OLD_DRIVER, false, nullptr, true));
}

TEST_CASE("an error says what failed and falls into the right category") {
  FakeSetup setup = open_fake(KACHEL_FAKE_DRIVER);
  auto device = value_of(CudaDevice::open(*setup.api, 0, {}));
  void* stream = value_of(device->create_stream());
  auto module = value_of(device->load(kBinary));
  auto function = value_of(module->function(FakeDriver::kKernel, 0));
  const uint64_t params[2] = {};
  const struct {
    int error;
    Code code;
  } cases[] = {{1, Code::kLaunch},       {2, Code::kNoMemory},     {4, Code::kDeviceLost},   {214, Code::kDeviceLost},
               {700, Code::kDeviceLost}, {701, Code::kLaunch},     {702, Code::kDeviceLost}, {715, Code::kDeviceLost},
               {716, Code::kDeviceLost}, {719, Code::kDeviceLost}, {720, Code::kLaunch},     {801, Code::kUnsupported},
               {900, Code::kBusy},       {901, Code::kBusy},       {906, Code::kBusy},       {908, Code::kBusy},
               {912, Code::kLaunch},     {999, Code::kDeviceLost}};
  for (const auto& [error, code] : cases) {
    CAPTURE(error);
    setup.fake->fail_next["cuLaunchKernel"] = static_cast<DriverResult>(error);
    Status status = function->launch({1, 32, 0}, params, sizeof(params), stream);
    CHECK(status.code() == code);
    CHECK(status.message().find("(" + std::to_string(error) + ")") != std::string::npos);
    CHECK(status.message().find("CUDA_ERROR_FAKE") != std::string::npos);
  }
  // A launch without a current context is tried again with one.
  setup.fake->launches.clear();
  setup.fake->fail_next["cuLaunchKernel"] = DriverResult::kInvalidContext;
  require_ok(function->launch({1, 32, 0}, params, sizeof(params), stream));
  CHECK(setup.fake->launches.size() == 1);

  setup.fake->fail_next["cuMemAlloc_v2"] = DriverResult::kOutOfMemory;
  CHECK(device->allocate(16).status().code() == Code::kNoMemory);
  CHECK(device->allocate(SIZE_MAX).status().code() == Code::kNoMemory);
  setup.fake->fail_next["cuStreamSynchronize"] = DriverResult::kIllegalAddress;
  CHECK(device->synchronize(stream).code() == Code::kDeviceLost);
  for (const char* call : {"cuEventCreate"}) {
    setup.fake->fail_next[call] = DriverResult::kOutOfMemory;
    CHECK(device->create_timer().status().code() == Code::kNoMemory);
  }
  device->destroy_stream(stream);
}

TEST_CASE("a function is refused before it can harm") {
  FakeSetup setup = open_fake(KACHEL_FAKE_DRIVER);
  auto device = value_of(CudaDevice::open(*setup.api, 0, {}));
  auto module = value_of(device->load(kBinary));
  CHECK(module->function("absent", 0).status().code() == Code::kInvalid);
  CHECK(module->function(FakeDriver::kKernel, FakeDriver::kSharedLimit + 1).status().code() == Code::kUnsupported);
  // Within the device's limit, but not together with the kernel's static 256 bytes.
  CHECK(module->function(FakeDriver::kKernel, FakeDriver::kSharedLimit - 255).status().code() == Code::kUnsupported);
  auto large = value_of(module->function(FakeDriver::kKernel, 70'000));
  auto small = value_of(module->function(FakeDriver::kKernel, 50'000));
  CHECK(setup.fake->dynamic_shared_limit == 70'000);

  const uint64_t params[2] = {};
  CHECK(large->launch({1, 32, 0}, params, 8, nullptr).code() == Code::kInvalid);
  CHECK(setup.fake->launches.empty());
  setup.fake->fail_next["cuFuncGetAttribute"] = DriverResult::kInvalidContext;
  CHECK(!module->function(FakeDriver::kKernel, 0).ok());
}

TEST_CASE("a tensor map counts in elements of the tensor's size, so that a box brings the bytes that are waited for") {
  const FakeSetup setup = open_fake("libfake_cuda_driver.so");
  auto device = value_of(CudaDevice::open(*setup.api, 0, {}));
  const std::pair<int, MapElements> sizes[] = {
      {8, MapElements::k8Bits}, {16, MapElements::k16Bits}, {32, MapElements::k32Bits}, {64, MapElements::k64Bits}};
  for (const auto& [bits, elements] : sizes) {
    CAPTURE(bits);
    const int64_t extents[] = {9, 3, 26}, strides[] = {96, 32, 1};
    const int32_t box[] = {4, 1, 8};
    uint64_t words[kTensorMapWords] = {};
    REQUIRE(device->encode_map({words, bits, 3, extents, strides, box, 64}, words).ok());
    REQUIRE(setup.fake->maps.size() == 1);
    const FakeDriverMap& map = setup.fake->maps[0];
    CHECK(map.elements == elements);
    CHECK(map.swizzle == MapSwizzle::k64Bytes);
    CHECK(map.extents == std::vector<MapExtent>{26, 3, 9});
    const auto bytes = static_cast<MapExtent>(bits / 8);
    CHECK(map.strides == std::vector<MapExtent>{32 * bytes, 96 * bytes});
    CHECK(map.box == std::vector<uint32_t>{8, 1, 4});
    setup.fake->maps.clear();
  }
  // What is added to them has to be known as numbers.
  using Numbers = TensorMapRequest::Numbers;
  const std::tuple<int, Numbers, MapElements> numbers[] = {{16, Numbers::kF16, MapElements::kF16},
                                                           {16, Numbers::kBF16, MapElements::kBF16},
                                                           {32, Numbers::kF32, MapElements::kF32}};
  for (const auto& [bits, kind, elements] : numbers) {
    const int64_t extents[] = {9, 32}, strides[] = {32, 1};
    const int32_t box[] = {4, 8};
    uint64_t words[kTensorMapWords] = {};
    REQUIRE(device->encode_map({words, bits, 2, extents, strides, box, 32, kind}, words).ok());
    CHECK(setup.fake->maps.back().elements == elements);
  }
}

TEST_CASE("a device that is not there, a driver that does not start") {
  FakeSetup setup = open_fake(KACHEL_FAKE_DRIVER);
  for (int32_t id : {-1, 2, 100}) {
    Status status = CudaDevice::open(*setup.api, id, {}).status();
    CHECK(status.code() == Code::kNoDevice);
    CHECK(status.message().find("sees 2") != std::string::npos);
  }
  setup.fake->fail_next["cuDevicePrimaryCtxRetain"] = DriverResult::kOutOfMemory;
  CHECK(CudaDevice::open(*setup.api, 0, {}).status().code() == Code::kNoMemory);
  setup.fake->fail_next["cuDeviceGetAttribute"] = DriverResult::kInvalidValue;
  CHECK(!CudaDevice::open(*setup.api, 0, {}).ok());
  check_balance(setup);
  for (DriverResult reason : {DriverResult::kStubLibrary, DriverResult::kNoDevice, DriverResult::kUnknown}) {
    setup.fake->fail_next["cuInit"] = reason;
    Status status = open_driver_api(beside_this_program(KACHEL_FAKE_DRIVER)).status();
    CHECK(status.code() == Code::kNoDevice);
    CHECK(status.message().find("install the NVIDIA driver") != std::string::npos);
  }
  Status absent = open_driver_api("/nowhere/libcuda.so.1").status();
  CHECK(absent.code() == Code::kNoDevice);
  CHECK(absent.message().find("nvidia-smi should list a GPU") != std::string::npos);
  // A library that is no driver.
  Status other = open_driver_api("libm.so.6").status();
  CHECK(other.code() == Code::kNoDevice);
  CHECK(other.message().find("lacks cuInit") != std::string::npos);
}

TEST_CASE("relaxed capture nests and is per thread") {
  FakeSetup setup = open_fake(KACHEL_FAKE_DRIVER);
  auto device = value_of(CudaDevice::open(*setup.api, 0, {}));
  const auto mode = [&] {
    CaptureMode probe = CaptureMode::kGlobal, seen;
    (void)setup.api->thread_exchange_capture_mode(&probe);
    seen = probe;
    (void)setup.api->thread_exchange_capture_mode(&probe);
    return seen;
  };
  CHECK(mode() == CaptureMode::kGlobal);
  CaptureMode start = CaptureMode::kThreadLocal;
  (void)setup.api->thread_exchange_capture_mode(&start);
  {
    RelaxedCapture outer(*device);
    CHECK(mode() == CaptureMode::kRelaxed);
    {
      RelaxedCapture inner(*device);
      CHECK(mode() == CaptureMode::kRelaxed);
    }
    CHECK(mode() == CaptureMode::kRelaxed);
    CaptureMode elsewhere = CaptureMode::kRelaxed;
    std::thread([&] { elsewhere = mode(); }).join();
    CHECK(elsewhere == CaptureMode::kGlobal);
  }
  CHECK(mode() == CaptureMode::kThreadLocal);
  (void)setup.api->thread_exchange_capture_mode(&start);
}

TEST_CASE("a device serves many threads at once") {
  FakeSetup setup = open_fake(KACHEL_FAKE_DRIVER);
  auto device = value_of(CudaDevice::open(*setup.api, 0, {}));
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        auto module = device->load(kBinary);
        if (!module.ok()) return void(++failures);
        auto function = (*module)->function(FakeDriver::kKernel, 50'000 + round);
        auto memory = device->allocate(64);
        const uint64_t params[2] = {};
        if (!function.ok() || !memory.ok() || !(*function)->launch({1, 1, 0}, params, 16, nullptr).ok() ||
            !device->flush_cache(nullptr).ok())
          ++failures;
        else
          device->free(*memory);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(setup.fake->launches.size() == 400);
  CHECK(setup.fake->dynamic_shared_limit == 50'049);
}

}  // namespace kachel::runtime::cuda
