// Tunings as text: what goes out comes back to the last bit, and nothing else comes in.
#include "runtime/engine/report/tunings_json.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "support/bytes.h"
#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

using Json = nlohmann::ordered_json;
using tuner::Policy;

std::string exported(EngineFixture& fixture) {
  auto text = tunings_to_json(fixture.engine()->store());
  REQUIRE_MESSAGE(text.ok(), text.status().message());
  return *text;
}

std::map<std::string, std::string> tunings_of(EngineFixture& fixture) {
  std::map<std::string, std::string> entries;
  REQUIRE(fixture.engine()
              ->store()
              .iterate(std::nullopt,
                       [&](const cache::EntryView& view) {
                         if (view.kind != cache::Kind::kPlan)
                           entries.emplace(std::string(view.key), std::string(view.payload));
                         return true;
                       })
              .ok());
  return entries;
}

TEST_CASE("an engine that has taken in another's tunings measures nothing and chooses the same") {
  EngineFixture one, other;
  one.cost =
      other.cost = [](int64_t bm, int64_t bn, const FakeLaunch&) { return bm == 32 && bn == 16 ? 5'000 : 9'000; };
  auto kernel = one.kernel();
  for (int64_t m : {100, 300}) REQUIRE(one.scale(*kernel, m, 200, Policy::kBlocking).ok());
  const std::string text = exported(one);
  const auto imported = tunings_from_json(other.engine()->store(), text);
  REQUIRE_MESSAGE(imported.ok(), imported.status().message());
  CHECK(*imported == 2 * (1 + 6));
  CHECK(tunings_of(other) == tunings_of(one));
  CHECK(exported(other).size() == text.size());
  auto same = other.kernel();
  REQUIRE(other.scale(*same, 300, 200, Policy::kBlocking).ok());
  CHECK(other.engine()->stats().measurements == 0);
}

TEST_CASE("the text says in words what it holds, and the program once") {
  EngineFixture fixture;
  auto kernel = fixture.kernel();
  for (int64_t m : {100, 300}) REQUIRE(fixture.scale(*kernel, m, 200, Policy::kBlocking).ok());
  const Json all = Json::parse(exported(fixture));
  CHECK(all["kachel_tunings"] == 1);
  REQUIRE(all["bodies"].size() == 1);
  CHECK(all["bodies"][0].get<std::string>().find("kernel ") == 0);
  int decisions = 0;
  for (const Json& entry : all["entries"]) {
    CHECK(entry["kernel"] == "scale");
    CHECK((entry["key_values"] == Json{100, 200} || entry["key_values"] == Json{300, 200}));
    CHECK(entry["device"].get<std::string>() != "");
    if (entry["kind"] == "tuning") {
      ++decisions;
      CHECK(entry["candidates"] == 6);
      CHECK(entry["ranked"][0]["median_ns"].get<double>() > 0);
    } else {
      CHECK(entry["description"].get<std::string>().find("BM=") == 0);
      CHECK((entry["state"] == "measured" || entry["state"] == "pruned"));
      CHECK(entry["sessions"][0].size() > 0);
    }
  }
  CHECK(decisions == 2);
  EngineFixture empty;
  CHECK(Json::parse(exported(empty))["entries"].size() == 0);
}

TEST_CASE("a text with anything wrong in it changes nothing") {
  EngineFixture one, other;
  auto kernel = one.kernel();
  REQUIRE(one.scale(*kernel, 100, 200, Policy::kBlocking).ok());
  const Json good = Json::parse(exported(one));
  cache::Store& store = other.engine()->store();
  auto refused = [&](const Json& text, const char* why) {
    const auto result = tunings_from_json(store, text.dump());
    CAPTURE(text.dump().substr(0, 200));
    CHECK(!result.ok());
    CHECK_MESSAGE(result.status().message().find(why) != std::string::npos, result.status().message());
    CHECK(tunings_of(other).empty());
  };
  for (const char* text : {"", "{", "[]", "null", "{}", "\"x\""}) {
    CAPTURE(text);
    CHECK(tunings_from_json(store, text).status().code() == Code::kInvalid);
  }
  Json bad = good;
  bad["kachel_tunings"] = 2;
  refused(bad, "version 1");
  const size_t last = good["entries"].size() - 1;
  for (const char* field : {"key", "record", "body", "body_at"})
    for (const Json& value :
         {Json(nullptr), Json("xyz"), Json("abc"), Json(-1), Json(1e9), Json::array(), Json("00")}) {
      bad = good;
      bad["entries"][last][field] = value;
      refused(bad, "entry ");
      bad["entries"][last].erase(field);
      refused(bad, "entry ");
    }
  bad = good;
  bad["bodies"][0] = 0;
  refused(bad, "bodies");
  bad = good;
  bad["bodies"] = Json::array();
  refused(bad, "beyond what there is");
  // A binary is no tuning, whatever it claims.
  for (const auto& digit : {0, 1, 7}) {
    bad = good;
    std::string key = bad["entries"][0]["key"];
    key[2 * static_cast<size_t>(digit)] ^= 1;
    bad["entries"][0]["key"] = key;
    const auto result = tunings_from_json(store, bad.dump());
    if (!result.ok()) CHECK(tunings_of(other).empty());
  }
}

TEST_CASE("hexadecimal digits") {
  CHECK(from_hex("") == "");
  CHECK(from_hex("00ffA5") == std::string("\0\xff\xa5", 3));
  CHECK(from_hex(to_hex("any \x01 bytes")) == "any \x01 bytes");
  for (const char* text : {"0", "0g", "0x12", " 0", "g0", "@0", "`0", "/0", ":0"}) CHECK(!from_hex(text));
}

}  // namespace
}  // namespace kachel::runtime
