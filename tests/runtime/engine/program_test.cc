// Programs: several kernels in order with temporaries between them, chosen, launched, bound and refused.
#include <atomic>
#include <bit>
#include <set>

#include "runtime/engine/programs/program_handle.h"
#include "runtime/engine/report/tuning_view.h"
#include "runtime/engine/tuning_hooks.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

// C = A * s * s * 2, by way of a temporary.
constexpr std::string_view kTwice = R"(
program twice<T: f32 | f16>(A: T[M, N], C: out T[M, N], s: f32)
where M < 4096, s < 100.0
key bucket(M), N
tune extra = 0 | 8 | 16
{
  temp P: T[M, N], unused: acc(T)[M + extra, 3]
  scale(A, P, s)
  scale(P, C, s * 2.0)
}
)";

struct Programs : EngineFixture {
  using EngineFixture::EngineFixture;

  std::shared_ptr<ProgramHandle> program(std::string_view text = kTwice, std::vector<ConstValue> consts = {}) {
    auto model = model_of(text, consts);
    REQUIRE_MESSAGE(model.ok(), model.status().message());
    return std::make_shared<ProgramHandle>(engine(), *model);
  }
  static Result<std::shared_ptr<const ProgramModel>> model_of(std::string_view text,
                                                              std::vector<ConstValue> consts = {}) {
    auto module = ir::load(std::string(kScale) + std::string(text));
    REQUIRE_MESSAGE(module.ok(), module.status().message());
    return ProgramModel::create(*module, module->programs.at(0), consts);
  }
  // C = A * s * s * 2 and what it must be.
  Status twice(ProgramHandle& handle, int64_t m, int64_t n, tuner::Policy policy, void* stream = nullptr) {
    HostTensorF32 a({m, n}, 1.5f), c({m, n}, -1);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(3)};
    KACHEL_TRY(handle.launch(args, settings(policy), stream));
    for (float value : c.data)
      if (value != 27) return internal(fmt::format("an element is {}", value));
    return {};
  }
};

constexpr auto kBlocking = tuner::Policy::kBlocking, kOff = tuner::Policy::kOff,
               kCachedOnly = tuner::Policy::kCachedOnly;

}  // namespace

TEST_CASE("a program launches its kernels in order on scratch of its own") {
  Programs f;
  auto handle = f.program();
  CHECK(handle->program().steps.size() == 2);
  CHECK(&handle->step(0) == &handle->step(1));  // one kernel with the same constants
  CHECK(f.twice(*handle, 40, 33, kOff).ok());
  CHECK(f.twice(*handle, 1, 1, kOff).ok());
  CHECK(f.engine()->stats().launches == 4);
  CHECK(f.engine()->stats().tunings == 0);
  CHECK(f.state().live_allocations() == 0);
  CHECK(f.state().guards_intact());
}

TEST_CASE("a program's configuration is tuned once, and so are its kernels") {
  TempDir store;
  {
    Programs f(store.path());
    auto handle = f.program();
    HostTensorF32 a({64, 32}, 1.5f), c({64, 32}, -1);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(3)};
    REQUIRE(handle->prepare(args, f.settings(kBlocking), nullptr).ok());
    CHECK(c.data == std::vector<float>(64 * 32, -1));  // nothing of the caller's is written
    CHECK(f.engine()->stats().tunings == 2);           // the program's and the kernel's
    CHECK(f.state().live_allocations() == 0);
    const uint64_t measured = f.engine()->stats().measurements;
    CHECK(f.twice(*handle, 64, 32, kBlocking).ok());
    CHECK(f.engine()->stats().measurements == measured);
    auto view = read_tuning(*handle, args);
    REQUIRE_MESSAGE(view.ok(), view.status().message());
    CHECK(view->candidates.size() == 3);
    CHECK(view->candidates[2].configuration == "extra=16");
    CHECK(view->winner >= 0);
    auto text = handle->explain(args, f.settings(kOff), ExplainWhat::kSummary);
    REQUIRE_MESSAGE(text.ok(), text.status().message());
    CAPTURE(*text);
    CHECK(text->find("program        twice") == 0);
    CHECK(text->find("the fastest of 3 tuned") != text->npos);
    CHECK(text->find("  P: f32[64, 32]") != text->npos);
    CHECK(text->find("# step 2 of 2\nkernel         scale") != text->npos);
  }
  Programs f(store.path());
  auto handle = f.program();
  CHECK(f.twice(*handle, 64, 32, kCachedOnly).ok());
  CHECK(f.engine()->stats().measurements == 0);
  CHECK(f.engine()->stats().compiles == 0);
  CHECK(f.engine()->stats().lowerings == 0);
  CHECK(f.twice(*handle, 64, 64, kCachedOnly).code() == Code::kNotCached);
}

