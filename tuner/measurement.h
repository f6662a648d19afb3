// The measurement protocol: from compiled, checked candidates to samples that a decision can rest on.
//
//   warm-up        2 runs of each candidate, thrown away: the first pays for lazy loading, cold instruction caches and
//                  TLBs, and for a device that was asleep.
//   short rounds   every live candidate once per round, every run after a flush, or where runs are short, several that
//                  follow each other on operands of their own; back and forth, so that a steady drift
//                  weighs on all alike. From 3 rounds on whoever's fastest run takes more than 1.5 times the best's
//                  median leaves: the fastest, since two disturbed runs of three are not that rare. From 8 rounds on
//                  (the first at which a median has a 99 % interval) whoever's paired ratio to the best lies wholly
//                  above the tie band leaves. Ends when each survivor is either tied with the best or known to 0.15 %,
//                  after at least 10 rounds and at most 192.
//   slow runs      where even the fastest warm-up takes 20 ms or more, every launch is a sample, the first one too: the
//                  check has run each candidate once, and what a cold start costs is lost in a run of that length.
//                  Whoever's fastest run takes more than 1.5 times the best's median leaves after 2 rounds; from 3 on,
//                  whoever's fastest run is more than 10 % above the best's slowest. Ends when the finalists of the
//                  blocks, or the winner if none follow, are all that is left, and after 12 rounds or 200 ms at most.
//   blocks         only where the best takes 200 us or more, but less than a block, since a run of that length is one
//                  by itself: up to 4 finalists, the best of each kind first (of efforts that are alike, power makes
//                  as much, so that blocks would tell nothing new), each run for 80 ms at a stretch of which the last
//                  quarter is recorded; 2 to 4 times around, back and forth, the last two without those whose paired
//                  ratio to the best lies wholly above the tie band. Each run but a block's first one begins as
//                  the one before it leaves the caches. Up to 1.6 s, or twice that where few runs fill a block, so a
//                  device that is not limited by power should have them turned off (block_ns = 0).
//
// Other rounds that no blocks follow end, once they may, when each survivor has had 400 ms, settled or not.
//
// Why interleaved: a device throttles by 15 to 19 % within a tuning. Candidates measured one after the other are then
// ranked by when they ran. Within a round they share the clock, and the ratio of two samples of a round is free of it;
// sample i of every candidate belongs to round i, and decision.h pairs by that index.
//
// Why rounds, then blocks: rounds find out cheaply who loses; most candidates leave after 3 to 12 runs. But above about
// 4096^3 a GEMM is limited by power, not by its instructions, and short turns let a candidate that draws too much
// borrow from its neighbours' thrift: all run at the same clock, the hungry one wins, and then loses 5 to 10 % in
// sustained use. A block is long enough for the clock to settle to what the candidate itself allows. A decision counts
// both alike (decision.h). Hence also the wide margin (10 %) for leaving the rounds where blocks will follow. A GEMM of
// 4096^3 takes about 200 us; what is shorter is not limited by power with a flush between two runs, so for it the
// rounds decide.
//
// Why the caches are flushed, and left dirty: in use a kernel finds its operands where the step before left them, for a
// large model mostly not in the L2, while 100 runs on the same operands would be served from it and favour whoever
// touches memory worst. The flush overwrites more bytes than the L2 holds, so what the kernel evicts must be written
// back first, as the host's own traffic would have it; an L2 emptied clean picks other winners for streaming shapes.
// One of the two has to be chosen for all candidates, and this is the one that happens outside of benchmarks. In blocks
// a flush would be a rest for the chip, a fifth of the time of what takes 200 us: hungry candidates would borrow from
// it. What takes that long finds little of its operands in the L2.
//
// Why short runs follow each other: what a single launch costs behind a flush is for a part its beginning on a device
// that has been idle, and for a part the writing back of what the flush has left, which together take as long as a run
// of 10 us. Both are alike for all candidates and hide by how much they differ; in a host's stream, where one launch
// waits for the next, neither is there. So where the fastest warm-up says that no blocks will follow, a sample is the
// mean of as many runs as take 100 us together, each on a set of operands that nothing has touched since the flush, but
// for 1 to 4 in front of them whose time is not taken. Runners that cannot have the sets (memory, tensors that are read
// and written, hooks around each run) measure one by one.
//
// Nothing that was measured is thrown away but warm-up and the lead-in of the blocks; the samples of pruned candidates
// are kept, to be stored and learned from.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "support/status.h"
#include "tuner/candidate.h"
#include "tuner/clock.h"
#include "tuner/decision.h"
#include "tuner/progress.h"
#include "tuner/runner.h"

