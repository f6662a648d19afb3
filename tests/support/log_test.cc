// Where events go: to sinks, to memory, to standard error.
#include "support/log.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

namespace kachel {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// What `body` writes to standard error, with KACHEL_LOG set to `value`.
std::string stderr_of(const char* value, const std::function<void()>& body) {
  std::FILE* file = std::tmpfile();
  REQUIRE(file);
  std::fflush(stderr);
  const int kept = ::dup(2);
  ::dup2(::fileno(file), 2);
  ::setenv("KACHEL_LOG", value, 1);
  body();
  ::unsetenv("KACHEL_LOG");
  std::fflush(stderr);
  ::dup2(kept, 2);
  ::close(kept);
  std::string text;
  std::rewind(file);
  for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

TEST_CASE("the text is the message of the event, and both come in one order") {
  std::vector<std::string> texts, messages;
  std::vector<EventKind> kinds;
  Log log([&](LogLevel level,
              std::string_view text) { texts.push_back(std::string(level_name(level)) + std::string(text)); },
          [&](const Event& event) {
            messages.push_back(std::string(level_name(event.level)) + event.message);
            kinds.push_back(event.kind);
            CHECK(event.unix_us > 1'600'000'000'000'000);
          });
  log.write(LogLevel::kInfo, "one");
  log.write({.kind = EventKind::kTuned, .level = LogLevel::kError, .message = "two"});
  log.once("topic", {.kind = EventKind::kDemoted, .message = "three"});
  log.once("topic", {.kind = EventKind::kDemoted, .message = "four"});
  log.once(LogLevel::kWarning, "topic", "five");
  CHECK(texts == std::vector<std::string>{"infoone", "errortwo", "infothree"});
  CHECK(messages == texts);
  CHECK(kinds == std::vector<EventKind>{EventKind::kMessage, EventKind::kTuned, EventKind::kDemoted});
}

TEST_CASE("the latest events are kept until they are taken") {
  Log log({}, {}, 3);
  CHECK(log.heard());
  CHECK(log.take().empty());
  for (int i = 0; i < 5; ++i) log.write(LogLevel::kInfo, std::to_string(i));
  std::vector<std::string> lines = lines_of(log.take());
  REQUIRE(lines.size() == 4);
  const auto lost = nlohmann::json::parse(lines[0]);
  CHECK(lost["event"] == "lost");
  CHECK(lost["events"] == 2);
  for (int i = 2; i < 5; ++i)
    CHECK(nlohmann::json::parse(lines[static_cast<size_t>(i) - 1])["message"] == std::to_string(i));
  CHECK(log.take().empty());
  log.write(LogLevel::kInfo, "more");
  lines = lines_of(log.take());
  REQUIRE(lines.size() == 1);
  CHECK(nlohmann::json::parse(lines[0])["message"] == "more");
}

TEST_CASE("threads write and take at once, and nothing is lost unsaid") {
  Log log({}, {}, 16);
  constexpr int kThreads = 4, kEach = 500;
  std::atomic<int> left{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) log.write(LogLevel::kInfo, "x");
      --left;
    });
  int64_t seen = 0;
  auto count = [&] {
    for (const std::string& line : lines_of(log.take())) {
      const auto json = nlohmann::json::parse(line);
      seen += json["event"] == "lost" ? json["events"].get<int64_t>() : 1;
    }
  };
  while (left > 0) count();
  for (std::thread& thread : threads) thread.join();
  count();
  CHECK(seen == kThreads * kEach);
}

TEST_CASE("nobody listens unless somebody asks") {
  ::unsetenv("KACHEL_LOG");
  CHECK_FALSE(Log().heard());
  CHECK(Log([](LogLevel, std::string_view) {}).heard());
}

TEST_CASE("KACHEL_LOG chooses level and form") {
  auto write = [] {
    Log log;
    log.write(LogLevel::kInfo, "quiet");
    log.write({.kind = EventKind::kDemoted, .level = LogLevel::kWarning, .message = "loud", .kernel = "k"});
  };
  CHECK(stderr_of("", write).empty());
  CHECK(stderr_of("warning", write) == "kachel warning: loud\n");
  CHECK(stderr_of("debug", write) == "kachel info: quiet\nkachel warning: loud\n");
  std::vector<std::string> lines = lines_of(stderr_of("json:warning", write));
  REQUIRE(lines.size() == 1);
  CHECK(nlohmann::json::parse(lines[0])["kernel"] == "k");
  CHECK(lines_of(stderr_of("json", write)).size() == 2);
  // A host's own sinks replace it.
  CHECK(stderr_of("debug", [] { Log({}, [](const Event&) {}).write(LogLevel::kError, "x"); }).empty());
}

TEST_CASE("a value of KACHEL_LOG that means nothing is said once, with what does") {
  const std::string text = stderr_of("jsn", [] {
    Log log, other;
    CHECK_FALSE(log.heard());
    log.write(LogLevel::kError, "x");
  });
  CHECK(text.find("KACHEL_LOG is `jsn`; write debug, info, warning or error, or json:info") != text.npos);
  CHECK(lines_of(text).size() == 1);
}

}  // namespace
}  // namespace kachel