TEST_CASE("a program's parts may be derived, and so many of them tried as are asked for") {
  std::string text(kTwice);
  text.replace(text.find("tune extra = 0 | 8 | 16"), 23, "tune auto extra");
  Programs f;
  auto handle = f.program(text);
  HostTensorF32 a({64, 32}, 1.5f), c({64, 32}, -1);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(3)};
  LaunchSettings settings = f.settings(kBlocking);
  settings.tune_trials = 2;
  auto hooks = std::make_shared<TuningHooks>();
  std::set<std::string> asked;
  hooks->predict = [&](const TuningCase& tuning, const TuningHooks::Candidates& all, std::vector<double>* ns) {
    asked.insert(tuning.model.kernel.name);
    for (size_t i = 0; i < all.size(); ++i) (*ns)[i] = static_cast<double>(all[i][0]);
    return Status();
  };
  settings.hooks = hooks;
  REQUIRE(handle->launch(args, settings, nullptr).ok());
  CHECK(asked == std::set<std::string>{"twice", "scale"});
  auto view = read_tuning(*handle, args);
  REQUIRE_MESSAGE(view.ok(), view.status().message());
  CHECK(view->candidates.size() >= 5);
  for (const TuningView::Candidate& candidate : view->candidates) {
    const bool small = candidate.configuration == "extra=1" || candidate.configuration == "extra=2";
    CHECK((candidate.state != tuner::CandidateState::kUntried) == small);
  }
  const uint64_t measured = f.engine()->stats().measurements;
  REQUIRE(handle->launch(args, settings, nullptr).ok());
  CHECK(f.engine()->stats().measurements == measured);
}

TEST_CASE("without a tuning the first configuration serves with which each kernel has one of its own") {
  Programs f;
  auto handle = f.program(R"(
kernel parts(A: f32[M, N], S: out f32[M, P])
where P == ceildiv(N, BN)
tune BN = 32 | 64
grid m < M, n < ceildiv(N, BN)
{
  fragment a: f32[BN]
  a = A[m, n*BN +: BN]
  parallel i < 1 { S[m, n] = sum[j < BN](a[j]) }
}
kernel total(S: f32[M, P], C: out f32[M])
grid m < M
{
  fragment s: f32[16]
  s = S[m, 0 +: 16]
  parallel i < 1 { C[m] = sum[j < 16](s[j]) }
}
program sums(A: f32[M, N], C: out f32[M])
tune width = 8 | 64 | 32
{
  temp S: f32[M, ceildiv(N, width)]
  parts(A, S)
  total(S, C)
}
)");
  HostTensorF32 a({3, 500}, 1.5f), c({3}, -1);
  Arg args[] = {a.tensor(), c.tensor()};
  const auto chosen = handle->explain(args, f.settings(kOff), ExplainWhat::kConfiguration);
  REQUIRE_MESSAGE(chosen.ok(), chosen.status().message());
  CHECK(*chosen == "width=64");
}

TEST_CASE("a program and its kernels are tuned in the background") {
  Programs f;
  auto handle = f.program();
  constexpr auto kLater = tuner::Policy::kBackground;
  constexpr int64_t kLong_ns = 60'000'000'000;
  REQUIRE(f.twice(*handle, 64, 32, kLater).ok());
  REQUIRE(f.engine()->background().wait(kLong_ns));
  CHECK(f.engine()->stats().tunings == 2);
  CHECK(f.engine()->stats().background_failures == 0);
  // What served is looked up once more; then nothing moves.
  REQUIRE(f.twice(*handle, 64, 32, kLater).ok());
  REQUIRE(f.engine()->background().wait(kLong_ns));
  const EngineStats before = f.engine()->stats();
  for (int i = 0; i < 3; ++i) REQUIRE(f.twice(*handle, 64, 32, kLater).ok());
  CHECK(f.engine()->background().wait(0));
  CHECK(f.engine()->stats().tunings == 2);
  CHECK(f.engine()->stats().background_tunings == before.background_tunings);
  CHECK(f.twice(*handle, 64, 32, kCachedOnly).ok());
  CHECK(f.state().live_allocations() == 0);
  CHECK(f.state().guards_intact());
  // Released with its tuning under way.
  REQUIRE(f.twice(*handle, 64, 64, kLater).ok());
  handle.reset();
  CHECK(f.engine()->background().wait(0));
  CHECK(f.state().live_allocations() == 0);
}

