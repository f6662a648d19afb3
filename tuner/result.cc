#include "tuner/result.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "support/bytes.h"

namespace kachel::tuner {
namespace {

constexpr uint32_t kVersion = 1;

constexpr uint64_t TuningCounters::* kCounters[] = {
    &TuningCounters::compiled, &TuningCounters::compile_failed, &TuningCounters::checked,   &TuningCounters::rejected,
    &TuningCounters::measured, &TuningCounters::remeasured,     &TuningCounters::timed_runs};

bool is_time(double ns) {
  return std::isfinite(ns) && ns > 0;
}

}  // namespace

WinnerRecord winner_record(const TuningResult& result) {
  WinnerRecord record{.candidates = result.candidates.size(),
                      .counters = result.counters,
                      .total_ns = result.total_ns,
                      .budget_exhausted = result.budget_exhausted};
  for (size_t index : result.ranking) {
    if (record.ranked.size() == WinnerRecord::kRanked) break;
    const CandidateRecord& candidate = result.candidates[index];
    record.ranked.push_back({candidate.configuration, candidate.median_ns, candidate.ci});
  }
  return record;
}

std::string encode_winner(const WinnerRecord& record) {
  ByteWriter out;
  out.put(kVersion);
  out.put<uint64_t>(record.ranked.size());
  for (const WinnerRecord::Ranked& ranked : record.ranked) {
    out.put_bytes(ranked.configuration.text());
    out.put(ranked.median_ns);
    out.put(ranked.ci.low);
    out.put(ranked.ci.high);
  }
  out.put(record.candidates);
  for (auto counter : kCounters) out.put(record.counters.*counter);
  out.put(record.total_ns);
  out.put<uint8_t>(record.budget_exhausted ? 1 : 0);
  return out.take();
}

std::optional<WinnerRecord> decode_winner(std::string_view bytes) {
  ByteReader in(bytes);
  if (in.get<uint32_t>() != kVersion) return std::nullopt;
  WinnerRecord record;
  uint64_t count = in.get_count(sizeof(uint64_t) + 3 * sizeof(double));
  if (count < 1 || count > WinnerRecord::kRanked) return std::nullopt;
  std::set<std::string> seen;
  for (uint64_t i = 0; i < count; ++i) {
    std::string_view text = in.get_bytes();
    Result<Configuration> configuration = Configuration::parse(text);
    if (!configuration.ok() || configuration->text() != text) return std::nullopt;
    if (!seen.insert(configuration->key()).second) return std::nullopt;
    WinnerRecord::Ranked ranked{.configuration = *std::move(configuration)};
    ranked.median_ns = in.get<double>();
    ranked.ci.low = in.get<double>();
    ranked.ci.high = in.get<double>();
    if (!is_time(ranked.median_ns) || !is_time(ranked.ci.low) || !is_time(ranked.ci.high)) return std::nullopt;
    if (ranked.ci.low > ranked.median_ns || ranked.median_ns > ranked.ci.high) return std::nullopt;
    record.ranked.push_back(std::move(ranked));
  }
  record.candidates = in.get<uint64_t>();
  for (auto counter : kCounters) record.counters.*counter = in.get<uint64_t>();
  record.total_ns = in.get<int64_t>();
  uint8_t exhausted = in.get<uint8_t>();
  if (!in.at_end() || exhausted > 1 || record.candidates < count || record.total_ns < 0) return std::nullopt;
  record.budget_exhausted = exhausted == 1;
  return record;
}

}  // namespace kachel::tuner
