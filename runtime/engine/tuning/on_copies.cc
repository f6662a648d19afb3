#include "runtime/engine/tuning/on_copies.h"

#include "runtime/engine/tuning/snapshot.h"

namespace kachel::runtime {
namespace {

Status work_on_copies(Engine& engine, Device& device, Snapshot& snapshot, const LaunchSettings& settings,
                      const CopiesWork& work) {
  KACHEL_TRY(engine.services().noticed(snapshot.wait()));
  auto stream = device.create_stream();
  if (!stream.ok()) return engine.services().noticed(stream.status());
  Status done = work(snapshot.args(), settings, *stream);
  device.destroy_stream(*stream);
  return done;
}

}  // namespace

Status submit_on_copies(Engine& engine, const void* owner, const LaunchSite& site, CopiesWork work,
                        std::function<void(const Status&)> failed) {
  Device& device = site.device;
  RelaxedCapture relaxed(device);
  const Snapshot::Room room{engine.background_bytes(device), engine.background_taken()};
  auto taken =
      Snapshot::take(device, engine.options().scratch, site.model, site.arguments, site.args, room, site.stream);
  if (!taken.ok()) return engine.services().noticed(taken.status());
  std::shared_ptr<Snapshot> snapshot = *std::move(taken);
  LaunchSettings later = site.settings;
  later.policy = tuner::Policy::kBlocking;
  later.follows = false;
  later.share = engine.options().background_share;
  const bool accepted =
      engine.background().submit(owner, [&engine, &device, snapshot, later, work = std::move(work),
                                         failed = std::move(failed)](const std::atomic<bool>& cancelled) {
        if (engine.frozen()) return;
        LaunchSettings settings = later;
        settings.cancelled = &cancelled;
        RelaxedCapture relaxed(device);
        Status done;
        try {
          done = work_on_copies(engine, device, *snapshot, settings, work);
        } catch (const std::exception& failure) {
          done = internal(failure.what());
        }
        if (!done.ok() && !cancelled.load()) failed(done);
      });
  return accepted ? Status() : Status(Code::kNoMemory, "the process can have no thread more");
}

}  // namespace kachel::runtime
