#include "tuner/cost_model.h"

#include <doctest/doctest.h>

namespace kachel::tuner {
namespace {

// 100 multiprocessors, one block each, at one clock a nanosecond.
LaunchCost plain() {
  LaunchCost launch;
  launch.blocks = 1000;
  launch.multiprocessors = 100;
  launch.loops.products = 4000;
  launch.latency = 500;
  return launch;
}

// As long as the longest of what happens at once; longer by a half at most where three take the same time.
void check_takes(const LaunchCost& launch, double longest) {
  CAPTURE(longest);
  CHECK(predict(launch).ns >= longest);
  CHECK(predict(launch).ns <= 1.5 * longest);
}

TEST_CASE("what comes second delays what comes first, the more the nearer it comes") {
  LaunchCost launch = plain();
  launch.blocks = 100;
  double before = 0;
  for (double memory : {0.0, 1000.0, 3000.0, 4000.0}) {
    launch.memory = memory;
    CHECK(predict(launch).ns > before);
    before = predict(launch).ns;
  }
  launch.memory = 1e6;  // far ahead of all else
  CHECK(predict(launch).ns == doctest::Approx(1e6));
}

TEST_CASE("waves: full ones, and one of what is left over") {
  LaunchCost launch = plain();
  const double one = predict(launch).ns / 10;
  check_takes(launch, 10 * 4000);
  CHECK(predict(launch).waves == 10);
  launch.blocks = 1001;
  CHECK(predict(launch).ns == doctest::Approx(11 * one));
  launch.resident = 2;  // they share the unit that they need
  check_takes(launch, 11 * 4000);
  launch.blocks = 1000;
  launch.rest.thread = 4000;  // and overlap the rest
  check_takes(launch, 5 * 8000);
  launch.resident = 1;
  check_takes(launch, 10 * 8000);
  launch.launch = 77;
  launch.clock_mhz = 500;
  check_takes(launch, 2 * (10 * 8000 + 77));
}

TEST_CASE("stages: the memory sets the pace until enough of them are under way") {
  LaunchCost launch = plain();
  launch.warp_groups = launch.releases_later = true;
  launch.blocks = 100;
  launch.loops.fills = 20;
  launch.loops.transfer = 20 * 100;
  auto with_ahead = [&](double ahead) {
    launch.loops.rounds = 20 / ahead;
    return predict(launch);
  };
  CHECK(with_ahead(1).ns == doctest::Approx(20 * 600 + 600).epsilon(0.01));  // and the first one, which nothing hides
  CHECK(with_ahead(1).bound == "latency");
  CHECK(with_ahead(2).ns < 0.6 * with_ahead(1).ns);
  CHECK(with_ahead(4).ns < 0.85 * with_ahead(2).ns);
  CHECK(with_ahead(4).ns < 1.2 * (4000 + 600));
  CHECK(with_ahead(8).ns < with_ahead(4).ns);  // no more is needed, but none is lost
  launch.persistent = true;
  launch.blocks = 1000;
  CHECK(with_ahead(4).ns < 1.2 * (10 * 4000 + 600));
  CHECK(with_ahead(4).bound == "products");
}

TEST_CASE("products and the work on their results") {
  LaunchCost launch = plain();
  launch.blocks = 100;
  launch.warp_groups = true;
  launch.loops.thread = 3000;
  check_takes(launch, 4000 + 3000);
  launch.groups = 2;  // one works while the other multiplies
  check_takes(launch, 2000 + 3000);
  launch.releases_later = true;
  check_takes(launch, 4000);
  launch.groups = 1;
  check_takes(launch, 2000 + 3000);
}

TEST_CASE("each demand bounds, and so does the memory") {
  for (auto demand : {&PartCost::products, &PartCost::operands, &PartCost::shared, &PartCost::scalar,
                      &PartCost::special, &PartCost::l2}) {
    LaunchCost launch = plain();
    launch.loops.*demand += 8000;
    launch.rest.*demand += 1000;
    CHECK(predict(launch).ns >= 10 * 9000);
    CHECK(predict(launch).bound_ns >= 10 * 9000);
    CHECK(predict(launch).bound_ns <= predict(launch).ns);
    launch.memory = 1e6;
    check_takes(launch, 1e6);
    CHECK(predict(launch).bound == "memory");
  }
}

TEST_CASE("more of anything never takes less time") {
  LaunchCost base = plain();
  base.loops = {2000, 1500, 1000, 800, 300, 1200, 1800, 200, 8, 24, 900};
  base.rest = {0, 0, 200, 300, 10, 400, 500, 80, 1, 0, 0};
  for (bool later : {false, true})
    for (bool persistent : {false, true})
      for (double longest : {1.0, 3.0})
        for (int resident : {1, 3}) {
          base.releases_later = later;
          base.persistent = persistent;
          base.longest = longest;
          base.resident = resident;
          base.warp_groups = later;
          const double ns = predict(base).ns;
          for (auto field :
               {&PartCost::products, &PartCost::operands, &PartCost::shared, &PartCost::scalar, &PartCost::special,
                &PartCost::l2, &PartCost::thread, &PartCost::barriers, &PartCost::rounds, &PartCost::transfer})
            for (PartCost LaunchCost::*part : {&LaunchCost::loops, &LaunchCost::rest}) {
              LaunchCost more = base;
              (more.*part).*field += 777;
              CHECK(predict(more).ns >= ns);
            }
          LaunchCost more = base;
          more.blocks += 1;
          CHECK(predict(more).ns >= ns);
          more = base;
          more.latency += 100;
          CHECK(predict(more).ns >= ns);
        }
}

TEST_CASE("many blocks that do nothing take as long as the device needs to begin them") {
  LaunchCost launch;
  launch.rest.thread = 10;
  launch.blocks = 100000;
  launch.resident = 32;
  launch.multiprocessors = 132;
  launch.begins = 200000;
  const Prediction prediction = predict(launch);
  CHECK(prediction.bound == "the beginning of blocks");
  CHECK(prediction.bound_ns == 200000);
  CHECK(prediction.ns >= 200000);
  launch.begins = 10;
  CHECK(predict(launch).ns < 20000);
}

}  // namespace
}  // namespace kachel::tuner
