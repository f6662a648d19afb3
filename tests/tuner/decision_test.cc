#include "tuner/decision.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "tuner/sessions.h"

namespace kachel::tuner {
namespace {

using Histories = std::vector<std::vector<SampleSet>>;

std::vector<size_t> order_of(const Histories& histories, const DecisionRules& rules = {},
                             const std::vector<size_t>& losers = {}) {
  std::vector<Contender> contenders;
  for (size_t i = 0; i < histories.size(); ++i)
    contenders.push_back({i, std::find(losers.begin(), losers.end(), i) == losers.end(), &histories[i]});
  std::vector<size_t> order;
  for (const Standing& s : rank(contenders, rules)) order.push_back(s.index);
  return order;
}

std::vector<double> repeat(double ns, size_t n) {
  return std::vector<double>(n, ns);
}

TEST_CASE("the fastest wins, and within the band the first listed") {
  CHECK(order_of({{{1, repeat(100, 10)}}, {{1, repeat(90, 10)}}, {{1, repeat(95, 10)}}}) ==
        std::vector<size_t>{1, 2, 0});
  CHECK(order_of({{{1, repeat(100.9, 10)}}, {{1, repeat(100, 10)}}}) == std::vector<size_t>{0, 1});
  CHECK(order_of({{{1, repeat(101.1, 10)}}, {{1, repeat(100, 10)}}}) == std::vector<size_t>{1, 0});
  CHECK(order_of({}).empty());
  CHECK(order_of({{{1, {5}}}}) == std::vector<size_t>{0});
}

TEST_CASE("noise widens the tie, but not without limit") {
  // Ratios of candidate 0 to candidate 1 scatter between 0.97 and 1.06 around 1.015.
  std::vector<double> noisy;
  for (int i = 0; i < 10; ++i) noisy.push_back(97 + i);
  CHECK(order_of({{{1, noisy}}, {{1, repeat(100, 10)}}}) == std::vector<size_t>{0, 1});
  for (double& ns : noisy) ns += 2;  // around 1.035: beyond the widest band
  CHECK(order_of({{{1, noisy}}, {{1, repeat(100, 10)}}}) == std::vector<size_t>{1, 0});
  // Too few samples for any interval count as noisy, and the limit holds for them too.
  CHECK(order_of({{{1, {101.5, 101.5}}}, {{1, {100, 100}}}}) == std::vector<size_t>{0, 1});
  CHECK(order_of({{{1, {103, 103}}}, {{1, {100, 100}}}}) == std::vector<size_t>{1, 0});
}

TEST_CASE("throttling in mid-series does not hide a difference of 3 %") {
  // The clock drops by 18 % half way; one outlier moves the plain median of the faster one into the slow half.
  std::vector<double> slow, fast;
  for (int round = 0; round < 21; ++round) {
    double clock = round < 10 ? 1.0 : 1.18;
    slow.push_back(103 * clock);
    fast.push_back(100 * clock);
  }
  slow[12] = slow[13] = 90;  // runs that the host's boost made fast
  fast[2] = fast[3] = 900;   // and two it disturbed
  CHECK(median(slow) < median(fast));
  CHECK(order_of({{{1, slow}}, {{1, fast}}}) == std::vector<size_t>{1, 0});
}

TEST_CASE("the ranking does not depend on the order of the contenders") {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> uniform(0.98, 1.02);
  Histories histories;
  for (int i = 0; i < 8; ++i) {
    SampleSet set{static_cast<uint64_t>(1 + i % 2), {}};
    for (int r = 0; r < 15; ++r) set.ns.push_back((100 + i % 3) * uniform(random));
    histories.push_back({set});
  }
  std::vector<Contender> contenders;
  for (size_t i = 0; i < histories.size(); ++i) contenders.push_back({i, i != 2, &histories[i]});
  std::vector<Standing> expected = rank(contenders, {});
  for (int shuffle = 0; shuffle < 50; ++shuffle) {
    std::shuffle(contenders.begin(), contenders.end(), random);
    std::vector<Standing> standings = rank(contenders, {});
    for (size_t i = 0; i < expected.size(); ++i) {
      CHECK(standings[i].index == expected[i].index);
      CHECK(standings[i].ratio == expected[i].ratio);
    }
  }
}

TEST_CASE("a pruned candidate takes its rank but never wins") {
  Histories histories{{{1, repeat(99, 3)}}, {{1, repeat(100, 20)}}, {{1, repeat(110, 20)}}};
  std::vector<size_t> order = order_of(histories, {}, {0});
  CHECK(order == std::vector<size_t>{1, 0, 2});
  // Unless nobody else is left.
  CHECK(order_of({{{1, repeat(99, 3)}}, {{1, repeat(100, 3)}}}, {}, {0, 1})[0] == 0);
}

TEST_CASE("sessions are scaled by the candidates that took part in both") {
  // Candidate 0 ran in a cool session (100) and in a throttled one (118); 1 only in the cool one, 2 only in the hot
  // one.
  Histories histories{{{1, repeat(100, 10)}, {2, repeat(118, 10)}}, {{1, repeat(104, 10)}}, {{2, repeat(112, 10)}}};
  CHECK(order_of(histories) == std::vector<size_t>{2, 0, 1});
  auto levels = session_levels({&histories[0], &histories[1], &histories[2]});
  CHECK(levels.at(1) == 1);
  CHECK(levels.at(2) == doctest::Approx(100.0 / 118));
}

TEST_CASE("rounds and blocks of a series count alike") {
  auto history = [](double rounds, double blocks) {
    return std::vector<SampleSet>{{1, repeat(rounds, 10)}, {2, repeat(blocks, 10)}};
  };
  // As far ahead in one as behind in the other is a tie, and so is nearly as far.
  CHECK(order_of({history(100, 103), history(103, 100)}) == std::vector<size_t>{0, 1});
  CHECK(order_of({history(103, 100), history(100, 103)}) == std::vector<size_t>{0, 1});
  CHECK(order_of({history(104, 100), history(100, 103)}) == std::vector<size_t>{0, 1});
  // Twice the band in one of them is none.
  CHECK(order_of({history(100, 102.1), history(100, 100)}) == std::vector<size_t>{1, 0});
  CHECK(order_of({history(102.1, 100), history(100, 100)}) == std::vector<size_t>{1, 0});
  const Histories two_sessions = {history(107, 100.5), history(100, 100), history(100.4, 100.9), history(97.5, 103)};
  CHECK(order_of(two_sessions) == std::vector<size_t>{1, 2, 3, 0});
  CHECK(order_of(two_sessions, {}, {3}) == std::vector<size_t>{1, 2, 3, 0});  // whoever may not win takes its rank
  // Between those of whom one was not in the rounds, or whose session before is another series', blocks decide alone.
  Histories newcomer = two_sessions;
  newcomer[1].erase(newcomer[1].begin());
  CHECK(order_of(newcomer) == std::vector<size_t>{0, 1, 2, 3});
  Histories two_series = two_sessions;
  for (std::vector<SampleSet>& sets : two_series) sets.back().session = 3;
  CHECK(order_of(two_series) == std::vector<size_t>{0, 1, 2, 3});
}

TEST_CASE("links may lead through other sessions, and unlinked sessions keep their level") {
  std::vector<SampleSet> a{{5, {100}}, {3, {200}}}, b{{3, {10}}, {9, {40}}}, c{{7, {1}}};
  auto levels = session_levels({&a, &b, &c});
  CHECK(levels.at(3) == 1);
  CHECK(levels.at(5) == 2);
  CHECK(levels.at(9) == 0.25);
  CHECK(levels.at(7) == 1);
  CHECK(session_levels({&c, &b, &a}) == levels);
  CHECK(session_levels({}).empty());
}

TEST_CASE("between sessions only the narrow band is a tie") {
  // Paired, this noise would widen the band to 2 %; between sessions it says nothing about the clock.
  std::vector<double> noisy;
  for (int i = 0; i < 11; ++i) noisy.push_back(96.6 + i);
  CHECK(order_of({{{1, noisy}}, {{1, repeat(100, 11)}}}) == std::vector<size_t>{0, 1});
  CHECK(order_of({{{1, noisy}}, {{2, repeat(100, 11)}}}) == std::vector<size_t>{1, 0});
}

}  // namespace
}  // namespace kachel::tuner
