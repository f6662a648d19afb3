// Kernels whose operands are made ahead, on the CPU: served when it pays, known after a restart, and never a reason to
// fail.
#include <doctest/doctest.h>

#include <cmath>
#include <mutex>
#include <random>
#include <set>

#include "ir/parse.h"
#include "runtime/engine/programs/prepared_forms.h"
#include "runtime/engine/tuning_hooks.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

constexpr DeviceRef kCpu{static_cast<int32_t>(DeviceKind::kCpu), 0};

// Each of the 32 blocks of a row makes the same operand, at a cost far above that of its gemm.
constexpr const char* kDear = R"(tile 1
kernel dear(A: f32[M, K], B: f32[N, K], C: out f32[M, N])
key M, N, K
grid m < ceildiv(M, 32), n < ceildiv(N, 8)
{
  shared a: f32[32, 32], b: f32[8, 32]
  fragment acc: f32[32, 8] = 0
  for k < ceildiv(K, 32) {
    b = B[n*8 +: 8, k*32 +: 32]
    parallel i < 32, j < 32 {
      let x = A[m*32 + i, k*32 + j]
      a[i, j] = sin(tanh(erf(sin(tanh(erf(sin(tanh(erf(x) + 1)) + 2)) * 3)))) - 0.25
    }
    acc += a @ b^T
  }
  C[m*32 +: 32, n*8 +: 8] = acc
}
)";

float dear(double x) {
  return static_cast<float>(
      std::sin(std::tanh(std::erf(std::sin(std::tanh(std::erf(std::sin(std::tanh(std::erf(x) + 1)) + 2)) * 3)))) -
      0.25);
}

class Cpu {
 public:
  explicit Cpu(std::string store = "") {
    options.store_path = std::move(store);
    options.devices.cpu_compiler_path = KACHEL_LLVM_FOLDER;
    options.devices.cpu_threads = 1;  // two that wait for each other take as long as whatever else runs here lets them
    options.tune_budget_ns = 200'000'000'000;  // far more than it takes, sanitizers and a busy machine included
  }

  KernelHandle& kernel(const char* text = kDear) {
    auto made = Engine::create(options);
    REQUIRE_MESSAGE(made.ok(), made.status().message());
    engine = *std::move(made);
    auto module = ir::load(text);
    REQUIRE_MESSAGE(module.ok(), module.status().message());
    auto model = KernelModel::create(module->kernels[0], {});
    REQUIRE_MESSAGE(model.ok(), model.status().message());
    auto forms = PreparedForms::create(engine, module->kernels[0], {}, *model);
    has_forms = forms != nullptr;
    handle = std::make_unique<KernelHandle>(engine, *model, std::move(forms));
    return *handle;
  }

  LaunchSettings settings(tuner::Policy policy) const {
    LaunchSettings made = handle->defaults();
    made.policy = policy;
    return made;
  }

  EngineOptions options;
  std::shared_ptr<Engine> engine;
  std::unique_ptr<KernelHandle> handle;
  bool has_forms = false;
};

struct Operands {
  static constexpr int64_t kM = 70, kN = 250, kK = 90;
  Operands() : a({kM, kK}, 0, kCpu), b({kN, kK}, 0, kCpu), c({kM, kN}, 0, kCpu) {
    std::mt19937 engine(3);
    for (HostTensorF32* tensor : {&a, &b})
      for (float& value : tensor->data) value = static_cast<float>(engine() / 4294967296.0 * 2 - 1);
    clear();
    args[0] = a.tensor(), args[1] = b.tensor(), args[2] = c.tensor();
  }
  void clear() { std::fill(c.data.begin(), c.data.end(), std::nanf("")); }
  // The largest error.
  double off() const {
    double most = 0;
    for (int64_t m = 0; m < kM; ++m)
      for (int64_t n = 0; n < kN; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < kK; ++k) sum += double{dear(a.data[m * kK + k])} * b.data[n * kK + k];
        const double error = std::abs(sum - c.data[m * kN + n]);
        most = error <= most ? most : error;
      }
    return most;
  }
  HostTensorF32 a, b, c;
  Arg args[3];
};

bool served_by_a_program(Cpu& cpu, Operands& operands) {
  auto text = cpu.handle->explain(operands.args, cpu.settings(tuner::Policy::kOff), ExplainWhat::kSummary);
  REQUIRE_MESSAGE(text.ok(), text.status().message());
  return text->find("program        dear_forms") == 0;
}

}  // namespace

