// What a handle leaves to the engine's thread under the policy background: tuning the keys that it serves undecided.
//
//   launch, key undecided ─► copy the inputs ─► serve what is known ─► return
//                                 └─► later: tune on the copies as `blocking` would ─► the handle forgets what it
//                                     served, and its next launch finds the decision
#pragma once
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/engine/bind/signature.h"
#include "runtime/engine/launchable.h"
#include "runtime/engine/tuning/on_copies.h"

namespace kachel::runtime {

// Thread-safe. A member of its handle, and the first to go.
class Deferred {
 public:
  // What the handle does under the policy blocking before a launch, and whether that has decided; and what it is to
  // look up anew.
  using Tune = std::function<Result<bool>(std::span<const Arg> args, const LaunchSettings& settings, void* stream)>;
  using Forget = std::function<void(const Signature& signature)>;

  Deferred(Engine& engine, const KernelModel& model, Tune tune, Forget forget)
      : engine_(engine), model_(model), tune_(std::move(tune)), forget_(std::move(forget)) {}
  // Waits for the tuning that runs, which ends behind its present candidate.
  ~Deferred();
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;

  // Once a key: one for which it could not be done is left at what serves it, with a line in the log. Copies in the
  // order of the site's stream, which is not captured. `whole`, if there is one, compiles what serves in its whole
  // form, which is served from then on where there is no tuning.
  void add(const LaunchSite& site, const Signature& signature, std::function<void()> whole = nullptr);

 private:
  struct Key {
    bool given_up = false;
    std::vector<Signature> served;  // undecided
    std::vector<std::function<void()>> whole;
  };
  Status run(const std::string& key, std::span<const Arg> args, const LaunchSettings& settings, void* stream);
  void give_up(const std::string& key, const Status& why);
  void postpone(const std::string& key);
  void forget(const std::string& key);

  Engine& engine_;
  const KernelModel& model_;
  const Tune tune_;
  const Forget forget_;
  std::mutex mutex_;  // guards keys_
  std::unordered_map<std::string, Key> keys_;
};

}  // namespace kachel::runtime