TEST_CASE("kernels of a prepared or bound program are tuned in the background on what those before them make") {
  std::string text(kTwice);
  text.replace(text.find("tune extra = 0 | 8 | 16\n"), 24, "");
  text.replace(text.find("M + extra"), 9, "M");
  // The second kernel has keys of its own.
  std::string again(kScale);
  again.replace(0, again.find("kernel scale"), "");
  again.replace(0, 12, "kernel again");
  again.replace(again.find("key M, N"), 8, "key N, M");
  text.replace(text.find("scale(P, C"), 10, "again(P, C");
  text = again + text;
  for (const bool bind : {false, true}) {
    Programs f;
    std::atomic<int> strange{0};
    f.cost = [&](int64_t, int64_t, const FakeLaunch& launch) -> int64_t {
      const float read = *reinterpret_cast<const float*>(static_cast<const uint64_t*>(launch.params)[0]);
      strange += launch.stream && read != 1.5f && read != 4.5f;
      return 10'000;
    };
    auto handle = f.program(text);
    HostTensorF32 a({64, 32}, 1.5f), c({64, 32}, -1);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(3)};
    const LaunchSettings later = f.settings(tuner::Policy::kBackground);
    if (bind) {
      auto bound = handle->bind(args, later);
      REQUIRE(bound.ok());
      REQUIRE(f.engine()->background().wait(60'000'000'000));
    } else {
      REQUIRE(handle->prepare(args, later, nullptr).ok());
      REQUIRE(f.engine()->background().wait(60'000'000'000));
    }
    CHECK(f.engine()->stats().tunings == 2);
    CHECK(strange == 0);
    CHECK(f.engine()->stats().background_failures == 0);
    CHECK(c.data[0] == -1);
    const uint64_t tunings = f.engine()->stats().background_tunings;
    REQUIRE(handle->prepare(args, later, nullptr).ok());
    REQUIRE(f.twice(*handle, 64, 32, tuner::Policy::kBackground).ok());
    REQUIRE(f.engine()->background().wait(60'000'000'000));
    CHECK(f.engine()->stats().background_tunings == tunings);
  }
}

TEST_CASE("of a program's configurations the fastest is taken, and one that computes something else never") {
  Programs f;
  // A step takes as long as its scalar says.
  auto handle = f.program(R"(
program grown(A: f32[M, N], C: out f32[M, N], s: f32)
key M, N
tune times = 40 | 10 | 20
{ temp P: f32[M, N] scale(A, P, f32(times)) scale(A, C, s) }
)");
  f.cost = [](int64_t, int64_t, const FakeLaunch& launch) {
    const auto bits = static_cast<uint32_t>(static_cast<const uint64_t*>(launch.params)[6]);
    return 1000 * static_cast<int64_t>(std::bit_cast<float>(bits));
  };
  HostTensorF32 a({16, 16}, 1.5f), c({16, 16}, -1);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
  REQUIRE(handle->prepare(args, f.settings(kBlocking), nullptr).ok());
  auto view = read_tuning(*handle, args);
  REQUIRE_MESSAGE(view.ok(), view.status().message());
  CHECK(view->candidates[static_cast<size_t>(view->winner)].configuration == "times=10");

  auto wrong = f.program(R"(
program wrong(A: f32[M, N], C: out f32[M, N])
key M, N
tune by = 2 | 3
{ scale(A, C, f32(by)) }
)");
  HostTensorF32 d({16, 16}, 1.5f), e({16, 16}, -1);
  Arg others[] = {d.tensor(), e.tensor()};
  REQUIRE(wrong->launch(others, f.settings(kBlocking), nullptr).ok());
  CHECK(e.data[5] == 3);
  view = read_tuning(*wrong, others);
  REQUIRE(view.ok());
  CHECK(view->candidates[1].state == tuner::CandidateState::kRejectedWrong);
  LaunchSettings given = f.settings(kBlocking);
  given.has_configuration = true, given.configuration = "by=3";
  REQUIRE(wrong->launch(others, given, nullptr).ok());
  CHECK(e.data[5] == 4.5f);
  given.configuration = "by=4";
  CHECK(wrong->launch(others, given, nullptr).code() == Code::kInvalid);
}

TEST_CASE("while one of several is chosen the first one's kernels are tuned, the others take what is known") {
  LaunchSettings settings;
  settings.policy = kBlocking;
  settings.tune_budget_ns = 12'000;
  CHECK(candidate_settings(settings, 3, 0, 1).tune_budget_ns == 4'000);
  CHECK(candidate_settings(settings, 3, 0, 5).tune_budget_ns == 2'000);
  CHECK(candidate_settings(settings, 3, 0, 5).policy == kBlocking);
  CHECK(candidate_settings(settings, 3, 4, 5).policy == kOff);
  settings.policy = kCachedOnly;
  CHECK(candidate_settings(settings, 3, 4, 5).policy == kCachedOnly);
}

TEST_CASE("calls whose condition does not hold are left out, with their temporaries") {
  Programs f;
  auto handle = f.program(R"(
program either(A: f32[M, N], C: out f32[M, N], s: f32)
key M, N
tune by_way = 0 | 1
{
  temp P: f32[M, N], Q: f32[M, N]
  if by_way == 1 && M > 4 {
    scale(A, P, s)
    scale(P, C, 1.0)
  } else {
    scale(A, C, s)
  }
}
)");
  CHECK(handle->program().steps.size() == 3);
  auto launches = [&](int64_t m, std::string_view configuration, int64_t temporaries) {
    HostTensorF32 a({m, 8}, 1.5f), c({m, 8}, -1);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(3)};
    LaunchSettings settings = f.settings(kOff);
    settings.has_configuration = true, settings.configuration = configuration;
    const uint64_t before = f.engine()->stats().launches;
    REQUIRE(handle->launch(args, settings, nullptr).ok());
    CHECK(c.data[3] == 4.5f);
    auto bound = handle->bind(args, settings);
    REQUIRE_MESSAGE(bound.ok(), bound.status().message());
    CHECK(f.state().live_allocations() == temporaries);
    void* pointers[] = {a.data.data(), c.data.data()};
    const int64_t scalars[] = {static_cast<int64_t>(std::bit_cast<uint32_t>(2.0f))};
    REQUIRE((*bound)->launch(pointers, scalars, nullptr).ok());
    CHECK(c.data[3] == 3);
    auto text = handle->explain(args, settings, ExplainWhat::kSummary);
    REQUIRE(text.ok());
    CHECK((text->find("  P: f32") != text->npos) == (temporaries > 0));
    CHECK(text->find("  Q: f32") == text->npos);
    return (f.engine()->stats().launches - before) / 2;
  };
  CHECK(launches(16, "by_way=1", 1) == 2);
  CHECK(launches(16, "by_way=0", 0) == 1);
  CHECK(launches(4, "by_way=1", 0) == 1);
}

TEST_CASE("a bound program keeps its temporaries and takes new pointers and scalars") {
  Programs f;
  auto handle = f.program();
  HostTensorF32 a({20, 7}, 1.5f), c({20, 7}, -1), b({20, 7}, 2.0f), d({20, 7}, -1);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(3)};
  {
    auto bound = handle->bind(args, f.settings(kBlocking));
    REQUIRE_MESSAGE(bound.ok(), bound.status().message());
    CHECK(c.data[0] == -1);
    const int64_t live = f.state().live_allocations();
    CHECK(live == 1);
    auto launch = [&](HostTensorF32& from, HostTensorF32& to, float s) {
      void* pointers[] = {from.data.data(), to.data.data()};
      const int64_t scalars[] = {static_cast<int64_t>(std::bit_cast<uint32_t>(s))};
      return (*bound)->launch(pointers, scalars, nullptr);
    };
    CHECK(launch(a, c, 3).ok());
    CHECK(c.data == std::vector<float>(140, 27));
    CHECK(launch(b, d, 0.5f).ok());
    CHECK(d.data == std::vector<float>(140, 1));
    CHECK(launch(b, d, 100).code() == Code::kInvalid);  // `where s < 100`
    CHECK(f.state().live_allocations() == live);
    // A stream under capture is only launched to.
    f.state().set_capturing(nullptr, true);
    CHECK(launch(a, d, 1).ok());
    CHECK(handle->launch(args, f.settings(kBlocking), nullptr).code() == Code::kBusy);
    CHECK_FALSE(handle->bind(args, f.settings(kBlocking)).ok());
    f.state().set_capturing(nullptr, false);
    CHECK(f.state().capture_violations() == 0);
    CHECK(d.data == std::vector<float>(140, 3));
  }
  CHECK(f.state().live_allocations() == 0);
}

TEST_CASE("what is wrong with a program's launch is said, and nothing is left behind") {
  Programs f;
  auto handle = f.program();
  HostTensorF32 a({20, 7}, 1.5f), c({20, 7}, -1), narrow({20, 6}, -1), large({5000, 1}, 1), large_c({5000, 1}, 1);
  auto message = [&](HostTensorF32& from, HostTensorF32& to, double s) {
    Arg args[] = {from.tensor(), to.tensor(), float_arg(s)};
    Status status = handle->launch(args, f.settings(kOff), nullptr);
    CHECK(status.code() == Code::kInvalid);
    return status.message();
  };
  CHECK(message(a, narrow, 1).find("`N`") != std::string::npos);
  CHECK(message(large, large_c, 1).find("M < 4096") != std::string::npos);
  CHECK(message(a, c, 100).find("s < 100.0") != std::string::npos);
  CHECK(message(a, a, 1).find("overlap") != std::string::npos);

  auto shrinking = f.program(
      "program p(A: f32[M, N], C: out f32[M, N], s: f32) { temp P: f32[M - 10, N] scale(A, P, s) scale(P, C, s) }");
  HostTensorF32 b({5, 5}, 1), d({5, 5}, 1);
  Arg args[] = {b.tensor(), d.tensor(), float_arg(1)};
  Status status = shrinking->launch(args, f.settings(kOff), nullptr);
  CHECK(status.code() == Code::kInvalid);
  CHECK(status.message().find("temporary tensor `P`") != std::string::npos);

  // Shapes that do not fit are found where they are passed.
  auto unequal = f.program(
      "program p(A: f32[M, N], C: out f32[M, N], s: f32) { temp P: f32[M, N + 1] scale(A, P, s) scale(A, C, s) }");
  CHECK(unequal->launch(args, f.settings(kOff), nullptr).message().find("kernel `scale`") != std::string::npos);

  Arg good[] = {a.tensor(), c.tensor(), float_arg(3)};
  for (FakeCall call :
       {FakeCall::kAllocate, FakeCall::kLaunch, FakeCall::kCompile, FakeCall::kCreateStream, FakeCall::kCopy}) {
    Programs g;
    auto fresh = g.program();
    g.state().fail(call, 1, Status(call == FakeCall::kAllocate ? Code::kNoMemory : Code::kLaunch, "broken"), 1000);
    Status failed = fresh->launch(good, g.settings(kBlocking), nullptr);
    CAPTURE(static_cast<int>(call));
    CHECK(!failed.ok());
    CHECK(g.state().live_allocations() == 0);
  }
  CHECK(f.state().live_allocations() == 0);
}

TEST_CASE("programs with constants that do not fit are refused when they are got") {
  constexpr std::string_view kFill = R"(
kernel fill<const on: bool, const n: i32>(P: out f32[M, N], s: f32) grid b < M { parallel j < 4 { P[b, j] = on ? s : f32(n) } }
)";
  auto message = [&](std::string_view program, std::vector<ConstValue> consts = {}) {
    auto model = Programs::model_of(std::string(kFill) + std::string(program), consts);
    return model.ok() ? "" : model.status().message();
  };
  const std::string_view good = "program p<const k: i32>(C: out f32[M, N], s: f32) { fill<on = (k > 2), n = k>(C, s) }";
  CHECK(message(good, {{"k", 3, 0}}) == "");
  CHECK(message(good).find("const `k` has no value") != std::string::npos);
  CHECK(message("program p(C: out f32[M, N], s: f32) { fill<on = true, n = 4000000000>(C, s) }")
            .find("is not a value of const `n`") != std::string::npos);
}

}  // namespace kachel::runtime
