// What has failed since it was ranked is remembered: it does not serve first again, and what does harm never does.
#include <set>

#include "runtime/engine/report/tuning_view.h"
#include "runtime/engine/specialise/configurations.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

using tuner::CandidateState;
using tuner::Policy;

// 64 x 32 is the fastest, then 32 x 16. Notes the tile that serves.
class Scene : public EngineFixture {
 public:
  explicit Scene(const std::string& store) : EngineFixture(store) {
    cost = [this](int64_t bm, int64_t bn, const FakeLaunch& launch) -> int64_t {
      if (!launch.stream) served = tile_of(launch.text);
      return bm == 64 && bn == 32 ? 5'000 : bm == 32 && bn == 16 ? 6'000 : 9'000 + bm + bn;
    };
  }
  Status go(Policy policy) { return scale(*kernel(), 64, 64, policy); }
  Result<TuningView> view() {
    HostTensorF32 a({64, 64}, 1.5f), c({64, 64}, -1);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
    return read_tuning(*kernel(), args);
  }
  std::string served;
};

void store_state(const std::string& store, const std::string& configuration, CandidateState state) {
  Scene scene(store);
  auto kernel = scene.kernel();
  HostTensorF32 a({64, 64}, 1.5f), c({64, 64}, -1);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
  BoundArguments arguments;
  REQUIRE(kernel->bind_arguments(args, arguments).ok());
  auto device = scene.engine()->devices().get(kFakeRef);
  REQUIRE(device.ok());
  const Point point = point_of(kernel->model(), arguments);
  TuningStore records(scene.engine()->store(), {kernel->model(), point, (*device)->properties()});
  auto values = parse_configuration(kernel->model(), configuration);
  REQUIRE(values.ok());
  tuner::CandidateRecord record{.configuration = to_configuration(*values), .state = state, .message = "stored"};
  REQUIRE(records.save_samples({record}, {*values}).ok());
}

TEST_CASE("a winner whose launch failed does not serve first after a restart") {
  TempDir dir;
  {
    Scene scene(dir.path());
    REQUIRE(scene.go(Policy::kBlocking).ok());
    CHECK(scene.served == "64, 32");
    auto kernel = scene.kernel();
    REQUIRE(scene.scale(*kernel, 64, 64, Policy::kBlocking).ok());
    scene.state().fail(FakeCall::kLaunch, 1, {Code::kLaunch, "too many resources requested"});
    REQUIRE(scene.scale(*kernel, 64, 64, Policy::kBlocking).ok());
    CHECK(scene.served == "32, 16");
    // The journal says who, among what was stored before.
    const auto changes = scene.engine()->store().journal().changes;
    REQUIRE(!changes.empty());
    for (size_t i = 0; i < changes.size(); ++i) {
      CHECK(changes[i].what == (i + 1 < changes.size() ? cache::ChangeKind::kStored : cache::ChangeKind::kDemoted));
      CHECK(changes[i].label.kernel == "scale");
    }
    CHECK(changes.back().label.description.find("BM=64,BN=32") == 0);
  }
  for (Policy policy : {Policy::kBlocking, Policy::kOff, Policy::kCachedOnly, Policy::kBackground}) {
    Scene scene(dir.path());
    REQUIRE(scene.go(policy).ok());
    CHECK(scene.served == "32, 16");
    CHECK(scene.engine()->stats().measurements == 0);
    auto view = scene.view();
    REQUIRE(view.ok());
    CHECK(view->winner == 2);
    CHECK(view->candidates[5].state == CandidateState::kLaunchFailed);
    CHECK(view->candidates[5].message == "too many resources requested");
    CHECK(view->candidates[5].samples > 0);
  }
}

