// A device with known truth: candidates have a base time each, and what disturbs real measurements can be dialled in.
// Time passes only when the device does something.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tuner/tuner.h"

namespace kachel::tuner {

class FakeClock final : public Clock {
 public:
  int64_t now_ns() override { return now_ns_; }
  void advance(int64_t ns) { now_ns_ += ns; }

 private:
  std::atomic<int64_t> now_ns_ = 1'000'000;
};

struct SimulatedCandidate {
  double base_ns = 10'000;
  double power = 0;  // slows the device down by this share when run for long
  int64_t compile_ns = 0;
  double expected_compile_ns = std::numeric_limits<double>::quiet_NaN();
  Forecast forecast;
  Status compile;
  std::string flaw;
  Status check;
  int runs_before_failure = -1;  // then `launch_failure`; -1: never fails
  Status launch_failure = {Code::kLaunch, "illegal address"};
  Verdict verdict = Verdict::kFailed;  // of its failures
};

class SimulatedDevice final : public CandidateRunner {
 public:
  struct Event {
    // 'c' compile, 'g' compile the reference, 'p' prepare, 'k' check, 'f' flush, 'o' flush before rotated operands, 'r'
    // timed run, 'b' the host's benchmark, 'a' asked to rotate
    char what;
    size_t index;
  };

  SimulatedDevice(FakeClock& clock, std::vector<SimulatedCandidate> candidates, uint64_t seed = 1)
      : candidates(std::move(candidates)), clock_(clock), random_(seed) {}

  std::vector<SimulatedCandidate> candidates;
  double noise = 0;  // standard deviation relative to the base
  double outlier_rate = 0;
  double outlier_factor = 10;
  std::function<double(int64_t now_ns)> slowdown;  // drift and throttling; 1 is nominal
  std::function<void(size_t index)> on_compile;    // called on the compile threads
  int64_t forecast_ns = 0;
  int64_t flush_ns = 30'000;
  bool rotates = false;  // operands, where asked to
  double asked_to_rotate_ns = 0;
  int64_t check_ns = 100'000;
  bool checks_beside = false;  // the compilations of others
  Status prepare_status;
  std::vector<Harm> harms_of_prepare;
  int calls_left = -1;  // of compile, check and time_once_ns together, until nothing can be tried; -1: no end
  std::function<Result<std::vector<double>>(size_t index)> own_benchmark;

  Forecast forecast(size_t index) override {
    clock_.advance(forecast_ns);
    return candidates[index].forecast;
  }
  double expected_compile_ns(size_t index) override { return candidates[index].expected_compile_ns; }
  Status compile(size_t index) override;
  void compile_reference() override { log('g', 0); }
  bool checks_beside_compiling() const override { return checks_beside; }
  std::string flaw(size_t index) override { return candidates[index].flaw; }
  Status prepare() override;
  Status check(size_t index) override;
  void prepare_run(Caches caches) override;
  bool rotate(double run_ns) override;
  Result<double> time_once_ns(size_t index) override;
  Verdict verdict(size_t index) const override {
    return turned_away_.count(index) ? Verdict::kNotTried : candidates[index].verdict;
  }
  std::vector<Harm> take_harms() override { return std::exchange(harms_, {}); }
  Result<std::vector<double>> benchmark(size_t index) override {
    log('b', index);
    return own_benchmark(index);
  }

  const std::vector<Event>& events() const { return events_; }
  size_t count(char what, size_t index) const;
  size_t count(char what) const;
  // The indices of the timed runs in their order.
  std::vector<size_t> runs() const;
  int most_compiling_at_once() const { return most_compiling_; }

 private:
  double gaussian();
  Status call(size_t index);
  void log(char what, size_t index);

  FakeClock& clock_;
  std::mt19937_64 random_;
  double heat_ = 0;
  Caches caches_ = Caches::kEvicted;  // of the next timed run
  mutable std::mutex mutex_;          // for compile()
  std::set<size_t> turned_away_;
  std::vector<Harm> harms_;
  std::vector<Event> events_;
  int compiling_ = 0, most_compiling_ = 0;
};

// Configurations "i=0", "i=1", ...
std::vector<Configuration> numbered(size_t n);
// Candidates with these base times.
std::vector<SimulatedCandidate> bases(const std::vector<double>& base_ns);
// A request for all candidates of a device, on two workers, without a budget.
TuneRequest request_for(size_t n);

}  // namespace kachel::tuner
