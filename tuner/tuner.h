// Drives one tuning: which candidates to compile, to check, to measure, and when to stop.
//
//   known samples ─┐
//   candidates ────┴─► missing, best forecast first ─► compile (parallel) ─► check ─► measure ─► contest with the
//                      known ones? ─► time left and candidates missing? again ─► rank
//
// Known samples count as measured. A sample is filed under program, configuration, shapes, device model, driver and
// lowering version, so it is a statement about the very binary that would run, made under the same protocol; what it
// does not fix is the clock of the day, which moves by 15 to 19 %. Hence:
//
//  - Among themselves, known candidates are compared as they were measured, in their common session, or through
//    candidates that link two sessions (sessions.h). If nothing is missing, nothing is run.
//  - A new candidate whose median differs from the best known one's by more than `contest_band` (20 %, more than the
//    clock can explain) has won or lost by that alone, and is the only one that was measured.
//  - Within the band the difference may be the clock's. Then the leaders of both sides, at most four candidates, are
//    measured together, interleaved, and those samples decide. The old ones are kept.
//  - Samples of a pruned candidate stand only while one that beat it is still among the candidates. Fewer than three
//    samples of one that was not pruned are what a budget left over, and do not count as known.
//  - A candidate with a flaw (runner.h) is set aside once it is compiled, with its samples if it has any. Where none
//    without a flaw can be served, those set aside are taken up again, and the flaw counts no more.
//  - A candidate that was rejected as wrong stays rejected, and one that took down or held up the process that tried it
//    is never tried again. One that failed to compile or launch is.
//
// Every candidate is checked against the generic lowering before it is timed, and one that fails never ranks, however
// fast.
//
// A budget that is large enough has all of them compiled, checked and measured together, whatever the order. Compiling
// may take half of it, checking half of what that leaves; where compilations that have begun take longer than all of
// it, what they made is still looked at for a tenth of it. Where the first batch shows that compiling all would take
// longer, that batch is checked and measured by itself, and as long as there is time for more, the next ones are
// compiled; the leaders so far run beside these, so that one series has both whenever the budget ends. Where compiling
// one of a batch is expected to take more than the budget has for compiling, those that need no compiling come first,
// and nothing is compiled that would outlast the budget once somebody is served. So a short
// budget is spent on those candidates from which the cost model (cost_model.h) expects most. Without forecasts the
// default configuration comes first, then the others as they are listed. Forecasts may take a fifth of the budget; of
// a list that is too long for that, candidates from all over it are asked for. Of candidates that come to the same code
// the first alone is tried.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "support/status.h"
#include "tuner/candidate.h"
#include "tuner/clock.h"
#include "tuner/decision.h"
#include "tuner/measurement.h"
#include "tuner/progress.h"
#include "tuner/result.h"
#include "tuner/runner.h"

namespace kachel::tuner {

struct TunerOptions {
  MeasurementLimits limits;
  DecisionRules rules;
  double contest_band = 0.20;
  double compile_share = 0.5;   // of the budget, or of what is left of it
  double forecast_share = 0.2;  // of the budget
  double check_share = 0.5;     // of what compiling leaves: the rest is for measuring
  double late_share = 0.1;      // for checking and measuring at least, where compiling took longer than it may
  size_t batch = 12;            // candidates, or as many as there are compile threads if these are more
};

struct TuneRequest {
  std::vector<Configuration> candidates;  // 1 to SearchSpace::kMaxConfigurations, each once; this order breaks ties
  size_t default_index = 0;               // the first of those of which nothing is forecast
  std::vector<CandidateRecord>
      known;  // of this key and device, in any order; those not among the candidates are ignored
  int64_t budget_ns = 2'000'000'000;  // of Clock time from the call on; Deadline::kNever for none
  unsigned workers = 0;               // compile threads; 0: one per core, at most 16
  // At once when a candidate has crashed or timed out, on the thread that called tune(). May be empty.
  std::function<void(size_t index, const CandidateRecord&)> on_harm;
  // Likewise when one has failed in another way, or is set aside for its flaw. May be empty.
  std::function<void(size_t index, const CandidateRecord&)> on_dropped;
  // Of the candidates those alone are tried from which most is expected, so many; 0: all. Where fewer than half of them
  // can be served, the next ones are tried as long as there is time. Samples that are known count whatever is expected.
  size_t trials = 0;
  std::vector<Forecast> forecasts;  // one for each candidate; empty: the runner is asked
  // Tried before all others, whatever is expected, and beside the trials: what was decided for a key that is near.
  std::optional<size_t> favourite;
  bool remeasure = false;           // what is known is kept, but stands for nothing: whether it still holds is asked
  bool own_benchmark = false;       // CandidateRunner::benchmark() takes the samples, not the protocol
  // Where the tuning is cancelled: what it knows of each candidate by then, in their order, to be known by a later one.
  // May be empty.
  std::function<void(const std::vector<CandidateRecord>&)> on_cancelled;
};

// Stateless after construction: one Tuner may tune many keys from many threads, each with a runner of its own.
class Tuner {
 public:
  explicit Tuner(TunerOptions options = {}) : options_(options) {}

  // Blocks until a winner is found. Candidates that the runner cannot try any more are left untried. The winner was
  // compiled by this call unless its samples were known. Fails with kInvalid for a malformed request, kCancelled,
  // kDeviceLost, the status of CandidateRunner::prepare, or, if no candidate can be served, with kCompile (none
  // compiled) or kLaunch; the log then has a line per candidate.
  Result<TuningResult> tune(const TuneRequest& request, CandidateRunner& runner, Clock& clock,
                            const Progress& progress = {}) const;

 private:
  TunerOptions options_;
};

}  // namespace kachel::tuner
