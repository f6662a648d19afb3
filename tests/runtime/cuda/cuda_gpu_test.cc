// The CUDA device on a GPU; every case says so loudly where there is none. What any device must do is in the
// conformance suite; here is what only CUDA has: capture, contexts, several devices, lost devices.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/cuda/cuda_context.h"
#include "tests/runtime/cuda/cuda_test_support.h"
#include "tests/runtime/device_conformance.h"

namespace kachel::runtime::cuda {
namespace {

// What the tests need of the driver beyond what the library uses.
struct CaptureApi {
  int (*begin)(void* stream, int mode);
  int (*end)(void* stream, void** graph);
  int (*instantiate)(void** executable, void* graph, unsigned long long flags);
  int (*launch)(void* executable, void* stream);
  int (*destroy_executable)(void* executable);
  int (*destroy)(void* graph);

  CaptureApi() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    REQUIRE(library != nullptr);
    find(library, "cuStreamBeginCapture_v2", begin);
    find(library, "cuStreamEndCapture", end);
    find(library, "cuGraphInstantiateWithFlags", instantiate);
    find(library, "cuGraphLaunch", launch);
    find(library, "cuGraphExecDestroy", destroy_executable);
    find(library, "cuGraphDestroy", destroy);
  }

 private:
  template <class F>
  static void find(void* library, const char* symbol, F& function) {
    function = reinterpret_cast<F>(dlsym(library, symbol));
    REQUIRE(static_cast<bool>(function));
  }
};

// The primary context of device 0, current for a scope.
struct CurrentContext {
  CurrentContext() {
    const DriverApi& api = *value_of(driver_api());
    context = value_of(CudaContext::retain(api, 0));
    current.emplace(*context);
    require_ok(current->status());
  }
  std::shared_ptr<const CudaContext> context;
  std::optional<CudaContext::Current> current;
};

// The kernel "add", loaded. The function goes before its module.
struct Add {
  explicit Add(Device& device) {
    module = value_of(device.load(
        value_of(device.compiler().compile({kAddText, "add", device.properties().architecture, 0})).binary));
    function = value_of(module->function("add", 0));
  }
  std::unique_ptr<DeviceModule> module;
  std::unique_ptr<DeviceFunction> function;
};

constexpr int kCount = 10'000;

std::vector<int> read(Device& device, const int* data, void* stream) {
  std::vector<int> values(kCount, -1);
  require_ok(device.copy(values.data(), data, kCount * sizeof(int), stream));
  require_ok(device.synchronize(stream));
  return values;
}

}  // namespace

TEST_CASE("conformance") {
  check_device_conformance(cuda_conformance_target({}));
}

TEST_CASE("the properties of this GPU") {
  auto device = device_or_skip();
  if (!device) return;
  const DeviceProperties& p = device->properties();
  MESSAGE(p.name, ", ", p.architecture, ", driver ", p.driver, ", ", p.multiprocessors, " multiprocessors, ",
          p.shared_bytes_per_block, " B shared, ", p.l2_bytes, " B L2, ", p.memory_bytes, " B, of ",
          cuda_device_count());
  CHECK(p.driver.find("cuda-") != std::string::npos);
  CHECK(p.l2_bytes > 0);
  CHECK(p.warp_size == 32);
}

TEST_CASE("a launch needs no current context on an explicit stream, from any thread") {
  auto device = device_or_skip();
  if (!device) return;
  Add add(*device);
  auto* data = static_cast<int*>(value_of(device->allocate(kCount * sizeof(int))));
  void* stream = value_of(device->create_stream());
  require_ok(device->fill(data, 0, kCount * sizeof(int), stream));
  const DriverApi& api = *value_of(driver_api());
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      const AddParams params{data, kCount, 1};
      for (int i = 0; i < 100; ++i)
        if (!add.function->launch({40, 256, 0}, &params, sizeof(params), stream).ok()) ++failures;
      ContextRef context = nullptr;
      if (api.ctx_get_current(&context) != DriverResult::kSuccess || context != nullptr) ++failures;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(read(*device, data, stream) == std::vector<int>(kCount, 800));
  // The driver says how large the parameters are, so too few are refused.
  const AddParams params{data, kCount, 1};
  CHECK(add.function->launch({1, 32, 0}, &params, 8, stream).code() == Code::kInvalid);
  CHECK(add.function->usage().registers > 0);
  device->destroy_stream(stream);
  device->free(data);
}

