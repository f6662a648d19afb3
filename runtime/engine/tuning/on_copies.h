// Work that a launch leaves to the engine's thread, on copies of its tensors.
#pragma once
#include <functional>
#include <span>

#include "runtime/engine/bind/argument_binder.h"
#include "runtime/engine/launchable.h"

namespace kachel::runtime {

// What is launched, and with what. `stream` is not captured.
struct LaunchSite {
  Device& device;
  const KernelModel& model;
  const BoundArguments& arguments;
  std::span<const Arg> args;
  const LaunchSettings& settings;
  void* stream;
};

// Copies the tensors in the order of the launch's stream and files `work` with Background for `owner`: with the copies,
// settings that may tune within the background's share and can be ended, and a stream of its own. Whatever keeps it
// from being done is given to `failed`, there; not that it was ended. kBusy where other copies take the room that there
// is.
using CopiesWork = std::function<Status(std::span<const Arg> args, const LaunchSettings& settings, void* stream)>;
Status submit_on_copies(Engine& engine, const void* owner, const LaunchSite& site, CopiesWork work,
                        std::function<void(const Status&)> failed);

}  // namespace kachel::runtime
