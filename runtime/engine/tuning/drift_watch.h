// Decisions that a handle has found in the store, looked at again now and then: drivers, clocks and neighbours change
// what is fastest.
//
//   found ─► so much time ─► due: the handle forgets what serves ─► its next launch copies the inputs, is served as
//   before ─► later, in the background: winner and runners-up are measured together ─► another wins clearly? it is
//   stored, and the handle forgets once more ─► so much time ...
//
// Warm launches know nothing of this: what they would have to count is left to the clock, and a key that nobody
// launches is not measured.
#pragma once
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/engine/bind/signature.h"
#include "runtime/engine/tuning/on_copies.h"

namespace kachel::runtime {

class Specialisation;

// Thread-safe. A member of its handle, and among the first to go.
class DriftWatch {
 public:
  // What a check does, on copies: whether the decision is another one now. And what the handle is to look up anew.
  using Check = std::function<Result<bool>(std::span<const Arg> args, const LaunchSettings& settings, void* stream)>;
  using Forget = std::function<void(const Signature& signature)>;

  DriftWatch(Engine& engine, Check check, Forget forget)
      : engine_(engine), check_(std::move(check)), forget_(std::move(forget)) {}
  // Waits for the check that runs, which ends behind its present candidate.
  ~DriftWatch();
  DriftWatch(const DriftWatch&) = delete;
  DriftWatch& operator=(const DriftWatch&) = delete;

  // Whether a launch with these settings is to be told of: the host wants checks, and it is not within a tuning.
  bool watches(const LaunchSettings& settings) const;
  // A launch has looked up its decision, and `serving` is published for these signatures. `fresh`: the decision came
  // from the store, and not from a tuning of this engine's.
  void served(const std::string& key, const LaunchSite& site, std::span<const Signature> signatures,
              const Specialisation* serving, bool fresh);
  // What served before it was forgotten for a look, for a launch that may look up nothing; null: not known.
  const Specialisation* last(const Signature& signature) const;

 private:
  enum class State { kWaiting, kDue, kChecking, kGivenUp };
  struct Key {
    State state = State::kWaiting;
    std::vector<std::pair<Signature, const Specialisation*>> served;
  };
  void wait_for_next(const std::string& key);
  void fall_due(const std::string& key);
  void forget(const std::string& key);
  void give_up(const std::string& key, const std::string& kernel, const Status& why);

  Engine& engine_;
  const Check check_;
  const Forget forget_;
  mutable std::mutex mutex_;  // guards keys_
  std::unordered_map<std::string, Key> keys_;
};

}  // namespace kachel::runtime
