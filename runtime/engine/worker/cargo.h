// What a worker is handed for each candidate, and what it hands back: plans of a kernel, or what the host has decided
// on the kernels of a program.
#pragma once
#include <string>
#include <string_view>

#include "support/status.h"
#include "tuner/runner.h"

namespace kachel::runtime {

class WorkerCargo {
 public:
  virtual ~WorkerCargo() = default;

  // A module with the kernel alone, or with one program and its kernels.
  virtual std::string text() const = 0;
  virtual tuner::Forecast forecast([[maybe_unused]] size_t index) { return {}; }
  // Goes with kCompile; "": nothing is there yet. Called from several threads at once, as incoming() is.
  virtual Result<std::string> outgoing(size_t index) = 0;
  // What a worker has made that was given nothing.
  virtual void incoming([[maybe_unused]] size_t index, [[maybe_unused]] std::string_view made) {}
};

}  // namespace kachel::runtime
