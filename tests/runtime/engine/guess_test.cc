// Which configuration serves a key of which nothing is known, where there is a cost model.
#include "runtime/engine/tuning/guess.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "runtime/engine/specialise/configurations.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

using tuner::Policy;

struct Guessing : EngineFixture {
  explicit Guessing(std::string store = "", int32_t major = 9)
      : EngineFixture(std::move(store), {.multiprocessors = 132, .compute_major = major}) {
    predicts = true;
  }
  // A key that nothing is known of, and what the model expects of each configuration, the most first.
  struct Unknown {
    Device& device;
    Point point;
    std::vector<std::pair<double, TunableValues>> expected;  // ns
    size_t first_listed = 0;                                 // its place among them
  };
  Unknown unknown(KernelHandle& kernel, std::span<const Arg> args) {
    BoundArguments arguments;
    REQUIRE(kernel.bind_arguments(args, arguments).ok());
    Device& device = **engine()->devices().get(kFakeRef);
    const KernelModel& model = kernel.model();
    Unknown made{device, point_of(model, arguments), {}};
    auto candidates = admitted_configurations(model, device.properties(), made.point, arguments.inputs());
    REQUIRE(candidates.ok());
    for (const TunableValues& values : *candidates) {
      const auto predicted = engine()->plans().predict({device, model, made.point, values}, arguments);
      REQUIRE(predicted);
      made.expected.push_back({predicted->time.ns, values});
    }
    const TunableValues listed = made.expected.front().second;
    std::stable_sort(made.expected.begin(), made.expected.end(),
                     [](const auto& one, const auto& other) { return one.first < other.first; });
    while (made.expected[made.first_listed].second != listed) ++made.first_listed;
    return made;
  }
  std::string summary(KernelHandle& kernel, int64_t m, int64_t n) {
    HostTensorF32 a({m, n}, 1), c({m, n}, 0);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(1)};
    auto text = kernel.explain(args, settings(Policy::kOff), ExplainWhat::kSummary);
    REQUIRE_MESSAGE(text.ok(), text.status().message());
    return *text;
  }
};

// kScale with another list.
std::string listing(const std::string& tunables) {
  std::string text = kScale;
  const size_t tune = text.find("tune ");
  return text.replace(tune, text.find('\n', tune) - tune, "tune " + tunables);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

TEST_CASE("off and background serve what the cost model expects most from") {
  for (Policy policy : {Policy::kOff, Policy::kBackground}) {
    Guessing fixture;
    auto kernel = fixture.kernel(listing("BM = 1 | 16 | 64, BN = 32"));
    HostTensorF32 a({2000, 1000}, 1), c({2000, 1000}, 0);
    Arg args[] = {a.tensor(), c.tensor(), float_arg(1)};
    Engine& engine = *fixture.engine();
    const KernelModel& model = kernel->model();
    const Guessing::Unknown key = fixture.unknown(*kernel, args);
    const std::string best = configuration_text(model, key.expected[0].second);
    CHECK(key.first_listed != 0);
    CHECK(*kernel->explain(args, fixture.settings(policy), ExplainWhat::kConfiguration) == best);
    CHECK(has(fixture.summary(*kernel, 2000, 1000), best + ": what the cost model expects most from, of 3 listed"));
    REQUIRE(fixture.scale(*kernel, 2000, 1000, policy).ok());
    if (policy == Policy::kBackground) continue;  // it compiles more by now
    CHECK(engine.stats().compiles == 1);
    for (const auto& [ns, values] : key.expected)
      CHECK(engine.plans().get({key.device, model, key.point, values, false}).ok() ==
            (configuration_text(model, values) == best));
  }
}

TEST_CASE("what compiling takes is expected from what it took, and nothing of what is there") {
  Guessing fixture;
  auto kernel = fixture.kernel(listing("BM = 16 | 64 | 1, BN = 32"));
  HostTensorF32 a({2000, 1000}, 1), c({2000, 1000}, 0);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(1)};
  const Guessing::Unknown key = fixture.unknown(*kernel, args);
  REQUIRE(key.expected.size() == 3);
  PlanBuilder& plans = fixture.engine()->plans();
  const auto request = [&](size_t at) {
    return PlanBuilder::Request{key.device, kernel->model(), key.point, key.expected[at].second};
  };
  CHECK(std::isnan(plans.expected_compile_ns(request(0))));
  REQUIRE(plans.get(request(0)).ok());
  CHECK(plans.expected_compile_ns(request(0)) == 0);
  constexpr double kFakeNs = 1000;  // of any text; all are about as long
  CHECK(plans.expected_compile_ns(request(1)) > 0.5 * kFakeNs);
  CHECK(plans.expected_compile_ns(request(1)) < 2 * kFakeNs);
}

