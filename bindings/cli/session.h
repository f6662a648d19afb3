// An engine with the command's options, its devices and its counters.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "kachel.h"
#include "options.h"
#include "outcome.h"
#include "remote.h"

namespace kachel::cli {

template <auto kRelease>
struct Releaser {
  template <class T>
  void operator()(T* handle) const {
    kRelease(handle);
  }
};
using EngineHandle = std::unique_ptr<kachel_engine, Releaser<kachel_engine_release>>;
using ModuleHandle = std::unique_ptr<kachel_module, Releaser<kachel_module_release>>;
using KernelHandle = std::unique_ptr<kachel_kernel, Releaser<kachel_kernel_release>>;
using TuningHandle = std::unique_ptr<kachel_tuning, Releaser<kachel_tuning_release>>;
using TextHandle = std::unique_ptr<kachel_text, Releaser<kachel_text_release>>;

// Takes `error`.
Outcome<> outcome_of(kachel_status status, kachel_error* error);

// attempt([&](kachel_error** err) { return kachel_...(..., err); })
template <class F>
Outcome<> attempt(F&& call) {
  kachel_error* error = nullptr;
  kachel_status status = call(&error);
  return outcome_of(status, error);
}

class ProgressReporter;

class Session {
 public:
  // `progress` may be null and must outlive the session. `target`: an architecture in place of the CUDA devices; "":
  // none.
  static Outcome<std::unique_ptr<Session>> open(const Options& options, ProgressReporter* progress,
                                                const std::string& target = "");

  kachel_engine* engine() const { return engine_.get(); }
  Outcome<std::vector<kachel_device_info>> devices() const;
  // The device that `wanted` names: "", "cpu", "cuda", "cuda:1".
  Outcome<kachel_device_info> device(const std::string& wanted) const;
  // Once the remote store has what it is given, or has had its time.
  kachel_stats stats() const;

 private:
  std::unique_ptr<RemoteStore> remote_;  // or null; outlives the engine
  EngineHandle engine_;
};

std::string device_name(kachel_device device);  // "cuda:0", "cpu"
void print_stats(const kachel_stats& stats);

}  // namespace kachel::cli
