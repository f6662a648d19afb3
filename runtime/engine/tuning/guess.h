// One configuration without a trial. Of a key for which nothing is known, off and background serve the one from which
// the cost model expects most. It is asked about a limited number of configurations, spread over the list (of a derived
// one, the first), for a limited time: what it needs is lowered at a kernel's first key and kept. A binary that is
// there is preferred to a slightly better one that would have to be compiled; and where the caller waits for what soon
// makes way for a tuned one, what takes less time to compile to what runs faster.
#pragma once
#include <vector>

#include "runtime/engine/specialise/plan_builder.h"

namespace kachel::runtime {

struct Guess {
  std::vector<TunableValues> order;
  bool passing = false;  // the first is there because it is compiled sooner than the best
};

// Best first, those that are likely to have a flaw last; without those that the model was not asked about. Empty where
// it cannot tell, as on the CPU. `workers`: threads to lower on, 0: one a core, at most 16. `passing`: it serves until
// a tuning in the background has ended. Thread-safe.
Guess guess(PlanBuilder& plans, Device& device, const KernelModel& model, const Point& point,
            const BoundArguments& arguments, const std::vector<TunableValues>& candidates, unsigned workers,
            bool passing);

}  // namespace kachel::runtime
