// Events as lines of JSON, and from one process to another.
#include "support/event.h"

#include <doctest/doctest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace kachel {
namespace {

Event sample() {
  Event event{.kind = EventKind::kTuned,
              .level = LogLevel::kWarning,
              .message = "kernel `a` tuned",
              .kernel = "a",
              .key = "00ff",
              .duration_ns = 1500,
              .fields = {{"configuration", std::string("BM=64")},
                         {"median_ns", 12.5},
                         {"least", std::numeric_limits<int64_t>::min()},
                         {"large", 1e300}}};
  event.unix_us = 1'700'000'000'000'000;
  return event;
}

TEST_CASE("an event is one line of JSON, members in one order") {
  const std::string line = to_json(sample());
  CHECK(line.find('\n') == line.npos);
  const auto json = nlohmann::ordered_json::parse(line);
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"time_us", "level", "event", "kernel", "key", "duration_ns", "configuration",
                                          "median_ns", "least", "large", "message"});
  CHECK(json["time_us"] == 1'700'000'000'000'000);
  CHECK(json["level"] == "warning");
  CHECK(json["event"] == "tuned");
  CHECK(json["duration_ns"] == 1500);
  CHECK(json["configuration"] == "BM=64");
  CHECK(json["median_ns"] == 12.5);
  CHECK(json["least"] == std::numeric_limits<int64_t>::min());
  CHECK(json["large"] == 1e300);
  CHECK(json["message"] == "kernel `a` tuned");
}

TEST_CASE("what there is none of is left out") {
  const auto json = nlohmann::json::parse(to_json({.message = "m"}));
  CHECK(json.size() == 4);
  CHECK(json["event"] == "message");
}

TEST_CASE("what is no number is null") {
  const auto json = nlohmann::json::parse(to_json(
      {.fields = {{"a", std::numeric_limits<double>::quiet_NaN()}, {"b", std::numeric_limits<double>::infinity()}}}));
  CHECK(json["a"].is_null());
  CHECK(json["b"].is_null());
}

TEST_CASE("any bytes give valid JSON, and text is kept") {
  const std::string text = "\"quoted\" back\\slash\ttab\nline \x01 \x7f caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8e\xb2";
  CHECK(nlohmann::json::parse(to_json({.message = text}))["message"] == text);
  CHECK(nlohmann::json::parse(to_json({.message = std::string("a\0b", 3)}))["message"] == std::string("a\0b", 3));
  const std::string replaced = "\xef\xbf\xbd";
  // Alone, cut short, overlong, a surrogate, beyond the last character.
  for (const char* bad : {"\x80", "\xff", "\xc3", "\xe2\x82", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
                          "\xf4\x90\x80\x80", "\xf0\x80\x80\x80", "\xf8\x88\x80\x80\x80"}) {
    const std::string line = to_json({.message = std::string("<") + bad + ">"});
    CAPTURE(line);
    const auto json = nlohmann::json::parse(line);
    const std::string shown = json["message"];
    CHECK(shown.find(replaced) != shown.npos);
    CHECK(shown.front() == '<');
    CHECK(shown.back() == '>');
  }
}

TEST_CASE("every kind and level has a name of its own") {
  std::set<std::string_view> names;
  for (int32_t kind = 0; kind < static_cast<int32_t>(EventKind::kCount); ++kind) {
    const std::string_view name = event_name(static_cast<EventKind>(kind));
    CHECK(!name.empty());
    CHECK(names.insert(name).second);
  }
  CHECK(event_name(EventKind::kMessage) == "message");
  CHECK(event_name(EventKind::kCandidateTimedOut) == "candidate_timed_out");
  CHECK(event_name(EventKind::kRemoteFailed) == "remote_failed");
  CHECK(level_name(LogLevel::kError) == "error");
}

TEST_CASE("events travel between processes, and nothing else passes for one") {
  const Event sent = sample();
  const std::string bytes = encode_event(sent);
  const auto received = decode_event(bytes);
  REQUIRE(received.has_value());
  CHECK(received->unix_us == 0);
  Event same = *received;
  same.unix_us = sent.unix_us;
  CHECK(to_json(same) == to_json(sent));
  for (size_t size = 0; size < bytes.size(); ++size) CHECK_FALSE(decode_event(bytes.substr(0, size)).has_value());
  CHECK_FALSE(decode_event(bytes + "x").has_value());
  std::string strange = bytes;
  strange[0] = 99;  // a kind
  CHECK_FALSE(decode_event(strange).has_value());
  strange = bytes;
  strange[4] = 4;  // a level
  CHECK_FALSE(decode_event(strange).has_value());
}

}  // namespace
}  // namespace kachel
