#include "tuner/statistics.h"

#include <algorithm>
#include <cmath>

namespace kachel::tuner {

double median(std::vector<double> values) {
  size_t half = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + half, values.end());
  double upper = values[half];
  if (values.size() % 2 == 1) return upper;
  double lower = *std::max_element(values.begin(), values.begin() + half);
  return lower + (upper - lower) / 2;
}

std::optional<Interval> median_interval(std::vector<double> values, double confidence) {
  const size_t n = values.size();
  // P(fewer than k of n below the median) summed from the tail, in logarithms since 2^-n leaves the range of a double.
  double tail = 0;
  double log_term = -static_cast<double>(n) * std::log(2.0);
  size_t k = 0;  // the interval is [x(k), x(n + 1 - k)], counted from one
  for (; k < n / 2; ++k) {
    tail += std::exp(log_term);
    if (2 * tail > 1 - confidence) break;
    log_term += std::log(static_cast<double>(n - k) / static_cast<double>(k + 1));
  }
  if (k == 0) return std::nullopt;
  std::sort(values.begin(), values.end());
  return Interval{values[k - 1], values[n - k]};
}

}  // namespace kachel::tuner
