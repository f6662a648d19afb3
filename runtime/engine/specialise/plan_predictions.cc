// What the cost model expects of plans, and the lowerings' summaries that it needs, which are kept.
#include <cstring>
#include <limits>

#include "cache/checksum.h"
#include "runtime/engine/specialise/plan_builder.h"
#include "support/bytes.h"

namespace kachel::runtime {
namespace {

constexpr size_t kMostProfiles = 2048;  // up to 12 KB each

uint64_t hash_of(ByteWriter bytes) {
  const cache::Digest digest = cache::digest_of(bytes.take());
  uint64_t code = 0;
  std::memcpy(&code, digest.data(), sizeof code);
  return code;
}

// Of what is compiled and how it is launched.
uint64_t code_of(const lowering::Lowered& lowered) {
  ByteWriter bytes;
  bytes.put_bytes(lowered.text);
  for (const lowering::Slot& slot : lowered.slots)
    bytes.put(static_cast<uint8_t>(slot.kind)), bytes.put(slot.index), bytes.put(slot.axis);
  bytes.put(lowered.threads);
  bytes.put(lowered.shared_bytes);
  return hash_of(std::move(bytes));
}

}  // namespace

std::shared_ptr<const PlanBuilder::Profile> PlanBuilder::profile_of(const Request& request) {
  const DeviceProperties& properties = request.device.properties();
  const std::string name = name_of(properties, key_of(request));
  {
    std::lock_guard lock(mutex_);
    if (const auto found = profiles_.find(name); found != profiles_.end()) return found->second;
  }
  auto profile = std::make_shared<Profile>();
  if (auto lowered = lower_uncounted(request, {}); lowered.ok()) {
    profile->code = code_of(*lowered);
    profile->text_bytes = lowered->text.size();
    profile->lowered.emplace();
    profile->lowered->work = std::move(lowered->work);
    profile->lowered->flaw = std::move(lowered->flaw);
  }
  std::lock_guard lock(mutex_);
  if (profiles_.size() >= kMostProfiles) profiles_.clear();
  return profiles_[name] = std::move(profile);
}

bool PlanBuilder::is_other_code(const Request& one, const Request& other) {
  const auto first = profile_of(one), second = profile_of(other);
  return first->lowered && second->lowered && first->code != second->code;
}

double PlanBuilder::expected_compile_ns(const Request& request) {
  if (is_built(request)) return 0;
  const DeviceProperties& properties = request.device.properties();
  const bool by_text = properties.compute_major > 0;  // which the profiles are there for
  const auto profile = by_text ? profile_of(request) : nullptr;
  std::lock_guard lock(mutex_);
  const Compiled& all = compiled_on(properties);
  if (all.texts == 0 || (by_text && !profile->lowered)) return std::numeric_limits<double>::quiet_NaN();
  if (!by_text) return all.ns / all.texts;
  return all.ns / all.text_bytes * static_cast<double>(profile->text_bytes);
}

std::optional<LaunchPrediction> PlanBuilder::predict(const Request& request, const BoundArguments& arguments) {
  const DeviceProperties& properties = request.device.properties();
  if (properties.compute_major == 0) return std::nullopt;
  const std::shared_ptr<const Profile> profile = profile_of(request);
  if (!profile->lowered) return std::nullopt;
  auto prediction =
      predict_launch(*profile->lowered, request.model, properties, arguments.inputs(request.values.data()));
  if (!prediction) return std::nullopt;
  // Equal extents of the grid come with equal numbers of blocks and code.
  ByteWriter bytes;
  bytes.put(profile->code), bytes.put(prediction->blocks);
  prediction->code = hash_of(std::move(bytes));
  prediction->text_bytes = profile->text_bytes;
  return prediction;
}

}  // namespace kachel::runtime
