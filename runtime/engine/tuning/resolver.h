// The slow path of a kernel's launch: which specialisation serves these arguments under this policy. Compiles as the
// policy allows. A configuration that is given serves, and so does one that alone is admitted; else the first of the
// ranking (ranking.h) that can be built and has not been demoted.
#pragma once
#include <vector>

#include "runtime/engine/tuning/ranking.h"

namespace kachel::runtime {

class Resolver {
 public:
  // Borrows everything. `stream` must not be captured.
  Resolver(Engine& engine, Device& device, const KernelModel& model, const BoundArguments& arguments,
           const LaunchSettings& settings, void* stream);
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  struct Outcome {
    const Specialisation* specialisation = nullptr;  // null: the grid is empty, there is nothing to launch
    bool decided = false;                            // Ranking::decided()
    bool found = false;                              // Ranking::found()
    bool later = false;                              // to be tuned in the background, as the policy says
    bool compact = false;                            // what serves until then, if that is, see PlanBuilder::get_soon()
  };
  Result<Outcome> run();

  // Whether run() would tune under the policy blocking.
  Result<bool> needs_tuning();
  Result<std::vector<TunableValues>> ranking_without_tuning() { return ranking_.without_tuning(); }
  Ranking::Source source() const { return ranking_.source(); }
  cache::Key key() const { return ranking_.key(); }
  Result<bool> recheck();
  void demote(const TunableValues& values, const std::string& why) { ranking_.demote(values, why); }

 private:
  Result<Ranking::Runner> runner(const std::vector<TunableValues>& candidates);
  Status compiler_missing();
  Result<PlanBuilder::Soon> get(const PlanBuilder::Request& request, bool soon);
  void tell_undecided(const TunableValues& values, bool later);
  bool grid_is_empty() const;

  Engine& engine_;
  Device& device_;
  const KernelModel& model_;
  const BoundArguments& arguments_;
  const LaunchSettings& settings_;
  void* stream_;
  Point point_;
  Ranking ranking_;
};

}  // namespace kachel::runtime
