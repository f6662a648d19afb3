// A program's own choice in a worker process: what its kernels do to it, the host does not feel.
#include <algorithm>

#include "ir/parse.h"
#include "runtime/engine/programs/program_cargo.h"
#include "runtime/engine/tuning_hooks.h"
#include "tests/runtime/engine/worker_host.h"

namespace kachel::runtime {
namespace {

using tuner::CandidateState;
using tuner::Policy;

// The second one is faster, and has one configuration, so that nothing tries it but the program.
constexpr const char* kEither = R"(
kernel other<T: f32 | f16>(A: T[M, N], C: out T[M, N], s: f32)
key M, N
grid by < ceildiv(M, 128), bx < ceildiv(N, 64)
{
  fragment x: T[128, 64]
  x = A[by*128 +: 128, bx*64 +: 64]
  parallel i < 128, j < 64 { x[i, j] = x[i, j] * s }
  C[by*128 +: 128, bx*64 +: 64] = x
}

program either<T: f32 | f16>(A: T[M, N], C: out T[M, N], s: f32)
key M, N
tune which = 0 | 1
{
  temp P: T[M, N]
  scale(A, P, s)
  if which == 0 { scale(P, C, s) } else { other(P, C, s) }
}
)";

std::shared_ptr<const ProgramModel> model_of(const std::string& text) {
  auto module = ir::load(text);
  REQUIRE_MESSAGE(module.ok(), module.status().message());
  auto model = ProgramModel::create(*module, module->programs.at(0), {});
  REQUIRE_MESSAGE(model.ok(), model.status().message());
  return *model;
}

class Programs : public Host {
 public:
  using Host::Host;

  Status launch(Policy policy = Policy::kBlocking, std::shared_ptr<const TuningHooks> hooks = nullptr) {
    handle = std::make_shared<ProgramHandle>(engine(), model_of(std::string(kScale) + kEither));
    HostTensorF32 a({64, 64}, 1.5f), c({64, 64}, -1);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
    LaunchSettings with = settings(policy);
    with.hooks = std::move(hooks);
    KACHEL_TRY(handle->launch(args, with, nullptr));
    for (float value : c.data)
      if (value != 6) return internal(fmt::format("an element is {}", value));
    return {};
  }
  TuningView tuning() {
    HostTensorF32 a({64, 64}, 1.5f), c({64, 64}, -1);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
    auto view = read_tuning(*handle, args);
    REQUIRE_MESSAGE(view.ok(), view.status().message());
    return *std::move(view);
  }
  std::shared_ptr<ProgramHandle> handle;
};

using Tiles = std::vector<std::string>;

}  // namespace

TEST_CASE("a worker times a program's choice, and this process runs what was chosen alone") {
  TempDir dir;
  {
    Programs host(dir.path());
    const Status launched = host.launch();
    REQUIRE_MESSAGE(launched.ok(), launched.message());
    CHECK(host.launched() == Tiles{"64, 32", "128, 64"});
    CHECK(host.stats().tunings == 2);  // the first kernel's and the program's
    CHECK(host.stats().workers == 2);
    CHECK(host.stats().workers_lost == 0);
    CHECK(host.warnings().empty());
    CHECK(host.state().live_allocations() == 0);
    const TuningView view = host.tuning();
    CHECK(view.winner == 1);
    CHECK(view.candidates[1].median_ns == doctest::Approx(104'000 + 8'000));
    CHECK(view.candidates[0].samples > 0);
  }
  Programs later(dir.path());
  REQUIRE(later.launch().ok());
  CHECK(later.launched() == Tiles{"64, 32", "128, 64"});
  CHECK(later.stats().workers == 0);
  CHECK(later.stats().compiles == 0);
}

