// Order statistics: they assume nothing about the shape of the noise, and one run in ten disturbed by the host moves a
// median hardly at all, a mean by as much as the disturbance.
#pragma once
#include <optional>
#include <vector>

namespace kachel::tuner {

struct Interval {
  double low = 0;
  double high = 0;
};

// REQUIRES: not empty, no NaN.
double median(std::vector<double> values);

// The narrowest symmetric pair of order statistics that covers the true median with at least this confidence, whatever
// the distribution: for independent samples the number of them below the median is binomial(n, 1/2). None if there are
// too few samples to claim it: fewer than 6 at 0.95, fewer than 8 at 0.99.
std::optional<Interval> median_interval(std::vector<double> values, double confidence);

}  // namespace kachel::tuner
