// Which configurations a launch tries, and in which order. Reads the store and tunes as the policy allows.
//
//   a decision is stored     ─► its ranking             (off, cached_only, background; blocking if it chose from all)
//   off, background          ─► that of the nearest key for which one is stored, else as the cost model expects
//                               (guess.h), else as they are listed
//   cached_only              ─► kNotCached
//   blocking                 ─► tune, store the decision, its ranking
#pragma once
#include <functional>
#include <vector>

#include "runtime/engine/launchable.h"
#include "runtime/engine/tuning/tuning_store.h"
#include "tuner/runner.h"
#include "tuner/tuner.h"

namespace kachel::runtime {

// How many configurations a launch tries to build before it gives up.
inline constexpr size_t kMaxAttempts = 16;

// What of the arguments selects a binary and a tuning.
Point point_of(const KernelModel& model, const BoundArguments& arguments);

class Ranking {
 public:
  // How candidates are compiled, checked and timed, once it has come to that. Borrowed for the tuning.
  struct Runner {
    std::unique_ptr<tuner::CandidateRunner> runner;
    bool elsewhere = false;  // in another process
  };
  // A failure, but for kCancelled, leaves the key untuned: it is served as under the policy off.
  using Session = std::function<Result<Runner>(const std::vector<TunableValues>& candidates)>;
  // What a tuning in which no candidate compiled is to report instead, if anything is known.
  using Cause = std::function<Status()>;

  // Borrows everything.
  Ranking(Engine& engine, Device& device, const KernelModel& model, const BoundArguments& arguments,
          const LaunchSettings& settings, Session session, Cause cause = {});

  // kInvalid where `where` admits none.
  Status admit();
  const std::vector<TunableValues>& candidates() const { return candidates_; }  // after admit()
  // Best first, those last whose launch has failed since they were ranked. Never empty; without those that are known to
  // do harm or to compute something else.
  Result<std::vector<TunableValues>> order(tuner::Policy policy);
  // Unless it is known to do harm or to compute something else.
  bool may_serve(const TunableValues& values) const;
  // Some of the others, which serve when all of an order fail.
  std::vector<TunableValues> others(const std::vector<TunableValues>& order) const;
  // Notes in the store that a launch has failed where another configuration's has not.
  void demote(const TunableValues& values, const std::string& why);
  // Whether order() would tune under the policy blocking.
  Result<bool> needs_tuning();
  // Measures those that the stored decision ranks anew, and replaces it where another one wins clearly: whether it did.
  // Elsewhere nothing changes but the samples. A failure is that of a tuning.
  Result<bool> recheck();
  // The one that the settings ask for. REQUIRES: they do.
  Result<TunableValues> given() const;
  // In the order in which a launch would try them, without tuning; for `explain`.
  Result<std::vector<TunableValues>> without_tuning();
  // By a stored decision, or there was nothing to decide: every policy would choose the same.
  bool decided() const { return decided_; }
  // By one that this call found in the store.
  bool found() const { return complete_ && !tuned_; }
  // What the order rests on.
  enum class Source { kDecision, kNearestKey, kCostModel, kPassing, kList };
  Source source() const { return source_; }
  // That of the tuning: what events about it name.
  cache::Key key() const { return tuning_key(model_, point_, device_.properties()); }

 private:
  Status read_decision();
  std::vector<TunableValues> without_decision(bool passing);
  std::vector<TunableValues> admitted_of(const TuningDecision& decision) const;
  Result<std::vector<TunableValues>> tune();
  Status in_program_names(const Status& status) const;
  Status tuning_failed(const Status& status);
  Result<std::vector<TunableValues>> untuned(const Status& why);
  bool cancelled() const { return settings_.cancelled && settings_.cancelled->load(std::memory_order_relaxed); }
  void limit_and_watch(const std::vector<TunableValues>& tried, tuner::TuneRequest* request);
  tuner::TunerOptions tuner_options() const;
  tuner::Progress progress() const;
  void keep_recheck(const TuningDecision& old, const std::vector<TunableValues>& order,
                    const tuner::TuningResult& measured, bool replaced);
  void tell_rechecked(double recorded_ns, const std::vector<TunableValues>& order, const tuner::TuningResult& measured);
  void tell_tuned(const tuner::TuningResult& result, const std::vector<TunableValues>& tried);
  void tell_dropped(const TunableValues& values, const tuner::CandidateRecord& record);
  void note(const TunableValues& values, const tuner::CandidateRecord& record, cache::ChangeKind what);
  TuningStore records() const;
  std::vector<TunableValues> usable(const std::vector<TunableValues>& order, size_t most, size_t* fine = nullptr) const;

  Engine& engine_;
  Device& device_;
  const KernelModel& model_;
  const BoundArguments& arguments_;
  const LaunchSettings& settings_;
  Session session_;
  Cause cause_;
  Point point_;
  std::vector<TunableValues> candidates_;
  // From the store: those of its ranking that are admitted now, best first, and whether it chose from all of them.
  std::vector<TunableValues> ranked_;
  bool complete_ = false;
  bool tuned_ = false;  // by this call
  bool decided_ = false;
  Source source_ = Source::kList;
};

}  // namespace kachel::runtime
