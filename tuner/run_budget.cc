// What a budget is spent on: which candidates the next pass tries, and how many after it.
#include <algorithm>
#include <cmath>

#include "tuner/run.h"

namespace kachel::tuner {
namespace {

constexpr double kMostOfLeft = 0.8;  // what compiling may be expected to take where somebody is served already
constexpr size_t kLookedAt = 4;      // times the candidates of a pass, for those that need no compiling

}  // namespace

// Of those that are not compiled yet, the longest: they compile side by side. 0 where nothing is known.
double TuningRun::expected_compile_ns(const std::vector<size_t>& indices) const {
  double longest = 0;
  for (size_t index : indices) {
    if (compiled_[index]) continue;
    const double ns = runner_.expected_compile_ns(index);
    if (std::isnan(ns)) return 0;
    longest = std::max(longest, ns);
  }
  return longest;
}

// The first `count` of `todo`. Where compiling one of them alone would take more than the pass has for that, those that
// need no compiling come first, and then nobody where too little would be left: a compilation that has begun cannot be
// ended, and a budget is a promise.
TuningRun::Pass TuningRun::next_pass(const std::vector<size_t>& todo, size_t count) const {
  if (unlimited()) return {todo, true};
  Pass pass{{todo.begin(), todo.begin() + static_cast<std::ptrdiff_t>(count)}, true};
  const double longest = expected_compile_ns(pass.indices), left = static_cast<double>(left_ns());
  if (longest <= options_.compile_share * left) return pass;
  Pass at_hand;
  const size_t looked_at = std::min(todo.size(), kLookedAt * count);
  for (size_t at = 0; at < looked_at && at_hand.indices.size() < count; ++at)
    if (compiled_[todo[at]] || runner_.expected_compile_ns(todo[at]) == 0) at_hand.indices.push_back(todo[at]);
  if (!at_hand.indices.empty()) return at_hand;
  return any_served() && longest > kMostOfLeft * left ? at_hand : pass;
}

// How many candidates there is time for, after a pass over `tried`.
size_t TuningRun::next_batch(size_t tried, int64_t pass_start_ns) const {
  const size_t most = std::max<size_t>(options_.batch, workers());
  if (unlimited()) return most;
  const double each_ns =
      static_cast<double>(clock_.now_ns() - pass_start_ns) / static_cast<double>(std::max<size_t>(tried, 1));
  const double fit = static_cast<double>(left_ns()) / std::max(each_ns, 1.0);
  return static_cast<size_t>(std::min(fit, static_cast<double>(most)));
}

// Compilations that have begun run to their end. What they made is worth a look where that took all of the budget, and
// there is nothing else to decide by.
void TuningRun::allow_a_look(const std::vector<size_t>& indices) {
  const bool any = std::any_of(indices.begin(), indices.end(),
                               [this](size_t index) { return compiled_[index] && !aside_.count(index); });
  if (unlimited() || !known_.empty() || !any) return;
  const int64_t least_ns = share_of(options_.late_share, request_.budget_ns);
  if (left_ns() >= least_ns) return;
  set_budget(clock_.now_ns() - start_ns_ + least_ns);
}

}  // namespace kachel::tuner
