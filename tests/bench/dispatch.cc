// Host cost of a warm launch: kachel_launch and kachel_call_launch beside raw cuLaunchKernel of a kernel that does the
// same work on the same tensors with as many parameter bytes, interleaved in one run. 64 sets of tensors over 8 tuning
// keys, M another one in every general launch. With several threads all of them do the same kind at the same time, so
// that each kind meets the driver's lock in the same crowd. Prints medians over rounds, in ns a launch, for 1 and 4
// threads.
//
//   dispatch [--rounds N] [--evict KIB]
//
// --evict: before each launch, KIB KiB of data are touched and as much code is run through, and only the launch itself
// is timed: what a launch costs among other work, as beside a driver that has code and data of its own. One thread; the
// cost of reading the clock is taken off.
//
// On a machine without a GPU the CPU device is used: then the figures hold the kernel's own work, and there is no raw
// launch to compare with.
#include <dlfcn.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "capi/kachel.h"
#include "tests/bench/evict.h"

namespace {

constexpr int kKeys = 8, kSets = 64, kBatch = 256, kMostRows = 1000;

constexpr const char* kProgram = R"(tile 1
kernel scale(X: f32[M, K], Y: out f32[M, K], s: f32)
key K
grid i < ceildiv(M, 1024)
{
  fragment x: f32[1, 1]
  x = X[i +: 1, 0 +: 1]
  parallel r < 1, c < 1 { x[r, c] *= s }
  Y[i +: 1, 0 +: 1] = x
}
)";

// What `scale` does, with as many parameter bytes as its plan passes.
constexpr const char* kRawPtx = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry raw(.param .align 8 .b8 p[80]) {
  .reg .pred %p<2>;
  .reg .b32 %r<2>;
  .reg .f32 %f<4>;
  .reg .b64 %rd<5>;
  mov.u32 %r1, %tid.x;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 ret;
  ld.param.u64 %rd1, [p];
  ld.param.u64 %rd2, [p+8];
  ld.param.f32 %f1, [p+16];
  cvta.to.global.u64 %rd3, %rd1;
  cvta.to.global.u64 %rd4, %rd2;
  ld.global.f32 %f2, [%rd3];
  mul.f32 %f3, %f1, %f2;
  st.global.f32 [%rd4], %f3;
  ret;
}
)";

using Clock = std::chrono::steady_clock;

void must(kachel_status status, kachel_error* error, const char* what) {
  if (status == KACHEL_OK) return;
  std::fprintf(stderr, "%s: %s\n%s\n", what, kachel_status_name(status), error ? kachel_error_message(error) : "");
  std::exit(1);
}

// The four driver calls that a raw launch needs.
struct Driver {
  int (*module_load)(void**, const void*) = nullptr;
  int (*get_function)(void**, void*, const char*) = nullptr;
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                void**) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*set_current)(void*) = nullptr;
  void *context = nullptr, *function = nullptr;

  bool open() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return false;
    auto find = [&](auto& pointer, const char* name) {
      pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(dlsym(library, name));
    };
    find(module_load, "cuModuleLoadData");
    find(get_function, "cuModuleGetFunction");
    find(launch, "cuLaunchKernel");
    find(retain, "cuDevicePrimaryCtxRetain");
    find(set_current, "cuCtxSetCurrent");
    void* module = nullptr;
    return retain(&context, 0) == 0 && set_current(context) == 0 && module_load(&module, kRawPtx) == 0 &&
           get_function(&function, module, "raw") == 0;
  }
};

