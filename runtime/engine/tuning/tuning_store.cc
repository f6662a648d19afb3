#include "runtime/engine/tuning/tuning_store.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/engine/specialise/configurations.h"
#include "support/bytes.h"

namespace kachel::runtime {
namespace {

constexpr uint32_t kVersion = 1;
constexpr size_t kMostLookedAt = 4096;  // of stored decisions, for the nearest one

uint64_t digest_of(const TunableValues& values) {
  const cache::Digest digest =
      cache::digest_of({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t)});
  uint64_t word;
  std::memcpy(&word, digest.data(), sizeof(word));
  return word;
}

// The sum of the logarithms of ratios.
double distance(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  double sum = 0;
  auto scale = [](int64_t value) { return std::copysign(std::log2(1 + std::abs(static_cast<double>(value))), value); };
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(scale(a[i]) - scale(b[i]));
  return sum;
}

// Both kinds of record begin with names for people.
void put_names(ByteWriter& out, const cache::Label& names) {
  out.put(kVersion);
  out.put_bytes(names.kernel);
  out.put_bytes(names.description);
}
bool get_names(ByteReader& in, TuningSummary& names) {
  if (in.get<uint32_t>() != kVersion) return false;
  names.kernel = in.get_bytes();
  names.description = in.get_bytes();
  return in.ok();
}

}  // namespace

bool TuningDecision::covers(const std::vector<TunableValues>& candidates) const {
  for (const TunableValues& values : candidates)
    if (!considered.count(digest_of(values))) return false;
  return true;
}

std::optional<TuningDecision> TuningStore::decision() const {
  const auto bytes = store_.get(tuning_key(subject_.model, subject_.point, subject_.device));
  return bytes ? decode_decision(*bytes) : std::nullopt;
}

std::optional<TuningDecision> TuningStore::nearest_decision() const {
  const cache::Key own = tuning_key(subject_.model, subject_.point, subject_.device);
  const auto parsed = cache::parse_key(own.bytes);
  if (!parsed.ok()) return std::nullopt;
  std::optional<TuningDecision> nearest;
  double least = std::numeric_limits<double>::infinity();
  size_t seen = 0;
  (void)store_.iterate(cache::Kind::kTuning, [&](const cache::EntryView& entry) {
    const auto values = key_values_of_relative(*parsed, entry.key);
    if (values) {
      const double apart = distance(*values, subject_.point.key_values);
      if (apart < least)
        if (auto decision = decode_decision(entry.payload)) nearest = std::move(decision), least = apart;
    }
    return ++seen < kMostLookedAt;
  });
  return nearest;
}

std::optional<TuningDecision> decode_decision(std::string_view bytes) {
  ByteReader in(bytes);
  TuningSummary names;
  if (!get_names(in, names)) return std::nullopt;
  TuningDecision decision;
  for (uint64_t i = 0, count = in.get_count(sizeof(uint64_t)); i < count; ++i)
    decision.considered.insert(in.get<uint64_t>());
  const std::string_view winner = in.get_bytes();
  // Records from before there were trials end here, and so do those of tunings that measured all.
  if (!in.at_end()) decision.trials = in.get<uint64_t>();
  if (!in.at_end()) return std::nullopt;
  auto decoded = tuner::decode_winner(winner);
  if (!decoded) return std::nullopt;
  decision.winner = *std::move(decoded);
  return decision;
}

std::optional<tuner::CandidateRecord> TuningStore::sample(const TunableValues& values, bool here) const {
  const cache::Key key = sample_key(subject_.model, subject_.point, values, subject_.device);
  const auto bytes = here ? store_.get_here(key) : store_.get(key);
  auto decoded = bytes ? decode_sample(*bytes) : std::nullopt;
  // The key says which configuration it is; a record that says otherwise is not ours.
  if (!decoded || decoded->configuration != to_configuration(values)) return std::nullopt;
  return decoded;
}

std::optional<tuner::CandidateRecord> decode_sample(std::string_view bytes) {
  ByteReader in(bytes);
  TuningSummary names;
  if (!get_names(in, names)) return std::nullopt;
  const std::string_view record = in.get_bytes();
  if (!in.at_end()) return std::nullopt;
  return tuner::decode_candidate(record);
}

std::vector<cache::Entry> TuningStore::samples_of(const std::vector<tuner::CandidateRecord>& records,
                                                  const std::vector<TunableValues>& candidates,
                                                  cache::ChangeKind what) const {
  std::vector<cache::Entry> entries;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const tuner::CandidateRecord& record = records[i];
    if (record.state == tuner::CandidateState::kUntried && record.samples.empty()) continue;
    const cache::Label label = label_of(candidates[i]);
    ByteWriter sample;
    put_names(sample, label);
    sample.put_bytes(tuner::encode_candidate(record));
    entries.push_back(
        {sample_key(subject_.model, subject_.point, candidates[i], subject_.device), sample.take(), label, what});
  }
  return entries;
}

Status TuningStore::save_samples(const std::vector<tuner::CandidateRecord>& records,
                                 const std::vector<TunableValues>& candidates, cache::ChangeKind what) {
  return store_.put_many(samples_of(records, candidates, what));
}

cache::Label TuningStore::label_of(const TunableValues& values) const {
  return {subject_.model.kernel.name,
          fmt::format("{} on {}", configuration_text(subject_.model, values), subject_.device.model)};
}

Status TuningStore::save(const tuner::TuningResult& result, const std::vector<TunableValues>& candidates,
                         const std::vector<TunableValues>& considered, uint64_t trials) {
  std::vector<cache::Entry> entries = samples_of(result.candidates, candidates, cache::ChangeKind::kStored);
  std::vector<uint64_t> digests;
  for (const TunableValues& values : considered) digests.push_back(digest_of(values));
  entries.push_back(decision_of(tuner::winner_record(result), digests, trials, candidates[result.winner]));
  return store_.put_many(entries);
}

Status TuningStore::replace(const TuningDecision& decision, const std::vector<tuner::CandidateRecord>& records,
                            const std::vector<TunableValues>& candidates, const TunableValues& winner) {
  std::vector<cache::Entry> entries = samples_of(records, candidates, cache::ChangeKind::kStored);
  entries.push_back(
      decision_of(decision.winner, {decision.considered.begin(), decision.considered.end()}, decision.trials, winner));
  entries.back().what = cache::ChangeKind::kReplaced;
  return store_.put_many(entries);
}

cache::Entry TuningStore::decision_of(const tuner::WinnerRecord& record, const std::vector<uint64_t>& considered,
                                      uint64_t trials, const TunableValues& winner) const {
  cache::Label label = label_of(winner);
  ByteWriter decision;
  put_names(decision, label);
  decision.put<uint64_t>(considered.size());
  for (uint64_t digest : considered) decision.put(digest);
  decision.put_bytes(tuner::encode_winner(record));
  if (trials) decision.put(trials);
  return {tuning_key(subject_.model, subject_.point, subject_.device), decision.take(), std::move(label)};
}

Result<TuningSummary> summarise_tuning(std::string_view bytes) {
  ByteReader in(bytes);
  TuningSummary names;
  if (!get_names(in, names)) return Status(Code::kStore, "not a tuning record of this version");
  return names;
}

}  // namespace kachel::runtime
