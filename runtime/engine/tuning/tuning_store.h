// Tuning results in the store: the decision of a key, and one sample record per configuration, so that the list of
// configurations may change without losing any.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cache/store.h"
#include "runtime/engine/specialise/keys.h"
#include "tuner/result.h"

namespace kachel::runtime {

// What a tuning is filed under.
struct TuningSubject {
  const KernelModel& model;
  const Point& point;
  const DeviceProperties& device;
};

struct TuningDecision {
  tuner::WinnerRecord winner;
  std::set<uint64_t> considered;  // digests of the configurations that were candidates
  uint64_t trials = 0;            // how many of them were to be measured; 0: all

  // True if all of `candidates` were among those it chose from.
  bool covers(const std::vector<TunableValues>& candidates) const;
  // True if as many of them were to be measured as `wanted` asks for; 0: all.
  bool suffices(uint64_t wanted) const { return trials == 0 || (wanted != 0 && wanted <= trials); }
};

class TuningStore {
 public:
  TuningStore(cache::Store& store, const TuningSubject& subject) : store_(store), subject_(subject) {}

  // Nothing where it is missing or damaged.
  std::optional<TuningDecision> decision() const;
  // Of the key values, among those for which there is one, whose distances from these multiply to the least, as ratios.
  std::optional<TuningDecision> nearest_decision() const;
  // The record of one configuration, under the tuner's names; `here`: without asking the remote.
  std::optional<tuner::CandidateRecord> sample(const TunableValues& values, bool here = false) const;
  // Decision and samples in one transaction. `result` has one candidate for each of `candidates`, in order, which were
  // chosen from `considered`; so many of them were to be measured as `trials` says, 0: all.
  Status save(const tuner::TuningResult& result, const std::vector<TunableValues>& candidates,
              const std::vector<TunableValues>& considered, uint64_t trials);
  // In the place of the decision there, with a record for each of `candidates`, which are fewer.
  Status replace(const TuningDecision& decision, const std::vector<tuner::CandidateRecord>& records,
                 const std::vector<TunableValues>& candidates, const TunableValues& winner);
  // Of a tuning without a decision: a record for each of `candidates`.
  Status save_samples(const std::vector<tuner::CandidateRecord>& records, const std::vector<TunableValues>& candidates,
                      cache::ChangeKind what = cache::ChangeKind::kStored);

 private:
  cache::Label label_of(const TunableValues& values) const;
  std::vector<cache::Entry> samples_of(const std::vector<tuner::CandidateRecord>& records,
                                       const std::vector<TunableValues>& candidates, cache::ChangeKind what) const;
  cache::Entry decision_of(const tuner::WinnerRecord& record, const std::vector<uint64_t>& considered, uint64_t trials,
                           const TunableValues& winner) const;

  cache::Store& store_;
  TuningSubject subject_;
};

// Records as they are stored; nothing where they are damaged or of another version.
std::optional<TuningDecision> decode_decision(std::string_view bytes);
std::optional<tuner::CandidateRecord> decode_sample(std::string_view bytes);

// The names in a tuning or sample record, for listings.
struct TuningSummary {
  std::string kernel, description;
};
Result<TuningSummary> summarise_tuning(std::string_view bytes);

}  // namespace kachel::runtime