TEST_CASE("a global capture survives what other threads do in relaxed mode") {
  auto device = device_or_skip();
  if (!device) return;
  CaptureApi capture;
  CurrentContext current;  // graphs want one where streams do not
  Add add(*device);
  auto* data = static_cast<int*>(value_of(device->allocate(kCount * sizeof(int))));
  void* stream = value_of(device->create_stream());
  require_ok(device->fill(data, 0, kCount * sizeof(int), stream));
  require_ok(device->synchronize(stream));
  const AddParams params{data, kCount, 7};

  REQUIRE(capture.begin(stream, 0) == 0);
  CHECK(value_of(device->is_capturing(stream)));
  require_ok(add.function->launch({40, 256, 0}, &params, sizeof(params), stream));
  std::string problem;
  std::thread([&] {
    RelaxedCapture relaxed(*device);
    const auto note = [&](const Status& status) {
      if (!status.ok()) problem += status.message() + "\n";
    };
    auto compiled = device->compiler().compile({kAddText, "add", device->properties().architecture, 0});
    note(compiled.status());
    if (!compiled.ok()) return;
    auto module = device->load(compiled->binary);
    note(module.status());
    auto memory = device->allocate(1 << 20);
    note(memory.status());
    auto other = device->create_stream();
    note(other.status());
    auto timer = device->create_timer();
    note(timer.status());
    if (!problem.empty()) return;
    auto function = (*module)->function("add", 0);
    note(function.status());
    if (!function.ok()) return;
    note((*timer)->start(*other));
    const AddParams own{static_cast<int*>(*memory), 1000, 1};
    note((*function)->launch({4, 256, 0}, &own, sizeof(own), *other));
    note(device->flush_cache(*other));
    note((*timer)->stop(*other));
    note((*timer)->elapsed_ns().status());
    note(device->synchronize(*other));
    device->destroy_stream(*other);
    device->free(*memory);
    note(open_cuda_device(0, {}).status());
  }).join();
  CHECK(problem == "");
  require_ok(add.function->launch({40, 256, 0}, &params, sizeof(params), stream));
  void* graph = nullptr;
  REQUIRE(capture.end(stream, &graph) == 0);
  CHECK(!value_of(device->is_capturing(stream)));
  void* executable = nullptr;
  REQUIRE(capture.instantiate(&executable, graph, 0) == 0);
  CHECK(read(*device, data, stream) == std::vector<int>(kCount, 0));  // capturing ran nothing
  REQUIRE(capture.launch(executable, stream) == 0);
  REQUIRE(capture.launch(executable, stream) == 0);
  CHECK(read(*device, data, stream) == std::vector<int>(kCount, 28));
  CHECK(capture.destroy_executable(executable) == 0);
  CHECK(capture.destroy(graph) == 0);

  // Without relaxed mode the same is refused as busy: the case above shows something.
  REQUIRE(capture.begin(stream, 0) == 0);
  Code code = Code::kOk;
  std::thread([&] { code = device->synchronize(nullptr).code(); }).join();
  CHECK(code == Code::kBusy);
  CHECK(capture.end(stream, &graph) != 0);
  device->destroy_stream(stream);
  device->free(data);
}

TEST_CASE("a freshly resolved kernel may be launched under capture at once") {
  auto device = device_or_skip();
  if (!device) return;
  CaptureApi capture;
  CurrentContext current;
  auto* data = static_cast<int*>(value_of(device->allocate(kCount * sizeof(int))));
  void* stream = value_of(device->create_stream());
  require_ok(device->fill(data, 0, kCount * sizeof(int), stream));
  require_ok(device->synchronize(stream));
  Add add(*device);
  const AddParams params{data, kCount, 3};
  REQUIRE(capture.begin(stream, 0) == 0);
  require_ok(add.function->launch({40, 256, 0}, &params, sizeof(params), stream));
  void *graph = nullptr, *executable = nullptr;
  REQUIRE(capture.end(stream, &graph) == 0);
  REQUIRE(capture.instantiate(&executable, graph, 0) == 0);
  REQUIRE(capture.launch(executable, stream) == 0);
  CHECK(read(*device, data, stream) == std::vector<int>(kCount, 3));
  (void)capture.destroy_executable(executable);
  (void)capture.destroy(graph);
  device->destroy_stream(stream);
  device->free(data);
}