namespace kachel::tuner {

// The knobs of the protocol; the essay above says what each is for.
struct MeasurementLimits {
  int warmup_runs = 2;
  int first_prune_round = 3;
  double prune_ratio = 1.5;
  int min_rounds = 10;
  int max_rounds = 192;
  double target_half_width = 0.0015;  // of the ratio to the best
  double rounds_ns = 400e6;           // of one candidate; where no blocks follow

  double slow_run_ns = 20e6;
  int slow_first_prune_round = 2;
  int slow_min_rounds = 3;
  double slow_rounds_ns = 200e6;

  double long_run_ns = 200e3;
  int long_run_rounds = 12;
  double long_run_margin = 0.10;
  int64_t block_ns = 80'000'000;  // 0: no blocks
  double lead_in = 0.75;          // the share of a block that is not recorded
  int max_block_samples = 32;
  int min_blocks = 2;
  int max_blocks = 4;
  size_t max_finalists = 4;
};

// In which a failure leaves a candidate that was untried.
inline CandidateState state_after(Verdict verdict, CandidateState otherwise) {
  switch (verdict) {
    case Verdict::kCrashed:
      return CandidateState::kCrashed;
    case Verdict::kTimedOut:
      return CandidateState::kTimedOut;
    case Verdict::kNotTried:
      return CandidateState::kUntried;
    case Verdict::kFailed:
      break;
  }
  return otherwise;
}

// A candidate under measurement. `record` outlives the Measurement; its state, message and samples are written.
struct Trial {
  size_t index = 0;
  CandidateRecord* record = nullptr;
  Effort effort;
};

// One series of measurements. Single thread.
class Measurement {
 public:
  struct Environment {
    CandidateRunner& runner;
    Clock& clock;
    Reporter& reporter;
    const MeasurementLimits& limits;
    const DecisionRules& rules;
    Deadline deadline;
  };

  // Uses the sessions `first_session` and first_session + 1. With `may_stop_empty` the deadline may end the series
  // before the first sample; otherwise one is taken, of the first trial that can be launched.
  Measurement(const Environment& environment, std::vector<Trial> trials, uint64_t first_session, bool may_stop_empty);

  // Each trial ends up measured, pruned or with a failure, or as it was if the deadline or the runner's end came before
  // its first sample.
  // Fails only for what ends the whole tuning: cancellation, a lost device.
  Status run();

  bool cut_short() const { return cut_short_; }
  uint64_t timed_runs() const { return timed_runs_; }

 private:
  Status warm_up();
  Status short_rounds();
  Status blocks();
  Status block(const Trial& trial, int samples, int64_t lead_in_ns);
  // One run in nanoseconds. A failure of the candidate alone is written to its record and gives nothing.
  Result<std::optional<double>> run_once(const Trial& trial, Caches caches);
  void keep(const Trial& trial, double ns);
  Status time(const Trial& trial, bool keep, Caches caches = Caches::kEvicted);
  Status report(const Configuration* configuration, bool always);

  // True if the deadline has passed and there is a sample to fall back on. Sets cut_short_.
  bool out_of_time();
  void note_failure(const Trial& trial, std::string message);
  bool has_failed(const Trial& trial) const { return failed_.count(trial.index) != 0; }
  void drop_failed();
  // Takes out of the rounds whoever has lost; returns whether the rest is settled.
  bool prune(int rounds);
  bool is_time_to_look(int rounds) const;
  // Whether they end here, settled or not.
  bool rounds_suffice(int rounds) const;
  void choose_finalists();
  void drop_slower(const std::vector<Standing>& ranked);
  const Effort& effort_of(size_t index) const;
  std::vector<Standing> standings() const;
  bool settled(const std::vector<Standing>& standings) const;
  void lose(const Trial& trial, std::string why);
  bool blocks_follow(double best_ns) const;

  Environment env_;
  std::vector<Trial> live_;
  std::set<size_t> failed_;  // whose runs end here
  uint64_t session_;
  bool has_sample_;
  bool cut_short_ = false;
  bool slow_ = false;                 // every run takes slow_run_ns or more
  Caches caches_ = Caches::kEvicted;  // of the rounds
  uint64_t timed_runs_ = 0;
  size_t rounds_done_ = 0;
  double best_ns_ = 0;  // the smallest median at the last look, 0 before it
};

// The order of n candidates in one round: forward in even rounds, backward in odd ones, starting one candidate further
// every second round, so that nobody always follows the same neighbour.
std::vector<size_t> round_order(size_t n, size_t round);

}  // namespace kachel::tuner
