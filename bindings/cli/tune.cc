#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "commands.h"
#include "format.h"
#include "json.h"
#include "launch.h"
#include "table.h"

namespace kachel::cli {
namespace {

// The candidates of a tuning; their strings belong to it.
Outcome<std::vector<kachel_candidate>> candidates_of(const kachel_tuning* tuning) {
  std::vector<kachel_candidate> candidates(static_cast<size_t>(kachel_tuning_count(tuning)));
  for (size_t i = 0; i < candidates.size(); ++i) {
    candidates[i].struct_size = sizeof candidates[i];
    KACHEL_CLI_TRY(outcome_of(kachel_tuning_candidate(tuning, static_cast<int32_t>(i), &candidates[i]), nullptr));
  }
  return candidates;
}

// Slow candidates are dropped (pruned) after some samples; those have a time as well.
bool timed(const kachel_candidate& candidate) {
  return candidate.samples > 0 && candidate.median_ns > 0;
}

// Indices: the finalists by time, then the pruned by theirs, which is less certain, then the others in their own order.
std::vector<size_t> by_time(const std::vector<kachel_candidate>& candidates) {
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  auto class_of = [](const kachel_candidate& c) {
    return !timed(c) ? 2 : c.state == KACHEL_CANDIDATE_MEASURED ? 0 : 1;
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const kachel_candidate &x = candidates[a], &y = candidates[b];
    int x_class = class_of(x), y_class = class_of(y);
    return x_class != y_class ? x_class < y_class : x_class < 2 && x.median_ns < y.median_ns;
  });
  return order;
}

std::string count_or_dash(int64_t value) {
  return value < 0 ? "-" : fmt::format("{}", value);
}

// The candidates are in the program's order, and the first is what a launch takes that does not tune: the yardstick.
// 0 if it did not work.
double untuned_ns(const std::vector<kachel_candidate>& candidates) {
  return !candidates.empty() && timed(candidates.front()) ? candidates.front().median_ns : 0;
}

// Of a derived space most are not tried.
void print_candidates(const std::vector<kachel_candidate>& candidates, int32_t winner, bool all) {
  constexpr size_t kMostUntried = 16;
  double untuned = untuned_ns(candidates);
  using Align = Table::Align;
  Table table({{""},
               {"configuration"},
               {"state"},
               {"time", Align::kRight},
               {"95% interval", Align::kRight},
               {"samples", Align::kRight},
               {"speed-up", Align::kRight},
               {"predicted", Align::kRight},
               {"compile", Align::kRight},
               {"regs", Align::kRight},
               {"shared", Align::kRight},
               {"spill", Align::kRight}});
  size_t untried = 0;
  for (size_t index : by_time(candidates)) {
    const kachel_candidate& c = candidates[index];
    if (c.state == KACHEL_CANDIDATE_UNTRIED && ++untried > kMostUntried && !all) continue;
    bool measured = timed(c);
    table.add(
        {static_cast<int32_t>(index) == winner ? "*" : "", c.configuration, candidate_state_name(c.state),
         measured ? format_ns(c.median_ns) : "",
         measured && c.low_ns < c.high_ns ? fmt::format("{} .. {}", format_ns(c.low_ns), format_ns(c.high_ns)) : "",
         measured ? fmt::format("{}", c.samples) : "",
         measured && untuned > 0 ? fmt::format("{:.2f}", untuned / c.median_ns) : "",
         c.predicted_ns > 0 ? format_ns(c.predicted_ns) : "", c.compile_ns > 0 ? format_ns(c.compile_ns) : "-",
         count_or_dash(c.registers), format_bytes(c.shared_bytes), format_bytes(c.spill_bytes)});
  }
  fmt::print("{}", table.text());
  if (untried > kMostUntried && !all) fmt::print("and {} more untried; --verbose shows all\n", untried - kMostUntried);
}

void print_failures(const std::vector<kachel_candidate>& candidates, int verbosity) {
  int shown = 0;
  for (const kachel_candidate& candidate : candidates) {
    std::string_view message = candidate.message;
    bool failed =
        candidate.state == KACHEL_CANDIDATE_COMPILE_FAILED || candidate.state == KACHEL_CANDIDATE_REJECTED_WRONG ||
        candidate.state == KACHEL_CANDIDATE_LAUNCH_FAILED || candidate.state == KACHEL_CANDIDATE_REJECTED_FLAW ||
        candidate.state == KACHEL_CANDIDATE_CRASHED || candidate.state == KACHEL_CANDIDATE_TIMED_OUT || verbosity > 0;
    if (!failed || message.empty() || (++shown > 3 && verbosity == 0)) continue;
    if (verbosity == 0) message = message.substr(0, message.find('\n'));
    fmt::print("{} {}: {}\n", candidate.configuration, candidate_state_name(candidate.state), message);
  }
  if (shown > 3 && verbosity == 0) fmt::print("and {} more; --verbose shows all\n", shown - 3);
}

}  // namespace