struct Tensors {
  int64_t shape[2];
  kachel_tensor x, y;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Worker {
 public:
  Worker(kachel_engine* engine, kachel_kernel* kernel, kachel_device device, Driver* driver, std::barrier<>* together,
         Evictor* evictor)
      : engine_(engine), kernel_(kernel), device_(device), driver_(driver), together_(together), evictor_(evictor) {
    kachel_error* error = nullptr;
    must(kachel_stream_create(engine, device, &stream_, &error), error, "stream");
    for (int i = 0; i < kSets; ++i) {
      auto tensors = std::make_unique<Tensors>();
      tensors->shape[0] = kMostRows;
      tensors->shape[1] = 8 + 8 * (i % kKeys);
      const size_t bytes = static_cast<size_t>(kMostRows * tensors->shape[1]) * 4;
      for (kachel_tensor* tensor : {&tensors->x, &tensors->y}) {
        *tensor = {nullptr, device, 2, {2, 32, 1}, tensors->shape, nullptr, 0};
        must(kachel_memory_alloc(engine, device, bytes, &tensor->data, &error), error, "alloc");
      }
      sets_.push_back(std::move(tensors));
      kachel_arg args[3];
      arguments(*sets_.back(), args);
      kachel_call* call = nullptr;
      must(kachel_bind(kernel, args, 3, nullptr, &call, &error), error, "bind");
      calls_.push_back(call);
    }
    if (driver_) driver_->set_current(driver_->context);
  }

  // Mean ns a launch in one batch of each kind.
  void round() {
    general_.push_back(timed([&](int i) {
      Tensors& set = *sets_[static_cast<size_t>(i % kSets)];
      set.shape[0] = 1 + (counter_ = (counter_ * 1103515245u + 12345u) & 0x7fffffff) % kMostRows;
      kachel_arg args[3];
      arguments(set, args);
      must(kachel_launch(kernel_, args, 3, nullptr, stream_, nullptr), nullptr, "launch");
    }));
    bound_.push_back(timed([&](int i) {
      const size_t at = static_cast<size_t>(i % kSets);
      void* pointers[2] = {sets_[at]->x.data, sets_[at]->y.data};
      const float s = 2.0f;
      int64_t scalars[1] = {0};
      std::memcpy(scalars, &s, 4);
      must(kachel_call_launch(calls_[at], pointers, scalars, stream_), nullptr, "call");
    }));
    if (!driver_) return;
    raw_.push_back(timed([&](int i) {
      const Tensors& set = *sets_[static_cast<size_t>(i % kSets)];
      int64_t params[10] = {};
      const float s = 2.0f;
      std::memcpy(&params[0], &set.x.data, 8);
      std::memcpy(&params[1], &set.y.data, 8);
      std::memcpy(&params[2], &s, 4);
      void* pointers[1] = {params};
      if (driver_->launch(driver_->function, 1, 1, 1, 128, 1, 1, 0, stream_, pointers, nullptr)) std::exit(1);
    }));
  }

  std::vector<double> general_, bound_, raw_;

 private:
  static void arguments(Tensors& set, kachel_arg* args) {
    std::memset(args, 0, 3 * sizeof *args);
    args[0].u.tensor = &set.x;
    args[1].u.tensor = &set.y;
    args[2].kind = KACHEL_ARG_FLOAT;
    args[2].u.f = 2.0;
  }
  template <class Fn>
  double timed(const Fn& launch) {
    together_->arrive_and_wait();
    if (evictor_) return timed_each(launch);
    auto begin = Clock::now();
    for (int i = 0; i < kBatch; ++i) launch(i);
    auto end = Clock::now();
    kachel_stream_synchronize(engine_, device_, stream_, nullptr);
    return std::chrono::duration<double, std::nano>(end - begin).count() / kBatch;
  }

  // The median, since one launch that an interrupt meets would decide the mean.
  template <class Fn>
  double timed_each(const Fn& launch) {
    std::vector<double> each;
    for (int i = 0; i < kBatch; ++i) {
      (*evictor_)();
      const auto begin = Clock::now(), middle = Clock::now();
      launch(i);
      const auto end = Clock::now();
      each.push_back(std::chrono::duration<double, std::nano>((end - middle) - (middle - begin)).count());
    }
    kachel_stream_synchronize(engine_, device_, stream_, nullptr);
    return median(std::move(each));
  }

  kachel_engine* engine_;
  kachel_kernel* kernel_;
  kachel_device device_;
  Driver* driver_;
  std::barrier<>* together_;
  Evictor* evictor_;
  void* stream_ = nullptr;
  std::vector<std::unique_ptr<Tensors>> sets_;
  std::vector<kachel_call*> calls_;
  uint32_t counter_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  int rounds = 200;
  std::unique_ptr<Evictor> evictor;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!std::strcmp(argv[i], "--rounds")) rounds = std::atoi(argv[i + 1]);
    if (!std::strcmp(argv[i], "--evict"))
      evictor = std::make_unique<Evictor>(std::strtoul(argv[i + 1], nullptr, 10) << 10);
  }
  kachel_engine_options options{};
  options.struct_size = sizeof options;
  options.store_path = "";
  options.policy = KACHEL_POLICY_OFF;
  kachel_error* error = nullptr;
  kachel_engine* engine = nullptr;
  must(kachel_engine_create(&options, &engine, &error), error, "engine");
  kachel_device_info info{};
  info.struct_size = sizeof info;
  must(kachel_engine_device_info(engine, 0, &info, &error), error, "device");
  kachel_module* module = nullptr;
  must(kachel_module_create(engine, kProgram, std::strlen(kProgram), "dispatch", &module, &error), error, "module");
  kachel_kernel* kernel = nullptr;
  must(kachel_kernel_get(module, nullptr, nullptr, 0, &kernel, &error), error, "kernel");
  Driver driver;
  const bool cuda = info.device.type == KACHEL_CUDA && driver.open();
  std::printf("%s, %d rounds of %d launches, %d tensor sets, %d keys; ns a launch (median)\n", info.name, rounds,
              kBatch, kSets, kKeys);
  for (int threads : evictor ? std::vector{1} : std::vector{1, 4}) {
    std::vector<std::unique_ptr<Worker>> workers(static_cast<size_t>(threads));
    std::vector<std::thread> running;
    std::barrier<> together(threads);
    for (auto& worker : workers)
      running.emplace_back([&worker, &driver, &together, &evictor, rounds, engine, kernel, info, cuda] {
        worker =
            std::make_unique<Worker>(engine, kernel, info.device, cuda ? &driver : nullptr, &together, evictor.get());
        for (int i = 0; i < rounds; ++i) worker->round();
      });
    for (std::thread& thread : running) thread.join();
    std::vector<double> general, bound, raw;
    for (auto& worker : workers) {
      general.push_back(median(worker->general_));
      bound.push_back(median(worker->bound_));
      if (cuda) raw.push_back(median(worker->raw_));
    }
    std::printf("%d thread%s: general %.0f, bound %.0f", threads, threads > 1 ? "s" : " ", median(general),
                median(bound));
    if (cuda)
      std::printf(", raw %.0f; over raw: general %+.0f, bound %+.0f", median(raw), median(general) - median(raw),
                  median(bound) - median(raw));
    std::printf("\n");
  }
  kachel_stats stats{};
  stats.struct_size = sizeof stats;
  kachel_engine_stats(engine, &stats);
  std::printf("%llu launches, %llu compiles, %llu loads\n", (unsigned long long)stats.launches,
              (unsigned long long)stats.compiles, (unsigned long long)stats.loads);
  kachel_kernel_release(kernel);
  kachel_module_release(module);
  kachel_engine_release(engine);
  return 0;
}
