#include "runtime/engine/tuning/drift_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace kachel::runtime {

DriftWatch::~DriftWatch() {
  if (engine_.in_owner_process()) engine_.background().cancel(this);
}

bool DriftWatch::watches(const LaunchSettings& settings) const {
  return engine_.options().drift_check_ns > 0 && !engine_.frozen() && !settings.cancelled && settings.share == 1;
}

void DriftWatch::served(const std::string& key, const LaunchSite& site, std::span<const Signature> signatures,
                        const Specialisation* serving, bool fresh) {
  const bool may_measure =
      site.settings.policy == tuner::Policy::kBlocking || site.settings.policy == tuner::Policy::kBackground;
  {
    std::lock_guard lock(mutex_);
    if (!fresh && !keys_.contains(key)) return;
    const auto [found, unknown] = keys_.try_emplace(key);
    Key& known = found->second;
    for (const Signature& signature : signatures) {
      auto same = std::find_if(known.served.begin(), known.served.end(),
                               [&](const auto& each) { return each.first == signature; });
      if (same == known.served.end())
        known.served.emplace_back(signature, serving);
      else
        same->second = serving;
    }
    if (!unknown && known.state != State::kDue) return;
    known.state = unknown || !may_measure ? State::kWaiting : State::kChecking;
    if (known.state == State::kWaiting) return wait_for_next(key);
  }
  const std::string kernel = site.model.kernel.name;
  const Status filed = submit_on_copies(
      engine_, this, site,
      [this, key](std::span<const Arg> args, const LaunchSettings& settings, void* stream) -> Status {
        KACHEL_ASSIGN(const bool replaced, check_(args, settings, stream));
        {
          std::lock_guard lock(mutex_);
          keys_[key].state = State::kWaiting;
        }
        if (replaced) forget(key);
        wait_for_next(key);
        return {};
      },
      [this, key, kernel](const Status& why) { give_up(key, kernel, why); });
  if (filed.ok()) return;
  if (filed.code() != Code::kBusy) return give_up(key, kernel, filed);
  std::lock_guard lock(mutex_);
  keys_[key].state = State::kWaiting;
  wait_for_next(key);
}

void DriftWatch::wait_for_next(const std::string& key) {
  (void)engine_.background().submit_after(this, engine_.options().drift_check_ns,
                                          [this, key](const std::atomic<bool>&) { fall_due(key); });
}

void DriftWatch::fall_due(const std::string& key) {
  if (engine_.frozen()) return;
  {
    std::lock_guard lock(mutex_);
    keys_[key].state = State::kDue;
  }
  forget(key);
}

void DriftWatch::forget(const std::string& key) {
  std::vector<std::pair<Signature, const Specialisation*>> served;
  {
    std::lock_guard lock(mutex_);
    served = keys_[key].served;
  }
  for (const auto& [signature, serving] : served) forget_(signature);
}

const Specialisation* DriftWatch::last(const Signature& signature) const {
  std::lock_guard lock(mutex_);
  for (const auto& [key, known] : keys_)
    for (const auto& [each, serving] : known.served)
      if (each == signature) return serving;
  return nullptr;
}

void DriftWatch::give_up(const std::string& key, const std::string& kernel, const Status& why) {
  {
    std::lock_guard lock(mutex_);
    keys_[key].state = State::kGivenUp;
  }
  engine_.counters().background_failures.fetch_add(1, std::memory_order_relaxed);
  engine_.log().write({.kind = EventKind::kUntuned,
                       .level = LogLevel::kWarning,
                       .message = fmt::format("kernel `{}`: its decision for this key is not checked any more: {}",
                                              kernel, why.message()),
                       .kernel = kernel,
                       .key = key});
}

}  // namespace kachel::runtime