TEST_CASE("a binary of another architecture is refused") {
  auto device = device_or_skip();
  if (!device) return;
  const std::string other = device->properties().compute_major == 8 ? "sm_90a" : "sm_80";
  CompileResult result = value_of(device->compiler().compile({kAddText, "add", other, 0}));
  auto module = device->load(result.binary);
  // The driver may find out only when the kernel is resolved.
  const Status status = module.ok() ? (*module)->function("add", 0).status() : module.status();
  CHECK(!status.ok());
  CHECK(status.code() != Code::kDeviceLost);
}

TEST_CASE("PTX is translated by the driver") {
  auto device = device_or_skip();
  if (!device) return;
  constexpr const char* kPtx =
      "// by hand\n.version 7.0\n.target sm_80\n.address_size 64\n"
      ".visible .entry store(.param .align 8 .b8 p[8]) {\n"
      "  .reg .b64 %rd<2>;\n  .reg .b32 %r<2>;\n  ld.param.u64 %rd1, [p];\n  mov.u32 %r1, 77;\n"
      "  st.global.u32 [%rd1], %r1;\n  ret;\n}\n";
  auto module = value_of(device->load(kPtx));
  auto function = value_of(module->function("store", 0));
  auto* data = static_cast<int*>(value_of(device->allocate(sizeof(int))));
  require_ok(function->launch({1, 1, 0}, &data, sizeof(data), nullptr));
  int seen = 0;
  require_ok(device->copy(&seen, data, sizeof(seen), nullptr));
  require_ok(device->synchronize(nullptr));
  CHECK(seen == 77);
  device->free(data);
}

TEST_CASE("several devices at once") {
  const int32_t count = cuda_device_count();
  if (count < 2) {
    MESSAGE("SKIPPED: ", count, " CUDA devices, two are needed");
    return;
  }
  std::vector<std::thread> threads;
  std::vector<int> wrong(count, -1);
  for (int32_t id = 0; id < count; ++id)
    threads.emplace_back([&, id] {
      auto device = open_cuda_device(id, {});
      if (!device.ok()) return;
      auto compiled = (*device)->compiler().compile({kAddText, "add", (*device)->properties().architecture, 0});
      auto module = (*device)->load(compiled.ok() ? compiled->binary : "");
      if (!module.ok()) return;
      auto function = (*module)->function("add", 0);
      auto memory = (*device)->allocate(kCount * sizeof(int));
      auto stream = (*device)->create_stream();
      if (!function.ok() || !memory.ok() || !stream.ok()) return;
      const AddParams params{static_cast<int*>(*memory), kCount, id + 1};
      std::vector<int> values(kCount);
      bool ok = (*device)->fill(*memory, 0, kCount * sizeof(int), *stream).ok();
      for (int i = 0; i < 10; ++i)
        ok = ok && (*function)->launch({40, 256, 0}, &params, sizeof(params), i % 2 ? *stream : nullptr).ok() &&
             (*device)->synchronize(i % 2 ? *stream : nullptr).ok();
      ok = ok && (*device)->copy(values.data(), *memory, kCount * sizeof(int), *stream).ok() &&
           (*device)->synchronize(*stream).ok();
      if (!ok) return;
      wrong[id] = 0;
      for (int value : values) wrong[id] += value != 10 * (id + 1);
      (*device)->destroy_stream(*stream);
      (*device)->free(*memory);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(count, 0));
}

TEST_CASE("a kernel that writes out of bounds loses the device, in words") {
  if (!device_or_skip()) return;
  // The context of a process cannot be mended, so another one is sacrificed.
  const int status = std::system(beside_this_program(KACHEL_CUDA_FAULT_PROBE).c_str());
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace kachel::runtime::cuda