TEST_CASE("an operand that is dear to compute is computed once, here and after a restart") {
  TempDir store;
  Operands operands;
  {
    Cpu cpu(store.path());
    KernelHandle& kernel = cpu.kernel();
    REQUIRE(cpu.has_forms);
    CHECK(!served_by_a_program(cpu, operands));
    const auto text = kernel.explain(operands.args, cpu.settings(tuner::Policy::kOff), ExplainWhat::kSummary);
    REQUIRE(text.ok());
    CHECK_MESSAGE(text->find("\nother forms    `a` made ahead: ") != std::string::npos, *text);
    REQUIRE(kernel.launch(operands.args, cpu.settings(tuner::Policy::kBlocking), nullptr).ok());
    CHECK(operands.off() < 1e-4);
    CHECK(served_by_a_program(cpu, operands));
    const EngineStats before = cpu.engine->stats();
    operands.clear();
    REQUIRE(kernel.launch(operands.args, cpu.settings(tuner::Policy::kBlocking), nullptr).ok());
    CHECK(operands.off() < 1e-4);
    CHECK(cpu.engine->stats().launches == before.launches + 2);
    CHECK(cpu.engine->stats().measurements == before.measurements);
    auto bound = kernel.bind(operands.args, cpu.settings(tuner::Policy::kBlocking));
    REQUIRE_MESSAGE(bound.ok(), bound.status().message());
    operands.clear();
    void* pointers[] = {operands.a.data.data(), operands.b.data.data(), operands.c.data.data()};
    REQUIRE((*bound)->launch(pointers, nullptr, nullptr).ok());
    CHECK(operands.off() < 1e-4);
  }
  for (tuner::Policy policy : {tuner::Policy::kCachedOnly, tuner::Policy::kOff, tuner::Policy::kBlocking}) {
    Cpu cpu(store.path());
    KernelHandle& kernel = cpu.kernel();
    operands.clear();
    REQUIRE(kernel.launch(operands.args, cpu.settings(policy), nullptr).ok());
    CHECK(operands.off() < 1e-4);
    const EngineStats stats = cpu.engine->stats();
    CHECK(stats.launches == 2);
    CHECK(stats.specialisations == 3);  // the kernel as it is too, for launches under capture
    CHECK(stats.compiles == 0);
    CHECK(stats.lowerings == 0);
    CHECK(stats.measurements == 0);
  }
}

TEST_CASE("a policy that may not tune leaves the choice to one that may") {
  Operands operands;
  Cpu cpu;
  KernelHandle& kernel = cpu.kernel();
  CHECK(kernel.launch(operands.args, cpu.settings(tuner::Policy::kCachedOnly), nullptr).code() == Code::kNotCached);
  REQUIRE(kernel.launch(operands.args, cpu.settings(tuner::Policy::kOff), nullptr).ok());
  CHECK(cpu.engine->stats().launches == 1);
  CHECK(operands.off() < 1e-4);
  REQUIRE(kernel.prepare(operands.args, cpu.settings(tuner::Policy::kBlocking), nullptr).ok());
  CHECK(served_by_a_program(cpu, operands));
}

TEST_CASE("without memory for the operand the kernel serves as it is") {
  Operands operands;
  Cpu cpu;
  bool has_memory = true;
  std::vector<std::unique_ptr<char[]>> blocks;
  cpu.options.scratch.alloc = [&](DeviceRef, size_t size, size_t align, void*) -> void* {
    if (!has_memory) return nullptr;
    blocks.push_back(std::make_unique<char[]>(size + align));
    const auto address = reinterpret_cast<uintptr_t>(blocks.back().get());
    return reinterpret_cast<void*>((address + align - 1) / align * align);
  };
  KernelHandle& kernel = cpu.kernel();
  REQUIRE(kernel.prepare(operands.args, cpu.settings(tuner::Policy::kBlocking), nullptr).ok());
  has_memory = false;
  REQUIRE(kernel.launch(operands.args, cpu.settings(tuner::Policy::kBlocking), nullptr).ok());
  CHECK(operands.off() < 1e-4);
}

