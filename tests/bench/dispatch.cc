// Host cost of a warm launch: kachel_launch and kachel_call_launch beside raw cuLaunchKernel of a kernel that does the
// same work on the same tensors with as many parameter bytes, interleaved in one run. 64 sets of tensors over 8 tuning
// keys, M another one in every general launch. With several threads all of them do the same kind at the same time, so
// that each kind meets the driver's lock in the same crowd. What a launch of one function costs with several threads
// differs by up to 300 ns with where the driver has put it, raw ones alike: each kind therefore goes round among copies
// of its function, ours by as many engines. Prints medians over rounds, in ns a launch, for 1 and 4 threads.
//
//   dispatch [--rounds N] [--evict KIB]
//
// --evict: before each launch, KIB KiB of data are touched and as much code is run through, and only the launch itself
// is timed: what a launch costs among other work, as beside a driver that has code and data of its own. One thread; the
// cost of reading the clock is taken off.
//
// On a machine without a GPU the CPU device is used: then the figures hold the kernel's own work, and there is no raw
// launch to compare with.
#include <algorithm>
#include <array>
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
#include "tests/bench/raw_launch.h"

namespace {

constexpr int kKeys = 8, kSets = 64, kBatch = 256, kMostRows = 1000, kCopies = RawLaunch::kCopies;

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

using Clock = std::chrono::steady_clock;

void must(kachel_status status, kachel_error* error, const char* what) {
  if (status == KACHEL_OK) return;
  std::fprintf(stderr, "%s: %s\n%s\n", what, kachel_status_name(status), error ? kachel_error_message(error) : "");
  std::exit(1);
}

// An engine with the kernel, whose function the driver puts where it likes.
struct Copy {
  Copy() {
    kachel_engine_options options{};
    options.struct_size = sizeof options;
    options.store_path = "";
    options.policy = KACHEL_POLICY_OFF;
    kachel_error* error = nullptr;
    must(kachel_engine_create(&options, &engine, &error), error, "engine");
    must(kachel_module_create(engine, kProgram, std::strlen(kProgram), "dispatch", &module, &error), error, "module");
    must(kachel_kernel_get(module, nullptr, nullptr, 0, &kernel, &error), error, "kernel");
  }
  ~Copy() {
    kachel_kernel_release(kernel);
    kachel_module_release(module);
    kachel_engine_release(engine);
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  kachel_engine* engine = nullptr;
  kachel_module* module = nullptr;
  kachel_kernel* kernel = nullptr;
};

struct Tensors {
  int64_t shape[2];
  kachel_tensor x, y;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Of pairs from the same round, since the clock of the machine wanders more than the launches differ.
double median_difference(const std::vector<double>& values, const std::vector<double>& base) {
  std::vector<double> differences;
  for (size_t i = 0; i < values.size(); ++i) differences.push_back(values[i] - base[i]);
  return median(std::move(differences));
}

class Worker {
 public:
  Worker(const Copy* copies, kachel_device device, const RawLaunch* driver, std::barrier<>* together, Evictor* evictor)
      : copies_(copies), device_(device), driver_(driver), together_(together), evictor_(evictor) {
    kachel_engine* engine = copies->engine;
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
      for (std::vector<kachel_call*>& calls : calls_) {
        kachel_call* call = nullptr;
        must(kachel_bind(copies[&calls - calls_].kernel, args, 3, nullptr, &call, &error), error, "bind");
        calls.push_back(call);
      }
    }
    if (driver_) driver_->set_current(driver_->context);
  }

  // Mean ns a launch in one batch of each kind, another one first in every round. A raw batch comes twice, of another
  // copy: what the two differ by is the noise of the figures.
  void round(int number) {
    const int kinds = driver_ ? kKinds : kRaw, copy = number % kCopies;
    for (int i = 0; i < kinds; ++i) {
      const int kind = (number + i) % kinds;
      kinds_.ns[kind].push_back(kind == kGeneral ? general(copy)
                                : kind == kBound ? bound(copy)
                                                 : raw((copy + kind - kRaw) % kCopies));
    }
  }

  enum { kGeneral, kBound, kRaw, kRawAgain, kKinds };
  struct Kinds {
    std::vector<double> ns[kKinds];
  } kinds_;

