#include "runtime/engine/tuning/guess.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <new>
#include <numeric>
#include <thread>
#include <utility>

#include "runtime/engine/threads.h"
#include "runtime/profile_range.h"
#include "tuner/forecast.h"

namespace kachel::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMost = 512;  // configurations that are looked at, where there is time
constexpr size_t kLeast = 16;  // and on a machine that has none, lest what comes first is taken for the best
constexpr unsigned kMostWorkers = 16;
constexpr auto kTime = std::chrono::milliseconds(30);      // a tenth of a compilation
constexpr auto kLowered = std::chrono::microseconds(200);  // a prediction that takes longer had to lower
constexpr double kReadyBand = 1.2;                         // times the best, that one whose binary is there may take
// Of what serves for a while: times the best that it may take, and of its text that it may have.
constexpr double kPassingBand = 1.5, kPassingText = 0.8;

// `count` of `all` indices, in an order whose every beginning is spread over all of them: the last tunables of a list
// vary fastest, and time may run out at any place. Multiples of the golden ratio, modulo 1.
std::vector<size_t> spread(size_t all, size_t count) {
  std::vector<std::pair<double, size_t>> places(all);
  for (size_t i = 0; i < all; ++i) {
    const double turns = static_cast<double>(i) * 0.6180339887498949;
    places[i] = {turns - std::floor(turns), i};
  }
  std::sort(places.begin(), places.end());
  std::vector<size_t> rank(all);
  for (size_t i = 0; i < all; ++i) rank[places[i].second] = i;
  rank.resize(count);
  return rank;
}

}  // namespace

Guess guess(PlanBuilder& plans, Device& device, const KernelModel& model, const Point& point,
            const BoundArguments& arguments, const std::vector<TunableValues>& candidates, unsigned workers,
            bool passing) {
  if (device.properties().compute_major == 0 || model.is_program) return {};
  const ProfileRange range("choose a configuration of {}", model.kernel.name);
  const size_t count = std::min(candidates.size(), kMost);
  // A derived list begins with what is worth trying.
  std::vector<size_t> indices(count);
  std::iota(indices.begin(), indices.end(), size_t{0});
  if (!model.automatic) indices = spread(candidates.size(), count);
  std::vector<tuner::Forecast> forecasts(count);
  std::vector<double> texts(count);
  const auto start = Clock::now();
  std::atomic<size_t> next = 0;
  auto one = [&](size_t at) {
    try {
      const auto predicted = plans.predict({device, model, point, candidates[indices[at]]}, arguments);
      if (!predicted) return;
      forecasts[at] = {.ns = predicted->time.ns, .flawed = predicted->flawed};
      texts[at] = static_cast<double>(predicted->text_bytes);
    } catch (const std::bad_alloc&) {  // nothing is known of it
    }
  };
  one(next++);
  const bool known = Clock::now() - start < kLowered;
  if (!workers) workers = std::min(std::max(std::thread::hardware_concurrency(), 1u), kMostWorkers);
  on_threads(known ? 1 : std::min<size_t>(workers, count), [&] {
    for (size_t at = next++; at < count && (at < kLeast || Clock::now() - start < kTime); at = next++) one(at);
  });

  // Those that are known, in order.
  std::vector<size_t> places(count);
  std::iota(places.begin(), places.end(), size_t{0});
  tuner::order_by_forecast(forecasts, &places);
  std::erase_if(places, [&](size_t at) { return std::isnan(forecasts[at].ns); });
  if (places.empty()) return {};
  const size_t best = places[0];
  const auto within = [&](size_t at, double times) {
    return !forecasts[at].flawed && forecasts[at].ns <= times * forecasts[best].ns;
  };
  const auto request = [&](size_t at) { return PlanBuilder::Request{device, model, point, candidates[indices[at]]}; };
  auto first = std::find_if(places.begin(), places.end(),
                            [&](size_t at) { return within(at, kReadyBand) && plans.is_built(request(at)); });
  Guess guessed;
  // What a program's first launch has compiled ahead is not to be compiled again in another configuration.
  if (first == places.end() && passing)
    first = std::find_if(places.begin(), places.end(), [&](size_t at) {
      return within(at, kPassingBand) && plans.is_built(request(at).in_compact_form());
    });
  if (first == places.end() && passing)
    for (auto at = places.begin(); at != places.end(); ++at)
      if (within(*at, kPassingBand) &&
          texts[*at] < (first == places.end() ? kPassingText * texts[best] : texts[*first]))
        first = at, guessed.passing = true;
  if (first != places.end()) std::rotate(places.begin(), first, first + 1);
  for (size_t at : places) guessed.order.push_back(candidates[indices[at]]);
  return guessed;
}

}  // namespace kachel::runtime