TEST_CASE("forms are the engine's own: all are measured, whatever the trials, and no hook is asked about them") {
  std::string text = kDear;
  text.replace(text.find("key M, N, K"), 11, "key M, N, K\ntune BN = 4 | 8");
  for (const auto& [from, to] : {std::pair("ceildiv(N, 8)", "ceildiv(N, BN)"),
                                 {"b: f32[8,", "b: f32[BN,"},
                                 {"acc: f32[32, 8]", "acc: f32[32, BN]"},
                                 {"B[n*8 +: 8,", "B[n*BN +: BN,"},
                                 {"n*8 +: 8]", "n*BN +: BN]"}})
    text.replace(text.find(from), std::string(from).size(), to);
  std::set<std::string> asked;
  auto hooks = std::make_shared<TuningHooks>();
  auto ask = [&](const TuningCase& tuning) {
    asked.insert(tuning.model.kernel.name);
    return Status();
  };
  hooks->prune = [&](const TuningCase& tuning, auto&, auto*) { return ask(tuning); };
  hooks->predict = [&](const TuningCase& tuning, auto&, auto*) { return ask(tuning); };
  hooks->before_run = hooks->after_run = [&](const TuningCase& tuning, auto&, auto*) { return ask(tuning); };
  hooks->min_runs = hooks->max_runs = 5;
  Operands operands;
  for (bool benchmarks : {false, true}) {
    CAPTURE(benchmarks);
    if (benchmarks)
      hooks->benchmark = [&](const TuningCase& tuning, auto&, TrialRuns& runs) -> Result<std::vector<double>> {
        KACHEL_TRY(ask(tuning));
        KACHEL_TRY(runs.launch(1));
        return std::vector<double>{1, 1, 1};
      };
    bool served = false;
    for (int attempt = 0; attempt < 3 && !served; ++attempt) {  // a busy machine may mislead a measurement
      asked.clear();
      Cpu cpu;
      KernelHandle& kernel = cpu.kernel(text.c_str());
      LaunchSettings settings = cpu.settings(tuner::Policy::kBlocking);
      settings.tune_trials = 1;
      settings.hooks = hooks;
      operands.clear();
      REQUIRE(kernel.launch(operands.args, settings, nullptr).ok());
      CHECK(operands.off() < 1e-4);
      CHECK(asked == std::set<std::string>{"dear"});
      served = served_by_a_program(cpu, operands);
    }
    CHECK(served);
  }
}

TEST_CASE("forms are timed in a worker where there is one") {
  Operands operands;
  Cpu cpu;
  cpu.options.worker.path = KACHEL_WORKER;
  cpu.options.worker.required = true;
  std::mutex mutex;
  std::vector<std::string> warnings;
  cpu.options.log = [&](LogLevel level, std::string_view line) {
    std::lock_guard lock(mutex);
    if (level >= LogLevel::kWarning) warnings.emplace_back(line);
  };
  KernelHandle& kernel = cpu.kernel();
  REQUIRE(kernel.launch(operands.args, cpu.settings(tuner::Policy::kBlocking), nullptr).ok());
  CHECK(operands.off() < 1e-4);
  CHECK(served_by_a_program(cpu, operands));
  const EngineStats stats = cpu.engine->stats();
  CHECK(stats.launches == 2);
  CHECK(stats.workers > 0);
  CHECK(stats.workers_lost == 0);
  CHECK(stats.measurements > 0);
  for (const std::string& warning : warnings) FAIL_CHECK(warning);
}

TEST_CASE("kernels whose operands are only copied have no other form on the CPU") {
  Cpu cpu;
  KernelHandle& kernel = cpu.kernel(R"(tile 1
kernel plain(A: f32[M, K], B: f32[N, K], C: out f32[M, N])
grid m < ceildiv(M, 32), n < ceildiv(N, 8)
{
  shared a: f32[32, 32], b: f32[8, 32]
  fragment acc: f32[32, 8] = 0
  for k < ceildiv(K, 32) { a = A[m*32 +: 32, k*32 +: 32]  b = B[n*8 +: 8, k*32 +: 32]  acc += a @ b^T }
  C[m*32 +: 32, n*8 +: 8] = acc
}
)");
  CHECK(cpu.has_forms);  // for devices that move rows in lines
  Operands operands;
  REQUIRE(kernel.launch(operands.args, cpu.settings(tuner::Policy::kBlocking), nullptr).ok());
  CHECK(cpu.engine->stats().launches == 1);
  CHECK(cpu.engine->stats().measurements == 0);
}

TEST_CASE("in the background the kernel serves as it is until both forms are tuned") {
  Operands operands;
  Cpu cpu;
  KernelHandle& kernel = cpu.kernel();
  const LaunchSettings later = cpu.settings(tuner::Policy::kBackground);
  REQUIRE(kernel.launch(operands.args, later, nullptr).ok());
  CHECK(operands.off() < 1e-4);
  REQUIRE(cpu.engine->background().wait(240'000'000'000));
  CHECK(served_by_a_program(cpu, operands));
  for (int i = 0; i < 3; ++i) {
    const EngineStats before = cpu.engine->stats();
    operands.clear();
    REQUIRE(kernel.launch(operands.args, later, nullptr).ok());
    CHECK(operands.off() < 1e-4);
    REQUIRE(cpu.engine->background().wait(240'000'000'000));
    const EngineStats after = cpu.engine->stats();
    CHECK(after.launches == before.launches + 2);
    CHECK(after.tunings == before.tunings);
    CHECK(after.background_tunings == before.background_tunings);
    CHECK(after.background_failures == 0);
  }
}

}  // namespace kachel::runtime
