#include "tuner/cost_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kachel::tuner {
namespace {

// Blocks whose lengths differ by more are spread over the multiprocessors as these become free, not in waves.
constexpr double kEvenBlocks = 1.2;
// Of the longest block's time, what the others have to wait for at the end.
constexpr double kUnevenTail = 0.25;
// Of products and the work beside them, whichever is shorter, what is lost where blocks have one warp group each: they
// take no turns, and several of them get in each other's way.
constexpr double kOutOfTurn = 0.5;

// Of two that could set the pace the slower one does, and the other is in its way the more, the nearer it comes: the
// longer by a hundredth where one takes two thirds of the other's time, by an eighth where both take the same. Between
// configurations that the same thing bounds, it prefers those with more room in everything else. The exponent is fitted
// (docs/measurements/tuning.md, "Without a trial").
constexpr double kSharpness = 6;
double together(double a, double b) {
  const double slower = std::max(a, b);
  return slower > 0 ? slower * std::pow(1 + std::pow(std::min(a, b) / slower, kSharpness), 1 / kSharpness) : 0;
}

double latency_of(const LaunchCost& launch, double* first_fill) {
  const PartCost &loops = launch.loops, &rest = launch.rest;
  const double products = loops.products, work = loops.thread;
  const double own = products / std::max(launch.groups, 1);
  double computing = std::max(products, work);
  if (launch.warp_groups) computing = std::max(products, launch.releases_later ? work + own / 2 : work + own);
  computing += loops.barriers;
  double in_loops = computing + loops.rounds * launch.latency;
  if (loops.fills > 0) {
    *first_fill = launch.latency + loops.transfer / loops.fills;
    const double held = launch.releases_later ? std::min(work, own) : computing;
    in_loops = together(computing, loops.rounds * *first_fill + loops.rounds / loops.fills * held);
  }
  return in_loops + rest.products + rest.thread + rest.barriers + rest.rounds * launch.latency;
}

}  // namespace

bool alike(const Effort& a, const Effort& b) {
  constexpr double kApart = 0.05;
  auto sum = [](const Effort& effort) { return effort.operands + effort.shared + effort.scalar + effort.l2; };
  const double most = kApart * std::max(sum(a), sum(b));
  return most > 0 && std::abs(a.operands - b.operands) <= most && std::abs(a.shared - b.shared) <= most &&
         std::abs(a.scalar - b.scalar) <= most && std::abs(a.l2 - b.l2) <= most;
}

Prediction predict(const LaunchCost& launch) {
  const PartCost &loops = launch.loops, &rest = launch.rest;
  const std::pair<std::string_view, double> demands[] = {
      {"products", loops.products + rest.products},        {"operands", loops.operands + rest.operands},
      {"shared memory", loops.shared + rest.shared},       {"instructions", loops.scalar + rest.scalar},
      {"special functions", loops.special + rest.special}, {"L2", loops.l2 + rest.l2},
  };
  const auto largest = std::max_element(std::begin(demands), std::end(demands),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
  double first_fill = 0;
  double latency = latency_of(launch, &first_fill);
  if (!launch.persistent) latency += first_fill;
  const bool alone = launch.warp_groups && launch.releases_later && launch.groups == 1 && launch.resident > 1;
  const double lost = alone ? kOutOfTurn * std::min(loops.products, loops.thread) : 0;
  auto wave = [&](double blocks) { return together(latency + lost, blocks * (largest->second + lost)); };

  const int64_t resident = std::max(launch.resident, 1), places = resident * std::max(launch.multiprocessors, 1);
  const double blocks = static_cast<double>(launch.blocks), full_wave = wave(static_cast<double>(resident));
  Prediction prediction;
  prediction.effort = {
      .operands = blocks * (loops.operands + rest.operands),
      .shared = blocks * (loops.shared + rest.shared),
      .scalar = blocks * (loops.scalar + rest.scalar),
      .l2 = blocks * (loops.l2 + loops.transfer + rest.l2 + rest.transfer),
  };
  prediction.waves = blocks / static_cast<double>(places);
  double clocks = 0;
  if (launch.longest > kEvenBlocks) {
    clocks = std::max((prediction.waves + kUnevenTail * launch.longest) * full_wave, latency * launch.longest);
  } else {
    const int64_t left = launch.blocks % places;
    const int64_t each = (left + launch.multiprocessors - 1) / std::max(launch.multiprocessors, 1);
    clocks = static_cast<double>(launch.blocks / places) * full_wave + (left ? wave(static_cast<double>(each)) : 0);
  }
  if (launch.persistent) clocks += first_fill;

  const double on_units = blocks / std::max(launch.multiprocessors, 1) * largest->second;
  prediction.bound = largest->first;
  double bound = on_units;
  if (launch.memory >= std::max(clocks, on_units)) {
    prediction.bound = "memory";
    bound = launch.memory;
  } else if (latency > std::exp2(1 / kSharpness) * static_cast<double>(resident) * largest->second) {
    prediction.bound = "latency";
    bound = clocks;
  }
  if (launch.begins >= std::max(bound, launch.memory)) {
    prediction.bound = "the beginning of blocks";
    bound = launch.begins;
  }
  const double to_ns = 1000 / launch.clock_mhz;
  prediction.bound_ns = bound * to_ns;
  prediction.ns = (together(together(clocks, launch.memory), launch.begins) + launch.launch) * to_ns;
  return prediction;
}

}  // namespace kachel::tuner