Outcome<Exit> tune(const Options& options) {
  ProgressReporter progress(options.json);
  KACHEL_CLI_LET(launch, prepare_launch(options, KACHEL_POLICY_BLOCKING, &progress));
  KACHEL_CLI_TRY(attempt([&](kachel_error** err) {
    return kachel_prepare(launch.program.kernel.get(), launch.arguments->data(), launch.arguments->size(),
                          &launch.options, nullptr, err);
  }));
  kachel_tuning* found = nullptr;
  KACHEL_CLI_TRY(attempt([&](kachel_error** err) {
    return kachel_tuning_get(launch.program.kernel.get(), launch.arguments->data(), launch.arguments->size(), &found,
                             err);
  }));
  TuningHandle tuning(found);
  KACHEL_CLI_LET(candidates, candidates_of(found));
  int32_t winner = kachel_tuning_winner(found);
  bool from_store = kachel_tuning_from_store(found) != 0;

  if (options.json) {
    Json json = json_of(launch.program);
    json["device"] = device_name(launch.device.device);
    json["from_store"] = from_store;
    json["total_ns"] = kachel_tuning_total_ns(found);
    json["winner"] = winner;
    json["candidates"] = Json::array();
    for (const kachel_candidate& candidate : candidates) json["candidates"].push_back(json_of(candidate));
    if (options.stats) json["stats"] = json_of(launch.session->stats());
    print_json(json);
    return Exit::kOk;
  }
  fmt::print("kernel  {}  {}\n", launch.program.name(), launch.program.shape_text());
  fmt::print("device  {}  {}\n\n", device_name(launch.device.device), launch.device.name);
  if (candidates.size() == 1 && *candidates[0].configuration == '\0') {
    fmt::print(
        "nothing to choose: there are no tunables (`kachel explain` names what kernels of a program would run)\n");
    if (options.stats) print_stats(launch.session->stats());
    return Exit::kOk;
  }
  print_candidates(candidates, winner, options.verbosity > 0);
  print_failures(candidates, options.verbosity);
  if (winner >= 0) {
    const kachel_candidate& best = candidates[static_cast<size_t>(winner)];
    fmt::print("\nwinner  {}", best.configuration);
    if (best.samples > 0) fmt::print("  {}", format_ns(best.median_ns));
    if (winner > 0 && untuned_ns(candidates) > 0)
      fmt::print(", {:.2f} times as fast as the first listed, which is what runs untuned",
                 untuned_ns(candidates) / best.median_ns);
    fmt::print("\n");
  }
  if (candidates.size() == 1 && candidates[0].samples == 0)
    fmt::print("source  the only configuration: there is nothing to measure\n");
  else if (from_store)
    fmt::print("source  the store: nothing was measured now (tuned before in {})\n",
               format_ns(kachel_tuning_total_ns(found)));
  else
    fmt::print("source  measured now, in {}\n", format_ns(kachel_tuning_total_ns(found)));
  if (options.stats) print_stats(launch.session->stats());
  return Exit::kOk;
}

}  // namespace kachel::cli
