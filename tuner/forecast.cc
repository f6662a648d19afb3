#include "tuner/forecast.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <system_error>
#include <thread>

namespace kachel::tuner {
namespace {

// Steps through 0 .. n - 1 by about n over the golden ratio, whose first steps lie apart however many there are.
size_t spread_step(size_t n) {
  auto step = std::max<size_t>(1, static_cast<size_t>(0.6180339887 * static_cast<double>(n)));
  while (std::gcd(step, n) != 1) ++step;
  return step;
}

}  // namespace

std::vector<Forecast> forecast_all(const std::vector<size_t>& indices, CandidateRunner& runner,
                                   const Deadline& deadline, unsigned workers) {
  std::vector<Forecast> forecasts(indices.size());
  const size_t step = spread_step(indices.size());
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t turn = next++; turn < indices.size() && !deadline.passed(); turn = next++) {
      const size_t at = turn * step % indices.size();
      forecasts[at] = runner.forecast(indices[at]);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::min<size_t>(workers, indices.size()); ++i) {
    try {
      threads.emplace_back(work);
    } catch (const std::system_error&) {  // the host is out of threads: this one is there
      break;
    }
  }
  work();
  for (std::thread& thread : threads) thread.join();
  return forecasts;
}

void order_by_forecast(const std::vector<Forecast>& forecasts, std::vector<size_t>* indices) {
  auto class_of = [](const Forecast& forecast) { return forecast.flawed ? 2 : std::isnan(forecast.ns) ? 1 : 0; };
  std::vector<size_t> order(indices->size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Forecast &x = forecasts[a], &y = forecasts[b];
    if (class_of(x) != class_of(y)) return class_of(x) < class_of(y);
    return x.ns < y.ns || (!std::isnan(x.ns) && std::isnan(y.ns));
  });
  std::vector<size_t> sorted;
  for (size_t at : order) sorted.push_back((*indices)[at]);
  *indices = std::move(sorted);
}

}  // namespace kachel::tuner
