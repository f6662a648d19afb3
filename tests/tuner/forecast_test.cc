#include "tuner/forecast.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "simulated_device.h"

namespace kachel::tuner {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

std::vector<size_t> ordered(const std::vector<Forecast>& forecasts) {
  std::vector<size_t> indices;
  for (size_t i = 0; i < forecasts.size(); ++i) indices.push_back(i);
  order_by_forecast(forecasts, &indices);
  return indices;
}

TEST_CASE("by time, then the unknown, then the flawed; among equals as listed") {
  CHECK(ordered({{3}, {1}, {2}}) == std::vector<size_t>{1, 2, 0});
  CHECK(ordered({{kUnknown}, {5}, {kUnknown}, {5}, {4}}) == std::vector<size_t>{4, 1, 3, 0, 2});
  CHECK(ordered({{1, true}, {kUnknown, true}, {9}, {kUnknown}, {0.5, true}}) == std::vector<size_t>{2, 3, 4, 0, 1});
  std::vector<Forecast> many;
  std::vector<size_t> expected;
  for (size_t i = 0; i < 100; ++i) many.push_back({i % 2 ? 1.0 : 2.0});
  for (size_t first : {1, 0})
    for (size_t i = first; i < 100; i += 2) expected.push_back(i);
  CHECK(ordered(many) == expected);
  many.assign(100, {});
  std::sort(expected.begin(), expected.end());
  CHECK(ordered(many) == expected);
}

TEST_CASE("every candidate is asked for once, on any number of threads, until the deadline") {
  FakeClock clock;
  SimulatedDevice device(clock, bases(std::vector<double>(100, 1)));
  std::vector<size_t> indices;
  for (size_t i = 0; i < 100; i += 2) {
    device.candidates[i].forecast.ns = static_cast<double>(i);
    indices.push_back(i);
  }
  for (unsigned workers : {0u, 1u, 7u, 500u}) {
    const auto found = forecast_all(indices, device, Deadline(clock, clock.now_ns(), Deadline::kNever), workers);
    REQUIRE(found.size() == 50);
    for (size_t at = 0; at < 50; ++at) CHECK(found[at].ns == static_cast<double>(indices[at]));
  }
  for (const Forecast& forecast : forecast_all(indices, device, Deadline(clock, clock.now_ns(), 0), 3))
    CHECK(std::isnan(forecast.ns));
}

TEST_CASE("where time is short, the candidates asked for are from all over the list") {
  for (size_t count : {1, 2, 3, 40, 100, 569}) {
    FakeClock clock;
    SimulatedDevice device(clock, bases(std::vector<double>(count, 1)));
    device.forecast_ns = 1000;
    std::vector<size_t> indices(count);
    std::iota(indices.begin(), indices.end(), size_t{0});
    for (SimulatedCandidate& candidate : device.candidates) candidate.forecast.ns = 1;
    const size_t asked = (count + 3) / 4;
    const auto found =
        forecast_all(indices, device, Deadline(clock, clock.now_ns(), 1000 * static_cast<int64_t>(asked)), 1);
    CHECK(found[0].ns == 1);  // the first one listed, who is the default
    size_t known = 0, gap = 0, longest = 0;
    for (const Forecast& forecast : found) {
      gap = std::isnan(forecast.ns) ? gap + 1 : 0;
      known += !std::isnan(forecast.ns);
      longest = std::max(longest, gap);
    }
    CHECK(known == asked);
    CHECK(longest <= 10);  // of about 3 between two on average
  }
}

// Candidates whose forecasts are right up to a factor that varies between them; the default is a bad one.
std::vector<SimulatedCandidate> forecast_candidates(size_t count, int64_t compile_ns) {
  std::vector<double> base_ns;
  for (size_t i = 0; i < count; ++i) base_ns.push_back(10'000 + 500.0 * static_cast<double>((i * 37 + 20) % count));
  std::vector<SimulatedCandidate> candidates = bases(base_ns);
  for (size_t i = 0; i < count; ++i) {
    candidates[i].compile_ns = compile_ns;
    candidates[i].forecast.ns = 3 * base_ns[i] * (1 + 0.02 * static_cast<double>(i % 4));
  }
  return candidates;
}

size_t fastest(const SimulatedDevice& device) {
  size_t best = 0;
  for (size_t i = 0; i < device.candidates.size(); ++i)
    if (device.candidates[i].base_ns < device.candidates[best].base_ns) best = i;
  return best;
}

TEST_CASE("a short budget comes to the good ones first") {
  auto tune = [](bool forecasts) {
    FakeClock clock;
    SimulatedDevice device(clock, forecast_candidates(54, 200'000'000));
    if (!forecasts)
      for (auto& candidate : device.candidates) candidate.forecast = {};
    TuneRequest request = request_for(54);
    request.budget_ns = 3'000'000'000;
    request.workers = 1;
    TuningResult result = *Tuner().tune(request, device, clock);
    CHECK(result.budget_exhausted);
    CHECK(result.counters.compiled < 20);
    CHECK(result.counters.compiled >= 10);
    CHECK(result.total_ns < 3'500'000'000);
    return device.candidates[result.winner].base_ns / device.candidates[fastest(device)].base_ns;
  };
  CHECK(tune(true) == 1);
  CHECK(tune(false) > 1);
}

TEST_CASE("a budget is not spent on compiling alone: what is compiled is measured, then comes the next batch") {
  FakeClock clock;
  SimulatedDevice device(clock, forecast_candidates(54, 100'000'000));
  TuneRequest request = request_for(54);
  request.budget_ns = 5'000'000'000;
  request.workers = 1;
  TuningResult result = *Tuner().tune(request, device, clock);
  CHECK(result.winner == fastest(device));
  CHECK(result.counters.measured > 24);
  CHECK(result.counters.remeasured == 0);
  CHECK(result.counters.measured == result.counters.compiled);
  std::string phases;
  for (const auto& event : device.events())
    if ((event.what == 'c' || event.what == 'r') && (phases.empty() || phases.back() != event.what))
      phases += event.what;
  CHECK(phases.substr(0, 4) == "crcr");
  // The first batch is the twelve from which most is expected.
  std::vector<size_t> expected(54);
  for (size_t i = 0; i < 54; ++i) expected[i] = i;
  std::stable_sort(expected.begin(), expected.end(), [&](size_t a, size_t b) {
    return device.candidates[a].forecast.ns < device.candidates[b].forecast.ns;
  });
  std::vector<size_t> compiled;
  for (const auto& event : device.events())
    if (event.what == 'c') compiled.push_back(event.index);
  CHECK(std::vector<size_t>(compiled.begin(), compiled.begin() + 12) ==
        std::vector<size_t>(expected.begin(), expected.begin() + 12));
  for (const CandidateRecord& record : result.candidates)
    if (record.state == CandidateState::kMeasured) CHECK(record.message.empty());
}

TEST_CASE("where all are compiled in any case, the longest texts are first") {
  const auto compiled = [](int64_t budget_ns, unsigned workers) {
    FakeClock clock;
    SimulatedDevice device(clock, forecast_candidates(12, 1'000'000));
    for (size_t i = 0; i < 12; ++i) device.candidates[i].forecast.text_bytes = 100 * (i * 7 % 12);
    TuneRequest request = request_for(12);
    request.budget_ns = budget_ns;
    request.workers = workers;
    CHECK(Tuner().tune(request, device, clock).ok());
    std::vector<size_t> order;
    for (const auto& event : device.events())
      if (event.what == 'c') order.push_back(event.index);
    REQUIRE(order.size() == 12);
    const auto longer = [&](size_t a, size_t b) {
      return device.candidates[a].forecast.text_bytes > device.candidates[b].forecast.text_bytes;
    };
    return std::is_sorted(order.begin(), order.end(), longer);
  };
  CHECK(compiled(Deadline::kNever, 1));
  CHECK(!compiled(60'000'000'000, 1));  // the most promising first, as long as nobody knows how long they take
}

TEST_CASE("batches are compared in a session of their own, whatever the clock did between them") {
  FakeClock clock;
  SimulatedDevice device(clock, bases(std::vector<double>(36, 15'000)));
  for (size_t i = 0; i < 36; ++i) {
    device.candidates[i].compile_ns = 100'000'000;
    device.candidates[i].forecast.ns = static_cast<double>(i);
  }
  device.candidates[0].base_ns = 10'000;  // of the first batch
  device.candidates[13].base_ns = 9'500;  // of the second, which is measured at a lower clock
  const int64_t start_ns = clock.now_ns();
  device.slowdown = [&](int64_t now_ns) { return now_ns - start_ns < 1'500'000'000 ? 1 : 1.1; };
  TuneRequest request = request_for(36);
  request.budget_ns = 5'000'000'000;
  request.workers = 1;
  TuningResult result = *Tuner().tune(request, device, clock);
  CHECK(result.counters.measured == 36);
  CHECK(result.winner == 13);
  CHECK(result.best().message.empty());
  CHECK(!result.budget_exhausted);
}

TEST_CASE("of candidates that come to the same code the first alone is tried") {
  FakeClock clock;
  SimulatedDevice device(clock, forecast_candidates(12, 1'000'000));
  for (size_t i = 0; i < 12; ++i) device.candidates[i].forecast.code = i % 4 ? 1 + i % 3 : 0;  // 0: not known
  device.candidates[2].forecast.ns = kUnknown;
  const TuningResult result = *Tuner().tune(request_for(12), device, clock);
  for (size_t i = 0; i < 12; ++i) {
    const bool twin = i % 4 && i > 3;
    CAPTURE(i);
    CHECK((result.candidates[i].state == CandidateState::kUntried) == twin);
    CHECK(result.candidates[i].message.starts_with("the same code as") == twin);
    CHECK(result.candidates[i].flaw.empty());
  }
  CHECK(!result.budget_exhausted);
}

TEST_CASE("where all are measured, forecasts change no winner") {
  for (int64_t budget_ns : {Deadline::kNever, int64_t{100'000'000'000}})
    for (int wrong : {0, 1, 2}) {
      FakeClock clock;
      SimulatedDevice device(clock, forecast_candidates(30, 1'000'000));
      device.candidates[7].base_ns = device.candidates[3].base_ns = 5000;  // a tie, which the list breaks
      for (size_t i = 0; i < 30; ++i) {
        Forecast& forecast = device.candidates[i].forecast;
        if (wrong == 1) forecast.ns = 1e9 - forecast.ns;
        if (wrong == 2) forecast = {i % 3 ? forecast.ns : kUnknown, i % 2 == 1};
      }
      TuneRequest request = request_for(30);
      request.budget_ns = budget_ns;
      TuningResult result = *Tuner().tune(request, device, clock);
      CHECK(result.winner == 3);
      CHECK(result.counters.measured == 30);
      CHECK(!result.budget_exhausted);
      std::string phases;  // together, as without a budget
      for (const auto& event : device.events())
        if (event.what != 'f' && event.what != 'g' && (phases.empty() || phases.back() != event.what))
          phases += event.what;
      CHECK(phases == "cpkrar");  // asked to rotate between warm-up and rounds
    }
}

TEST_CASE("without forecasts the default is the first, with them it is one of many") {
  for (bool known : {false, true}) {
    FakeClock clock;
    SimulatedDevice device(clock, bases({12'000, 10'000, 11'000}));
    for (size_t i = 0; i < 3 && known; ++i) device.candidates[i].forecast.ns = device.candidates[i].base_ns;
    TuneRequest request = request_for(3);
    request.default_index = 2;
    request.workers = 1;
    REQUIRE(Tuner().tune(request, device, clock).ok());
    for (const auto& event : device.events())
      if (event.what == 'c') {
        CHECK(event.index == (known ? 1 : 2));
        break;
      }
  }
}

}  // namespace
}  // namespace kachel::tuner
