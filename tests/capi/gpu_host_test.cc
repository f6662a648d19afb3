// A host on a GPU, with kachel.h and the driver alone: it captures while other threads tune, captures what was never
// launched, overwrites or frees what it passed as soon as a call returns, and has decisions looked at while it
// launches. Says so where there is no GPU.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "examples/serve/graphs.h"
#include "examples/serve/host.h"

namespace serve {
namespace {

// Whole numbers small enough for sums to be exact, in whichever order they are added.
constexpr const char* kText = R"(tile 1
kernel product(A: f16[M, K], B: f16[N, K], C: out f32[M, N])
key  M, N, K
tune BM = 64 | 128, BN = 64 | 128 | 96, stages = 2 | 3
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   As: f16[BM, 64], Bs: f16[BN, 64]
  fragment acc: f32[BM, BN] = 0
  pipelined k < ceildiv(K, 64), stages {
    As = A[by*BM +: BM, k*64 +: 64]
    Bs = B[bx*BN +: BN, k*64 +: 64]
    acc += As @ Bs^T
  }
  C[by*BM +: BM, bx*BN +: BN] = acc
}
)";

constexpr uint16_t kHalf[] = {0xc000, 0xbc00, 0, 0x3c00, 0x4000};  // -2 to 2
// An index of kHalf; two more than the value.
int whole(int64_t i, int seed) {
  return static_cast<int>(((static_cast<uint64_t>(i) * 2654435761u + static_cast<uint64_t>(seed) * 40503u) >> 7) % 5);
}

struct Host {
  explicit Host(
      int32_t policy, const std::function<void(kachel_engine_options*)>& more = [](auto*) {}) {
    auto options = sized<kachel_engine_options>();
    options.store_path = "";
    options.policy = policy;
    options.tune_budget_ns = 1'000'000'000;
    more(&options);
    kachel_engine* made = nullptr;
    must([&](kachel_error** error) { return kachel_engine_create(&options, &made, error); });
    engine.reset(made);
    kachel_module* module_made = nullptr;
    must([&](kachel_error** error) {
      return kachel_module_create(made, kText, std::strlen(kText), "product", &module_made, error);
    });
    module.reset(module_made);
    kachel_kernel* kernel_made = nullptr;
    must(
        [&](kachel_error** error) { return kachel_kernel_get(module_made, nullptr, nullptr, 0, &kernel_made, error); });
    kernel.reset(kernel_made);
  }
  kachel_stats stats() const {
    auto stats = sized<kachel_stats>();
    must(kachel_engine_stats(engine.get(), &stats), nullptr);
    return stats;
  }
  void wait() const {
    must([&](kachel_error** error) { return kachel_engine_wait(engine.get(), -1, error); });
  }
  Handle<kachel_engine> engine;
  Handle<kachel_module> module;
  Handle<kachel_kernel> kernel;
};

constexpr kachel_device kGpu{KACHEL_CUDA, 0};

struct Stream {
  explicit Stream(const Host& host) : engine(host.engine.get()) {
    must([&](kachel_error** error) { return kachel_stream_create(engine, kGpu, &handle, error); });
  }
  ~Stream() { kachel_stream_release(engine, kGpu, handle); }
  void wait() const {
    must([&](kachel_error** error) { return kachel_stream_synchronize(engine, kGpu, handle, error); });
  }
  kachel_engine* engine;
  void* handle = nullptr;
};

// One product of its own size and contents.
struct Product {
  Product(const Host& host, int64_t m, int64_t n, int64_t k, int seed_)
      : rows(m),
        columns(n),
        depth(k),
        seed(seed_),
        a(host.engine.get(), kGpu, "f16", {m, k}),
        b(host.engine.get(), kGpu, "f16", {n, k}),
        c(host.engine.get(), kGpu, "f32", {m, n}) {
    fill(a, m * k, seed);
    fill(b, n * k, seed + 1);
    poison();
  }
  static void fill(Tensor& tensor, int64_t count, int seed) {
    std::vector<uint16_t> values(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = kHalf[whole(i, seed)];
    tensor.upload(values.data(), values.size() * sizeof(uint16_t), nullptr);
  }
  void poison() {
    const std::vector<float> values(static_cast<size_t>(rows * columns), -12345);
    c.upload(values.data(), values.size() * sizeof(float), nullptr);
  }
  kachel_status launch(const Host& host, void* stream, kachel_error** error = nullptr) const {
    const kachel_arg args[] = {arg(a.view()), arg(b.view()), arg(c.view())};
    return kachel_launch(host.kernel.get(), args, 3, nullptr, stream, error);
  }
  // Elements all over it.
  bool right() const {
    std::vector<float> values(static_cast<size_t>(rows * columns));
    c.download(values.data(), values.size() * sizeof(float), nullptr);
    for (int64_t at = 0; at < rows * columns; at += 997) {
      const int64_t row = at / columns, column = at % columns;
      int sum = 0;
      for (int64_t k = 0; k < depth; ++k)
        sum += (whole(row * depth + k, seed) - 2) * (whole(column * depth + k, seed + 1) - 2);
      if (values[static_cast<size_t>(at)] != static_cast<float>(sum)) return false;
    }
    return true;
  }
  int64_t rows, columns, depth;
  int seed;
  Tensor a, b, c;
};

std::unique_ptr<Graphs> graphs_or_skip() {
  auto options = sized<kachel_engine_options>();
  options.store_path = "";
  kachel_engine* engine = nullptr;
  must([&](kachel_error** error) { return kachel_engine_create(&options, &engine, error); });
  const Handle<kachel_engine> owner(engine);
  auto info = sized<kachel_device_info>();
  must([&](kachel_error** error) { return kachel_engine_device_info(engine, 0, &info, error); });
  auto graphs = info.device.type == KACHEL_CUDA ? Graphs::open(0) : nullptr;
  if (!graphs) MESSAGE("SKIPPED: no CUDA device");
  return graphs;
}

}  // namespace

