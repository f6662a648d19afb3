#include "runtime/engine/specialise/keys.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "lowering/machine/machine.h"
#include "lowering/version.h"
#include "runtime/engine/specialise/cpu_target.h"
#include "runtime/engine/specialise/grid_size.h"

namespace kachel::runtime {
namespace {

constexpr std::string_view kKeyField = "key";

std::vector<uint64_t> words(const std::vector<int64_t>& values) {
  return {values.begin(), values.end()};
}

// The part that all kinds share.
void add_program(cache::KeyBuilder& key, const KernelModel& model, const Point& point) {
  key.text("body", model.body)
      .u64s("consts", model.const_words())
      .u64("types", point.types)
      .u64s("static_dims", words(point.static_dims))
      .u64("facts", point.facts)
      .u64("lowering", lowering::kLoweringVersion)
      // Tunables of these names mean something to the lowering although the body does not show names.
      .i64("threads_tunable", model.threads_tunable)
      .i64("cluster_tunable", model.cluster_tunable)
      .i64("cluster_columns_tunable", model.columns_tunable);
}

void add_machine(cache::KeyBuilder& key, const Point& point, const DeviceProperties& device) {
  key.u64s(kKeyField, words(point.key_values)).text("model", device.model).text("driver", device.driver);
}

// A block for each of its tiles fits the device.
bool fits_at_once(const DeviceProperties& device, const KernelModel& model, const Point& point,
                  const TunableValues& values) {
  const std::optional<uint64_t> tiles = most_tiles(model, point, values);
  return tiles && *tiles <= static_cast<uint64_t>(std::max(device.multiprocessors, 0));
}

}  // namespace

lowering::Target target_of(const DeviceProperties& device, const KernelModel& model, const Point& point,
                           const TunableValues& values) {
  lowering::Target target;
  target.kind = device.compute_major > 0 ? lowering::Target::Kind::kCuda : lowering::Target::Kind::kCpu;
  target.architecture = device.instructions ? device.instructions : 10 * device.compute_major + device.compute_minor;
  target.shared_limit = device.shared_bytes_per_block;
  target.bulk_copies = device.tensor_maps;
  target.bounded_waits = device.bounded_waits;
  target.streaming_stores = device.streaming_stores;
  target.one_tile =
      lowering::has_group_mma(target.architecture) && target.bulk_copies && fits_at_once(device, model, point, values);
  describe_cpu(device.architecture, &target);
  if (model.threads_tunable >= 0)
    target.threads = static_cast<int>(std::clamp<int64_t>(values[model.threads_tunable], 0, 1 << 20));
  if (model.cluster_tunable >= 0)
    target.cluster = static_cast<int>(std::clamp<int64_t>(values[model.cluster_tunable], 1, lowering::kMostCluster));
  if (model.columns_tunable >= 0)
    target.cluster_columns =
        static_cast<int>(std::clamp<int64_t>(values[model.columns_tunable], 1, lowering::kMostCluster));
  return target;
}

cache::Key plan_key(const KernelModel& model, const Point& point, const TunableValues& values,
                    const DeviceProperties& device, bool generic, bool compact, bool reversed) {
  const lowering::Target target = target_of(device, model, point, values);
  cache::KeyBuilder key(cache::Kind::kPlan);
  add_program(key, model, point);
  key.u64s("configuration", words(values))
      .text("architecture", device.architecture)
      .text("flags", std::string(reversed             ? "generic reversed"
                                 : generic            ? "generic"
                                 : target.bulk_copies ? "maps"
                                                      : "") +
                         (target.one_tile && !generic ? " one tile" : "") + (target.bounded_waits ? " bounded" : "") +
                         (compact ? " compact" : "") + (target.streaming_stores ? "" : " cached stores"))
      .i64("instructions", target.architecture)
      .u64("target", static_cast<uint64_t>(target.kind))
      .i64("threads", target.threads)
      .i64("shared_limit", target.shared_limit);
  return key.finish();
}

cache::Key tuning_key(const KernelModel& model, const Point& point, const DeviceProperties& device) {
  cache::KeyBuilder key(cache::Kind::kTuning);
  add_program(key, model, point);
  add_machine(key, point, device);
  return key.finish();
}

std::optional<std::vector<int64_t>> key_values_of_relative(const cache::ParsedKey& own, std::string_view stored) {
  const auto other = cache::parse_key(stored);
  if (!other.ok() || other->kind != own.kind || other->fields.size() != own.fields.size()) return std::nullopt;
  std::optional<std::vector<int64_t>> values;
  for (size_t i = 0; i < own.fields.size(); ++i) {
    const cache::KeyField &mine = own.fields[i], &theirs = other->fields[i];
    if (mine.type != theirs.type || mine.name != theirs.name) return std::nullopt;
    if (mine.name != kKeyField) {
      if (mine.value != theirs.value) return std::nullopt;
      continue;
    }
    if (mine.value.size() != theirs.value.size()) return std::nullopt;
    values.emplace(theirs.value.size() / sizeof(int64_t));
    std::memcpy(values->data(), theirs.value.data(), theirs.value.size());
  }
  return values;
}

cache::Key sample_key(const KernelModel& model, const Point& point, const TunableValues& values,
                      const DeviceProperties& device) {
  cache::KeyBuilder key(cache::Kind::kSample);
  add_program(key, model, point);
  key.u64s("configuration", words(values));
  add_machine(key, point, device);
  return key.finish();
}

}  // namespace kachel::runtime