TEST_CASE("without a decision too, the next launch begins with another one") {
  TempDir dir;
  {
    Scene scene(dir.path());
    auto kernel = scene.kernel();
    REQUIRE(scene.scale(*kernel, 64, 64, Policy::kOff).ok());
    CHECK(scene.served == "16, 16");
    scene.state().fail(FakeCall::kLaunch, 1, {Code::kLaunch, "injected"});
    REQUIRE(scene.scale(*kernel, 64, 64, Policy::kOff).ok());
    CHECK(scene.served == "16, 32");
  }
  Scene scene(dir.path());
  REQUIRE(scene.go(Policy::kOff).ok());
  CHECK(scene.served == "16, 32");
}

TEST_CASE("what crashed, hung or was wrong does not serve untried, and where all did, nothing does") {
  TempDir dir;
  store_state(dir.path(), "BM=16,BN=16", CandidateState::kCrashed);
  store_state(dir.path(), "BM=16,BN=32", CandidateState::kTimedOut);
  store_state(dir.path(), "BM=32,BN=16", CandidateState::kRejectedWrong);
  store_state(dir.path(), "BM=32,BN=32", CandidateState::kLaunchFailed);
  {
    Scene scene(dir.path());
    REQUIRE(scene.go(Policy::kOff).ok());
    CHECK(scene.served == "64, 16");
  }
  store_state(dir.path(), "BM=64,BN=16", CandidateState::kCrashed);
  store_state(dir.path(), "BM=64,BN=32", CandidateState::kCrashed);
  {
    Scene scene(dir.path());
    REQUIRE(scene.go(Policy::kOff).ok());
    CHECK(scene.served == "32, 32");  // the others are worse
  }
  store_state(dir.path(), "BM=32,BN=32", CandidateState::kCrashed);
  Scene scene(dir.path());
  for (Policy policy : {Policy::kOff, Policy::kBackground, Policy::kBlocking}) {
    Status refused = scene.go(policy);
    CHECK(refused.code() == Code::kLaunch);
    CHECK_MESSAGE(refused.message().find("crashed") != std::string::npos, refused.message());
  }
  // Who names one gets it.
  HostTensorF32 a({64, 64}, 1.5f), c({64, 64}, -1);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
  LaunchSettings exact = scene.settings(Policy::kOff);
  exact.has_configuration = true;
  exact.configuration = "BM=64,BN=32";
  CHECK(scene.kernel()->launch(args, exact, nullptr).ok());
}

TEST_CASE("what did harm is run by nobody: not as what others are compared with, nor compiled ahead") {
  TempDir dir;
  store_state(dir.path(), "BM=16,BN=16", CandidateState::kCrashed);
  Scene scene(dir.path());
  std::set<std::string> launched;
  scene.cost = [&](int64_t bm, int64_t bn, const FakeLaunch& launch) -> int64_t {
    launched.insert(tile_of(launch.text));
    return 1000 * bm + bn;
  };
  auto kernel = scene.kernel();
  HostTensorF32 a({64, 64}, 1.5f), c({64, 64}, -1);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(2)};
  auto made = kernel->compile(args, scene.settings(Policy::kOff), 0);
  REQUIRE(made.ok());
  CHECK(made->compiled == 5);
  REQUIRE(scene.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  CHECK(launched == std::set<std::string>{"16, 32", "32, 16", "32, 32", "64, 16", "64, 32"});
  auto view = scene.view();
  REQUIRE(view.ok());
  CHECK(view->candidates[0].state == CandidateState::kCrashed);
}

TEST_CASE("nor does a tuning try again what did harm") {
  TempDir dir;
  store_state(dir.path(), "BM=64,BN=32", CandidateState::kCrashed);
  Scene scene(dir.path());
  REQUIRE(scene.go(Policy::kBlocking).ok());
  CHECK(scene.served == "32, 16");
  auto view = scene.view();
  REQUIRE(view.ok());
  CHECK(view->candidates[5].state == CandidateState::kCrashed);
  CHECK(view->candidates[5].message == "stored");
  CHECK(scene.state().count(FakeCall::kCompile) == 5);
}

}  // namespace
}  // namespace kachel::runtime
