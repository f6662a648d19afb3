#include "runtime/engine/tuning/deferred.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/engine/tuning/on_copies.h"
#include "runtime/engine/tuning/ranking.h"

namespace kachel::runtime {

Deferred::~Deferred() {
  if (engine_.in_owner_process()) engine_.background().cancel(this);
}

void Deferred::give_up(const std::string& key, const Status& why) {
  Key left;
  {
    std::lock_guard lock(mutex_);
    left = std::exchange(keys_[key], {true, {}, {}});
  }
  engine_.counters().background_failures.fetch_add(1, std::memory_order_relaxed);
  engine_.log().write(
      {.kind = EventKind::kUntuned,
       .level = LogLevel::kWarning,
       .message = fmt::format("kernel `{}` is not tuned in the background, what serves this key now goes on: {}",
                              model_.kernel.name, why.message()),
       .kernel = model_.kernel.name,
       .key = key});
  if (left.whole.empty()) return;
  (void)engine_.background().submit(this, [this, left = std::move(left)](const std::atomic<bool>&) {
    if (engine_.frozen()) return;
    for (const std::function<void()>& whole : left.whole) whole();
    for (const Signature& signature : left.served) forget_(signature);
  });
}

// Until those have gone whose copies take the room: then the handle looks again, and copies.
void Deferred::postpone(const std::string& key) {
  (void)engine_.background().submit(this, [this, key](const std::atomic<bool>&) { forget(key); });
}

void Deferred::forget(const std::string& key) {
  std::vector<Signature> served;
  {
    std::lock_guard lock(mutex_);
    served = std::move(keys_[key].served);
    keys_.erase(key);
  }
  for (const Signature& signature : served) forget_(signature);
}

void Deferred::add(const LaunchSite& site, const Signature& signature, std::function<void()> whole) {
  const std::string key = tuning_key(model_, point_of(model_, site.arguments), site.device.properties()).hex();
  {
    std::lock_guard lock(mutex_);
    const auto [found, fresh] = keys_.try_emplace(key);
    std::vector<Signature>& served = found->second.served;
    if (found->second.given_up) return;
    if (whole) found->second.whole.push_back(std::move(whole));
    if (std::find(served.begin(), served.end(), signature) == served.end()) served.push_back(signature);
    if (!fresh) return;
  }
  const Status filed = submit_on_copies(
      engine_, this, site,
      [this, key](std::span<const Arg> copies, const LaunchSettings& later, void* own_stream) {
        return run(key, copies, later, own_stream);
      },
      [this, key](const Status& why) { give_up(key, why); });
  if (filed.code() == Code::kBusy) return postpone(key);
  if (!filed.ok()) give_up(key, filed);
}

Status Deferred::run(const std::string& key, std::span<const Arg> args, const LaunchSettings& settings, void* stream) {
  const Result<bool> decided = tune_(args, settings, stream);
  if (settings.cancelled->load()) return {};
  KACHEL_TRY(decided.status());
  if (!*decided) return Status(Code::kNoMemory, "there is no memory for it");
  engine_.counters().background_tunings.fetch_add(1, std::memory_order_relaxed);
  forget(key);
  return {};
}

}  // namespace kachel::runtime
