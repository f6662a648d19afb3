// One call of Tuner::tune. Private to the tuner: tuner.cc has its course, run_known.cc what samples from before mean to
// it, run_budget.cc what there is time for; run_steps.cc compiles, checks and measures.
#pragma once
#include <algorithm>
#include <map>
#include <thread>
#include <vector>

#include "tuner/forecast.h"
#include "tuner/tuner.h"

namespace kachel::tuner {

inline bool is_served(const CandidateRecord& record) {
  return record.state == CandidateState::kMeasured || record.state == CandidateState::kPruned;
}

// Of a candidate that others are compared with. Fewer are what a budget left over.
inline constexpr size_t kFewestSamples = 3;

class TuningRun {
 public:
  TuningRun(const TunerOptions& options, const TuneRequest& request, CandidateRunner& runner, Clock& clock,
            const Progress& progress)
      : options_(options),
        request_(request),
        runner_(runner),
        clock_(clock),
        reporter_(progress, clock),
        start_ns_(clock.now_ns()),
        budget_ns_(request.budget_ns),
        deadline_(clock, start_ns_, request.budget_ns),
        forecasts_(request.forecasts),
        beyond_(request.candidates.size(), false),
        twin_(request.candidates.size(), false),
        compiled_(request.candidates.size(), false),
        checked_(request.candidates.size(), false),
        passed_(request.candidates.size(), false),
        sampled_(request.candidates.size(), false) {}

  Result<TuningResult> run();

 private:
  Result<TuningResult> decide();
  void hand_over();
  bool unlimited() const { return request_.budget_ns == Deadline::kNever; }
  // What is left of the budget, at least 0.
  int64_t left_ns() const {
    return unlimited() ? Deadline::kNever : std::max<int64_t>(start_ns_ + budget_ns_ - clock_.now_ns(), 0);
  }
  void set_budget(int64_t ns) {
    budget_ns_ = ns;
    deadline_ = Deadline(clock_, start_ns_, ns);
  }
  int64_t share_of(double share, int64_t ns) const {
    return unlimited() ? Deadline::kNever : static_cast<int64_t>(share * static_cast<double>(ns));
  }
  unsigned workers() const {
    return request_.workers ? request_.workers : std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
  }
  CandidateRecord& record(size_t index) { return result_.candidates[index]; }

  void note_failure(size_t index, CandidateState otherwise, std::string message);
  void tell_dropped(size_t index) const;
  void note_harms();
  void load_known();
  void admit_known();
  void set_aside(size_t index);
  void find_twins();
  void take_up_again();
  bool any_served() const;
  bool wants_more() const;
  std::vector<size_t> missing();
  void put_in_order(std::vector<size_t>& indices);
  size_t prefer_favourite(std::vector<size_t>& indices) const;
  void choose_trials();
  bool widen(size_t count);
  Status try_missing();
  // Of a list to try; `listed`: they are its first.
  struct Pass {
    std::vector<size_t> indices;
    bool listed = false;
  };
  Pass next_pass(const std::vector<size_t>& todo, size_t count) const;
  double expected_compile_ns(const std::vector<size_t>& indices) const;
  Status try_first(const std::vector<size_t>& todo, size_t count);
  size_t next_batch(size_t tried, int64_t pass_start_ns) const;
  std::vector<size_t> leaders_so_far() const;
  std::vector<size_t> leaders_of(const std::vector<size_t>& indices) const;
  Status contest();
  Status compile(const std::vector<size_t>& indices, const Deadline& deadline);
  void allow_a_look(const std::vector<size_t>& indices);
  Status check(const std::vector<size_t>& indices);
  Status check_one(size_t index);
  Status measure(const std::vector<size_t>& indices, bool may_stop_empty);
  Status benchmark(const std::vector<Trial>& trials);
  std::vector<Standing> standings(const std::vector<size_t>& indices) const;
  void finish();
  Status nothing_serves() const;

  const TunerOptions& options_;
  const TuneRequest& request_;
  CandidateRunner& runner_;
  Clock& clock_;
  Reporter reporter_;
  const int64_t start_ns_;
  int64_t budget_ns_;  // the request's, unless compilers ran over it
  Deadline deadline_;

  TuningResult result_;
  std::vector<Forecast> forecasts_;  // of all candidates, once they were asked for
  std::vector<size_t> expected_;     // where not all are tried: all but twins, that from which most is expected first
  size_t reach_ = 0;                 // how many of these are
  std::vector<bool> beyond_;         // the others
  std::vector<bool> twin_;           // comes to the same code as a candidate listed before it, and is left untried
  std::vector<bool> compiled_;
  std::vector<bool> checked_;
  std::vector<bool> passed_;
  std::vector<bool> sampled_;               // by this call
  std::vector<size_t> known_;               // whose samples came with the request and stand
  std::map<size_t, CandidateState> aside_;  // for their flaws; the state to which each would return
  bool flaws_count_ = true;
  bool out_of_time_ = false;  // for compiling another one
  uint64_t next_session_ = 0;
  bool reference_compiled_ = false;
  bool prepared_ = false;
};

}  // namespace kachel::tuner
