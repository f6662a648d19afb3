#include "runtime/engine/tuning/deferred.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/engine/tuning/ranking.h"
#include "runtime/engine/tuning/snapshot.h"

namespace kachel::runtime {

Deferred::~Deferred() {
  if (engine_.in_owner_process()) engine_.background().cancel(this);
}

void Deferred::give_up(const std::string& key, const Status& why) {
  {
    std::lock_guard lock(mutex_);
    keys_[key] = {true, {}};
  }
  engine_.counters().background_failures.fetch_add(1, std::memory_order_relaxed);
  engine_.log().write(
      {.kind = EventKind::kUntuned,
       .level = LogLevel::kWarning,
       .message = fmt::format("kernel `{}` is not tuned in the background, what serves this key now goes on: {}",
                              model_.kernel.name, why.message()),
       .kernel = model_.kernel.name,
       .key = key});
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

void Deferred::add(Device& device, const BoundArguments& arguments, std::span<const Arg> args,
                   const LaunchSettings& settings, const Signature& signature, void* stream) {
  const std::string key =
      tuning_key(model_, point_of(model_, arguments), key_values_of(model_, arguments), device.properties()).hex();
  {
    std::lock_guard lock(mutex_);
    const auto [found, fresh] = keys_.try_emplace(key);
    std::vector<Signature>& served = found->second.served;
    if (found->second.given_up) return;
    if (std::find(served.begin(), served.end(), signature) == served.end()) served.push_back(signature);
    if (!fresh) return;
  }
  RelaxedCapture relaxed(device);
  const Snapshot::Room room{engine_.background_bytes(device), engine_.background_taken()};
  auto taken = Snapshot::take(device, engine_.options().scratch, model_, arguments, args, room, stream);
  if (taken.status().code() == Code::kBusy) return postpone(key);
  if (!taken.ok()) return give_up(key, engine_.services().noticed(taken.status()));
  std::shared_ptr<Snapshot> snapshot = *std::move(taken);
  LaunchSettings later = settings;
  later.policy = tuner::Policy::kBlocking;
  later.overlaps = false;
  later.share = engine_.options().background_share;
  const bool accepted =
      engine_.background().submit(this, [this, &device, key, snapshot, later](const std::atomic<bool>& cancelled) {
        if (engine_.frozen()) return;
        LaunchSettings settings = later;
        settings.cancelled = &cancelled;
        RelaxedCapture relaxed(device);
        try {
          if (Status there = snapshot->wait(); !there.ok()) return give_up(key, engine_.services().noticed(there));
          run(device, key, snapshot->args(), settings);
        } catch (const std::exception& failure) {
          give_up(key, internal(failure.what()));
        }
      });
  if (!accepted) give_up(key, Status(Code::kNoMemory, "the process can have no thread more"));
}

void Deferred::run(Device& device, const std::string& key, std::span<const Arg> args, LaunchSettings settings) {
  auto stream = device.create_stream();
  if (!stream.ok()) return give_up(key, engine_.services().noticed(stream.status()));
  const Result<bool> decided = tune_(args, settings, *stream);
  device.destroy_stream(*stream);
  if (settings.cancelled->load()) return;
  if (!decided.ok()) return give_up(key, decided.status());
  if (!*decided) return give_up(key, Status(Code::kNoMemory, "there is no memory for it"));
  engine_.counters().background_tunings.fetch_add(1, std::memory_order_relaxed);
  forget(key);
}

}  // namespace kachel::runtime
