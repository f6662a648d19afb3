// A conformance case, lowered for a GPU and simulated.
#pragma once
#include "tests/conformance/prepared.h"
#include "tests/lowering/simulate.h"

namespace kachel::lowering {

// What a GPU of the generation we measure offers.
inline constexpr Target kSimulatedGpu{.kind = Target::Kind::kCuda, .architecture = 90, .shared_limit = 227 * 1024};

// With the case's own number of threads and limit of shared memory; or plainly, as what a tuner compares with.
Result<LoopKernel> lower_case(const conformance::Prepared& prepared, bool generic = false);
// The text that is compiled for an H100 of it.
Result<std::string> lower_text(const conformance::Prepared& prepared);
// A race counts as a failure (Report::status). `counted`: where the counts of the simulation go.
conformance::Report simulate_case(const conformance::Prepared& prepared, const LoopKernel& kernel, ThreadOrder order,
                                  Simulation* counted = nullptr);

}  // namespace kachel::lowering
