#include <doctest/doctest.h>

#include <limits>

#include "support/bytes.h"
#include "tuner/candidate.h"
#include "tuner/result.h"

namespace kachel::tuner {
namespace {

CandidateRecord sample_candidate() {
  CandidateRecord record{.configuration = *Configuration::parse("BM=64,BN=128"),
                         .state = CandidateState::kMeasured,
                         .flaw = "spills",
                         .message = "a word",
                         .compile_ns = 123'456'789};
  record.samples = {{17, {10.5, 11.25}}, {std::numeric_limits<uint64_t>::max(), {9, 9.5, 9.25, 9.125, 9, 9, 8.75}}};
  record.summarize();
  return record;
}

WinnerRecord sample_winner() {
  WinnerRecord record{.candidates = 9, .total_ns = 77, .budget_exhausted = true};
  record.ranked = {{*Configuration::parse("a=1"), 10, {9, 11}}, {*Configuration::parse("a=2"), 12, {12, 12}}};
  record.counters = {.compiled = 1, .compile_failed = 2, .checked = 3, .rejected = 4, .measured = 5, .timed_runs = 7};
  return record;
}

// Whatever decodes must be something that the encoder can have written.
template <class Decode, class Encode>
void attack(const std::string& good, Decode decode, Encode encode) {
  REQUIRE(decode(good));
  CHECK(encode(*decode(good)) == good);
  for (size_t size = 0; size < good.size(); ++size) CHECK(!decode(std::string_view(good).substr(0, size)));
  CHECK(!decode(good + '\0'));
  size_t refused = 0;
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    auto decoded = decode(bad);
    if (decoded)
      CHECK(encode(*decoded) == bad);
    else
      ++refused;
  }
  CHECK(refused > good.size());  // lengths, counts, the version and names hold most bits to a single value
  for (size_t at = 0; at + 8 <= good.size(); ++at) {  // absurd lengths and counts at every place
    std::string bad = good;
    bad.replace(at, 8, 8, '\xff');
    auto decoded = decode(bad);
    if (decoded) CHECK(encode(*decoded) == bad);
  }
}

TEST_CASE("candidate records survive the trip and malformed ones are refused") {
  CandidateRecord record = sample_candidate();
  std::string bytes = encode_candidate(record);
  CandidateRecord back = *decode_candidate(bytes);
  CHECK(back.configuration == record.configuration);
  CHECK(back.state == record.state);
  CHECK(back.flaw == record.flaw);
  CHECK(back.message == record.message);
  CHECK(back.compile_ns == record.compile_ns);
  REQUIRE(back.samples.size() == 2);
  CHECK(back.samples[1].session == record.samples[1].session);
  CHECK(back.samples[1].ns == record.samples[1].ns);
  CHECK(back.median_ns == 9);
  CHECK(back.ci.low == 8.75);
  CHECK(back.ci.high == 9.5);
  attack(bytes, decode_candidate, encode_candidate);
}

TEST_CASE("a failed candidate needs no samples, a measured one does") {
  CandidateRecord record{.configuration = {}, .state = CandidateState::kRejectedWrong, .message = "C[0] off by 3"};
  CHECK(decode_candidate(encode_candidate(record))->message == "C[0] off by 3");
  record.state = CandidateState::kMeasured;
  CHECK(!decode_candidate(encode_candidate(record)));
  record.state = CandidateState::kRejectedFlaw;
  CHECK(!decode_candidate(encode_candidate(record)));
  record.flaw = "spills 8 bytes";
  CHECK(decode_candidate(encode_candidate(record))->flaw == "spills 8 bytes");
}

TEST_CASE("samples that are no times are refused") {
  for (double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    CandidateRecord record = sample_candidate();
    record.samples[0].ns[1] = bad;
    CHECK(!decode_candidate(encode_candidate(record)));
  }
  CandidateRecord record = sample_candidate();
  record.samples[0].ns.clear();
  CHECK(!decode_candidate(encode_candidate(record)));
  record = sample_candidate();
  record.compile_ns = -1;
  CHECK(!decode_candidate(encode_candidate(record)));
}

TEST_CASE("configurations must be in canonical form") {
  std::string bytes = encode_candidate(sample_candidate());
  size_t at = bytes.find("BM=64");
  REQUIRE(at != std::string::npos);
  CHECK(!decode_candidate(std::string(bytes).replace(at, 5, "BM=04")));
  CHECK(!decode_candidate(std::string(bytes).replace(at, 5, "BN=64")));  // BN twice
}

TEST_CASE("winner records survive the trip and malformed ones are refused") {
  WinnerRecord record = sample_winner();
  std::string bytes = encode_winner(record);
  WinnerRecord back = *decode_winner(bytes);
  REQUIRE(back.ranked.size() == 2);
  CHECK(back.ranked[1].configuration.text() == "a=2");
  CHECK(back.ranked[0].ci.high == 11);
  CHECK(back.counters == record.counters);
  CHECK(back.candidates == 9);
  CHECK(back.total_ns == 77);
  CHECK(back.budget_exhausted);
  attack(bytes, decode_winner, encode_winner);

  record.ranked.clear();
  CHECK(!decode_winner(encode_winner(record)));
  record = sample_winner();
  record.ranked[1].configuration = record.ranked[0].configuration;
  CHECK(!decode_winner(encode_winner(record)));
  record = sample_winner();
  record.candidates = 1;
  CHECK(!decode_winner(encode_winner(record)));
  record = sample_winner();
  record.ranked[0].ci = {11, 12};  // the median lies outside
  CHECK(!decode_winner(encode_winner(record)));
}

TEST_CASE("the top three of a ranking are stored") {
  TuningResult result{.winner = 2, .ranking = {2, 0, 3, 1}, .total_ns = 5};
  for (int i = 0; i < 4; ++i) {
    CandidateRecord& c = result.candidates.emplace_back();
    c.configuration = *Configuration::make({{"i", i}});
    c.samples = {{1, {10.0 + i}}};
    c.summarize();
  }
  WinnerRecord record = winner_record(result);
  REQUIRE(record.ranked.size() == 3);
  CHECK(record.ranked[0].configuration.text() == "i=2");
  CHECK(record.ranked[2].configuration.text() == "i=3");
  CHECK(record.ranked[2].median_ns == 13);
  CHECK(record.candidates == 4);
  CHECK(decode_winner(encode_winner(record)));
}

}  // namespace
}  // namespace kachel::tuner
