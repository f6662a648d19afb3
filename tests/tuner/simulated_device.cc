#include "simulated_device.h"

#include <algorithm>
#include <cmath>
#include <thread>

namespace kachel::tuner {

void SimulatedDevice::log(char what, size_t index) {
  std::lock_guard lock(mutex_);
  events_.push_back({what, index});
}

Status SimulatedDevice::call(size_t index) {
  std::lock_guard lock(mutex_);
  if (calls_left < 0) return {};
  if (calls_left == 0) {
    turned_away_.insert(index);
    return {Code::kLaunch, "nothing can be tried any more"};
  }
  --calls_left;
  return {};
}

Status SimulatedDevice::compile(size_t index) {
  KACHEL_TRY(call(index));
  {
    std::lock_guard lock(mutex_);
    most_compiling_ = std::max(most_compiling_, ++compiling_);
    events_.push_back({'c', index});
  }
  if (on_compile) on_compile(index);
  std::this_thread::yield();
  clock_.advance(candidates[index].compile_ns);
  std::lock_guard lock(mutex_);
  --compiling_;
  return candidates[index].compile;
}

Status SimulatedDevice::prepare() {
  log('p', 0);
  harms_ = harms_of_prepare;
  return prepare_status;
}

Status SimulatedDevice::check(size_t index) {
  KACHEL_TRY(call(index));
  log('k', index);
  clock_.advance(check_ns);
  return candidates[index].check;
}

void SimulatedDevice::prepare_run(Caches caches) {
  caches_ = caches;
  if (caches == Caches::kAsLeft) return;
  log(caches == Caches::kRotated ? 'o' : 'f', 0);
  clock_.advance(flush_ns);
}

bool SimulatedDevice::rotate(double run_ns) {
  log('a', 0);
  asked_to_rotate_ns = run_ns;
  return rotates;
}

Result<double> SimulatedDevice::time_once_ns(size_t index) {
  KACHEL_TRY(call(index));
  log('r', index);
  SimulatedCandidate& candidate = candidates[index];
  if (candidate.runs_before_failure == 0) return candidate.launch_failure;
  if (candidate.runs_before_failure > 0) --candidate.runs_before_failure;
  double ns = candidate.base_ns * (1 + noise * gaussian()) * (1 + heat_);
  if (slowdown) ns *= slowdown(clock_.now_ns());
  if (outlier_rate > 0 && std::uniform_real_distribution<double>()(random_) < outlier_rate) ns *= outlier_factor;
  const double busy = caches_ == Caches::kEvicted ? ns : caches_ == Caches::kAsLeft ? 2 * ns : 10 * ns;
  clock_.advance(static_cast<int64_t>(busy));
  // The clock follows the power drawn over the last 20 ms or so.
  heat_ += (candidate.power - heat_) * (1 - std::exp(-busy / 20e6));
  return ns;
}

double SimulatedDevice::gaussian() {
  std::uniform_real_distribution<double> uniform(1e-12, 1);
  double radius = std::sqrt(-2 * std::log(uniform(random_)));
  return std::clamp(radius * std::cos(2 * 3.14159265358979 * uniform(random_)), -4.0, 4.0);
}

size_t SimulatedDevice::count(char what, size_t index) const {
  std::lock_guard lock(mutex_);
  return std::count_if(events_.begin(), events_.end(),
                       [&](const Event& e) { return e.what == what && e.index == index; });
}

size_t SimulatedDevice::count(char what) const {
  std::lock_guard lock(mutex_);
  return std::count_if(events_.begin(), events_.end(), [&](const Event& e) { return e.what == what; });
}

std::vector<size_t> SimulatedDevice::runs() const {
  std::vector<size_t> out;
  for (const Event& event : events_)
    if (event.what == 'r') out.push_back(event.index);
  return out;
}

std::vector<Configuration> numbered(size_t n) {
  std::vector<Configuration> out;
  for (size_t i = 0; i < n; ++i) out.push_back(*Configuration::make({{"i", static_cast<int64_t>(i)}}));
  return out;
}

std::vector<SimulatedCandidate> bases(const std::vector<double>& base_ns) {
  std::vector<SimulatedCandidate> out;
  for (double ns : base_ns) out.push_back({.base_ns = ns});
  return out;
}

TuneRequest request_for(size_t n) {
  return {.candidates = numbered(n), .budget_ns = Deadline::kNever, .workers = 2};
}

}  // namespace kachel::tuner
