#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "commands.h"
#include "format.h"
#include "json.h"
#include "launch.h"

namespace kachel::cli {
namespace {

using Clock = std::chrono::steady_clock;

double ns_since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

Outcome<> launch_times(const Launch& launch, int times) {
  for (int i = 0; i < times; ++i)
    KACHEL_CLI_TRY(attempt([&](kachel_error** err) {
      return kachel_launch(launch.program.kernel.get(), launch.arguments->data(), launch.arguments->size(),
                           &launch.options, nullptr, err);
    }));
  return attempt([&](kachel_error** err) {
    return kachel_stream_synchronize(launch.session->engine(), launch.device.device, nullptr, err);
  });
}

struct Timing {
  int launches = 0;
  double median_ns = 0, min_ns = 0;
};

// On a GPU launches are timed in batches, back to back, so that waiting for the device is not counted with each.
Outcome<Timing> time_launches(const Launch& launch, int repeat) {
  int batch = launch.device.device.type == KACHEL_CPU ? 1 : std::max(1, repeat / 5);
  Timing timing;
  std::vector<double> samples;
  while (timing.launches < repeat) {
    int count = std::min(batch, repeat - timing.launches);
    Clock::time_point start = Clock::now();
    KACHEL_CLI_TRY(launch_times(launch, count));
    samples.push_back(ns_since(start) / count);
    timing.launches += count;
  }
  if (!samples.empty()) {
    std::sort(samples.begin(), samples.end());
    timing.min_ns = samples.front();
    timing.median_ns = samples[samples.size() / 2];
  }
  return timing;
}

void print_report(const Launch& launch, const std::string& configuration, double first_ns, const Timing& timing) {
  fmt::print("kernel  {}  {}\n", launch.program.name(), launch.program.shape_text());
  fmt::print("device  {}  {}\n", device_name(launch.device.device), launch.device.name);
  fmt::print("config  {}\n", configuration.empty() ? "(none)" : configuration);
  fmt::print("first   {}\n", format_ns(first_ns));
  if (timing.launches == 0) return;
  double bytes = static_cast<double>(launch.arguments->tensor_bytes());
  fmt::print("launch  {} median, {} least of {}; every tensor once: {} at {:.3g} GB/s\n", format_ns(timing.median_ns),
             format_ns(timing.min_ns), timing.launches, format_bytes(launch.arguments->tensor_bytes()),
             bytes / timing.median_ns);
}

// Programs cannot be checked as a whole, which is better said before they are tuned.
Outcome<> checkable(const Launch& launch) {
  kachel_check_result none{};
  none.struct_size = sizeof none;
  kachel_error* error = nullptr;
  const kachel_status status = kachel_check(launch.program.kernel.get(), nullptr, nullptr, 0, nullptr, &none, &error);
  Outcome<> outcome = outcome_of(status, error);
  return (status & 0xff) == KACHEL_E_UNSUPPORTED ? outcome : Outcome<>();
}

}  // namespace

Outcome<Exit> run(const Options& options) {
  ProgressReporter progress(options.json);
  KACHEL_CLI_LET(launch, prepare_launch(options, options.policy, &progress));
  if (options.check) KACHEL_CLI_TRY(checkable(launch));

  // The check must see the first launch: later ones would read what it wrote to in-out tensors.
  Clock::time_point start = Clock::now();
  KACHEL_CLI_TRY(launch_times(launch, 1));
  double first_ns = ns_since(start);
  std::string configuration = options.configuration.empty() ? serving_configuration(launch) : options.configuration;
  kachel_check_result checked{};
  if (options.check) {
    KACHEL_CLI_LET(result, launch.arguments->check(launch.program.kernel.get(), configuration));
    checked = result;
  }
  KACHEL_CLI_LET(timing, time_launches(launch, options.repeat));

  if (options.json) {
    Json json = json_of(launch.program);
    json["device"] = device_name(launch.device.device);
    json["configuration"] = configuration;
    json["first_launch_ns"] = first_ns;
    json["launches"] = timing.launches;
    json["median_ns"] = timing.median_ns;
    json["min_ns"] = timing.min_ns;
    json["tensor_bytes"] = launch.arguments->tensor_bytes();
    if (options.check) json["check"] = json_of(checked);
    if (options.stats) json["stats"] = json_of(launch.session->stats());
    print_json(json);
  } else {
    print_report(launch, configuration, first_ns, timing);
    if (options.check)
      fmt::print(
          "check   {}: {} elements, {} wrong, {} undecided; half of them are allowed an error of {:.3g} ulp or less\n",
          checked.mismatches == 0 ? "passed" : "FAILED", checked.elements, checked.mismatches, checked.undecided,
          checked.median_bound_ulps);
    if (options.stats) print_stats(launch.session->stats());
  }
  if (checked.mismatches > 0) {
    fmt::print(stderr, "kachel: the result differs from the reference interpreter's: {}\n", checked.first);
    return Exit::kRefused;
  }
  return Exit::kOk;
}

}  // namespace kachel::cli
