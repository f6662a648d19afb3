#include "cache/key.h"

#include <doctest/doctest.h>

#include <limits>
#include <map>
#include <set>

#include "cache/default_path.h"
#include "tests/cache/support.h"

namespace kachel::cache {
namespace {

using testing::Random;

TEST_CASE("a key is the same for the same fields and keeps its canonical bytes") {
  auto build = [] { return KeyBuilder(Kind::kPlan).text("body", "x").u64("facts", 3).boolean("wide", true).finish(); };
  Key a = build(), b = build();
  CHECK(a == b);
  CHECK(a.hex() == b.hex());
  CHECK(a.hex().size() == 32);
  CHECK(a.digest == digest_of(a.bytes));
}

// The digest names entries in stores that already exist: it must not drift between releases.
TEST_CASE("canonical bytes and digest are fixed") {
  Key key = KeyBuilder(Kind::kTuning).text("a", "bc").u64("n", 258).finish();
  CHECK(to_hex(key.bytes) ==
        "4b4b6579"
        "01"
        "02"
        "01"
        "0100000000000000"
        "61"
        "0200000000000000"
        "6263"
        "03"
        "0100000000000000"
        "6e"
        "0201000000000000");
  CHECK(to_hex({reinterpret_cast<const char*>(digest_of("").data()), 16}) == "99aa06d3014798d86001c324468d497f");
}

TEST_CASE("every ingredient changes the key") {
  std::vector<Key> keys;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (Kind kind : {Kind::kPlan, Kind::kTuning, Kind::kSample, Kind::kProgram}) {
    keys.push_back(KeyBuilder(kind).finish());
    keys.push_back(KeyBuilder(kind).text("a", "").finish());
    keys.push_back(KeyBuilder(kind).bytes("a", "").finish());
    keys.push_back(KeyBuilder(kind).text("b", "").finish());
    keys.push_back(KeyBuilder(kind).text("", "a").finish());
    keys.push_back(KeyBuilder(kind).text("a", "b").finish());
    keys.push_back(KeyBuilder(kind).text("ab", "").finish());
    keys.push_back(KeyBuilder(kind).text("a", "").text("b", "").finish());
    keys.push_back(KeyBuilder(kind).text("b", "").text("a", "").finish());
    keys.push_back(KeyBuilder(kind).u64("a", 0).finish());
    keys.push_back(KeyBuilder(kind).i64("a", 0).finish());
    keys.push_back(KeyBuilder(kind).i64("a", -1).finish());
    keys.push_back(KeyBuilder(kind).u64("a", ~uint64_t{0}).finish());
    keys.push_back(KeyBuilder(kind).f64("a", 0.0).finish());
    keys.push_back(KeyBuilder(kind).f64("a", -0.0).finish());
    keys.push_back(KeyBuilder(kind).f64("a", nan).finish());
    keys.push_back(KeyBuilder(kind).boolean("a", false).finish());
    keys.push_back(KeyBuilder(kind).boolean("a", true).finish());
    keys.push_back(KeyBuilder(kind).u64s("a", {}).finish());
    uint64_t values[] = {0, 1};
    keys.push_back(KeyBuilder(kind).u64s("a", values).finish());
    keys.push_back(KeyBuilder(kind).u64s("a", {values, 1}).finish());
  }
  std::set<std::string> bytes, digests;
  for (const Key& key : keys) {
    bytes.insert(key.bytes);
    digests.insert(key.hex());
  }
  CHECK(bytes.size() == keys.size());
  CHECK(digests.size() == keys.size());
}

// If every sequence of fields can be read back from its bytes, no two sequences share them.
TEST_CASE("random keys parse back to their fields") {
  Random random(7);
  auto any_text = [&] {
    std::string text(random.below(6), '\0');
    for (char& c : text) c = static_cast<char>(random.below(4));
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    Kind kind = static_cast<Kind>(1 + random.below(4));
    KeyBuilder builder(kind);
    struct Field {
      FieldType type;
      std::string name, value;
    };
    std::vector<Field> fields;
    for (uint64_t n = random.below(6); n > 0; --n) {
      std::string name = any_text();
      ByteWriter value;
      FieldType type = static_cast<FieldType>(1 + random.below(7));
      uint64_t bits = random.next();
      std::string text = any_text();
      std::vector<uint64_t> list(random.below(3), bits);
      switch (type) {
        case FieldType::kText:
          builder.text(name, text);
          break;
        case FieldType::kBytes:
          builder.bytes(name, text);
          break;
        case FieldType::kU64:
          builder.u64(name, bits), value.put<uint64_t>(bits);
          break;
        case FieldType::kI64:
          builder.i64(name, -5), value.put<int64_t>(-5);
          break;
        case FieldType::kBool:
          builder.boolean(name, bits & 1), value.put<uint8_t>(bits & 1);
          break;
        case FieldType::kF64:
          builder.f64(name, 1.5), value.put<double>(1.5);
          break;
        case FieldType::kU64s:
          builder.u64s(name, list);
          for (uint64_t item : list) value.put<uint64_t>(item);
      }
      bool textual = type == FieldType::kText || type == FieldType::kBytes;
      fields.push_back({type, name, textual ? text : value.bytes()});
    }
    Key key = builder.finish();
    auto parsed = parse_key(key.bytes);
    REQUIRE(parsed.ok());
    REQUIRE(parsed->kind == kind);
    REQUIRE(parsed->fields.size() == fields.size());
    for (size_t i = 0; i < fields.size(); ++i) {
      REQUIRE(parsed->fields[i].type == fields[i].type);
      REQUIRE(parsed->fields[i].name == fields[i].name);
      REQUIRE(parsed->fields[i].value == fields[i].value);
    }
    std::string cut = key.bytes.substr(0, random.below(key.bytes.size()));
    (void)describe_key(cut);
  }
}

TEST_CASE("a key describes itself") {
  uint64_t dims[] = {4, 5};
  Key key = KeyBuilder(Kind::kSample)
                .text("arch", "sm_90a")
                .i64("delta", -2)
                .boolean("exact", true)
                .u64s("dims", dims)
                .bytes("blob", "12345")
                .finish();
  CHECK(describe_key(key.bytes) == "sample arch=\"sm_90a\" delta=-2 exact=true dims=[4,5] blob=<5 bytes>");
  CHECK(describe_key("junk") == "<not the canonical bytes of a key>");
  CHECK(kind_name(static_cast<Kind>(77)) == "kind 77");
}

TEST_CASE("the default path follows the environment") {
  std::map<std::string, std::string> variables;
  auto path = [&] {
    return default_store_path([&](const char* name) -> const char* {
      auto it = variables.find(name);
      return it == variables.end() ? nullptr : it->second.c_str();
    });
  };
  CHECK(path() == "");
  variables["HOME"] = "relative";
  CHECK(path() == "");
  variables["HOME"] = "/home/u";
  CHECK(path() == "/home/u/.cache/kachel");
  variables["XDG_CACHE_HOME"] = "relative";
  CHECK(path() == "/home/u/.cache/kachel");
  variables["XDG_CACHE_HOME"] = "/x";
  CHECK(path() == "/x/kachel");
  variables["KACHEL_CACHE"] = "/k";
  CHECK(path() == "/k");
  variables["KACHEL_CACHE"] = "";
  CHECK(path() == "");
}

}  // namespace
}  // namespace kachel::cache