TEST_CASE("in the background what is compiled sooner serves until the key is tuned, if it is little slower") {
  const std::string list = listing("BM = 16 | 1 | 64, BN = 32 | 8");
  Guessing plain;
  auto best = plain.kernel(list);
  const std::string text = plain.summary(*best, 2000, 1000);
  int bm = 0;
  REQUIRE(std::sscanf(text.c_str() + text.find("configuration  BM="), "configuration  BM=%d", &bm) == 1);
  HostTensorF32 a({2000, 1000}, 1), c({2000, 1000}, 0);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(1)};
  Guessing fixture;
  fixture.long_tile = fmt::format("{}, 32", bm);
  auto kernel = fixture.kernel(list);
  const auto served = [&](Policy policy) {
    auto text = kernel->explain(args, fixture.settings(policy), ExplainWhat::kSummary);
    REQUIRE_MESSAGE(text.ok(), text.status().message());
    return *text;
  };
  const std::string chosen = fmt::format("BM={},BN=32", bm);
  CHECK(has(served(Policy::kOff), chosen));
  const std::string soon = served(Policy::kBackground);
  CHECK(!has(soon, chosen));
  CHECK(!has(soon, "BM=1,BN=8"));  // far slower
  CHECK(has(soon, "compiled soon"));
  // What is compiled ahead is the best, since nobody waits; and nothing is quicker than what is there.
  REQUIRE(kernel->compile(args, fixture.settings(Policy::kBackground), 1).ok());
  CHECK(has(served(Policy::kBackground), chosen));
}

TEST_CASE("in the background what is there in its compact form goes on serving") {
  Guessing fixture;
  fixture.has_compact_form = true;
  auto kernel = fixture.kernel();
  HostTensorF32 a({2000, 1000}, 1), c({2000, 1000}, 0);
  Arg args[] = {a.tensor(), c.tensor(), float_arg(1)};
  const Guessing::Unknown key = fixture.unknown(*kernel, args);
  const auto& [time, second] = key.expected[1];
  REQUIRE(time < 1.4 * key.expected[0].first);
  const auto served = [&](Policy policy) {
    return *kernel->explain(args, fixture.settings(policy), ExplainWhat::kConfiguration);
  };
  const KernelModel& model = kernel->model();
  CHECK(served(Policy::kBackground) != configuration_text(model, second));
  const PlanBuilder::Request request{key.device, model, key.point, second};
  REQUIRE(fixture.engine()->plans().get(request.in_compact_form()).ok());
  CHECK(served(Policy::kBackground) == configuration_text(model, second));
  CHECK(served(Policy::kOff) != configuration_text(model, second));
}

// Under the thread sanitizer six lowerings take longer than a guess may.
#ifndef __SANITIZE_THREAD__
TEST_CASE("what the model needs is lowered once for all keys, and binaries that are there are preferred") {
  Guessing fixture;
  auto kernel = fixture.kernel();
  REQUIRE(fixture.scale(*kernel, 2000, 1000, Policy::kOff).ok());
  const int lowered = fixture.lowered;
  CHECK(lowered == 6 + 1);  // for six predictions, and to compile one
  for (int64_t m : {2032, 1008, 1520, 3024}) REQUIRE(fixture.scale(*kernel, m, 1000, Policy::kOff).ok());
  CHECK(fixture.engine()->stats().compiles == 1);
  CHECK(fixture.lowered == lowered);
}
#endif

TEST_CASE("what has been tuned, for this key or another, goes before any guess") {
  Guessing fixture;
  fixture.cost = [](int64_t bm, int64_t bn, const FakeLaunch&) { return bm == 16 && bn == 32 ? 5'000 : 50'000; };
  auto kernel = fixture.kernel();
  REQUIRE(fixture.scale(*kernel, 2000, 1000, Policy::kBlocking).ok());
  CHECK(has(fixture.summary(*kernel, 2000, 1000), "BM=16,BN=32: the fastest of 6 tuned"));
  CHECK(has(fixture.summary(*kernel, 2400, 1000), "BM=16,BN=32: as tuned for the nearest key"));
}

TEST_CASE("a configuration that cannot be built is passed over, and without rates the first listed serves") {
  Guessing fixture;
  auto kernel = fixture.kernel();
  const std::string text = fixture.summary(*kernel, 2000, 1000);
  const size_t at = text.find("configuration  BM=");
  REQUIRE(at != text.npos);
  Guessing refusing;
  int bm = 0, bn = 0;
  REQUIRE(std::sscanf(text.c_str() + at, "configuration  BM=%d,BN=%d", &bm, &bn) == 2);
  refusing.refused_tile = fmt::format("{}, {}", bm, bn);
  auto other = refusing.kernel();
  REQUIRE(refusing.scale(*other, 2000, 1000, Policy::kOff).ok());
  CHECK(!has(refusing.summary(*other, 2000, 1000), fmt::format("BM={},BN={}:", bm, bn)));

  Guessing without("", 0);
  auto plain = without.kernel();
  CHECK(has(without.summary(*plain, 2000, 1000), "BM=16,BN=16: the first of 6 listed"));
}

TEST_CASE("of a long list, configurations all over it are looked at") {
  std::string list = "BM = 1";
  for (int i = 2; i <= 200; ++i) list += fmt::format(" | {}", i);
  Guessing fixture;
  auto kernel = fixture.kernel(listing(list + ", BN = 32 | 16 | 8 | 64"));
  REQUIRE(fixture.scale(*kernel, 2000, 1000, Policy::kOff).ok());
  CHECK(fixture.lowered <= 512 + 1);
  CHECK(!has(fixture.summary(*kernel, 2000, 1000), "BM=1,"));
}

}  // namespace
}  // namespace kachel::runtime