TEST_CASE("a choice that takes the worker down costs the worker, and is remembered") {
  for (const auto& [orders, state] : {std::pair("crash@run1:128, 64", CandidateState::kCrashed),
                                      {"crash@run5:128, 64", CandidateState::kCrashed},
                                      {"hang@run1:128, 64", CandidateState::kTimedOut},
                                      {"hang@run4:128, 64", CandidateState::kTimedOut}}) {
    CAPTURE(orders);
    TempDir dir;
    const Orders given(orders);
    {
      Programs host(dir.path());
      const Status launched = host.launch();
      REQUIRE_MESSAGE(launched.ok(), launched.message());
      CHECK(host.launched() == Tiles{"64, 32", "64, 32"});
      CHECK(host.stats().workers_lost >= 1);
      const TuningView view = host.tuning();
      CHECK(view.winner == 0);
      CHECK(view.candidates[1].state == state);
      REQUIRE(host.warnings().size() == 1);
      CHECK_MESSAGE(contains(host.warnings()[0], "program `either`: configuration which=1 is not tried again"),
                    host.warnings()[0]);
    }
    Programs later(dir.path());
    REQUIRE(later.launch().ok());
    CHECK(later.launched() == Tiles{"64, 32", "64, 32"});
    CHECK(later.stats().workers == 0);
  }
}

TEST_CASE("without a worker a program is timed here, or not at all where one is demanded") {
  for (bool required : {false, true}) {
    Programs host("", "/nonexistent/worker");
    host.options.worker.required = required;
    REQUIRE(host.launch().ok());
    CHECK((host.stats().measurements == 0) == required);
    const Tiles launched = host.launched();
    CHECK((std::count(launched.begin(), launched.end(), "128, 64") == 0) == required);
  }
}

TEST_CASE("hooks that take part in runs keep a program's choice in this process") {
  auto hooks = std::make_shared<TuningHooks>();
  int runs = 0;
  hooks->before_run = [&](const TuningCase&, const TunableValues&, void*) {
    ++runs;
    return Status();
  };
  Programs host;
  REQUIRE(host.launch(Policy::kBlocking, hooks).ok());
  CHECK(runs > 0);
  CHECK(host.stats().workers == 0);
}

TEST_CASE("in the background, too, nothing runs here but what serves") {
  Programs host;
  REQUIRE(host.launch(Policy::kBackground).ok());
  REQUIRE(host.engine()->background().wait(60'000'000'000));
  CHECK(host.stats().background_failures == 0);
  CHECK(host.tuning().winner == 1);
  for (const std::string& tile : host.launched()) CHECK((tile == "16, 16" || tile == "64, 32"));
}

TEST_CASE("integers that one kernel makes for another keep a program where its kernels run in order") {
  auto passes = [](const std::string& type) {
    const std::string text =
        "tile 1\nkernel first(A: T[N], P: out T[N])\ngrid n < N\n{ fragment x: T[1]\n"
        "  x = A[n +: 1]\n  P[n +: 1] = x }\n"
        "kernel second(P: T[N], C: out f32[N])\ngrid n < N\n{ fragment x: T[1], y: f32[1]\n"
        "  x = P[n +: 1]\n  parallel i < 1 { y[i] = f32(x[i]) }\n  C[n +: 1] = y }\n"
        "program both(A: T[N], C: out f32[N])\nkey N\n{ temp P: T[N]\n  first(A, P)\n"
        "  second(P, C) }\n";
    std::string typed;
    for (size_t i = 0; i < text.size(); ++i)
      typed += text[i] == 'T' && (text[i + 1] == '[') ? type : std::string(1, text[i]);
    const auto model = model_of(typed);
    return passes_integers(*model, BoundArguments{});
  };
  CHECK(passes("i32"));
  CHECK_FALSE(passes("f32"));
}

TEST_CASE("entries of a store travel whole, or not at all") {
  cache::KeyBuilder key(cache::Kind::kTuning);
  const cache::Entry entries[] = {{key.text("a", "b").finish(), "first"}, {key.u64("c", 1).finish(), ""}};
  const std::string bytes = encode_entries(entries);
  auto store = cache::Store::open({});
  REQUIRE(store.ok());
  for (size_t size = 0; size < bytes.size(); ++size) CHECK_FALSE(keep_entries(**store, bytes.substr(0, size)));
  CHECK_FALSE(keep_entries(**store, bytes + "x"));
  CHECK_FALSE((*store)->get(entries[0].key).has_value());
  REQUIRE(keep_entries(**store, bytes));
  CHECK((*store)->get(entries[0].key) == "first");
  CHECK((*store)->get(entries[1].key) == "");
}

}  // namespace kachel::runtime
