// The order in which candidates are tried.
#pragma once
#include <vector>

#include "tuner/clock.h"
#include "tuner/runner.h"

namespace kachel::tuner {

// Asks the runner for each of `indices`, on up to `workers` threads, until the deadline: for the first one, then here
// and there in the list, since neighbours are alike. Whom it was not asked for, nothing is known of.
std::vector<Forecast> forecast_all(const std::vector<size_t>& indices, CandidateRunner& runner,
                                   const Deadline& deadline, unsigned workers);

// Sorts `indices` by their forecasts: by time, then those of which nothing is known, then those that are likely to have
// a flaw. Among equals the order stays.
void order_by_forecast(const std::vector<Forecast>& forecasts, std::vector<size_t>* indices);

}  // namespace kachel::tuner
