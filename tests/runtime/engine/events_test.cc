// What the engine says of what it does: kinds, what they are about, and that the text log says the same.
#include <map>

#include "tests/runtime/engine/engine_fixture.h"

namespace kachel::runtime {
namespace {

using tuner::Policy;

// 32 x 16 is the fastest.
class Watched : public EngineFixture {
 public:
  explicit Watched(const std::string& store = "") : EngineFixture(store) {
    options.tune_budget_ns = 600'000'000'000;
    options.compile_threads = 1;
    options.log = [this](LogLevel level, std::string_view text) { texts.push_back({level, std::string(text)}); };
    options.events = [this](const Event& event) { events.push_back(event); };
    cost = [](int64_t bm, int64_t bn, const FakeLaunch&) { return bm == 32 && bn == 16 ? 5'000 : 10'000 + bm + bn; };
  }
  std::vector<Event> of(EventKind kind) const {
    std::vector<Event> found;
    for (const Event& event : events)
      if (event.kind == kind) found.push_back(event);
    return found;
  }
  std::vector<Event> events;
  std::vector<std::pair<LogLevel, std::string>> texts;
};

std::string text_of(const Event& event, const std::string& name) {
  for (const EventField& field : event.fields)
    if (field.name == name) return std::get<std::string>(field.value);
  return "(none)";
}
double number_of(const Event& event, const std::string& name) {
  for (const EventField& field : event.fields) {
    if (field.name != name) continue;
    if (const auto* whole = std::get_if<int64_t>(&field.value)) return static_cast<double>(*whole);
    return std::get<double>(field.value);
  }
  return -999;
}

TEST_CASE("a tuning says what was compiled, and who won") {
  Watched watched;
  auto kernel = watched.kernel();
  REQUIRE(watched.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  const auto compiled = watched.of(EventKind::kCompiled);
  CHECK(compiled.size() == 6);
  CHECK(compiled.size() == watched.engine()->stats().compiles);
  for (const Event& event : compiled) {
    CHECK(event.kernel == "scale");
    CHECK(event.key.size() == 32);
    CHECK(event.level == LogLevel::kDebug);
    CHECK(event.duration_ns > 0);
    CHECK(number_of(event, "bytes") > 0);
    CHECK(number_of(event, "generic") == 0);
  }
  const auto tuned = watched.of(EventKind::kTuned);
  REQUIRE(tuned.size() == 1);
  CHECK(tuned[0].level == LogLevel::kInfo);
  CHECK(text_of(tuned[0], "configuration") == "BM=32,BN=16");
  CHECK(number_of(tuned[0], "median_ns") == 5'000);
  CHECK(number_of(tuned[0], "candidates") == 6);
  CHECK(number_of(tuned[0], "measured") == 6);
  // The key is that of the store's entry.
  size_t found = 0;
  REQUIRE(watched.engine()
              ->store()
              .iterate(cache::Kind::kTuning,
                       [&](const cache::EntryView& entry) {
                         const cache::Digest digest = cache::digest_of(entry.key);
                         found += tuned[0].key == to_hex({reinterpret_cast<const char*>(digest.data()), digest.size()});
                         return true;
                       })
              .ok());
  CHECK(found == 1);
  // Nothing is said in another manner, and warm launches say nothing.
  REQUIRE(watched.texts.size() == watched.events.size());
  for (size_t i = 0; i < watched.texts.size(); ++i) {
    CHECK(watched.texts[i].first == watched.events[i].level);
    CHECK(watched.texts[i].second == watched.events[i].message);
  }
  const size_t before = watched.events.size();
  for (int i = 0; i < 10; ++i) REQUIRE(watched.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  CHECK(watched.events.size() == before);
}

TEST_CASE("after a restart the binary is loaded, and nothing else happens") {
  TempDir dir;
  {
    Watched watched(dir.path());
    REQUIRE(watched.scale(*watched.kernel(), 64, 64, Policy::kBlocking).ok());
  }
  Watched watched(dir.path());
  REQUIRE(watched.scale(*watched.kernel(), 64, 64, Policy::kBlocking).ok());
  REQUIRE(watched.events.size() == 1);
  CHECK(watched.events[0].kind == EventKind::kLoaded);
  CHECK(watched.events[0].kernel == "scale");
  CHECK(text_of(watched.events[0], "configuration") == "BM=32,BN=16");
  CHECK(watched.events[0].duration_ns > 0);
}

TEST_CASE("candidates that are wrong, refused, flawed or fail are named with the reason") {
  Watched watched;
  watched.wrong_tile = "64, 32";
  watched.refused_tile = "16, 32";
  watched.state().report_loss("fragment x: f32[32, 32]", "registers are spilled");
  watched.cost = [&](int64_t bm, int64_t bn, const FakeLaunch&) { return 10'000 + bm + bn; };
  REQUIRE(watched.scale(*watched.kernel(), 64, 64, Policy::kBlocking).ok());
  std::map<std::string, Event> by_configuration;
  for (EventKind kind : {EventKind::kCandidateRejected, EventKind::kCandidateFailed})
    for (const Event& event : watched.of(kind))
      CHECK(by_configuration.emplace(text_of(event, "configuration"), event).second);
  REQUIRE(by_configuration.size() == 3);
  const Event& wrong = by_configuration["BM=64,BN=32"];
  CHECK(wrong.kind == EventKind::kCandidateRejected);
  CHECK(wrong.level == LogLevel::kWarning);
  CHECK(text_of(wrong, "state") == "rejected_wrong");
  const Event& refused = by_configuration["BM=16,BN=32"];
  CHECK(refused.kind == EventKind::kCandidateFailed);
  CHECK(refused.level == LogLevel::kDebug);
  CHECK(text_of(refused, "reason").find("refused") != std::string::npos);
  const Event& flawed = by_configuration["BM=32,BN=32"];
  CHECK(flawed.kind == EventKind::kCandidateRejected);
  CHECK(text_of(flawed, "state") == "rejected_flaw");
  CHECK(text_of(flawed, "reason").find("registers are spilled") != std::string::npos);
}

TEST_CASE("an undecided key says by what it is served") {
  Watched watched;
  auto kernel = watched.kernel();
  REQUIRE(watched.scale(*kernel, 64, 64, Policy::kOff).ok());
  REQUIRE(watched.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  REQUIRE(watched.scale(*kernel, 80, 64, Policy::kOff).ok());
  const auto served = watched.of(EventKind::kServedUndecided);
  REQUIRE(served.size() == 2);
  CHECK(text_of(served[0], "source") == "list");
  CHECK(text_of(served[0], "configuration") == "BM=16,BN=16");
  CHECK(text_of(served[1], "source") == "nearest_key");
  CHECK(text_of(served[1], "configuration") == "BM=32,BN=16");
  CHECK(served[0].key != served[1].key);
}

TEST_CASE("a demotion names both configurations, a lost device is said once") {
  Watched watched;
  auto kernel = watched.kernel();
  REQUIRE(watched.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  watched.state().fail(FakeCall::kLaunch, 1, {Code::kLaunch, "too many resources requested"});
  REQUIRE(watched.scale(*kernel, 64, 64, Policy::kBlocking).ok());
  const auto demoted = watched.of(EventKind::kDemoted);
  REQUIRE(demoted.size() == 1);
  CHECK(text_of(demoted[0], "configuration") == "BM=32,BN=16");
  CHECK(text_of(demoted[0], "replaced_by") == "BM=16,BN=16");
  CHECK(text_of(demoted[0], "reason") == "too many resources requested");
  CHECK(demoted[0].key == watched.of(EventKind::kTuned).at(0).key);
  watched.state().lose();
  for (int i = 0; i < 3; ++i) CHECK(watched.scale(*kernel, 64, 64, Policy::kBlocking).code() == Code::kDeviceLost);
  const auto lost = watched.of(EventKind::kDeviceLost);
  REQUIRE(lost.size() == 1);
  CHECK(lost[0].level == LogLevel::kError);
}

TEST_CASE("a key that cannot be tuned in the background says so") {
  Watched watched;
  watched.options.background_bytes = 4096;
  REQUIRE(watched.scale(*watched.kernel(), 64, 64, Policy::kBackground).ok());
  REQUIRE(watched.engine()->background().wait(60'000'000'000));
  const auto untuned = watched.of(EventKind::kUntuned);
  REQUIRE(untuned.size() == 1);
  CHECK(untuned[0].kernel == "scale");
  CHECK(untuned[0].key.size() == 32);
}

}  // namespace
}  // namespace kachel::runtime
