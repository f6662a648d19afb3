#include "tuner/statistics.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

namespace kachel::tuner {
namespace {

std::vector<double> one_to(size_t n) {
  std::vector<double> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<double>(n - i);
  return out;
}

TEST_CASE("median of odd, even and disturbed samples") {
  CHECK(median({5}) == 5);
  CHECK(median({4, 1}) == 2.5);
  CHECK(median({9, 1, 5}) == 5);
  CHECK(median({4, 1, 3, 2}) == 2.5);
  CHECK(median({10, 11, 10, 1e9, 11}) == 11);
}

TEST_CASE("intervals of the median match the tables of the sign test") {
  CHECK(!median_interval(one_to(5), 0.95));
  CHECK(median_interval(one_to(6), 0.95)->low == 1);
  CHECK(median_interval(one_to(6), 0.95)->high == 6);
  CHECK(median_interval(one_to(9), 0.95)->low == 2);
  CHECK(median_interval(one_to(20), 0.95)->low == 6);
  CHECK(median_interval(one_to(20), 0.95)->high == 15);
  CHECK(median_interval(one_to(100), 0.95)->low == 40);
  CHECK(median_interval(one_to(100), 0.95)->high == 61);
  CHECK(!median_interval(one_to(7), 0.99));
  CHECK(median_interval(one_to(8), 0.99)->low == 1);
  CHECK(!median_interval({}, 0.95));
  CHECK(!median_interval({3}, 0.95));
}

TEST_CASE("long series stay within the range of a double") {
  auto interval = median_interval(one_to(5000), 0.95);
  REQUIRE(interval);
  // n/2 - 0.98 sqrt(n), the normal approximation.
  CHECK(std::abs(interval->low - 2431) < 3);
  CHECK(std::abs(interval->high - 2570) < 3);
}

TEST_CASE("the interval covers the true median of a skewed distribution as often as it claims") {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform;
  int covered = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<double> samples(25);
    for (double& s : samples) s = -std::log(1 - uniform(random));  // exponential, median ln 2
    Interval interval = *median_interval(samples, 0.95);
    covered += interval.low <= std::log(2.0) && std::log(2.0) <= interval.high;
  }
  CHECK(covered >= 1880);
  CHECK(covered < 1990);  // an interval that always covers would be too wide to decide anything
}

}  // namespace
}  // namespace kachel::tuner
