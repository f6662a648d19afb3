#include "tuner/candidate.h"

#include <algorithm>
#include <cmath>

#include "support/bytes.h"

namespace kachel::tuner {
namespace {

constexpr uint32_t kVersion = 2;

}  // namespace

std::string_view state_name(CandidateState state) {
  switch (state) {
    case CandidateState::kUntried:
      return "untried";
    case CandidateState::kCompileFailed:
      return "compile_failed";
    case CandidateState::kRejectedWrong:
      return "rejected_wrong";
    case CandidateState::kLaunchFailed:
      return "launch_failed";
    case CandidateState::kPruned:
      return "pruned";
    case CandidateState::kMeasured:
      return "measured";
    case CandidateState::kRejectedFlaw:
      return "rejected_flaw";
    case CandidateState::kCrashed:
      return "crashed";
    case CandidateState::kTimedOut:
      return "timed_out";
  }
  return "unknown";
}

void CandidateRecord::summarize() {
  median_ns = 0;
  ci = {};
  if (samples.empty()) return;
  const std::vector<double>& last = samples.back().ns;
  median_ns = median(last);
  if (auto interval = median_interval(last, 0.95)) {
    ci = *interval;
  } else {
    auto [low, high] = std::minmax_element(last.begin(), last.end());
    ci = {*low, *high};
  }
}

std::string encode_candidate(const CandidateRecord& record) {
  ByteWriter out;
  out.put(kVersion);
  out.put_bytes(record.configuration.text());
  out.put(static_cast<uint8_t>(record.state));
  out.put_bytes(record.flaw);
  out.put_bytes(record.message);
  out.put(record.compile_ns);
  out.put<uint64_t>(record.samples.size());
  for (const SampleSet& set : record.samples) {
    out.put(set.session);
    out.put<uint64_t>(set.ns.size());
    for (double ns : set.ns) out.put(ns);
  }
  return out.take();
}

std::optional<CandidateRecord> decode_candidate(std::string_view bytes) {
  ByteReader in(bytes);
  if (in.get<uint32_t>() != kVersion) return std::nullopt;
  CandidateRecord record;
  std::string_view text = in.get_bytes();
  Result<Configuration> configuration = Configuration::parse(text);
  if (!configuration.ok() || configuration->text() != text) return std::nullopt;
  record.configuration = *std::move(configuration);
  uint8_t state = in.get<uint8_t>();
  if (state > static_cast<uint8_t>(CandidateState::kTimedOut)) return std::nullopt;
  record.state = static_cast<CandidateState>(state);
  record.flaw = in.get_bytes();
  record.message = in.get_bytes();
  record.compile_ns = in.get<int64_t>();
  if (record.compile_ns < 0) return std::nullopt;
  record.samples.resize(in.get_count(sizeof(uint64_t) * 2));
  for (SampleSet& set : record.samples) {
    set.session = in.get<uint64_t>();
    set.ns.resize(in.get_count(sizeof(double)));
    for (double& ns : set.ns) {
      ns = in.get<double>();
      if (!std::isfinite(ns) || ns <= 0) return std::nullopt;
    }
    if (set.ns.empty()) return std::nullopt;
  }
  bool needs_samples = record.state == CandidateState::kMeasured || record.state == CandidateState::kPruned;
  if (!in.at_end() || (needs_samples && record.samples.empty())) return std::nullopt;
  if (record.state == CandidateState::kRejectedFlaw && record.flaw.empty()) return std::nullopt;
  record.summarize();
  return record;
}

}  // namespace kachel::tuner
