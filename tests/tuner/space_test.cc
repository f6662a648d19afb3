#include "tuner/space.h"

#include <doctest/doctest.h>

#include <unordered_set>

#include "tuner/policy.h"

namespace kachel::tuner {
namespace {

using Axes = std::vector<Axis>;

std::vector<std::string> texts(const std::vector<Configuration>& configurations) {
  std::vector<std::string> out;
  for (const Configuration& c : configurations) out.push_back(c.text());
  return out;
}

bool mentions(const Status& status, std::string_view what) {
  return status.code() == Code::kInvalid && status.message().find(what) != std::string::npos;
}

TEST_CASE("a configuration prints and parses") {
  Configuration c = *Configuration::make({{"BM", 64}, {"BN", 128}, {"delta", -3}});
  CHECK(c.text() == "BM=64,BN=128,delta=-3");
  CHECK(*Configuration::parse(c.text()) == c);
  CHECK(c.get("BN") == 128);
  CHECK(!c.get("BK"));
  CHECK(Configuration::parse("")->text() == "");
  CHECK(*Configuration::parse("") == Configuration());
  CHECK(*Configuration::parse(" BM=64,  BN=128 ") == *Configuration::parse("BM=64,BN=128"));
}

TEST_CASE("malformed configurations are refused with a way to mend them") {
  for (const char* text : {"BM", "BM=", "=64", "BM=64,", ",BM=64", "BM=64,,BN=1", "BM=6x", "BM=6 4", "4M=1", "B M=1",
                           "BM=99999999999999999999", "BM=1=2", "BM=+1", "B-M=1"}) {
    CAPTURE(text);
    CHECK(Configuration::parse(text).status().code() == Code::kInvalid);
  }
  CHECK(mentions(Configuration::parse("BM=1,BM=2").status(), "'BM' twice"));
  CHECK(mentions(Configuration::parse("oops").status(), "NAME=NUMBER"));
}

TEST_CASE("order matters for equality, not for the key") {
  Configuration ab = *Configuration::parse("a=1,b=2"), ba = *Configuration::parse("b=2,a=1");
  CHECK(ab != ba);
  CHECK(ab < ba);
  CHECK(ab.key() == ba.key());
  CHECK(ab.key() != Configuration::parse("a=1,b=3")->key());
  std::unordered_set<Configuration> set{ab, ba, *Configuration::parse("a=1,b=2")};
  CHECK(set.size() == 2);
}

TEST_CASE("a space enumerates in declared order, the last axis fastest") {
  SearchSpace space(Axes{{"BM", {128, 64}}, {"BN", {32, 64}}});
  CHECK(texts(*space.enumerate()) ==
        std::vector<std::string>{"BM=128,BN=32", "BM=128,BN=64", "BM=64,BN=32", "BM=64,BN=64"});
  SearchSpace pruned(Axes{{"BM", {128, 64}}, {"BN", {32, 64}}},
                     [](const Configuration& c) { return *c.get("BM") * *c.get("BN") <= 4096; });
  CHECK(texts(*pruned.enumerate()) == std::vector<std::string>{"BM=128,BN=32", "BM=64,BN=32", "BM=64,BN=64"});
  CHECK(texts(*SearchSpace(Axes{}).enumerate()) == std::vector<std::string>{""});
}

TEST_CASE("malformed and overlarge spaces say how to mend them") {
  auto status = [](SearchSpace space) { return space.enumerate().status(); };
  CHECK(mentions(status(SearchSpace(Axes{{"BM", {}}})), "at least one"));
  CHECK(mentions(status(SearchSpace(Axes{{"BM", {1, 2, 1}}})), "lists 1 twice"));
  CHECK(mentions(status(SearchSpace(Axes{{"BM", {1}}, {"BM", {2}}})), "declared twice"));
  CHECK(mentions(status(SearchSpace(Axes{{"B=M", {1}}})), "not a name"));
  CHECK(mentions(status(SearchSpace(Axes{{"BM", {1}}}, [](const Configuration&) { return false; })), "drops all 1"));

  std::vector<int64_t> values(64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i);
  CHECK(SearchSpace(Axes{{"a", values}, {"b", values}}).enumerate()->size() == 4096);
  CHECK(mentions(status(SearchSpace(Axes{{"a", values}, {"b", values}, {"c", {0, 1}}})), "'where'"));
  // Pruning brings a larger product below the limit.
  auto even = [](const Configuration& c) { return *c.get("c") == 0; };
  CHECK(SearchSpace(Axes{{"a", values}, {"b", values}, {"c", {0, 1}}}, even).enumerate()->size() == 4096);
  auto one_more = [&](const Configuration& c) { return even(c) || (*c.get("a") == 63 && *c.get("b") == 63); };
  CHECK(mentions(status(SearchSpace(Axes{{"a", values}, {"b", values}, {"c", {0, 1}}}, one_more)), "more than 4096"));
  // But no predicate makes a product of 2^30 points worth walking through.
  auto none = [](const Configuration&) { return false; };
  CHECK(mentions(
      status(SearchSpace(Axes{{"a", values}, {"b", values}, {"c", values}, {"d", values}, {"e", values}}, none)),
      "fewer values"));
}

TEST_CASE("policies print and parse") {
  for (Policy policy : {Policy::kOff, Policy::kCachedOnly, Policy::kBackground, Policy::kBlocking})
    CHECK(*parse_policy(policy_name(policy)) == policy);
  CHECK(policy_name(Policy::kCachedOnly) == "cached_only");
  CHECK(mentions(parse_policy("Off").status(), "cached_only"));
}

}  // namespace
}  // namespace kachel::tuner
