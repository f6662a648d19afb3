// What run, tune, explain and compile begin with: an engine, a device, a kernel and its arguments.
#pragma once
#include "progress.h"
#include "tensors.h"

namespace kachel::cli {

struct Launch {
  std::unique_ptr<Session> session;
  kachel_device_info device{};
  Program program;
  std::unique_ptr<Arguments> arguments;
  kachel_launch_options options{};  // configuration points into the Options it was made from
};
// `policy` replaces that of `options`.
// `target` as in Session::open.
Outcome<Launch> prepare_launch(const Options& options, int32_t policy, ProgressReporter* progress,
                               const std::string& target = "");

// The configuration that a launch with these arguments runs now; "" where there is nothing to choose.
std::string serving_configuration(const Launch& launch);

}  // namespace kachel::cli
