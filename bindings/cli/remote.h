// The store that --remote names, as an engine is given it.
#pragma once
#include <memory>
#include <string>

#include "kachel.h"
#include "outcome.h"

namespace kachel::cli {

// Must outlive the engine that it is attached to.
class RemoteStore {
 public:
  virtual ~RemoteStore() = default;
  virtual void attach(kachel_engine_options* options) = 0;
};

// Fails for an address that is none, and in a command that was built without the library that speaks to servers.
Outcome<std::unique_ptr<RemoteStore>> open_remote(const std::string& address);

}  // namespace kachel::cli
