// The slow path of a launch: which specialisation serves these arguments under this policy. Reads the store, tunes and
// compiles as the policy allows.
//
//   configuration given ─► that one
//   one admitted        ─► that one
//   decision stored     ─► its ranking            (off, cached_only; blocking if it chose from all that are admitted
//   now) off                 ─► the first listed cached_only         ─► kNotCached blocking            ─► tune, store
//   the decision, its ranking
//
// The first of the ranking that can be built and has not been demoted serves.
#pragma once
#include <string_view>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/engine/tuning_store.h"

namespace kachel::runtime {

// Of one call; nothing is left to default.
struct LaunchSettings {
  tuner::Policy policy = tuner::Policy::kBlocking;
  int64_t tune_budget_ns = 0;
  bool has_configuration = false;
  std::string_view configuration;  // exactly this one, whatever the policy
  bool needs_code = false;         // resolve even where the grid is empty now: scalars may give it blocks later
};

class Resolver {
 public:
  // Borrows everything. `stream` must not be captured.
  Resolver(Engine& engine, Device& device, const KernelModel& model, const BoundArguments& arguments,
           const LaunchSettings& settings, void* stream);

  struct Outcome {
    const Specialisation* specialisation = nullptr;  // null: the grid is empty, there is nothing to launch
    bool decided = false;  // by a stored decision, or there was nothing to decide: every policy would choose the same
  };
  Result<Outcome> run();

  // The configurations in the order in which a launch would try them, without tuning; for `explain`.
  Result<std::vector<TunableValues>> ranking_without_tuning();

 private:
  Result<std::vector<TunableValues>> ranking(tuner::Policy policy);
  Status read_decision();
  Result<std::vector<TunableValues>> tune();
  Status tuning_failed(const Status& status);
  bool grid_is_empty() const;

  Engine& engine_;
  Device& device_;
  const KernelModel& model_;
  const BoundArguments& arguments_;
  const LaunchSettings& settings_;
  void* stream_;
  Point point_;
  std::vector<int64_t> key_values_;
  std::vector<TunableValues> candidates_;
  // From the store: those of its ranking that are admitted now, best first, and whether it chose from all of them.
  std::vector<TunableValues> ranked_;
  bool complete_ = false;
  bool tuned_ = false;    // by this call
  bool decided_ = false;  // as in Outcome
};

// What of the arguments selects a binary and a tuning.
Point point_of(const KernelModel& model, const BoundArguments& arguments);
std::vector<int64_t> key_values_of(const KernelModel& model, const BoundArguments& arguments);

}  // namespace kachel::runtime