TEST_CASE("a graph is captured in global mode while other threads tune, in the call and in the background") {
  const auto graphs = graphs_or_skip();
  if (!graphs) return;
  for (int32_t policy : {KACHEL_POLICY_BLOCKING, KACHEL_POLICY_BACKGROUND}) {
    CAPTURE(policy);
    Host host(policy), known(KACHEL_POLICY_OFF);
    Product product(known, 300, 520, 264, 1);
    REQUIRE(product.launch(known, nullptr) == KACHEL_OK);
    Stream stream(known);
    stream.wait();
    std::atomic<int> ended = 0;
    std::string trouble;
    std::vector<std::thread> others;
    const auto graph = graphs->capture(stream.handle, [&] {
      for (int seed : {0, 1})
        others.emplace_back([&, seed] {
          try {
            Stream own(host);
            for (int i = 0; i < 2; ++i) {
              Product other(host, 512 + 256 * seed + 64 * i, 768, 1024, 10 * seed + i);
              kachel_error* error = nullptr;
              must(other.launch(host, own.handle, &error), error);
              own.wait();
              if (!other.right()) throw std::runtime_error("a wrong product beside the capture");
            }
          } catch (const std::exception& failure) {
            trouble = failure.what();
          }
          ++ended;
        });
      bool ok = true;
      while (ended < 2) {
        ok = product.launch(known, stream.handle) == KACHEL_OK && ok;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
      return ok;
    });
    for (std::thread& other : others) other.join();
    CHECK(trouble == "");
    REQUIRE(graph != nullptr);
    host.wait();
    CHECK(host.stats().tunings >= 4);
    product.poison();
    graph->launch(stream.handle);
    graph->launch(stream.handle);
    stream.wait();
    CHECK(product.right());
  }
}

TEST_CASE("first calls of unknown keys on a captured stream are replayed rightly or refused as busy") {
  const auto graphs = graphs_or_skip();
  if (!graphs) return;
  for (int32_t policy :
       {KACHEL_POLICY_OFF, KACHEL_POLICY_BLOCKING, KACHEL_POLICY_BACKGROUND, KACHEL_POLICY_CACHED_ONLY}) {
    CAPTURE(policy);
    Host host(policy);
    Stream stream(host);
    Product first(host, 200, 136, 128, 5), second(host, 264, 136, 128, 6);
    kachel_status status = KACHEL_OK;
    const auto graph = graphs->capture(stream.handle, [&] {
      status = first.launch(host, stream.handle);
      if (status == KACHEL_OK) status = second.launch(host, stream.handle);
      return true;  // a refused launch must leave the capture as it is
    });
    CHECK(((status & 0xff) == KACHEL_OK || (status & 0xff) == KACHEL_E_BUSY || (status & 0xff) == KACHEL_E_NOT_CACHED));
    REQUIRE(graph != nullptr);
    graph->launch(stream.handle);
    stream.wait();
    if (status == KACHEL_OK) CHECK((first.right() && second.right()));
    // The same afterwards, without a capture and then with one.
    if (policy == KACHEL_POLICY_CACHED_ONLY) continue;
    for (Product* product : {&first, &second}) {
      product->poison();
      REQUIRE(product->launch(host, stream.handle) == KACHEL_OK);
      stream.wait();
      CHECK(product->right());
      product->poison();
    }
    const auto again = graphs->capture(stream.handle, [&] {
      return first.launch(host, stream.handle) == KACHEL_OK && second.launch(host, stream.handle) == KACHEL_OK;
    });
    REQUIRE(again != nullptr);
    again->launch(stream.handle);
    stream.wait();
    CHECK((first.right() && second.right()));
    host.wait();
  }
}

TEST_CASE("what is passed under background may be overwritten and freed as soon as the call returns") {
  const auto graphs = graphs_or_skip();
  if (!graphs) return;
  Host host(KACHEL_POLICY_BACKGROUND);
  Stream stream(host);
  for (int i = 0; i < 6; ++i) {
    CAPTURE(i);
    std::optional<Product> product(std::in_place, host, 640 + 64 * i, 512, 1024, 20 + i);
    std::optional<Product> expected(std::in_place, host, 640 + 64 * i, 512, 1024, 20 + i);
    REQUIRE(product->launch(host, stream.handle) == KACHEL_OK);
    // In the order of the stream, behind the launch: its inputs become others.
    const std::vector<uint16_t> junk(static_cast<size_t>(product->rows * product->depth), 0x7c01);
    must([&](kachel_error** error) {
      return kachel_memory_copy(host.engine.get(), kGpu, product->a.data(), junk.data(), junk.size() * sizeof(uint16_t),
                                stream.handle, error);
    });
    stream.wait();
    CHECK(product->right());
    product.reset();  // freed while its key waits or is tuned
    if (i % 2) host.wait();
    REQUIRE(expected->launch(host, stream.handle) == KACHEL_OK);
    stream.wait();
    CHECK(expected->right());
  }
  host.wait();
  CHECK(host.stats().background_tunings == 6);
  CHECK(host.stats().background_failures == 0);
}

TEST_CASE("decisions from a store are measured anew while the host launches and replays, and events say so") {
  const auto graphs = graphs_or_skip();
  if (!graphs) return;
  std::string folder = (std::filesystem::temp_directory_path() / "kachel_drift_XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()));
  auto in_store = [&](kachel_engine_options* options) { options->store_path = folder.c_str(); };
  {
    Host first(KACHEL_POLICY_BLOCKING, in_store);
    Product product(first, 768, 520, 1024, 3);
    REQUIRE(product.launch(first, nullptr) == KACHEL_OK);
    CHECK(first.stats().tunings == 1);
  }
  struct Events {
    static void note(void* self, const kachel_event* event) {
      auto* events = static_cast<Events*>(self);
      std::lock_guard lock(events->mutex);
      ++events->kinds[event->kind];
      if (event->kind == KACHEL_EVENT_MESSAGE && event->level >= KACHEL_LOG_WARNING) events->trouble = event->message;
    }
    std::mutex mutex;
    std::map<int32_t, int> kinds;
    std::string trouble;
  } events;
  {
    Host host(KACHEL_POLICY_BLOCKING, [&](kachel_engine_options* options) {
      in_store(options);
      options->drift_check_ns = 1;
      options->event = Events::note;
      options->event_user = &events;
    });
    Stream stream(host);
    Product launched(host, 768, 520, 1024, 3), replayed(host, 768, 520, 1024, 4);
    REQUIRE(replayed.launch(host, stream.handle) == KACHEL_OK);
    const auto graph =
        graphs->capture(stream.handle, [&] { return replayed.launch(host, stream.handle) == KACHEL_OK; });
    REQUIRE(graph != nullptr);
    bool right = true;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (host.stats().drift_checks < 3 && std::chrono::steady_clock::now() < until) {
      launched.poison(), replayed.poison();
      REQUIRE(launched.launch(host, stream.handle) == KACHEL_OK);
      graph->launch(stream.handle);
      stream.wait();
      right = right && launched.right() && replayed.right();
    }
    CHECK(right);
    host.wait();
    const kachel_stats stats = host.stats();
    CHECK(stats.drift_checks >= 3);
    CHECK(stats.tunings == 0);
    CHECK(stats.background_failures == 0);
    const auto of = [&](int32_t kind) { return events.kinds[kind]; };
    CHECK(static_cast<uint64_t>(of(KACHEL_EVENT_DECISION_REPLACED)) == stats.drift_replacements);
    CHECK(static_cast<uint64_t>(of(KACHEL_EVENT_DRIFT_CHECKED) + of(KACHEL_EVENT_DRIFT_NOTICED) +
                                of(KACHEL_EVENT_DECISION_REPLACED)) == stats.drift_checks);
    CHECK(events.trouble == "");
    MESSAGE(stats.drift_checks, " checks, ", of(KACHEL_EVENT_DRIFT_NOTICED), " found it quicker or slower, ",
            stats.drift_replacements, " replaced it");
  }
  std::filesystem::remove_all(folder);
}

}  // namespace serve
