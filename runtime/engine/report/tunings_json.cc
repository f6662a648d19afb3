#include "runtime/engine/report/tunings_json.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/engine/report/entry_label.h"
#include "runtime/engine/tuning/tuning_store.h"
#include "support/bytes.h"

namespace kachel::runtime {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::string_view kBody = "body";

// Where the program's body is in a key.
struct BodyPlace {
  size_t at = 0, size = 0;
};

BodyPlace describe_key(std::string_view key, const cache::ParsedKey& parsed, Json& entry) {
  BodyPlace body;
  for (const cache::KeyField& field : parsed.fields) {
    if (field.name == kBody) {
      body = {static_cast<size_t>(field.value.data() - key.data()), field.value.size()};
    } else if (field.name == "key") {
      std::vector<int64_t> values(field.value.size() / sizeof(int64_t));
      std::memcpy(values.data(), field.value.data(), values.size() * sizeof(int64_t));
      entry["key_values"] = values;
    } else if (field.name == "model") {
      entry["device"] = std::string(field.value);
    } else if (field.name == "driver") {
      entry["driver"] = std::string(field.value);
    }
  }
  return body;
}

void describe_record(const TuningDecision& decision, Json& entry) {
  entry["candidates"] = decision.winner.candidates;
  for (const tuner::WinnerRecord::Ranked& one : decision.winner.ranked)
    entry["ranked"].push_back({{"median_ns", one.median_ns}, {"low_ns", one.ci.low}, {"high_ns", one.ci.high}});
}

void describe_record(const tuner::CandidateRecord& sample, Json& entry) {
  entry["state"] = tuner::state_name(sample.state);
  entry["message"] = sample.message;
  entry["median_ns"] = sample.median_ns;
  entry["sessions"] = Json::array();
  for (const tuner::SampleSet& set : sample.samples) entry["sessions"].push_back(set.ns);
}

// False if the record is none of this version; what it says goes to `entry` (may be null).
bool read_record(cache::Kind kind, std::string_view record, Json* entry) {
  const auto names = summarise_tuning(record);
  if (!names.ok()) return false;
  if (entry) (*entry)["kernel"] = names->kernel, (*entry)["description"] = names->description;
  if (kind == cache::Kind::kTuning) {
    const auto decision = decode_decision(record);
    if (decision && entry) describe_record(*decision, *entry);
    return decision.has_value();
  }
  const auto sample = decode_sample(record);
  if (sample && entry) describe_record(*sample, *entry);
  return sample.has_value();
}

bool is_tuning(cache::Kind kind) {
  return kind == cache::Kind::kTuning || kind == cache::Kind::kSample;
}

// One entry of a text; `bodies` as there.
Result<cache::Entry> entry_of(const Json& json, const std::vector<std::string>& bodies) {
  auto hex = [&](const char* name) -> Result<std::string> {
    if (json.is_object() && json.contains(name) && json[name].is_string())
      if (auto bytes = from_hex(json[name].get_ref<const std::string&>())) return *std::move(bytes);
    return invalid(fmt::format("its `{}` is not a text of hexadecimal digits", name));
  };
  auto number = [&](const char* name) -> Result<uint64_t> {
    if (json.is_object() && json.contains(name) && json[name].is_number_unsigned()) return json[name].get<uint64_t>();
    return invalid(fmt::format("its `{}` is not a number from 0 on", name));
  };
  KACHEL_ASSIGN(std::string key, hex("key"));
  KACHEL_ASSIGN(std::string record, hex("record"));
  KACHEL_ASSIGN(const uint64_t body, number("body"));
  KACHEL_ASSIGN(const uint64_t at, number("body_at"));
  if (body >= bodies.size() || at > key.size()) return invalid("its `body` or `body_at` is beyond what there is");
  key.insert(at, bodies[body]);
  const auto parsed = cache::parse_key(key);
  if (!parsed.ok() || !is_tuning(parsed->kind)) return invalid("its `key` is not that of a tuning or a sample");
  if (!read_record(parsed->kind, record, nullptr)) return invalid("its `record` is not one that this version writes");
  return cache::Entry{{parsed->kind, cache::digest_of(key), key}, std::move(record)};
}

}  // namespace

Result<std::string> tunings_to_json(cache::Store& store) {
  Json bodies = Json::array(), entries = Json::array();
  std::map<std::string, size_t, std::less<>> known;
  KACHEL_TRY(store.iterate(std::nullopt, [&](const cache::EntryView& view) {
    if (!is_tuning(view.kind)) return true;
    const auto parsed = cache::parse_key(view.key);
    Json entry;
    entry["kind"] = cache::kind_name(view.kind);
    if (!parsed.ok() || !read_record(view.kind, view.payload, &entry)) return true;  // of another version
    const BodyPlace place = describe_key(view.key, *parsed, entry);
    const std::string_view body = view.key.substr(place.at, place.size);
    auto found = known.find(body);
    if (found == known.end()) {
      found = known.emplace(body, bodies.size()).first;
      bodies.push_back(body);
    }
    std::string rest(view.key);
    rest.erase(place.at, place.size);
    entry["body"] = found->second;
    entry["body_at"] = place.at;
    entry["key"] = to_hex(rest);
    entry["record"] = to_hex(view.payload);
    entries.push_back(std::move(entry));
    return true;
  }));
  const Json all = {{"kachel_tunings", kVersion}, {"bodies", std::move(bodies)}, {"entries", std::move(entries)}};
  return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<uint64_t> tunings_from_json(cache::Store& store, std::string_view text) {
  const Json all = Json::parse(text, nullptr, false);
  if (!all.is_object() || !all.contains("kachel_tunings"))
    return invalid("the text is not an export of tunings: it is no JSON object with `kachel_tunings`");
  if (all["kachel_tunings"] != kVersion)
    return unsupported(
        fmt::format("this library reads version {} of exported tunings; export them with a library of "
                    "this version",
                    kVersion));
  std::vector<std::string> bodies;
  const Json none = Json::array();
  auto list = [&](const char* name) -> const Json& {
    return all.contains(name) && all[name].is_array() ? all[name] : none;
  };
  for (const Json& body : list("bodies")) {
    if (!body.is_string()) return invalid("one of `bodies` is not a text");
    bodies.push_back(body.get<std::string>());
  }
  std::vector<cache::Entry> entries;
  for (const Json& one : list("entries")) {
    auto entry = entry_of(one, bodies);
    if (!entry.ok())
      return invalid(fmt::format("entry {} of the exported tunings: {}", entries.size(), entry.status().message()));
    entry->what = cache::ChangeKind::kImported;
    entry->label = entry_label(entry->key.kind, entry->payload);
    entries.push_back(*std::move(entry));
  }
  KACHEL_TRY(store.put_many(entries));
  return entries.size();
}

}  // namespace kachel::runtime