 private:
  double general(int copy) {
    return timed([&](int i) {
      Tensors& set = *sets_[static_cast<size_t>(i % kSets)];
      set.shape[0] = 1 + (counter_ = (counter_ * 1103515245u + 12345u) & 0x7fffffff) % kMostRows;
      kachel_arg args[3];
      arguments(set, args);
      must(kachel_launch(copies_[copy].kernel, args, 3, nullptr, stream_, nullptr), nullptr, "launch");
    });
  }
  double bound(int copy) {
    return timed([&](int i) {
      const size_t at = static_cast<size_t>(i % kSets);
      void* pointers[2] = {sets_[at]->x.data, sets_[at]->y.data};
      const float s = 2.0f;
      int64_t scalars[1] = {0};
      std::memcpy(scalars, &s, 4);
      must(kachel_call_launch(calls_[copy][at], pointers, scalars, stream_), nullptr, "call");
    });
  }
  double raw(int copy) {
    return timed([&](int i) {
      const Tensors& set = *sets_[static_cast<size_t>(i % kSets)];
      int64_t params[10] = {};
      const float s = 2.0f;
      std::memcpy(&params[0], &set.x.data, 8);
      std::memcpy(&params[1], &set.y.data, 8);
      std::memcpy(&params[2], &s, 4);
      void* pointers[1] = {params};
      if (driver_->launch(driver_->functions[copy], 1, 1, 1, 128, 1, 1, 0, stream_, pointers, nullptr)) std::exit(1);
    });
  }
  static void arguments(Tensors& set, kachel_arg* args) {
    std::memset(args, 0, 3 * sizeof *args);
    args[0].u.tensor = &set.x;
    args[1].u.tensor = &set.y;
    args[2].kind = KACHEL_ARG_FLOAT;
    args[2].u.f = 2.0;
  }
  template <class Fn>
  double timed(const Fn& launch) {
    if (!evictor_)
      for (int i = 0; i < kSets; ++i) launch(i);  // whose data another copy's have displaced
    kachel_stream_synchronize(copies_->engine, device_, stream_, nullptr);
    together_->arrive_and_wait();
    if (evictor_) return timed_each(launch);
    auto begin = Clock::now();
    for (int i = 0; i < kBatch; ++i) launch(i);
    auto end = Clock::now();
    kachel_stream_synchronize(copies_->engine, device_, stream_, nullptr);
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
    kachel_stream_synchronize(copies_->engine, device_, stream_, nullptr);
    return median(std::move(each));
  }

  const Copy* copies_;
  kachel_device device_;
  const RawLaunch* driver_;
  std::barrier<>* together_;
  Evictor* evictor_;
  void* stream_ = nullptr;
  std::vector<std::unique_ptr<Tensors>> sets_;
  std::vector<kachel_call*> calls_[kCopies];
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
  std::array<Copy, kCopies> copies;
  kachel_error* error = nullptr;
  kachel_device_info info{};
  info.struct_size = sizeof info;
  must(kachel_engine_device_info(copies[0].engine, 0, &info, &error), error, "device");
  RawLaunch driver;
  const bool cuda = info.device.type == KACHEL_CUDA && driver.open();
  std::printf("%s, %d rounds of %d launches, %d tensor sets, %d keys; ns a launch (median)\n", info.name, rounds,
              kBatch, kSets, kKeys);
  for (int threads : evictor ? std::vector{1} : std::vector{1, 4}) {
    std::vector<std::unique_ptr<Worker>> workers(static_cast<size_t>(threads));
    std::vector<std::thread> running;
    std::barrier<> together(threads);
    for (auto& worker : workers)
      running.emplace_back([&worker, &driver, &together, &evictor, &copies, rounds, info, cuda] {
        worker =
            std::make_unique<Worker>(copies.data(), info.device, cuda ? &driver : nullptr, &together, evictor.get());
        for (int i = 0; i < rounds; ++i) worker->round(i);
      });
    for (std::thread& thread : running) thread.join();
    // The median over threads of what `value` makes of a thread.
    auto over_threads = [&](const auto& value) {
      std::vector<double> values;
      for (auto& worker : workers) values.push_back(value(worker->kinds_));
      return median(values);
    };
    auto level = [&](int kind) { return over_threads([&](const auto& kinds) { return median(kinds.ns[kind]); }); };
    auto over_raw = [&](int kind) {
      return over_threads([&](const auto& kinds) { return median_difference(kinds.ns[kind], kinds.ns[Worker::kRaw]); });
    };
    std::printf("%d thread%s: general %.0f, bound %.0f", threads, threads > 1 ? "s" : " ", level(Worker::kGeneral),
                level(Worker::kBound));
    if (cuda)
      std::printf(", raw %.0f; over raw of the same round: general %+.0f, bound %+.0f, raw again %+.0f",
                  level(Worker::kRaw), over_raw(Worker::kGeneral), over_raw(Worker::kBound),
                  over_raw(Worker::kRawAgain));
    std::printf("\n");
  }
  unsigned long long launches = 0, compiles = 0, loads = 0;
  for (const Copy& copy : copies) {
    kachel_stats stats{};
    stats.struct_size = sizeof stats;
    kachel_engine_stats(copy.engine, &stats);
    launches += stats.launches, compiles += stats.compiles, loads += stats.loads;
  }
  std::printf("%llu launches, %d engines, %llu compiles, %llu loads\n", launches, kCopies, compiles, loads);
  return 0;
}
