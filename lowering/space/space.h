// The space of configurations that `tune auto` stands for, derived from a program and a device without lowering any of
// it:
//
//   roles of the tunables (ir/tunable_role.h) ─► values for each, of those that the machine can use (axes.h)
//   ─► points that `where`, memory and registers admit (outline.h) ─► the best by an estimate (estimate.h), best first
//
// A function of what it is asked alone: it is the same on every host. Nothing here knows what a kernel computes.
#pragma once
#include <functional>
#include <vector>

#include "ir/instantiate.h"
#include "lowering/lower.h"

namespace kachel::lowering {

struct SpaceQuestion {
  const ir::Kernel& kernel;  // generic; of a program, its header
  bool is_program = false;
  // Types, consts, and the dimensions that are known: static ones and those that the tuning key gives. Tunables: none.
  ir::Bindings bindings;
  Target target;
  int multiprocessors = 1;  // of a GPU
  // Values of all tunables in declared order: whether `where` admits them. May be empty.
  std::function<bool(const std::vector<int64_t>&)> admitted;
};

// Enough for a cost model to choose from, and as many as a CPU, for which there is none, measures.
inline constexpr size_t kMostDerived = 256, kMostDerivedCpu = 16;

// Values of all tunables, those that are listed included, in declared order; best first by the estimate. Empty where
// nothing is admitted.
std::vector<std::vector<int64_t>> derive_space(const SpaceQuestion& question);

}  // namespace kachel::lowering
