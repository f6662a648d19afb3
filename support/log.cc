#include "support/log.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>

namespace kachel {
namespace {

uint64_t now_us() {
  using namespace std::chrono;
  return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

std::optional<LogLevel> level_of(std::string_view name) {
  for (LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError})
    if (name == level_name(level)) return level;
  return std::nullopt;
}

// One write a line keeps lines whole.
void put_line(const std::string& line) {
  std::fwrite(line.data(), 1, line.size(), stderr);
}

Log::EventSink stderr_sink() {
  const char* set = std::getenv("KACHEL_LOG");
  if (!set || !*set) return {};
  std::string_view wanted = set;
  const bool json = wanted.starts_with("json");
  if (json) wanted = wanted.size() == 4 ? "debug" : wanted[4] == ':' ? wanted.substr(5) : "";
  const auto least = level_of(wanted);
  if (!least) {
    static std::atomic<bool> said{false};
    if (!said.exchange(true))
      put_line(fmt::format(
          "kachel: KACHEL_LOG is `{}`; write debug, info, warning or error, or json:info for lines of JSON\n", set));
    return {};
  }
  return [json, least](const Event& event) {
    if (event.level < *least) return;
    put_line(json ? to_json(event) + '\n' : fmt::format("kachel {}: {}\n", level_name(event.level), event.message));
  };
}

}  // namespace

Log::Log(Sink sink, EventSink events, size_t kept)
    : sink_(std::move(sink)), events_(std::move(events)), most_kept_(kept) {
  if (!heard()) events_ = stderr_sink();
}

void Log::write(Event event) {
  if (!heard()) return;
  event.unix_us = now_us();
  std::lock_guard lock(mutex_);
  if (sink_) sink_(event.level, event.message);
  if (events_) events_(event);
  if (most_kept_ == 0) return;
  if (kept_.size() == most_kept_) kept_.pop_front(), ++lost_;
  kept_.push_back(to_json(event));
}

void Log::once(const std::string& topic, Event event) {
  {
    std::lock_guard lock(mutex_);
    if (!seen_.insert(topic).second) return;
  }
  write(std::move(event));
}

std::string Log::take() {
  std::deque<std::string> taken;
  Event lost{.kind = EventKind::kLost, .level = LogLevel::kWarning};
  {
    std::lock_guard lock(mutex_);
    taken.swap(kept_);
    lost.fields.emplace_back("events", lost_);
    lost.message =
        fmt::format("{} events before these were not taken in time; take them more often, or keep more", lost_);
    if (std::exchange(lost_, 0) > 0) {
      lost.unix_us = now_us();
      taken.push_front(to_json(lost));
    }
  }
  std::string text;
  for (const std::string& line : taken) (text += line) += '\n';
  return text;
}

}  // namespace kachel
